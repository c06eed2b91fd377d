//! What tells a state folder from a copy of it, and from one that was put back from a backup.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::digest::hash;
use crate::durable;
use crate::error::Error;

/// Tells machines apart where the file system alone does not: on a copy of the whole disk.
const MACHINE: &str = "/etc/machine-id";

/// When and as what something was made on its file system.
#[derive(Debug, Clone, Copy)]
struct Birth {
    inode: u64,
    /// Some file systems do not know it.
    at: Option<SystemTime>,
}

impl Birth {
    fn of(path: &Path) -> Result<Birth, Error> {
        let metadata = fs::metadata(path).map_err(durable::io("read", path))?;
        Ok(Birth { inode: metadata.ino(), at: metadata.created().ok() })
    }

    fn to_parts(self) -> [String; 2] {
        let at = self.at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let at = at.map_or_else(String::new, |at| at.as_nanos().to_string());
        [self.inode.to_string(), at]
    }
}

/// Returns the same for the same folder, also when it is renamed, and something else for a copy of
/// it. `log` is a file in it that is made once and appended to ever after: whoever puts files of before
/// back into the folder makes it anew.
pub(super) fn of(dir: &Path, log: &Path) -> Result<String, Error> {
    Ok(name(&machine(Path::new(MACHINE))?, Birth::of(dir)?, Birth::of(log)?))
}

/// Returns the id of the machine, or nothing where it has none, or none that this program may read. A fault
/// that passes is an error: with another name, what is lost would be held for good.
fn machine(path: &Path) -> Result<String, Error> {
    match fs::read_to_string(path) {
        Ok(id) => Ok(id.trim().to_owned()),
        Err(error) if is_lasting(error.kind()) => Ok(String::new()),
        Err(error) => Err(durable::io("read", path)(error)),
    }
}

/// Says whether the next start finds the same: none, a folder that a container was given in its place, or
/// one that is out of bounds.
fn is_lasting(kind: io::ErrorKind) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        kind,
        Kind::NotFound
            | Kind::PermissionDenied
            | Kind::IsADirectory
            | Kind::NotADirectory
            | Kind::InvalidData
    )
}

fn name(machine: &str, folder: Birth, log: Birth) -> String {
    let ([folder, made], [log, begun]) = (folder.to_parts(), log.to_parts());
    let name = hash(["llm-batch place 2", machine, &folder, &made, &log, &begun]);
    name.to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn made(dir: &Path) -> String {
        let log = dir.join("log");
        fs::create_dir(dir).unwrap();
        fs::write(&log, "").unwrap();
        of(dir, &log).unwrap()
    }

    #[test]
    fn a_folder_keeps_its_name_when_it_is_renamed_and_a_new_one_has_another() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        let before = made(&one);
        fs::rename(&one, &other).unwrap();
        assert_eq!(of(&other, &other.join("log")).unwrap(), before);
        assert_ne!(made(&one), before);
    }

    #[test]
    fn a_folder_has_another_name_once_its_log_was_put_back_and_not_when_it_grows() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, log) = (dir.path().join("folder"), dir.path().join("folder/log"));
        let before = made(&folder);
        let mut file = fs::File::options().append(true).open(&log).unwrap();
        std::io::Write::write_all(&mut file, b"more").unwrap();
        assert_eq!(of(&folder, &log).unwrap(), before);
        fs::copy(&log, dir.path().join("new")).unwrap();
        fs::rename(dir.path().join("new"), &log).unwrap();
        assert_ne!(of(&folder, &log).unwrap(), before);
    }

    #[test]
    fn a_machine_without_an_id_that_can_be_read_has_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(machine(&dir.path().join("none")).unwrap(), "");
        // As a container has it that was given what the machine has not.
        assert_eq!(machine(dir.path()).unwrap(), "");
        let garbled = dir.path().join("garbled");
        fs::write(&garbled, [0xff]).unwrap();
        assert_eq!(machine(&garbled).unwrap(), "");
    }

    #[test]
    fn each_part_tells_folders_apart() {
        let birth = |inode, nanos| {
            let at = Some(UNIX_EPOCH + Duration::from_nanos(nanos));
            Birth { inode, at }
        };
        let (folder, log) = (birth(1, 1), birth(2, 2));
        let names = [
            name("a", folder, log),
            name("b", folder, log),
            name("a", birth(3, 1), log),
            name("a", birth(1, 3), log),
            name("a", Birth { at: None, ..folder }, log),
            name("a", folder, birth(3, 2)),
            name("a", folder, birth(2, 3)),
            name("a", folder, Birth { at: None, ..log }),
            name("a", log, folder),
        ];
        let mut distinct = names.to_vec();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
    }
}
