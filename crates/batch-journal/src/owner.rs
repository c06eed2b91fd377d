//! The folder, and the one owner of what is in it.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::OpenError;

/// A look at who the owner is takes the lock for a moment, which must not turn an owner away.
const GRACE: Duration = Duration::from_millis(50);

/// The held lock; the operating system frees it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Owner {
    file: File,
}

impl Owner {
    /// Becomes the owner of `folder`, or waits for that.
    pub(crate) fn acquire(folder: &Path, wait: Duration) -> Result<Self, OpenError> {
        let path = lock_path(folder);
        let started = Instant::now();
        let wait = wait.max(GRACE);
        let mut pause = Duration::from_millis(1);
        loop {
            let file = open(&path).map_err(OpenError::io("open", &path))?;
            match file.try_lock() {
                // Who removed the file while we waited could let a second owner in.
                Ok(()) if is_at(&file, &path) => {
                    let owner = Self { file };
                    owner.introduce().map_err(OpenError::io("write", &path))?;
                    return Ok(owner);
                }
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => {
                    return Err(OpenError::io("lock", &path)(error));
                }
            }
            let left = wait.checked_sub(started.elapsed()).filter(|left| !left.is_zero());
            let Some(left) = left else {
                return Err(OpenError::Locked { holder: read_holder(&path), path });
            };
            // The system neither has a lock with a time limit nor tells when one is free.
            std::thread::park_timeout(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// Leaves word for whoever finds the lock held. What a dead owner left is written over.
    fn introduce(&self) -> io::Result<()> {
        let program = std::env::current_exe().ok();
        let program = program.as_deref().and_then(Path::file_name).unwrap_or_default();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let mut text = format!("process {} ({})", std::process::id(), program.display());
        if !host.trim().is_empty() {
            text = format!("{text} on {}", host.trim());
        }
        self.file.set_len(0)?;
        (&self.file).write_all(text.as_bytes())
    }
}

impl Drop for Owner {
    /// Closing the file is not enough: a child that another thread is just starting still has a
    /// copy of it, which would hold the lock until the child runs its program.
    fn drop(&mut self) {
        // Closing frees it in the end.
        let _ = self.file.unlock();
    }
}

/// Returns what the owner of `folder` says of itself, if it has one.
pub(crate) fn find(folder: &Path) -> Result<Option<String>, OpenError> {
    let path = lock_path(folder);
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(OpenError::io("open", &path))?,
    };
    match file.try_lock_shared() {
        Ok(()) => {
            file.unlock().map_err(OpenError::io("unlock", &path))?;
            Ok(None)
        }
        Err(TryLockError::WouldBlock) => Ok(Some(read_holder(&path))),
        Err(TryLockError::Error(error)) => Err(OpenError::io("lock", &path)(error)),
    }
}

/// Makes the folder for its owner alone, durably, if there is none. Returns it without symbolic
/// links.
pub(crate) fn private_folder(dir: &Path) -> Result<PathBuf, OpenError> {
    if !dir.is_dir() {
        make(dir)?;
    }
    let folder = dir.canonicalize().map_err(OpenError::io("find", dir))?;
    let mode = fs::metadata(&folder).map_err(OpenError::io("read", dir))?.permissions().mode();
    if mode & 0o022 != 0 {
        return Err(OpenError::Exposed { path: folder, mode: mode & 0o7777 });
    }
    Ok(folder)
}

/// Each entry is on the disk when this returns: with an entry lost, all below it would be lost.
fn make(dir: &Path) -> Result<(), OpenError> {
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent
        && !parent.exists()
    {
        make(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        // Somebody else made it meanwhile, or it ends in a dot.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
        made => made.map_err(OpenError::io("create", dir))?,
    }
    sync_folder(parent.unwrap_or(Path::new(".")))
}

pub(crate) fn sync_folder(dir: &Path) -> Result<(), OpenError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(OpenError::io("sync", dir))
}

fn lock_path(folder: &Path) -> PathBuf {
    folder.join("journal.lock")
}

fn open(path: &Path) -> io::Result<File> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Err(io::Error::other("it is a symbolic link"));
    }
    File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(ours), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (ours.dev(), ours.ino()) == (there.dev(), there.ino())
}

fn read_holder(path: &Path) -> String {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(1024).read_to_string(&mut text));
    match read {
        // The owner has the lock and has not yet written.
        Ok(0) | Err(_) => "another process".to_owned(),
        Ok(_) => text.trim().to_owned(),
    }
}
