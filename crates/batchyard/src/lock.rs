//! One run at a time in one folder, and with one file of results.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::exit::Stop;

/// The name of the file that is locked for its folder.
pub(crate) const FILE: &str = "lock";

/// Holds a folder until it is dropped, or the process ends in whatever way.
#[derive(Debug)]
pub(crate) struct FolderLock {
    _file: File,
}

impl FolderLock {
    /// Takes the lock of `folder`, without waiting.
    ///
    /// # Errors
    ///
    /// Status 3 if another process holds it, 2 if the lock file cannot be made.
    pub(crate) fn take(folder: &Path) -> Result<FolderLock, Stop> {
        let path = folder.join(FILE);
        let cannot = |error: io::Error| {
            Stop::refused(format_args!("cannot lock {}: {error}", path.display()))
        };
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let file = file.map_err(cannot)?;
        if hold(&file, &path).map_err(cannot)? {
            return Ok(FolderLock { _file: file });
        }
        Err(Stop::unfinished(format_args!("another run holds {}", folder.display()))
            .help("wait until it has ended, then run again"))
    }
}

/// Locks an open file, without waiting, until it is closed; says whether it is locked now and still
/// the one that `path` leads to. Who held it before may have removed it.
pub(crate) fn hold(file: &File, path: &Path) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => is_at(file, path),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Says whether `path` leads to the open file, and not to another or none.
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_on_a_file_that_was_removed_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        let open = File::create(&path).expect("it is made");
        assert!(hold(&open, &path).expect("it is asked"));
        drop(open);
        let open = File::open(&path).expect("it is there");
        fs::remove_file(&path).expect("it is there");
        assert!(!hold(&open, &path).expect("it is asked"));
        File::create(&path).expect("it is made");
        assert!(!is_at(&open, &path).expect("it is asked"));
    }
}
