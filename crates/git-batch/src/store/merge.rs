//! Three-way merges: gix where its verdict is known to equal git's, else git itself.

use std::path::Path;

use bstr::{BStr, BString, ByteSlice};
use gix::ObjectId;
use gix::diff::blob::Algorithm;
use gix::glob::pattern::Case;
use gix::merge::blob::builtin_driver::text::Labels;
use gix::merge::tree::TreatAsUnresolved;
use gix::objs::Write;
use gix::worktree::stack::state::Attributes;

use super::diff::TreeDiff;
use super::{Store, TreeEdit};
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
        let bases: Vec<ObjectId> = if let Some(base) = self.known_fork(ours, theirs) {
            vec![base]
        } else {
            let found = self.repo.merge_bases_many(ours, &[theirs]).map_err(fault)?;
            found.into_iter().map(gix::Id::detach).collect()
        };
        match bases[..] {
            [] => Ok(Merged::Unrelated),
            [base] => {
                let base = self.tree_of(base)?;
                let (our_tree, their_tree) = (self.tree_of(ours)?, self.tree_of(theirs)?);
                self.fetch_contents(base, our_tree, their_tree)?;
                match self.executor.merge_trees(self, base, our_tree, their_tree)? {
                    Some(tree) => Ok(Merged::Clean(tree)),
                    None => self.ask_git(ours, theirs, state),
                }
            }
            // Criss-cross histories need a virtual base, which may hide renames of its own.
            _ => self.ask_git(ours, theirs, state),
        }
    }

    /// Makes the contents available that the merge of three trees can look at.
    fn fetch_contents(
        &self,
        base: ObjectId,
        ours: ObjectId,
        theirs: ObjectId,
    ) -> Result<(), OpError> {
        if self.promisor.is_none() {
            return Ok(());
        }
        let ours = self.diff(base, ours)?.blobs;
        self.fetch_missing(ours.into_iter().chain(self.diff(base, theirs)?.blobs))
    }

    /// The merged tree; `None` if something may have been renamed, if an attribute asks for
    /// another way to merge, or if there is a conflict: then gix and git can differ.
    pub(super) fn merge_without_renames(
        &mut self,
        base: ObjectId,
        ours: ObjectId,
        theirs: ObjectId,
    ) -> Result<Option<ObjectId>, OpError> {
        let fault = |error: gix::Error| OpError::repository("cannot merge", &error);
        let (our_diff, their_diff) = (self.diff(base, ours)?, self.diff(base, theirs)?);
        let both: Vec<&BStr> =
            our_diff.paths.intersection(&their_diff.paths).map(|path| path.as_bstr()).collect();
        if our_diff.may_rename() || their_diff.may_rename() || self.has_merge_driver(ours, &both)? {
            return Ok(None);
        }
        if both.is_empty()
            && !is_inside(&our_diff, &their_diff)
            && let Some(tree) = self.graft(ours, their_diff)?
        {
            return Ok(Some(tree));
        }
        let mut caches = match self.merger.take() {
            Some(caches) => caches,
            None => Box::new(Merger::new(&self.repo).map_err(fault)?),
        };
        let merged = gix::merge::plumbing::tree(
            &base,
            &ours,
            &theirs,
            Labels { ancestor: None, current: None, other: None },
            &self.repo.objects,
            |blob| self.repo.objects.write_buf(gix::objs::Kind::Blob, blob),
            &mut caches.state,
            &mut caches.diffs,
            &mut caches.blobs,
            caches.options.clone(),
        );
        caches.diffs.clear_resource_cache_keep_allocation();
        let mut merged = merged.map_err(fault)?;
        let tree = if merged.has_unresolved_conflicts(TreatAsUnresolved::git()) {
            None
        } else {
            Some(merged.tree.write(|tree| self.write_tree(tree))?)
        };
        drop(merged);
        self.merger = Some(caches);
        Ok(tree)
    }
}

impl Store {
    /// The changes of one side on top of the tree of the other, where no path is changed by both.
    /// `None` if one would be behind a symlink or a submodule.
    fn graft(&self, ours: ObjectId, theirs: TreeDiff) -> Result<Option<ObjectId>, OpError> {
        let mut tree = TreeEdit::new(self, ours)?;
        for (path, now) in theirs.changes {
            let Some((mode, id)) = now else {
                tree.remove(self, path.as_bstr())?;
                continue;
            };
            match tree.put(self, path.as_bstr(), mode, id) {
                Err(error) if error.kind == OpErrorKind::InvalidPath => return Ok(None),
                put => put?,
            }
        }
        tree.write(self).map(Some)
    }
}

/// Whether a path of one side is a folder of one of the other side's.
fn is_inside(ours: &TreeDiff, theirs: &TreeDiff) -> bool {
    let is_above = |upper: &TreeDiff, lower: &TreeDiff| {
        lower.paths.iter().any(|path| {
            let mut above = path.find_iter("/").map(|slash| path[..slash].as_bstr());
            above.any(|above| upper.paths.contains(above))
        })
    };
    is_above(ours, theirs) || is_above(theirs, ours)
}

/// What gix needs to merge, made once: no attributes, no drivers, no index, no work tree, so that
/// a merge depends on its commits alone.
pub(super) struct Merger {
    state: gix::diff::tree::State,
    diffs: gix::diff::blob::Platform,
    blobs: gix::merge::blob::Platform,
    options: gix::merge::plumbing::tree::Options,
}

impl Merger {
    fn new(repo: &gix::Repository) -> Result<Merger, gix::Error> {
        let no_attributes = || {
            gix::worktree::Stack::new(
                repo.git_dir(),
                gix::worktree::stack::State::AttributesStack(Attributes::default()),
                Case::Sensitive,
                Vec::new(),
                Vec::new(),
            )
        };
        let diffs = gix::diff::resource_cache(
            repo,
            gix::diff::blob::pipeline::Mode::ToGit,
            no_attributes(),
            gix::diff::blob::pipeline::WorktreeRoots::default(),
        )?;
        let filter = gix::filter::plumbing::Pipeline::new(
            repo.command_context()?,
            repo.object_hash(),
            gix::filter::Pipeline::options(repo)?,
        );
        let blobs = gix::merge::blob::Platform::new(
            gix::merge::blob::Pipeline::new(
                gix::merge::blob::pipeline::WorktreeRoots::default(),
                filter,
                gix::merge::blob::pipeline::Options { large_file_threshold_bytes: BIG_FILE_BYTES },
            ),
            gix::merge::blob::pipeline::Mode::ToGit,
            no_attributes(),
            Vec::new(),
            gix::merge::blob::platform::Options::default(),
        );
        let mut options: gix::merge::plumbing::tree::Options = repo.tree_merge_options()?.into();
        options.rewrites = None;
        // Git merges with this algorithm whatever `diff.algorithm` says for display.
        options.blob_merge.text.diff_algorithm = Algorithm::Histogram;
        Ok(Merger { state: gix::diff::tree::State::default(), diffs, blobs, options })
    }
}

/// Git's `core.bigFileThreshold`: larger files are merged as a whole.
const BIG_FILE_BYTES: u64 = 512 << 20;

/// Refuses a merge of branches that share nothing.
pub(crate) fn unrelated(source: &str, into: &str) -> OpError {
    OpError::new(
        OpErrorKind::UnrelatedHistories,
        format!("{source:?} and {into:?} have no commit in common"),
    )
}
