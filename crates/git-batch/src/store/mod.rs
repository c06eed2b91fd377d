//! Everything that is done with gix; no other module names it but for ids.

mod attributes;
mod capture;
mod clash;
mod commit;
mod diff;
mod export;
mod identity;
mod merge;
mod open;
mod oracle;
mod pack;
mod packed_refs;
mod ref_locks;
mod reflog;
mod refs;
mod submodule;
mod tree;
mod worktrees;

use std::path::{Path, PathBuf};

use gix::ObjectId;
use gix::refs::FullName;

pub(crate) use capture::{Captured, Checkout, Request, sweep_indexes};
pub(crate) use clash::clashes;
pub(crate) use commit::{NewCommit, check_message};
pub(crate) use identity::Signer;
pub(crate) use merge::{Merged, unrelated};
pub(crate) use oracle::sweep_quarantine;
pub(crate) use pack::{Keep, crc32};
pub(crate) use refs::{RefMove, WorktreeMove};
pub(crate) use tree::TreeEdit;
pub(crate) use worktrees::{CheckedOut, check_not_checked_out};

use crate::OpError;
use crate::program::Git;

/// One repository; what is written stays in memory until [`Store::persist`].
pub(crate) struct Store {
    repo: gix::Repository,
    git_dir: PathBuf,
    common_dir: PathBuf,
    fsyncs: u32,
    processes: u32,
    bytes: u64,
    /// The caches of merges, once there was one.
    merger: Option<Box<merge::Merger>>,
    /// The git program in the scratch repository, once it was needed.
    scratch: Option<Git>,
}

impl Store {
    /// The git directory that the `git` program is to be run for.
    pub(crate) fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    /// The directory that all work trees share.
    pub(crate) fn common_dir(&self) -> &Path {
        &self.common_dir
    }

    /// How many files and folders were made durable so far.
    pub(crate) fn fsyncs(&self) -> u32 {
        self.fsyncs
    }

    /// How many `git` programs were started so far.
    pub(crate) fn processes(&self) -> u32 {
        self.processes
    }

    /// How many bytes of packs were written so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the object is here; one of another hash, which a remote may name, never is.
    pub(crate) fn has_object(&self, id: ObjectId) -> bool {
        id.kind() == self.hash_kind() && self.repo.has_object(id)
    }

    /// The hash of all ids of this repository.
    pub(crate) fn hash_kind(&self) -> gix::hash::Kind {
        self.repo.object_hash()
    }

    /// The id that stands for "no object".
    pub(crate) fn null_id(&self) -> ObjectId {
        self.repo.object_hash().null()
    }

    /// The commit that a local branch points to.
    pub(crate) fn branch_tip(&self, branch: &FullName) -> Result<Option<ObjectId>, OpError> {
        let fault = |error: gix::Error| {
            OpError::repository(&format!("cannot read the branch {:?}", branch.shorten()), &error)
        };
        let Some(mut reference) = self.repo.try_find_reference(branch.as_ref()).map_err(fault)?
        else {
            return Ok(None);
        };
        Ok(Some(reference.peel_to_commit().map_err(fault)?.id))
    }

    /// The commit that any revision names, `None` if there is none.
    pub(crate) fn resolve(&self, revision: &str) -> Option<ObjectId> {
        if revision.starts_with('-') {
            return None;
        }
        let id = self.repo.rev_parse_single(revision).ok()?;
        let commit = id.object().ok()?.peel_to_commit().ok()?;
        Some(commit.id)
    }

    /// The branch that `HEAD` names.
    pub(crate) fn head_branch(&self) -> Option<FullName> {
        self.repo.head_name().ok().flatten()
    }

    /// All local branches.
    pub(crate) fn local_branches(&self) -> Result<Vec<FullName>, OpError> {
        let fault = |error: &dyn std::error::Error| {
            OpError::repository("cannot list the local branches", error)
        };
        let platform = self.repo.references().map_err(|error| fault(&error))?;
        let branches = platform.local_branches().map_err(|error| fault(&error))?;
        // One that is broken is in nobody's way.
        Ok(branches.filter_map(Result::ok).map(|branch| branch.name().to_owned()).collect())
    }

    /// Whether there is no commit at all on any branch here.
    pub(crate) fn is_unborn(&self) -> Result<bool, OpError> {
        let fault = |error: &dyn std::error::Error| {
            OpError::repository("cannot list the local branches", error)
        };
        let platform = self.repo.references().map_err(|error| fault(&error))?;
        let mut branches = platform.local_branches().map_err(|error| fault(&error))?;
        Ok(branches.next().is_none())
    }

    /// Whether `ancestor` is `commit` itself or one of those before it.
    pub(crate) fn is_ancestor(
        &self,
        ancestor: ObjectId,
        commit: ObjectId,
    ) -> Result<bool, OpError> {
        if ancestor == commit {
            return Ok(true);
        }
        let base = self
            .repo
            .merge_base(ancestor, commit)
            .map_err(|error| OpError::repository("cannot walk the history", &error))?;
        Ok(base.is_some_and(|base| base == ancestor))
    }

    pub(crate) fn tree_of(&self, commit: ObjectId) -> Result<ObjectId, OpError> {
        let fault = |error: gix::Error| {
            OpError::repository(&format!("cannot read commit {commit}"), &error)
        };
        let id = self.repo.find_commit(commit).map_err(fault)?.tree_id().map_err(fault)?;
        Ok(id.detach())
    }

    pub(crate) fn empty_tree(&self) -> ObjectId {
        self.repo.empty_tree().id
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("git_dir", &self.git_dir).finish_non_exhaustive()
    }
}
