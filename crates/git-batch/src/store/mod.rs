//! Everything that is done with gix; no other module names it but for ids.

mod attributes;
mod capture;
mod clash;
mod commit;
mod diff;
mod executor;
mod export;
mod git_program;
mod git_refs;
mod hold;
mod identity;
mod lineage;
mod merge;
mod open;
mod oracle;
mod pack;
mod packed_refs;
mod partial;
mod ref_locks;
mod reflog;
mod refs;
mod submodule;
mod tree;
mod unwritten;
mod worktrees;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gix::ObjectId;
use gix::refs::FullName;

pub(crate) use capture::{Captured, Checkout, Request, sweep_indexes};
pub(crate) use clash::clashes;
pub(crate) use commit::{NewCommit, Signed, check_message};
pub(crate) use export::Unfit;
pub(crate) use identity::Signer;
pub(crate) use lineage::Fork;
pub(crate) use merge::{Merged, unrelated};
pub(crate) use oracle::sweep_quarantine;
pub(crate) use pack::{Keep, crc32};
pub(crate) use ref_locks::held;
pub(crate) use refs::{Faults, RefMove, WorktreeMove};
pub(crate) use tree::TreeEdit;
pub(crate) use worktrees::{CheckedOut, check_not_checked_out};

use self::executor::Executor;
use crate::program::Git;
use crate::{OpError, OpErrorKind, disk};

/// One repository; what is written stays in memory until [`Store::persist`].
pub(crate) struct Store {
    repo: gix::Repository,
    git_dir: PathBuf,
    common_dir: PathBuf,
    /// Who does what can be done in two ways.
    executor: &'static dyn Executor,
    /// Runs git in the repository, once it is known.
    git: Option<Git>,
    /// The remote that has what is missing here, if this is a partial clone.
    promisor: Option<String>,
    /// The attributes that hold for this repository alone, once they were needed.
    own_attributes: OnceCell<Vec<u8>>,
    fsyncs: u32,
    /// Folders with names of refs that are not durable yet.
    names: BTreeSet<PathBuf>,
    /// Why a power cut could take back that a branch has moved, if it could.
    unsynced: Option<std::io::Error>,
    processes: Cell<u32>,
    bytes: u64,
    /// The caches of merges, once there was one.
    merger: Option<Box<merge::Merger>>,
    /// What is known of the branch that was merged into last.
    lineage: Option<lineage::Lineage>,
    /// The git program in the scratch repository, once it was needed.
    scratch: Option<Git>,
    /// Whether that repository is there.
    has_scratch: bool,
    /// Whether commits are not signed, because nothing comes of them.
    is_unsigned: bool,
    /// The signatures that were made.
    signed: RefCell<Signed>,
}

impl Store {
    /// Sets who runs git here.
    pub(crate) fn with_git(mut self, git: Git) -> Store {
        self.git = Some(git);
        self
    }

    /// Signs nothing, whatever the configuration says.
    pub(crate) fn without_signing(mut self) -> Store {
        self.is_unsigned = true;
        self
    }

    fn program(&self) -> Result<&Git, OpError> {
        let missing = || OpError::new(OpErrorKind::Repository, "the git program is not known yet");
        self.git.as_ref().ok_or_else(missing)
    }

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

    fn note_synced(&mut self, synced: disk::Synced) {
        self.fsyncs += synced.calls;
        self.unsynced = self.unsynced.take().or(synced.fault);
    }

    /// Makes durable where branches have moved.
    pub(crate) fn sync_names(&mut self) {
        let names = std::mem::take(&mut self.names);
        self.note_synced(disk::sync_all_refs(&names));
    }

    /// As [`sync_names`](Store::sync_names); says why a power cut could take back what has moved since this
    /// was asked last, if it could.
    pub(crate) fn take_unsynced(&mut self) -> Option<std::io::Error> {
        self.sync_names();
        self.unsynced.take()
    }

    /// How many `git` programs were started so far.
    pub(crate) fn processes(&self) -> u32 {
        self.processes.get()
    }

    /// Counts `git` programs that were started beside it.
    pub(crate) fn note_processes(&self, count: u32) {
        self.processes.set(self.processes.get() + count);
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
        self.executor.tip(self, branch)
    }

    /// The commit that any revision names, `None` if there is none.
    pub(crate) fn resolve(&self, revision: &str) -> Option<ObjectId> {
        if revision.starts_with('-') {
            return None;
        }
        self.executor.resolve(self, revision)
    }

    /// The branch that `HEAD` names.
    pub(crate) fn head_branch(&self) -> Option<FullName> {
        self.executor.head(self)
    }

    /// All local branches.
    pub(crate) fn local_branches(&self) -> Result<Vec<FullName>, OpError> {
        self.executor.branches(self)
    }

    /// The full names of all refs in a folder.
    fn refs_below(&self, folder: &str) -> Vec<String> {
        self.executor.refs_below(self, folder)
    }

    /// Whether there is no commit at all on any branch here.
    pub(crate) fn is_unborn(&self) -> Result<bool, OpError> {
        Ok(self.local_branches()?.is_empty())
    }

    /// Whether `ancestor` is `commit` itself or one of those before it.
    pub(crate) fn is_ancestor(
        &self,
        ancestor: ObjectId,
        commit: ObjectId,
    ) -> Result<bool, OpError> {
        Ok(ancestor == commit || self.merge_bases(ancestor, commit)?.contains(&ancestor))
    }

    /// The commit that is in both and behind no other that is, if it is one.
    fn merge_base(&self, one: ObjectId, other: ObjectId) -> Result<Option<ObjectId>, OpError> {
        let bases = self.merge_bases(one, other)?;
        for &base in &bases {
            let mut has_all = true;
            for &other in &bases {
                has_all = has_all && self.is_ancestor(other, base)?;
            }
            if has_all {
                return Ok(Some(base));
            }
        }
        Ok(None)
    }

    /// All such commits. Where a commit is not older than what was made on top of it, gix gives some more,
    /// which are behind others.
    fn merge_bases(&self, one: ObjectId, other: ObjectId) -> Result<Vec<ObjectId>, OpError> {
        let bases = self
            .repo
            .merge_bases_many(one, &[other])
            .map_err(|error| OpError::repository("cannot walk the history", &error))?;
        Ok(bases.into_iter().map(gix::Id::detach).collect())
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
