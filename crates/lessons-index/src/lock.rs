//! The lock between processes: a file beside the data, so that readers are never shut out and
//! the data can be replaced by a rename.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Holds the lock until it is dropped; the operating system frees it when the process dies.
#[derive(Debug)]
pub(crate) struct SidecarLock(
    #[expect(dead_code, reason = "dropping the file frees the lock")] File,
);

impl SidecarLock {
    /// Returns the lock file of a data file: the same name with `.lock` after it.
    pub(crate) fn path_of(data: &Path) -> PathBuf {
        let mut path = data.as_os_str().to_owned();
        path.push(".lock");
        path.into()
    }

    /// Waits for the lock.
    pub(crate) fn acquire(path: &Path) -> io::Result<Self> {
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            // A signal that the process handles is no reason to give up.
            while let Err(error) = file.lock() {
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            // Somebody may have removed the file while we waited, and the next process would
            // lock another of the same name.
            let ours = file.metadata()?;
            match fs::metadata(path) {
                Ok(now) if (now.dev(), now.ino()) == (ours.dev(), ours.ino()) => {
                    return Ok(Self(file));
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
}
