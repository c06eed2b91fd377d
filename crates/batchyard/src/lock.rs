//! One run at a time in one folder.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use crate::exit::Stop;

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
        let path = folder.join("lock");
        let cannot = |error: std::io::Error| {
            Stop::refused(format_args!("cannot lock {}: {error}", path.display()))
        };
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(cannot)?;
        match file.try_lock() {
            Ok(()) => Ok(FolderLock { _file: file }),
            Err(TryLockError::WouldBlock) => {
                Err(Stop::unfinished(format_args!("another run holds {}", folder.display()))
                    .help("wait until it has ended, then run again"))
            }
            Err(TryLockError::Error(error)) => Err(cannot(error)),
        }
    }
}
