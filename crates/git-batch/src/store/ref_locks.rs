//! The lock files of refs, taken so that a later run can tell its own from those of others.
//!
//! Git locks the ref `x` by making the file `x.lock`. Here that file is one more name, a hard link,
//! of a file of our own that lists all the locks: what a killed process left is ours exactly where
//! it is still that file. No lock is ever removed for being old. The file stays from batch to batch, so
//! that a power cut cannot take its name away and leave that of a lock.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::disk;

/// The file that all locks are names of, in the folder of the writer.
const HELD: &str = "batchyard/held";

/// That file, in the folder of the writer.
pub(crate) fn held(state: &Path) -> PathBuf {
    state.join("held")
}

/// Locks that are held until this is dropped. Only for the one writer.
#[derive(Debug)]
pub(super) struct RefLocks {
    common_dir: PathBuf,
    held: PathBuf,
    taken: Vec<PathBuf>,
    /// How many calls of `fsync` it took to begin.
    pub(super) fsyncs: u32,
}

impl RefLocks {
    /// Notes which files may be locked, by their paths below the common directory; none is yet.
    pub(super) fn begin(common_dir: &Path, files: &[PathBuf]) -> io::Result<RefLocks> {
        sweep(common_dir);
        let held = common_dir.join(HELD);
        let mut list = Vec::new();
        for file in files {
            list.extend_from_slice(lock_of(file).as_os_str().as_encoded_bytes());
            list.push(0);
        }
        let is_new = !held.exists();
        let mut file = File::options().write(true).create(true).truncate(true).open(&held)?;
        // Not durable: if a power cut takes the list away, the locks that are left are looked for.
        file.write_all(&list)?;
        disk::note(|| disk::Change::Write(held.clone(), list));
        if is_new {
            disk::sync_folder(held.parent().unwrap_or(common_dir))?;
        }
        let (common_dir, taken) = (common_dir.to_owned(), Vec::new());
        Ok(RefLocks { common_dir, held, taken, fsyncs: u32::from(is_new) })
    }

    /// Locks one of the files; waits until `end` for somebody else who has it.
    pub(super) fn take(&mut self, file: &Path, end: Instant) -> io::Result<()> {
        let lock = self.common_dir.join(lock_of(file));
        let mut pause = Duration::from_millis(1);
        let mut missing = 0;
        loop {
            let error = match make(&self.held, &lock) {
                Ok(()) => {
                    self.taken.push(lock);
                    return Ok(());
                }
                Err(error) => error,
            };
            match error.kind() {
                io::ErrorKind::AlreadyExists if Instant::now() < end => {
                    std::thread::park_timeout(pause);
                    pause = (pause * 2).min(Duration::from_millis(50));
                }
                io::ErrorKind::AlreadyExists => {
                    let message =
                        format!("{} exists; remove it if no git is running", lock.display());
                    return Err(io::Error::new(error.kind(), message));
                }
                // Git removes folders that are empty, at any moment.
                io::ErrorKind::NotFound if missing < 3 => {
                    missing += 1;
                    fs::create_dir_all(lock.parent().unwrap_or(&self.common_dir))?;
                }
                _ => return Err(error),
            }
        }
    }
}

impl Drop for RefLocks {
    fn drop(&mut self) {
        let mut folders = BTreeSet::new();
        let mut is_clean = true;
        for lock in &self.taken {
            let removed = disk::remove(lock);
            let is_there = |error: io::Error| error.kind() != io::ErrorKind::NotFound;
            is_clean &= !removed.is_err_and(is_there);
            folders.extend(lock.parent());
        }
        for folder in folders {
            remove_empty_folders(Some(folder), &self.common_dir);
        }
        // Last, so that what cannot be removed now is known to the next writer.
        if is_clean {
            let _ = disk::write(&self.held, b"");
        }
    }
}

/// Removes the locks that a killed writer left, and no others. Only for the one writer.
pub(super) fn sweep(common_dir: &Path) {
    let held = common_dir.join(HELD);
    let Some(data) = fs::symlink_metadata(&held).ok().filter(Metadata::is_file) else { return };
    let Ok(list) = fs::read(&held) else { return };
    for name in list.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let Ok(name) = gix::path::from_byte_slice(name) else { continue };
        let lock = common_dir.join(name);
        if fs::symlink_metadata(&lock).is_ok_and(|other| is_same_file(&data, &other)) {
            let _ = disk::remove(&lock);
            remove_empty_folders(lock.parent(), common_dir);
        }
    }
    // What is left are locks that the list does not know.
    if fs::symlink_metadata(&held).is_ok_and(|data| links(&data) > 1) {
        sweep_folder(&common_dir.join("refs"), &data);
        let above = fs::read_dir(common_dir.join("worktrees")).into_iter().flatten().flatten();
        let folders = above.map(|entry| entry.path()).chain([common_dir.to_owned()]);
        folders.for_each(|folder| sweep_files(&folder, &data));
    }
    let _ = disk::write(&held, b"");
}

/// Removes all that is one file with `data`, in a folder and those inside.
fn sweep_folder(folder: &Path, data: &Metadata) {
    sweep_files(folder, data);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            sweep_folder(&entry.path(), data);
        }
    }
}

fn sweep_files(folder: &Path, data: &Metadata) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_lock = path.extension().is_some_and(|end| end == "lock");
        if is_lock && fs::symlink_metadata(&path).is_ok_and(|other| is_same_file(data, &other)) {
            let _ = disk::remove(&path);
        }
    }
}

#[cfg(unix)]
fn links(data: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::nlink(data)
}

#[cfg(not(unix))]
fn links(_: &Metadata) -> u64 {
    1
}

/// Makes the lock, which must not exist.
fn make(held: &Path, lock: &Path) -> io::Result<()> {
    match disk::link(held, lock) {
        // Some file systems have no hard links. There a lock that is left behind stays.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied
                    | io::ErrorKind::Unsupported
                    | io::ErrorKind::CrossesDevices
                    | io::ErrorKind::TooManyLinks
            ) =>
        {
            File::options().write(true).create_new(true).open(lock).map(drop)
        }
        other => other,
    }
}

fn lock_of(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or(OsStr::new("")).to_owned();
    name.push(".lock");
    file.with_file_name(name)
}

/// Removes folders that only locks stood in, up to `refs/heads`.
fn remove_empty_folders(mut folder: Option<&Path>, common_dir: &Path) {
    let heads = common_dir.join("refs/heads");
    while let Some(empty) = folder.filter(|folder| **folder != heads && folder.starts_with(&heads))
    {
        // One that is not empty cannot be removed.
        if fs::remove_dir(empty).is_err() {
            return;
        }
        folder = empty.parent();
    }
}

#[cfg(unix)]
fn is_same_file(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    a.dev() == b.dev() && a.ino() == b.ino()
}

#[cfg(not(unix))]
fn is_same_file(_: &Metadata, _: &Metadata) -> bool {
    false
}
