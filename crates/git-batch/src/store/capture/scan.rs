//! Looks through a work tree as `git add` does.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bstr::{BStr, BString, ByteSlice};
use gix::ObjectId;
use gix::index::entry::{Mode, Stat};

use super::clean::Rules;
use super::folder::{Folder, Found, Kind};
use super::tracked::{Index, Tracked};
use crate::record::wire_struct;
use crate::{Omission, OpError, OpErrorKind, guard};

/// How long after its last change a file is looked at again, because the next change may leave no
/// trace in its times.
const RACY: Duration = Duration::from_secs(2);

/// What stands at a path of the work tree, as git stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) mode: Mode,
    pub(super) id: ObjectId,
    /// For the index: when and how the file was found.
    pub(super) stat: Stat,
}

wire_struct!(Stored { mode, id, stat });

/// What is known of a file that the index has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// Git does not look there: what the index has counts.
    Passed,
    Found(Stored),
}

/// One look through a work tree.
pub(super) struct Scan<'a> {
    pub(super) index: &'a Index,
    pub(super) rules: Rules<'a>,
    /// The files of the index that are there, by their positions.
    pub(super) seen: BTreeMap<usize, Sight>,
    /// Files that the index does not have.
    pub(super) new: BTreeMap<BString, Stored>,
    pub(super) left_out: BTreeMap<BString, Omission>,
    pub(super) options: Options,
}

/// The settings of the work tree, and the limits of the caller.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    /// Whether the bit for execution counts.
    pub(super) has_modes: bool,
    /// Whether a symlink is a symlink on this file system.
    pub(super) has_symlinks: bool,
    /// Whether a file that the sparse checkout leaves out counts where it is there.
    pub(super) is_sparse: bool,
    pub(super) stat: gix::index::entry::stat::Options,
    pub(super) max_file_bytes: u64,
}

impl Scan<'_> {
    /// Looks at all there is.
    pub(super) fn all(&mut self, top: &Folder) -> Result<(), OpError> {
        self.folder(top, BStr::new(""))
    }

    /// Looks at one path and, if it is a folder, at all in it.
    pub(super) fn path(&mut self, top: &Folder, path: &BStr) -> Result<(), OpError> {
        self.reach(top, path, |scan, folder, name| scan.entry(folder, name, path, true))
    }

    /// Looks once more for files of the index that were not found: whoever replaces one may have been at it
    /// in that moment, and not all file systems list a name that is just given to another file. Where one
    /// is found by the name of another, as after a change of case alone where case does not count, it is
    /// that other one.
    pub(super) fn again(
        &mut self,
        top: &Folder,
        is_in_scope: impl Fn(&BStr) -> bool,
    ) -> Result<(), OpError> {
        let new: BTreeMap<(u32, u32), BString> =
            self.new.iter().map(|(path, stored)| (inode(&stored.stat), path.clone())).collect();
        for (at, entry) in self.index.entries.iter().enumerate() {
            let path = entry.path.as_bstr();
            let is_known = entry.is_skipped() || self.seen.contains_key(&at);
            if is_known || !is_in_scope(path) {
                continue;
            }
            self.reach(top, path, |scan, folder, name| {
                let found = folder.look(name).map_err(|error| unreadable(path, &error))?;
                // What is in a folder there has been looked at.
                let Some(found) = found.filter(|found| found.kind != Kind::Folder) else {
                    return Ok(());
                };
                // Unless it has been moved from there to here.
                if let Some(other) = new.get(&inode(&found.stat))
                    && scan.is_at(top, other.as_bstr(), inode(&found.stat))?
                {
                    return Ok(());
                }
                if let Some(sight) = scan.tracked(folder, name, at, &found)? {
                    scan.seen.insert(at, sight);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Whether a path is, now, the file of that number.
    fn is_at(&mut self, top: &Folder, path: &BStr, number: (u32, u32)) -> Result<bool, OpError> {
        let mut is_there = false;
        self.reach(top, path, |_, folder, name| {
            let found = folder.look(name).map_err(|error| unreadable(path, &error))?;
            is_there = found.is_some_and(|found| inode(&found.stat) == number);
            Ok(())
        })?;
        Ok(is_there)
    }

    /// Enters the folders on the way to a path, if they are all there, and looks at its name in the last.
    fn reach(
        &mut self,
        top: &Folder,
        path: &BStr,
        look: impl FnOnce(&mut Self, &Folder, &BStr) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        let mut inner: Option<Folder> = None;
        let mut start = 0;
        for slash in path.find_iter("/") {
            let (name, above) = (path[start..slash].as_bstr(), path[..slash].as_bstr());
            let folder = inner.as_ref().unwrap_or(top);
            let found = folder.look(name).map_err(|error| unreadable(above, &error))?;
            if !found.is_some_and(|found| found.kind == Kind::Folder) {
                return Ok(());
            }
            if let Some(at) = self.index.find(above)
                && self.index.entries[at].mode.is_submodule()
            {
                return Err(OpError::new(
                    OpErrorKind::InvalidPath,
                    format!("path {path:?} is inside the submodule {above:?}; commit it there"),
                ));
            }
            let next = match folder.enter(name) {
                Ok(next) => next,
                // It was a folder a moment ago.
                Err(error) if is_gone(&error) => return Ok(()),
                Err(error) => return Err(unreadable(above, &error)),
            };
            if self.index.below(above).is_empty() {
                check_not_nested(&next, above)?;
            }
            inner = Some(next);
            start = slash + 1;
        }
        look(self, inner.as_ref().unwrap_or(top), path[start..].as_bstr())
    }

    fn folder(&mut self, folder: &Folder, path: &BStr) -> Result<(), OpError> {
        for name in folder.names().map_err(|error| unreadable(path, &error))? {
            if name == ".git" {
                continue;
            }
            let inner: BString = if path.is_empty() {
                name.clone()
            } else {
                [path.as_bytes(), b"/", &name].concat().into()
            };
            self.entry(folder, name.as_bstr(), inner.as_bstr(), false)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        folder: &Folder,
        name: &BStr,
        path: &BStr,
        is_named: bool,
    ) -> Result<(), OpError> {
        let fault = |error: io::Error| unreadable(path, &error);
        let Some(found) = folder.look(name).map_err(fault)? else { return Ok(()) };
        if let Some(at) = self.index.find(path)
            && (found.kind != Kind::Folder || self.index.entries[at].mode.is_submodule())
        {
            if let Some(sight) = self.tracked(folder, name, at, &found)? {
                self.seen.insert(at, sight);
            }
            return Ok(());
        }
        match found.kind {
            Kind::Folder => {
                let is_tracked = !self.index.below(path).is_empty();
                if !is_tracked && self.rules.is_ignored(path, true)? {
                    if is_named {
                        self.left_out.insert(path.to_owned(), Omission::Ignored);
                    }
                    return Ok(());
                }
                let inner = match folder.enter(name) {
                    Ok(inner) => inner,
                    Err(error) if is_gone(&error) => return Ok(()),
                    Err(error) => return Err(fault(error)),
                };
                if !is_tracked {
                    check_not_nested(&inner, path)?;
                }
                self.folder(&inner, path)
            }
            // Git does not see what it cannot store.
            Kind::Special => Ok(()),
            Kind::File { .. } | Kind::Symlink => {
                self.untracked(folder, name, path, is_named, &found)
            }
        }
    }

    /// What stands at a path of the index; `None` if nothing does any more.
    fn tracked(
        &mut self,
        folder: &Folder,
        name: &BStr,
        at: usize,
        found: &Found,
    ) -> Result<Option<Sight>, OpError> {
        let entry = &self.index.entries[at];
        let path = entry.path.as_bstr();
        if entry.mode.is_submodule() || entry.is_assumed() {
            return Ok(Some(Sight::Passed));
        }
        if entry.is_skipped() && !self.options.is_sparse {
            return Ok(Some(Sight::Passed));
        }
        match found.kind {
            Kind::Special => {
                self.left_out.insert(path.to_owned(), Omission::Special);
                return Ok(Some(Sight::Passed));
            }
            Kind::File { .. } if found.size > self.options.max_file_bytes => {
                self.left_out.insert(path.to_owned(), Omission::TooLarge);
                return Ok(Some(Sight::Passed));
            }
            _ => {}
        }
        let mode = self.options.mode_of(found.kind, Some(entry.mode));
        if mode == entry.mode && self.is_unchanged(entry, found) {
            let stored = Stored { mode, id: entry.id, stat: entry.stat };
            return Ok(Some(Sight::Found(stored)));
        }
        let read = folder.read(name).map_err(|error| unreadable(path, &error))?;
        let Some((found, content)) = read else { return Ok(None) };
        let mode = self.options.mode_of(found.kind, Some(entry.mode));
        let id = match found.kind {
            Kind::Symlink => self.rules.link(&content)?,
            _ => self.rules.blob(path, &content, Some(entry.id))?,
        };
        Ok(Some(Sight::Found(Stored { mode, id, stat: settled(&found) })))
    }

    fn untracked(
        &mut self,
        folder: &Folder,
        name: &BStr,
        path: &BStr,
        is_named: bool,
        found: &Found,
    ) -> Result<(), OpError> {
        if self.rules.is_ignored(path, false)? {
            if is_named {
                self.left_out.insert(path.to_owned(), Omission::Ignored);
            }
            return Ok(());
        }
        let check = match found.kind {
            Kind::Symlink => guard::path::check_symlink,
            _ => guard::path::check,
        };
        check(path).map_err(|error| OpError::new(OpErrorKind::InvalidPath, error.to_string()))?;
        if guard::secret::is_secret_path(path) {
            self.left_out.insert(path.to_owned(), Omission::Secret);
            return Ok(());
        }
        if found.size > self.options.max_file_bytes {
            self.left_out.insert(path.to_owned(), Omission::TooLarge);
            return Ok(());
        }
        let read = folder.read(name).map_err(|error| unreadable(path, &error))?;
        let Some((found, content)) = read else { return Ok(()) };
        if guard::secret::holds_private_key(&content) {
            self.left_out.insert(path.to_owned(), Omission::Secret);
            return Ok(());
        }
        let id = match found.kind {
            Kind::Symlink => self.rules.link(&content)?,
            _ => self.rules.blob(path, &content, None)?,
        };
        let mode = self.options.mode_of(found.kind, None);
        self.new.insert(path.to_owned(), Stored { mode, id, stat: settled(&found) });
        Ok(())
    }

    /// Whether the times and the size of a file say for sure that it is what the index has.
    fn is_unchanged(&self, entry: &Tracked, found: &Found) -> bool {
        let is_smudged = entry.stat.size == 0 && !entry.id.is_empty_blob();
        !entry.is_intended()
            && !is_smudged
            && entry.stat.matches(&found.stat, self.options.stat)
            && !entry.stat.is_racy(self.index.file.timestamp(), self.options.stat)
    }
}

impl Options {
    /// The mode that git stores for a file; `tracked` is the one that the index has.
    fn mode_of(&self, kind: Kind, tracked: Option<Mode>) -> Mode {
        match kind {
            Kind::Symlink => Mode::SYMLINK,
            _ if !self.has_symlinks && tracked == Some(Mode::SYMLINK) => Mode::SYMLINK,
            _ if !self.has_modes && tracked == Some(Mode::FILE_EXECUTABLE) => Mode::FILE_EXECUTABLE,
            Kind::File { is_executable: true } if self.has_modes => Mode::FILE_EXECUTABLE,
            _ => Mode::FILE,
        }
    }
}

/// The device of a file and its number there, as far as an index keeps them.
fn inode(stat: &Stat) -> (u32, u32) {
    (stat.dev, stat.ino)
}

/// What the index is to know of a file. One that changed just now is noted without its size, so
/// that git compares its content: another change in the same moment would not show otherwise.
fn settled(found: &Found) -> Stat {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let changed = u64::from(found.stat.mtime.secs.max(found.stat.ctime.secs));
    let mut stat = found.stat;
    if changed + RACY.as_secs() >= now.as_secs() {
        stat.size = 0;
    }
    stat
}

/// Refuses a repository inside the work tree that is no submodule: git would store no file of it.
fn check_not_nested(folder: &Folder, path: &BStr) -> Result<(), OpError> {
    let found = folder.look(BStr::new(".git")).map_err(|error| unreadable(path, &error))?;
    if found.is_none() {
        return Ok(());
    }
    Err(OpError::new(
        OpErrorKind::NestedRepository,
        format!(
            "{path:?} is a repository of its own, whose files cannot be committed here; ignore it, \
             move it out, or make it a submodule"
        ),
    ))
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

fn unreadable(path: &BStr, error: &io::Error) -> OpError {
    let path = if path.is_empty() { BStr::new(".") } else { path };
    match error.kind() {
        io::ErrorKind::ResourceBusy => OpError::new(
            OpErrorKind::WorktreeBusy,
            format!("{path:?} cannot be read: {error}; run again when it is finished"),
        ),
        _ => OpError::repository(&format!("cannot read {path:?} of the work tree"), error),
    }
}
