//! The folder that one run of a gate has for itself, and what a killed process left of it.
//!
//! It is outside of the repository, so a file of the writer names it, and holds a lock as long as its
//! process lives: what nobody holds has nobody.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bstr::{ByteSlice, ByteVec};

use super::processes;

/// How the names of the folders begin.
const PREFIX: &str = "batchyard-gate-";
/// How the names of the files end that name them.
const NOTE: &str = "scratch";

/// A folder that is gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    root: PathBuf,
    note: PathBuf,
    /// Locked as long as this lives.
    held: File,
}

impl Scratch {
    /// Makes a folder in `parent`. Only for the one writer, whose folder is `state`.
    pub(crate) fn new(state: &Path, parent: &Path) -> io::Result<Scratch> {
        let folder = state.join("gate");
        fs::create_dir_all(&folder)?;
        let number = RandomState::new().hash_one(std::process::id());
        let name = format!("{PREFIX}{}-{number:016x}", std::process::id());
        let root = std::path::absolute(parent)?.join(&name);
        let note = folder.join(name).with_extension(NOTE);
        let mut held = File::options().write(true).create_new(true).open(&note)?;
        held.lock()?;
        let session = processes::session();
        held.write_all(&[root.as_os_str().as_encoded_bytes(), b"\0", session.as_bytes()].concat())?;
        let scratch = Scratch { root, note, held };
        let private = |path: &Path| DirBuilder::new().mode(0o700).create(path);
        private(&scratch.root)?;
        private(&scratch.tree())?;
        private(&scratch.objects())?;
        Ok(scratch)
    }

    /// Where the files are.
    pub(crate) fn tree(&self) -> PathBuf {
        self.root.join("tree")
    }

    /// What tells the processes that work in the folder from all others.
    pub(crate) fn mark(&self) -> &OsStr {
        self.root.file_name().unwrap_or_default()
    }

    /// Where objects are that the repository does not have.
    pub(crate) fn objects(&self) -> PathBuf {
        self.root.join("objects")
    }

    /// The index of the files.
    pub(crate) fn index(&self) -> PathBuf {
        self.root.join("index")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is known to the next writer.
        if remove(&self.root).is_ok() {
            let _ = fs::remove_file(&self.note);
        }
        let _ = self.held.unlock();
    }
}

/// Removes the folders of processes that are gone. Only for the one writer.
pub(crate) fn sweep(state: &Path) {
    for entry in fs::read_dir(state.join("gate")).into_iter().flatten().flatten() {
        let note = entry.path();
        if note.extension().is_none_or(|end| end != NOTE) {
            continue;
        }
        let Ok(held) = File::open(&note) else { continue };
        if held.try_lock().is_err() {
            continue;
        }
        let Some(name) = note.file_stem().filter(|name| is_name(name)) else {
            let _ = fs::remove_file(&note);
            continue;
        };
        let text = fs::read(&note).unwrap_or_default();
        let (named, session) = text.split_once_str("\0").unwrap_or((&text, b""));
        processes::end(name, &session.to_str_lossy());
        let root = named.to_vec().into_path_buf().ok();
        // Nothing is removed that this crate cannot have made.
        let is_ours = |root: &PathBuf| is_scratch(root) && root.file_name() == Some(name);
        if root.filter(is_ours).is_none_or(|root| remove(&root).is_ok()) {
            let _ = fs::remove_file(&note);
        }
    }
}

/// Whether it is a name that is given here.
fn is_name(name: &OsStr) -> bool {
    let numbers = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
    numbers.is_some_and(|(id, random)| {
        id.parse::<u32>().is_ok() && random.len() == 16 && u64::from_str_radix(random, 16).is_ok()
    })
}

/// Whether a folder is one that was made here; what runs in it may have changed its mode.
fn is_scratch(root: &Path) -> bool {
    let is_own =
        |data: fs::Metadata| data.is_dir() && data.uid() == rustix::process::geteuid().as_raw();
    root.is_absolute() && fs::symlink_metadata(root).is_ok_and(is_own)
}

/// Removes a folder with all that is in it, also in folders that nobody may write to.
fn remove(root: &Path) -> io::Result<()> {
    match fs::remove_dir_all(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            make_writable(root)?;
            fs::remove_dir_all(root)
        }
        other => other,
    }
}

fn make_writable(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_writable(&entry.path())?;
        }
    }
    Ok(())
}
