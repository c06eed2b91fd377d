//! The one writer per repository.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use crate::ApplyError;

/// The held lock; the system frees it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct WriterLock {
    _file: File,
    state: PathBuf,
}

impl WriterLock {
    /// Waits until no other writer is in the repository, at most for `wait`.
    pub(crate) fn acquire(common_dir: &Path, wait: Option<Duration>) -> Result<Self, ApplyError> {
        let state = common_dir.join("batchyard");
        create_private(&state)
            .map_err(|source| ApplyError::Lock { path: state.clone(), source })?;
        let path = state.join("lock");
        let fault = |source| ApplyError::Lock { path: path.clone(), source };
        let file =
            File::options().create(true).truncate(false).write(true).open(&path).map_err(fault)?;
        match (file.try_lock(), wait) {
            (Ok(()), _) => return Ok(WriterLock { _file: file, state }),
            (Err(TryLockError::Error(source)), _) => return Err(fault(source)),
            (Err(TryLockError::WouldBlock), None) => file.lock().map_err(fault)?,
            (Err(TryLockError::WouldBlock), Some(wait)) => {
                return match lock_within(file, wait).map_err(fault)? {
                    Some(file) => Ok(WriterLock { _file: file, state }),
                    None => Err(ApplyError::Busy { path, waited: wait }),
                };
            }
        }
        Ok(WriterLock { _file: file, state })
    }

    /// The folder that belongs to the writer.
    pub(crate) fn state_dir(&self) -> &Path {
        &self.state
    }
}

/// The system has no lock with a time limit, so a thread of its own does the waiting. If it gets
/// the lock too late, nobody takes the file, and dropping it frees the lock.
fn lock_within(file: File, wait: Duration) -> io::Result<Option<File>> {
    let (send, receive) = mpsc::sync_channel(0);
    std::thread::Builder::new().name("git-batch-lock".to_owned()).spawn(move || {
        let result = file.lock().map(|()| file);
        let _ = send.send(result);
    })?;
    match receive.recv_timeout(wait) {
        Ok(result) => result.map(Some),
        Err(_) => Ok(None),
    }
}

fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    match builder.create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        other => other,
    }
}
