//! Brings an index up to date with a commit that was made of its work tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bstr::{BString, ByteSlice};
use gix::ObjectId;
use gix::index::entry::{Flags, Mode, Stage, Stat};
use gix::index::write::Options;

use super::super::Store;
use super::Checkout;
use super::scan::Stored;
use super::tracked::{Tracked, read_file};
use crate::record::wire_struct;
use crate::{OpError, disk};

/// How the files begin that an index is written to before it takes its place, in the folder of the
/// writer.
const TEMPORARY: &str = "index-";

/// What the index is to have for a path.
#[derive(Debug, Clone)]
pub(crate) struct PathUpdate {
    /// What it had when the work tree was read; anything else there is newer and stays.
    pub(super) was: Option<Known>,
    pub(super) now: Option<Stored>,
}

impl PathUpdate {
    /// The update that undoes it. A path that was only intended to be added is untracked afterwards.
    pub(crate) fn undone(&self) -> PathUpdate {
        let was = self.now.map(|now| Known { mode: now.mode, id: now.id, is_intended: false });
        // Without times, so that git looks at the file itself.
        let stat = Stat::default();
        let known = self.was.filter(|was| !was.is_intended);
        let now = known.map(|was| Stored { mode: was.mode, id: was.id, stat });
        PathUpdate { was, now }
    }
}

/// What an index has for a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    mode: Mode,
    id: ObjectId,
    is_intended: bool,
}

impl Known {
    pub(super) fn of(entry: &Tracked) -> Known {
        Known { mode: entry.mode, id: entry.id, is_intended: entry.is_intended() }
    }
}

wire_struct!(PathUpdate { was, now });
wire_struct!(Known { mode, id, is_intended });

/// A new index that is not in place yet.
#[derive(Debug)]
pub(crate) struct PreparedIndex {
    temporary: PathBuf,
    path: PathBuf,
}

impl PreparedIndex {
    /// Puts the new index in the place of the old one. Only with its lock.
    pub(crate) fn commit(self) -> io::Result<()> {
        disk::rename(&self.temporary, &self.path)
    }
}

/// Removes indexes that an interrupted batch did not put into place. Only for the one writer.
pub(crate) fn sweep_indexes(state: &Path) {
    for entry in fs::read_dir(state).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(TEMPORARY.as_bytes()) {
            // It costs space, not correctness.
            let _ = fs::remove_file(entry.path());
        }
    }
}

impl Store {
    /// Writes the index with what was captured beside the one that is there. Only with its lock.
    pub(crate) fn prepare_index(
        &self,
        checkout: &Checkout,
        updates: &BTreeMap<BString, PathUpdate>,
        state: &Path,
    ) -> Result<PreparedIndex, OpError> {
        let mut file = read_file(self, checkout.index())?;
        self.expand_for(&mut file, updates)?;
        let applied: BTreeMap<&BString, &PathUpdate> =
            updates.iter().filter(|(path, update)| is_still(&file, path, update.was)).collect();
        let removed: BTreeSet<&BString> = applied.keys().copied().collect();
        let new: Vec<(&BString, Stored)> = applied
            .iter()
            .filter_map(|(path, update)| Some((*path, update.now?)))
            .filter(|(path, _)| !is_in_the_way(&file, path, &removed))
            .collect();
        file.remove_entries(|_, path, _| removed.contains(&path.to_owned()));
        for (path, now) in new {
            let flags = Flags::empty();
            file.dangerously_push_entry(now.stat, now.id, flags, now.mode, path.as_bstr());
        }
        file.sort_entries();
        // It says which trees the entries make, and does not follow when they change.
        file.remove_tree();
        let skip_hash = self.repo.config_snapshot().boolean("index.skipHash").unwrap_or(false);
        let mut bytes = Vec::new();
        file.write_to(&mut bytes, Options { skip_hash, ..Options::default() })
            .map_err(|error| OpError::repository("cannot make an index", &error))?;
        let id = checkout.git_dir.file_name().unwrap_or_default();
        let mut name = std::ffi::OsString::from(TEMPORARY);
        name.push(id);
        let prepared = PreparedIndex { temporary: state.join(name), path: checkout.index() };
        prepared
            .write(&bytes)
            .map_err(|error| OpError::repository("cannot write an index", &error))?;
        Ok(prepared)
    }

    /// Takes apart the folders that a sparse index has as one, where something in them changes.
    fn expand_for(
        &self,
        file: &mut gix::index::File,
        updates: &BTreeMap<BString, PathUpdate>,
    ) -> Result<(), OpError> {
        let mut folders = Vec::new();
        for entry in file.entries().iter().filter(|entry| entry.mode.is_sparse()) {
            let folder = entry.path(file);
            if updates.keys().any(|path| path.starts_with(folder)) {
                folders.push((folder.to_owned(), entry.id));
            }
        }
        for (folder, id) in &folders {
            for entry in self.expand(folder.as_bstr(), *id)? {
                file.dangerously_push_entry(
                    entry.stat,
                    entry.id,
                    entry.flags,
                    entry.mode,
                    entry.path.as_bstr(),
                );
            }
        }
        if !folders.is_empty() {
            file.remove_entries(|_, path, entry| {
                entry.mode.is_sparse() && folders.iter().any(|(folder, _)| folder == path)
            });
            file.sort_entries();
        }
        Ok(())
    }
}

impl PreparedIndex {
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create(&self.temporary)?;
        // Others may be meant to read it.
        if let Ok(data) = fs::metadata(&self.path) {
            file.set_permissions(data.permissions())?;
        }
        file.write_all(bytes)?;
        disk::note(|| disk::Change::Write(self.temporary.clone(), bytes.to_owned()));
        Ok(())
    }
}

/// Whether the index has for the path what it had before.
fn is_still(file: &gix::index::File, path: &BString, was: Option<Known>) -> bool {
    let entries = file.entry_range(path.as_bstr()).map(|range| &file.entries()[range]);
    match (entries, was) {
        (None, None) => true,
        (Some([entry]), Some(was)) if entry.stage() == Stage::Unconflicted => {
            let is_intended = entry.flags.contains(Flags::INTENT_TO_ADD);
            was == Known { mode: entry.mode, id: entry.id, is_intended }
        }
        _ => false,
    }
}

/// Whether a file has been staged meanwhile where the path needs a folder, or the other way round.
fn is_in_the_way(file: &gix::index::File, path: &BString, removed: &BTreeSet<&BString>) -> bool {
    let above = path.find_iter("/").map(|slash| BString::from(&path[..slash]));
    let mut above = above.filter(|above| !removed.contains(above));
    if above.any(|above| file.entry_range(above.as_bstr()).is_some()) {
        return true;
    }
    let below = BString::from([path.as_bytes(), b"/"].concat());
    let inside = file.prefixed_entries(below.as_bstr()).unwrap_or_default();
    inside.iter().any(|entry| !removed.contains(&entry.path(file).to_owned()))
}
