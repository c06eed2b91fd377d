//! What the index of a work tree says, one entry a path.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use bstr::{BStr, BString, ByteSlice};
use gix::ObjectId;
use gix::index::entry::{Flags, Mode, Stage, Stat};

use super::super::Store;
use super::checkout::Checkout;
use crate::{OpError, OpErrorKind};

/// One path of the index.
#[derive(Debug, Clone)]
pub(super) struct Tracked {
    pub(super) path: BString,
    pub(super) id: ObjectId,
    pub(super) mode: Mode,
    pub(super) flags: Flags,
    pub(super) stat: Stat,
}

/// The index of a work tree, with folders that a sparse checkout leaves out taken apart.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) file: gix::index::File,
    /// Sorted by path.
    pub(super) entries: Vec<Tracked>,
    /// The tree that the index is known to equal.
    pub(super) tree: Option<ObjectId>,
    stamp: Stamp,
}

/// Tells one state of the index file from another.
type Stamp = Option<(SystemTime, u64, u64)>;

impl Index {
    /// Reads the index; one that does not exist is empty.
    pub(super) fn read(store: &Store, checkout: &Checkout) -> Result<Index, OpError> {
        let stamp = stamp(&checkout.index());
        let file = read_file(store, checkout.index())?;
        let mut entries = Vec::with_capacity(file.entries().len());
        for entry in file.entries() {
            let path = entry.path(&file);
            if entry.stage() != Stage::Unconflicted {
                return Err(OpError::new(
                    OpErrorKind::WorktreeBusy,
                    format!("path {path:?} has a conflict that is not resolved; resolve it first"),
                ));
            }
            let tracked = Tracked {
                path: path.to_owned(),
                id: entry.id,
                mode: entry.mode,
                flags: entry.flags,
                stat: entry.stat,
            };
            if entry.mode.is_sparse() {
                entries.extend(store.expand(path, entry.id)?);
            } else {
                entries.push(tracked);
            }
        }
        if file.is_sparse() {
            entries.sort_by(|a, b| a.path.cmp(&b.path));
        }
        let is_plain =
            !file.entries().iter().any(|entry| entry.flags.contains(Flags::INTENT_TO_ADD));
        let tree = file.tree().filter(|tree| is_plain && tree.num_entries.is_some());
        let tree = tree.map(|tree| tree.id);
        Ok(Index { file, entries, tree, stamp })
    }

    /// Whether the file is still the one that was read.
    pub(super) fn is_current(&self, checkout: &Checkout) -> bool {
        self.stamp == stamp(&checkout.index())
    }

    pub(super) fn find(&self, path: &BStr) -> Option<usize> {
        self.entries.binary_search_by(|entry| entry.path.as_bstr().cmp(path)).ok()
    }

    /// The positions of all entries inside the folder.
    pub(super) fn below(&self, folder: &BStr) -> std::ops::Range<usize> {
        let start = [folder.as_bytes(), b"/"].concat();
        // The byte after the slash.
        let end = [folder.as_bytes(), b"0"].concat();
        let at = |bound: &[u8]| self.entries.partition_point(|entry| entry.path.as_slice() < bound);
        at(&start)..at(&end)
    }
}

impl Tracked {
    /// Whether git never looks at the file, but takes what the index has.
    pub(super) fn is_assumed(&self) -> bool {
        self.flags.contains(Flags::ASSUME_VALID)
    }

    pub(super) fn is_skipped(&self) -> bool {
        self.flags.contains(Flags::SKIP_WORKTREE)
    }

    /// Whether only the path is known so far and not the content.
    pub(super) fn is_intended(&self) -> bool {
        self.flags.contains(Flags::INTENT_TO_ADD)
    }
}

pub(super) fn read_file(store: &Store, path: PathBuf) -> Result<gix::index::File, OpError> {
    let message = format!("cannot read the index {}", path.display());
    gix::index::File::at_or_default(
        path,
        store.hash_kind(),
        false,
        gix::index::decode::Options::default(),
    )
    .map_err(|error| OpError::repository(&message, &error))
}

impl Store {
    /// The entries of a folder that a sparse index has as one; `folder` ends with a slash.
    pub(super) fn expand(&self, folder: &BStr, tree: ObjectId) -> Result<Vec<Tracked>, OpError> {
        let files = self.files_of(tree)?;
        let entry = |(path, mode, id): (BString, gix::objs::tree::EntryMode, ObjectId)| Tracked {
            path: [folder.as_bytes(), &path].concat().into(),
            id,
            mode: mode.into(),
            flags: Flags::SKIP_WORKTREE | Flags::EXTENDED,
            stat: Stat::default(),
        };
        Ok(files.into_iter().map(entry).collect())
    }

    /// All entries of a tree that are no trees, by path.
    pub(in crate::store) fn files_of(
        &self,
        tree: ObjectId,
    ) -> Result<Vec<(BString, gix::objs::tree::EntryMode, ObjectId)>, OpError> {
        let fault =
            |error: gix::Error| OpError::repository(&format!("cannot read tree {tree}"), &error);
        let tree = self.repo.find_tree(tree).map_err(fault)?;
        let entries = tree.traverse().breadthfirst.files().map_err(fault)?;
        Ok(entries
            .into_iter()
            .filter(|entry| entry.mode.is_no_tree())
            .map(|entry| (entry.filepath, entry.mode, entry.oid))
            .collect())
    }
}

fn stamp(path: &std::path::Path) -> Stamp {
    use std::os::unix::fs::MetadataExt;
    let data = fs::metadata(path).ok()?;
    Some((data.modified().ok()?, data.len(), data.ino()))
}
