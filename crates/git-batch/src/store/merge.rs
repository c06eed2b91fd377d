//! Three-way merges: gix where its verdict is known to equal git's, else git itself.

use std::path::Path;

use bstr::{BStr, BString, ByteSlice};
use gix::ObjectId;
use gix::diff::blob::Algorithm;
use gix::merge::blob::builtin_driver::text::Labels;
use gix::merge::tree::TreatAsUnresolved;

use super::Store;
use crate::{OpError, OpErrorKind};

/// The verdict of a merge.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Merged {
    /// The merged tree.
    Clean(ObjectId),
    /// The paths that clash, sorted.
    Conflict(Vec<BString>),
    /// The commits have no ancestor in common.
    Unrelated,
}

impl Store {
    /// Merges two commits as `git merge-tree --write-tree` does. `state` is the folder in which
    /// git may work.
    pub(crate) fn merge(
        &mut self,
        ours: ObjectId,
        theirs: ObjectId,
        state: &Path,
    ) -> Result<Merged, OpError> {
        let fault = |error: gix::Error| OpError::repository("cannot walk the history", &error);
        let bases: Vec<ObjectId> = self
            .repo
            .merge_bases_many(ours, &[theirs])
            .map_err(fault)?
            .into_iter()
            .map(gix::Id::detach)
            .collect();
        match bases[..] {
            [] => Ok(Merged::Unrelated),
            [base] => {
                let base = self.tree_of(base)?;
                match self.merge_without_renames(
                    base,
                    self.tree_of(ours)?,
                    self.tree_of(theirs)?,
                )? {
                    Some(tree) => Ok(Merged::Clean(tree)),
                    None => self.ask_git(ours, theirs, state),
                }
            }
            // Criss-cross histories need a virtual base, which may hide renames of its own.
            _ => self.ask_git(ours, theirs, state),
        }
    }

    /// The merged tree; `None` if something may have been renamed, if an attribute may choose
    /// another way to merge, or if there is a conflict: then gix and git can differ.
    fn merge_without_renames(
        &self,
        base: ObjectId,
        ours: ObjectId,
        theirs: ObjectId,
    ) -> Result<Option<ObjectId>, OpError> {
        let fault = |error: gix::Error| OpError::repository("cannot merge", &error);
        if self.diff(base, ours)?.may_rename()
            || self.diff(base, theirs)?.may_rename()
            || self.has_merge_attributes(ours)?
        {
            return Ok(None);
        }
        let mut options: gix::merge::plumbing::tree::Options =
            self.repo.tree_merge_options().map_err(fault)?.into();
        options.rewrites = None;
        // Git merges with this algorithm whatever `diff.algorithm` says for display.
        options.blob_merge.text.diff_algorithm = Algorithm::Histogram;
        let labels = Labels { ancestor: None, current: None, other: None };
        let merged =
            self.repo.merge_trees(base, ours, theirs, labels, options.into()).map_err(fault)?;
        if merged.has_unresolved_conflicts(TreatAsUnresolved::git()) {
            return Ok(None);
        }
        let tree = merged.tree.detach().write(|tree| self.write_tree(tree))?;
        Ok(Some(tree))
    }

    /// Whether the root's attributes name a merge driver.
    fn has_merge_attributes(&self, tree: ObjectId) -> Result<bool, OpError> {
        let Some((mode, id)) = self.entry_at(tree, BStr::new(".gitattributes"))? else {
            return Ok(false);
        };
        if !mode.is_blob() {
            return Ok(false);
        }
        let blob = self
            .repo
            .find_blob(id)
            .map_err(|error| OpError::repository("cannot read .gitattributes", &error))?;
        Ok(blob.data.contains_str("merge") || blob.data.contains_str("binary"))
    }
}

/// Refuses a merge of branches that share nothing.
pub(crate) fn unrelated(source: &str, into: &str) -> OpError {
    OpError::new(
        OpErrorKind::UnrelatedHistories,
        format!("{source:?} and {into:?} have no commit in common"),
    )
}
