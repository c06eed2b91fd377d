//! The lock between processes: a file beside the data, so that readers are never shut out and
//! the data can be replaced by a rename.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Keeps the lock file open from one time that it is locked to the next.
#[derive(Debug, Default)]
pub(crate) struct Sidecar {
    open: Option<Arc<File>>,
}

/// Holds the lock until it is dropped; the operating system frees it when the process dies.
#[derive(Debug)]
pub(crate) struct SidecarLock(Arc<File>);

impl Drop for SidecarLock {
    fn drop(&mut self) {
        // Closing the file frees it in any case.
        let _ = self.0.unlock();
    }
}

impl Sidecar {
    /// Returns the lock file of a data file: the same name with `.lock` after it.
    pub(crate) fn path_of(data: &Path) -> PathBuf {
        let mut path = data.as_os_str().to_owned();
        path.push(".lock");
        path.into()
    }

    /// Waits for the lock.
    pub(crate) fn lock(&mut self, path: &Path) -> io::Result<SidecarLock> {
        loop {
            let file = match &self.open {
                Some(file) => Arc::clone(file),
                None => Arc::new(open(path)?),
            };
            // A signal that the process handles is no reason to give up.
            while let Err(error) = file.lock() {
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            let lock = SidecarLock(Arc::clone(&file));
            // Somebody may have removed the file meanwhile, and the next process would lock
            // another of the same name.
            self.open = None;
            match fs::metadata(path) {
                Ok(now) if is_same(&now, &file.metadata()?) => {
                    self.open = Some(file);
                    return Ok(lock);
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    match OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path) {
        // Somebody else made it; the right to read it is enough to lock it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            File::open(path).map_err(|_| error)
        }
        opened => opened,
    }
}

/// Returns whether both are of one file.
pub(crate) fn is_same(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}
