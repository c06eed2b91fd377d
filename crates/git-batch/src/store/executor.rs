//! Who does the work in a repository: gix and code of this crate, or the git program.

use std::fmt;

use gix::ObjectId;
use gix::refs::FullName;

use super::git_program::GitProgram;
use super::pack::Keep;
use super::refs::{Faults, Moved, RefMove};
use super::unwritten::Unwritten;
use super::worktrees::CheckedOut;
use super::{Signer, Store};
use crate::OpError;

/// What can be done in two ways. The same operations give the same commits and the same refs, whoever
/// does it.
pub(super) trait Executor: fmt::Debug + Send + Sync {
    /// The commit that a local branch points to.
    fn tip(&self, store: &Store, branch: &FullName) -> Result<Option<ObjectId>, OpError>;

    /// All local branches.
    fn branches(&self, store: &Store) -> Result<Vec<FullName>, OpError>;

    /// The full names of all refs in a folder; those that cannot be read are none.
    fn refs_below(&self, store: &Store, folder: &str) -> Vec<String>;

    /// The branch that `HEAD` names.
    fn head(&self, store: &Store) -> Option<FullName>;

    /// The commit that any revision names, which does not begin with a hyphen.
    fn resolve(&self, store: &Store, revision: &str) -> Option<ObjectId>;

    /// A branch whose name is a folder of `branch`'s name, or the other way round.
    fn clashing_branch(
        &self,
        store: &Store,
        branch: &FullName,
    ) -> Result<Option<FullName>, OpError>;

    /// The branches that work trees stand on.
    fn checked_out(&self, store: &Store) -> CheckedOut;

    /// The merge of three trees, where no judge is needed that sees more than those.
    fn merge_trees(
        &self,
        store: &mut Store,
        base: ObjectId,
        ours: ObjectId,
        theirs: ObjectId,
    ) -> Result<Option<ObjectId>, OpError>;

    /// Writes objects, sorted by id, durably; nothing reaches them yet.
    fn write(&self, store: &mut Store, objects: &[Unwritten]) -> Result<Keep, OpError>;

    /// Moves all branches, as [`Store::move_refs`] says.
    fn move_refs(
        &self,
        store: &mut Store,
        moves: &[RefMove],
        signer: &Signer,
    ) -> Result<Vec<Moved>, Faults>;
}

/// Reads by gix, merges by gix where that is known to equal git, and writes by code of this crate:
/// few processes, and few calls of `fsync`.
#[derive(Debug)]
pub(super) struct Gix;

impl Executor for Gix {
    fn tip(&self, store: &Store, branch: &FullName) -> Result<Option<ObjectId>, OpError> {
        let fault = |error: gix::Error| {
            OpError::repository(&format!("cannot read the branch {:?}", branch.shorten()), &error)
        };
        if !store.has_ref(branch).map_err(fault)? {
            return Ok(None);
        }
        let Some(mut reference) = store.repo.try_find_reference(branch.as_ref()).map_err(fault)?
        else {
            return Ok(None);
        };
        Ok(Some(reference.peel_to_commit().map_err(fault)?.id))
    }

    fn branches(&self, store: &Store) -> Result<Vec<FullName>, OpError> {
        let fault = |error: &dyn std::error::Error| {
            OpError::repository("cannot list the local branches", error)
        };
        let platform = store.repo.references().map_err(|error| fault(&error))?;
        let branches = platform.local_branches().map_err(|error| fault(&error))?;
        // One that is broken is in nobody's way.
        Ok(branches.filter_map(Result::ok).map(|branch| branch.name().to_owned()).collect())
    }

    fn refs_below(&self, store: &Store, folder: &str) -> Vec<String> {
        let Ok(platform) = store.repo.references() else { return Vec::new() };
        let folder = format!("{folder}/");
        let refs = platform.prefixed(folder.as_str()).into_iter().flatten();
        refs.filter_map(Result::ok).map(|found| found.name().as_bstr().to_string()).collect()
    }

    fn head(&self, store: &Store) -> Option<FullName> {
        store.repo.head_name().ok().flatten()
    }

    fn resolve(&self, store: &Store, revision: &str) -> Option<ObjectId> {
        let id = store.repo.rev_parse_single(revision).ok()?;
        let commit = id.object().ok()?.peel_to_commit().ok()?;
        Some(commit.id)
    }

    fn clashing_branch(
        &self,
        store: &Store,
        branch: &FullName,
    ) -> Result<Option<FullName>, OpError> {
        store.clashing_file(branch)
    }

    fn checked_out(&self, store: &Store) -> CheckedOut {
        store.checked_out_by_files()
    }

    fn merge_trees(
        &self,
        store: &mut Store,
        base: ObjectId,
        ours: ObjectId,
        theirs: ObjectId,
    ) -> Result<Option<ObjectId>, OpError> {
        store.merge_without_renames(base, ours, theirs)
    }

    fn write(&self, store: &mut Store, objects: &[Unwritten]) -> Result<Keep, OpError> {
        store.write_pack(objects)
    }

    fn move_refs(
        &self,
        store: &mut Store,
        moves: &[RefMove],
        signer: &Signer,
    ) -> Result<Vec<Moved>, Faults> {
        store.move_files(moves, signer)
    }
}

/// The executor of a kind.
pub(super) fn executor(is_git_program: bool) -> &'static dyn Executor {
    if is_git_program { &GitProgram } else { &Gix }
}
