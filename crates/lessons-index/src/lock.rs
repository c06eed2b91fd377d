//! The lock between processes: a file beside the data, so that readers are never shut out and
//! the data can be replaced by a rename.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::WriteError;
use crate::opened::{Identity, Opened};

/// The first pause between two looks at a lock that somebody else holds; each is twice the one
/// before.
const FIRST_PAUSE: Duration = Duration::from_micros(20);

/// The longest pause.
const LAST_PAUSE: Duration = Duration::from_millis(2);

/// Keeps the lock file open from one time that it is locked to the next.
#[derive(Debug, Default)]
pub(crate) struct Sidecar {
    open: Option<Arc<Opened>>,
}

/// Holds the lock until it is dropped; the operating system frees it when the process dies.
#[derive(Debug)]
pub(crate) struct SidecarLock(Arc<Opened>);

impl Drop for SidecarLock {
    fn drop(&mut self) {
        // Closing the file frees it in any case.
        let _ = self.0.file().unlock();
    }
}

impl SidecarLock {
    /// Returns whether the lock is on the file under a name still, which is where others look for it.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|there| self.0.is(&there))
    }
}

impl Sidecar {
    /// Returns the lock file of a data file: the same name with `.lock` after it.
    pub(crate) fn path_of(data: &Path) -> PathBuf {
        let mut path = data.as_os_str().to_owned();
        path.push(".lock");
        path.into()
    }

    /// Waits for the lock, for so long at most.
    pub(crate) fn lock(
        &mut self,
        path: &Path,
        timeout: Duration,
    ) -> Result<SidecarLock, WriteError> {
        self.wait(path, timeout).map_err(|refusal| match (path.to_owned(), refusal) {
            (path, NoLock::Held { by }) => WriteError::Held { path, waited: timeout, by },
            (path, NoLock::Failed(source)) => WriteError::Lock { path, source },
        })
    }

    fn wait(&mut self, path: &Path, timeout: Duration) -> Result<SidecarLock, NoLock> {
        let (start, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let file = match self.open.take() {
                Some(file) => file,
                None => Arc::new(Opened::new(open(path)?)?),
            };
            let mut lock = try_lock(&file)?;
            match fs::metadata(path) {
                Ok(now) if file.is(&now) => {
                    self.open = Some(file);
                    if let Some(lock) = lock.take() {
                        return Ok(lock);
                    }
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                // Somebody has removed the file meanwhile, and the next process would lock another
                // of the same name.
                _ => {}
            }
            drop(lock);
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(NoLock::Held { by: holder(path) });
            }
            rest(pause.min(left));
            pause = (2 * pause).min(LAST_PAUSE);
        }
    }
}

/// Says why a lock was not taken.
enum NoLock {
    /// Another process had it for the whole time: the one with this number, if that is known.
    Held { by: Option<u32> },
    /// The file cannot be opened or locked.
    Failed(io::Error),
}

impl From<io::Error> for NoLock {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

fn try_lock(file: &Arc<Opened>) -> io::Result<Option<SidecarLock>> {
    match file.file().try_lock() {
        Ok(()) => Ok(Some(SidecarLock(Arc::clone(file)))),
        Err(TryLockError::WouldBlock) => Ok(None),
        // A signal that the process handles is no reason to give up.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Lets some time go by, whatever else wakes this thread.
fn rest(time: Duration) {
    let (nothing, never) = (Mutex::new(()), Condvar::new());
    let held = nothing.lock().unwrap_or_else(PoisonError::into_inner);
    drop(never.wait_timeout(held, time));
}

/// Returns the process that holds the lock of a file, where the system tells: on Linux, for
/// processes that this one may look at.
fn holder(path: &Path) -> Option<u32> {
    let file = fs::metadata(path).ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // `1: FLOCK  ADVISORY  WRITE 4321 fe:00:1234567 0 EOF`; the device is not always that of the
    // file, so what the process has open decides.
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, place, ..] = words[..] else { return None };
        let inode = place.rsplit(':').next()?;
        let process = process.parse().ok().filter(|_| inode.parse() == Ok(file.ino()))?;
        let mut open = fs::read_dir(format!("/proc/{process}/fd")).ok()?.flatten();
        let is_it = |open: Metadata| Identity::of(&open) == Identity::of(&file);
        open.any(|open| fs::metadata(open.path()).is_ok_and(is_it)).then_some(process)
    })
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
