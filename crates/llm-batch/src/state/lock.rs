//! The lock of a state folder.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::id;

use crate::durable::{self, private};
use crate::error::Error;

/// The name of the file that is locked.
pub(super) const FILE: &str = "lock";

/// Tells whether the path leads to the open file, and not to another or none.
fn is_still_at(file: &File, path: &Path) -> Result<bool, Error> {
    let open = file.metadata().map_err(durable::io("read", path))?;
    match fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(durable::io("read", path)(error)),
    }
}

/// Takes the lock of a folder; it is released with the file.
pub(super) fn take(dir: &Path) -> Result<File, Error> {
    let path = dir.join(FILE);
    let file = private()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(durable::io("open", &path))?;
    match file.try_lock() {
        Ok(()) if is_still_at(&file, &path)? => {
            // For people alone; the lock holds without it.
            let _ = file.set_len(0).and_then(|()| (&file).write_all(id().to_string().as_bytes()));
            Ok(file)
        }
        // Somebody has it, or had it and has removed the folder just now.
        Ok(()) | Err(TryLockError::WouldBlock) => {
            let process = fs::read_to_string(&path).ok().and_then(|id| id.parse().ok());
            Err(Error::StateBusy { state: dir.to_owned(), process })
        }
        Err(TryLockError::Error(source)) => Err(durable::io("lock", &path)(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_on_a_file_that_was_removed_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let open = File::create(&path).unwrap();
        assert!(is_still_at(&open, &path).unwrap());
        fs::remove_file(&path).unwrap();
        assert!(!is_still_at(&open, &path).unwrap());
        File::create(&path).unwrap();
        assert!(!is_still_at(&open, &path).unwrap());
    }
}
