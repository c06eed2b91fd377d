//! The one writer per repository.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::{ApplyError, disk};

/// The folder that belongs to the writer.
pub(crate) fn state_of(common_dir: &Path) -> PathBuf {
    common_dir.join("batchyard")
}

/// The held lock; the system frees it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct WriterLock {
    file: File,
    state: PathBuf,
}

impl WriterLock {
    /// Waits until no other writer is in the repository, at most for `wait`.
    pub(crate) fn acquire(common_dir: &Path, wait: Option<Duration>) -> Result<Self, ApplyError> {
        let state = state_of(common_dir);
        create_private(&state)
            .map_err(|source| ApplyError::Lock { path: state.clone(), source })?;
        let path = state.join("lock");
        let fault = |source| ApplyError::Lock { path: path.clone(), source };
        let file =
            File::options().create(true).truncate(false).write(true).open(&path).map_err(fault)?;
        match wait {
            None => file.lock().map_err(fault)?,
            Some(wait) => {
                if !lock_within(&file, wait).map_err(fault)? {
                    return Err(ApplyError::Busy { path, waited: wait });
                }
            }
        }
        Ok(WriterLock { file, state })
    }

    /// The folder that belongs to the writer.
    pub(crate) fn state_dir(&self) -> &Path {
        &self.state
    }
}

impl Drop for WriterLock {
    /// Closing the file is not enough: a child that another thread is just starting still has a
    /// copy of it, which would hold the lock until the child runs its program.
    fn drop(&mut self) {
        // Closing frees it in the end.
        let _ = self.file.unlock();
    }
}

/// Tells whether the lock was had within `wait`. The system neither has a lock with a time limit
/// nor tells when one is free, so this looks again, less and less often.
fn lock_within(file: &File, wait: Duration) -> io::Result<bool> {
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => {}
        }
        let Some(left) = wait.checked_sub(started.elapsed()).filter(|left| !left.is_zero()) else {
            return Ok(false);
        };
        std::thread::park_timeout(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// Who else made the folder may have left it open to everybody.
fn close_to_others(path: &Path) {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let is_open = |data: &fs::Metadata| {
        data.mode() & 0o077 != 0 && data.uid() == rustix::process::geteuid().as_raw()
    };
    if fs::metadata(path).is_ok_and(|data| is_open(&data)) {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
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
        Ok(()) => {
            disk::note(|| disk::Change::MakeFolder(path.to_owned()));
            // Records in it are to survive a power cut.
            disk::sync_folder(path.parent().unwrap_or(path))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
            close_to_others(path);
            Ok(())
        }
        other => other,
    }
}
