//! Changes of files that matter after a power cut: what has been written is there for certain when it
//! has been synced, and its name when the folder has been synced that it is in.
//!
//! With the feature `testing`, which only the tests of this crate use, all changes are noted in their
//! order, so that a test can see what would be left of each beginning of them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[cfg(feature = "testing")]
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "testing"),
    expect(dead_code, unreachable_pub, reason = "nobody looks at it")
)]
pub enum Change {
    /// A file was made, or emptied, and has this content.
    Write(PathBuf, Vec<u8>),
    /// Something was added to a file.
    Append(PathBuf, Vec<u8>),
    /// What a file contains is on the disk.
    Sync(PathBuf),
    /// A file has another name.
    Rename(PathBuf, PathBuf),
    /// A file has one more name.
    Link(PathBuf, PathBuf),
    /// A file has no name any more.
    Remove(PathBuf),
    /// A folder was made.
    MakeFolder(PathBuf),
    /// The names in a folder are on the disk.
    SyncFolder(PathBuf),
    /// A point of [`stops`](crate::stops) was reached.
    Reach(String),
}

#[cfg(feature = "testing")]
static LOG: Mutex<Option<Vec<Change>>> = Mutex::new(None);

/// Begins to note the changes of this process, and returns those noted so far.
#[cfg(feature = "testing")]
pub fn record() -> Vec<Change> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner).replace(Vec::new()).unwrap_or_default()
}

#[cfg(feature = "testing")]
static REFUSED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Lets no whole file system be made durable in this process, as some sandboxes do.
#[cfg(feature = "testing")]
pub fn refuse_file_systems() {
    REFUSED.store(true, std::sync::atomic::Ordering::SeqCst);
}

#[cfg(feature = "testing")]
static FAILING: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);

/// Lets the names of refs not be made durable in this process, with an error of the system; zero is none.
#[cfg(feature = "testing")]
pub fn fail_for_refs(error: i32) {
    FAILING.store(error, std::sync::atomic::Ordering::SeqCst);
}

/// Notes a change that has happened.
pub(crate) fn note(change: impl FnOnce() -> Change) {
    #[cfg(feature = "testing")]
    if let Some(log) = &mut *LOG.lock().unwrap_or_else(PoisonError::into_inner) {
        log.push(change());
    }
    #[cfg(not(feature = "testing"))]
    drop(change);
}

/// Makes a file, or replaces its content; a power cut may take both away.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::write(path, bytes)?;
    note(|| Change::Write(path.to_owned(), bytes.to_owned()));
    Ok(())
}

/// As [`write`]; the content is on the disk afterwards, the name may not be.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    note(|| Change::Write(path.to_owned(), bytes.to_owned()));
    file.sync_all()?;
    note(|| Change::Sync(path.to_owned()));
    Ok(())
}

/// As [`write_synced`] for two files, with one wait for the disk where it can be had.
pub(crate) fn write_both_synced(files: [(&Path, &[u8]); 2]) -> io::Result<()> {
    let [one, other] = files.map(|(path, bytes)| {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        note(|| Change::Write(path.to_owned(), bytes.to_owned()));
        Ok::<_, io::Error>((file, path))
    });
    let (one, other) = (one?, other?);
    let sync = |(file, path): &(File, &Path)| {
        file.sync_all()?;
        note(|| Change::Sync((*path).to_owned()));
        Ok(())
    };
    let (first, second) = together(|| sync(&one), || sync(&other));
    first.and(second)
}

/// Does two things at once: the first on a thread of its own, if there can be one.
pub(crate) fn together<A: Send, B>(
    one: impl Fn() -> io::Result<A> + Sync,
    other: impl FnOnce() -> B,
) -> (io::Result<A>, B) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("git-disk".to_owned());
        match thread.spawn_scoped(scope, &one) {
            Ok(thread) => {
                let other = other();
                let panicked = |_| Err(io::Error::other("the thread for the disk has panicked"));
                (thread.join().unwrap_or_else(panicked), other)
            }
            Err(_) => (one(), other()),
        }
    })
}

/// Adds to a file that stands at `path`; what is added is on the disk afterwards.
pub(crate) fn append_synced(mut file: &File, path: &Path, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    note(|| Change::Append(path.to_owned(), bytes.to_owned()));
    file.sync_data()?;
    note(|| Change::Sync(path.to_owned()));
    Ok(())
}

/// Gives a file another name, in place of what had that name.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    note(|| Change::Rename(from.to_owned(), to.to_owned()));
    Ok(())
}

/// Gives a file one more name, which must be free.
pub(crate) fn link(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to)?;
    note(|| Change::Link(from.to_owned(), to.to_owned()));
    Ok(())
}

/// Removes a file.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path)?;
    note(|| Change::Remove(path.to_owned()));
    Ok(())
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    note(|| Change::SyncFolder(path.to_owned()));
    Ok(())
}

/// What became of making names durable.
#[derive(Debug, Default)]
pub(crate) struct Synced {
    /// How many calls it took.
    pub(crate) calls: u32,
    /// Why a power cut may take them back, where they could be made durable otherwise.
    pub(crate) fault: Option<io::Error>,
}

/// Makes the names of refs in a folder durable. One that is gone, because nothing was in it, is so when
/// the one above it is.
pub(crate) fn sync_refs(path: &Path) -> Synced {
    match sync_existing(path) {
        Ok(()) => Synced { calls: 1, fault: None },
        Err(error) => Synced::failed(error),
    }
}

fn sync_existing(path: &Path) -> io::Result<()> {
    #[cfg(feature = "testing")]
    match FAILING.load(std::sync::atomic::Ordering::SeqCst) {
        0 => {}
        error => return Err(io::Error::from_raw_os_error(error)),
    }
    open_existing(path)?.sync_all()?;
    note(|| Change::SyncFolder(path.to_owned()));
    Ok(())
}

/// Opens a folder, or the next above it that is there: a branch may be in its place by now.
fn open_existing(path: &Path) -> io::Result<File> {
    match File::open(path) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            path.parent().map_or(Err(error), open_existing)
        }
        other => other,
    }
}

/// How many folders are made durable one by one; more are with one call for the whole file system, which
/// writes what others have not written yet too.
#[cfg(target_os = "linux")]
const MAX_FOLDERS: usize = 2;

/// As [`sync_refs`], for many folders. To be called with no lock held that others wait for: it can take
/// as long as the disk needs for all that they have written.
pub(crate) fn sync_all_refs(paths: &BTreeSet<PathBuf>) -> Synced {
    #[cfg(target_os = "linux")]
    if paths.len() > MAX_FOLDERS {
        return sync_file_systems(paths);
    }
    paths.iter().map(|path| sync_refs(path)).fold(Synced::default(), Synced::and)
}

impl Synced {
    pub(crate) fn failed(error: io::Error) -> Synced {
        // What says that folders cannot be made durable there, by anybody or by this user: there is nothing
        // more to be had. All else may pass.
        let errno = Errno::from_io_error(&error);
        // The same number as the next but one on Linux, and what network folders answer on macOS.
        #[cfg(target_vendor = "apple")]
        let errno =
            errno.map(|errno| if errno == Errno::NOTSUP { Errno::OPNOTSUPP } else { errno });
        let is_final = matches!(
            errno,
            Some(
                Errno::INVAL
                    | Errno::OPNOTSUPP
                    | Errno::NOSYS
                    | Errno::BADF
                    | Errno::NOTTY
                    | Errno::ACCESS
                    | Errno::PERM
                    | Errno::ROFS
            )
        );
        Synced { calls: 0, fault: (!is_final).then_some(error) }
    }

    fn and(self, other: Synced) -> Synced {
        Synced { calls: self.calls + other.calls, fault: self.fault.or(other.fault) }
    }
}

/// One call for each file system: one, unless somebody keeps refs behind a link. Where that cannot be
/// relied on, one for each folder.
#[cfg(target_os = "linux")]
fn sync_file_systems(paths: &BTreeSet<PathBuf>) -> Synced {
    use std::os::unix::fs::MetadataExt;
    let (mut whole, mut apart) = (BTreeSet::new(), BTreeSet::new());
    let mut synced = Synced::default();
    for path in paths {
        let folder = open_existing(path).and_then(|folder| Ok((folder.metadata()?.dev(), folder)));
        let (device, folder) = match folder {
            Ok(found) => found,
            Err(error) => {
                synced = synced.and(Synced::failed(error));
                continue;
            }
        };
        if whole.contains(&device) {
            note(|| Change::SyncFolder(path.clone()));
        } else if !apart.contains(&device) && sync_file_system(&folder) {
            whole.insert(device);
            synced.calls += 1;
            note(|| Change::SyncFolder(path.clone()));
        } else {
            apart.insert(device);
            synced = synced.and(sync_refs(path));
        }
    }
    synced
}

/// Makes a whole file system durable; false if that cannot be told.
#[cfg(target_os = "linux")]
fn sync_file_system(folder: &File) -> bool {
    #[cfg(feature = "testing")]
    if REFUSED.load(std::sync::atomic::Ordering::SeqCst) {
        return false;
    }
    // Of most file systems of FUSE the kernel asks nothing, and says that all is well.
    let is_fuse = |data: rustix::fs::StatFs| data.f_type == 0x6573_5546;
    rustix::fs::fstatfs(folder).is_ok_and(|data| !is_fuse(data))
        && rustix::fs::syncfs(folder).is_ok()
}

/// Makes a folder durable that may not be there yet; the one above it is. Returns how many calls of
/// `fsync` that took: none if it was there.
pub(crate) fn make_folder(path: &Path) -> io::Result<u32> {
    match fs::create_dir(path) {
        Ok(()) => {
            note(|| Change::MakeFolder(path.to_owned()));
            sync_folder(path.parent().unwrap_or(path))?;
            Ok(1)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(0),
        Err(error) => Err(error),
    }
}
