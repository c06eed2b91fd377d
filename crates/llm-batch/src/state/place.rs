//! What tells a state folder from a copy of it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::digest::hash;
use crate::durable;
use crate::error::Error;

/// Tells machines apart where the file system alone does not: on a copy of the whole disk.
const MACHINE: &str = "/etc/machine-id";

/// Returns the same for the same folder, also when it is renamed, and something else for a copy of
/// it. A copy of the whole file system on the same machine, such as a snapshot, is not told apart.
pub(super) fn of(dir: &Path) -> Result<String, Error> {
    let folder = fs::metadata(dir).map_err(durable::io("read", dir))?;
    // Some file systems do not know it.
    let born = folder.created().ok();
    let machine = fs::read_to_string(MACHINE).unwrap_or_default();
    Ok(name(&machine, folder.ino(), born))
}

fn name(machine: &str, inode: u64, born: Option<SystemTime>) -> String {
    let born = born.and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    let born = born.map_or_else(String::new, |born| born.as_nanos().to_string());
    let name = hash(["llm-batch place 1", machine.trim(), &inode.to_string(), &born]);
    name.to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_folder_keeps_its_name_when_it_is_renamed_and_a_new_one_has_another() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        fs::create_dir(&one).unwrap();
        let before = of(&one).unwrap();
        fs::rename(&one, &other).unwrap();
        assert_eq!(of(&other).unwrap(), before);
        fs::create_dir(&one).unwrap();
        assert_ne!(of(&one).unwrap(), before);
    }

    #[test]
    fn each_part_tells_folders_apart() {
        let (born, later) = (Some(UNIX_EPOCH), Some(UNIX_EPOCH + Duration::from_nanos(1)));
        let names = [
            name("a", 1, born),
            name("b", 1, born),
            name("a", 2, born),
            name("a", 1, later),
            name("a", 1, None),
        ];
        let mut distinct = names.to_vec();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
    }
}
