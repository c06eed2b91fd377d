//! Which paths differ between two trees.

use std::collections::BTreeSet;

use bstr::BString;
use gix::ObjectId;
use gix::diff::tree::{Recorder, State, recorder::Change};
use gix::objs::TreeRefIter;
use gix::objs::tree::EntryMode;

use super::Store;
use crate::OpError;

/// What differs between two trees, folders themselves left out.
#[derive(Debug, Default)]
pub(crate) struct TreeDiff {
    pub(crate) paths: BTreeSet<BString>,
    /// How many files are new.
    pub(crate) additions: usize,
    /// How many files are gone.
    pub(crate) deletions: usize,
    /// What each of the paths is now; nothing if it is gone.
    pub(super) changes: Vec<(BString, Option<(EntryMode, ObjectId)>)>,
    /// The contents on both sides of all that differs.
    pub(super) blobs: Vec<ObjectId>,
}

impl TreeDiff {
    /// Whether something may have been renamed: only then can git and gix differ in a merge.
    pub(crate) fn may_rename(&self) -> bool {
        self.additions > 0 && self.deletions > 0
    }
}

impl Store {
    pub(crate) fn diff(&self, old: ObjectId, new: ObjectId) -> Result<TreeDiff, OpError> {
        let fault = |error: gix::Error| OpError::repository("cannot read a tree", &error);
        let mut diff = TreeDiff::default();
        if old == new {
            return Ok(diff);
        }
        let (old, new) =
            (self.repo.find_tree(old).map_err(fault)?, self.repo.find_tree(new).map_err(fault)?);
        let hash = self.repo.object_hash();
        let mut recorder = Recorder::default();
        gix::diff::tree(
            TreeRefIter::from_bytes(&old.data, hash),
            TreeRefIter::from_bytes(&new.data, hash),
            State::default(),
            &self.repo.objects,
            &mut recorder,
        )
        .map_err(|error| OpError::repository("cannot compare two trees", &error))?;
        for change in recorder.records {
            let mut is_gone = false;
            let (path, sides) = match change {
                Change::Addition { entry_mode, path, oid, .. } => {
                    diff.additions += usize::from(entry_mode.is_no_tree());
                    (path, [Some((entry_mode, oid)), None])
                }
                Change::Deletion { entry_mode, path, oid, .. } => {
                    diff.deletions += usize::from(entry_mode.is_no_tree());
                    is_gone = true;
                    (path, [Some((entry_mode, oid)), None])
                }
                Change::Modification {
                    entry_mode,
                    path,
                    oid,
                    previous_entry_mode,
                    previous_oid,
                } => (path, [Some((entry_mode, oid)), Some((previous_entry_mode, previous_oid))]),
            };
            if sides[0].is_some_and(|(mode, _)| mode.is_no_tree()) {
                diff.changes.push((path.clone(), sides[0].filter(|_| !is_gone)));
                diff.paths.insert(path);
            }
            let blobs = sides.into_iter().flatten().filter(|(mode, _)| mode.is_blob_or_symlink());
            diff.blobs.extend(blobs.map(|(_, id)| id));
        }
        Ok(diff)
    }
}
