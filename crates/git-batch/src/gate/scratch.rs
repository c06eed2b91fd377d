//! The folder that one run of a gate has for itself, and what a killed process left of it.
//!
//! It is outside of the repository, so a file of the writer names it, and holds a lock as long as its
//! process lives: what nobody holds has nobody.

use std::fs::{self, DirBuilder, File, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bstr::{ByteSlice, ByteVec};
use rustix::process::{Pid, Signal, kill_process_group};

/// How the names of the folders begin.
const PREFIX: &str = "batchyard-gate-";
/// How the names of the files end that name them.
const NOTE: &str = "scratch";

/// A folder that is gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    root: PathBuf,
    note: PathBuf,
    /// Locked.
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
        held.write_all(root.as_os_str().as_encoded_bytes())?;
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

    /// Notes the process group that works in the folder, so that it does not outlive this process for
    /// long. Where the system does not tell when a process began, nothing is noted.
    pub(crate) fn note_group(&self, id: u32) {
        if let Some(began) = began(id) {
            // At worst it runs to its end.
            let _ = write!(&self.held, "\0{id} {began}");
        }
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
        let text = fs::read(&note).unwrap_or_default();
        let (named, group) = text.split_once_str("\0").unwrap_or((&text, b""));
        end_group(group);
        let root = named.to_vec().into_path_buf().ok();
        // Nothing is removed that this crate cannot have made.
        let is_ours = |root: &PathBuf| is_scratch(root) && root.file_name() == note.file_stem();
        if root.filter(is_ours).is_none_or(|root| remove(&root).is_ok()) {
            let _ = fs::remove_file(&note);
        }
    }
}

/// Ends the processes of a group whose leader is still the one that was noted.
fn end_group(noted: &[u8]) {
    let noted = noted.to_str().ok().and_then(|noted| noted.split_once(' '));
    let Some((id, began_then)) = noted else { return };
    let Ok(id) = id.parse::<u32>() else { return };
    if began(id).is_some_and(|began| began == began_then)
        && let Some(group) = Pid::from_raw(id.cast_signed())
    {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// When a process began, in the system's own measure.
fn began(id: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program stands in brackets and can hold anything.
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_whitespace().nth(19).map(str::to_owned)
}

/// Whether a folder has the name, the owner and the mode of those that are made here.
fn is_scratch(root: &Path) -> bool {
    let is_named =
        root.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    let is_private = |data: fs::Metadata| {
        data.is_dir()
            && data.mode() & 0o777 == 0o700
            && data.uid() == rustix::process::geteuid().as_raw()
    };
    root.is_absolute() && is_named && fs::symlink_metadata(root).is_ok_and(is_private)
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
