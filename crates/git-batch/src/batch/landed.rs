//! Where branches stand, those included that an input has moved at the remote only and goes on with in a
//! later batch.

use std::collections::{BTreeMap, BTreeSet};

use gix::ObjectId;
use gix::refs::FullName;

use super::{Batch, Branch};
use crate::passage::branch_of;
use crate::{OpError, Operation, OperationKind, Outcome};

impl Batch<'_, '_> {
    /// The branch as the batch sees it now.
    pub(super) fn branch(&mut self, name: &FullName) -> Result<&mut Branch, OpError> {
        if !self.branches.contains_key(name) {
            let here = self.session.store.branch_tip(name)?;
            let there = self.landed_beyond(name, here)?;
            let (start, is_there) = (there.or(here), there.is_some());
            let branch = Branch { start, tip: start, remote_only: is_there, ..Branch::default() };
            self.branches.insert(name.clone(), branch);
        }
        Ok(self.branches.get_mut(name).expect("it was inserted above"))
    }

    /// Notes where operations that have ended before have brought branches which are checked out: what they
    /// have made, or what was pushed in place of that.
    pub(super) fn note_landed<'o>(
        &mut self,
        operations: &[&Operation],
        end_of: impl Fn(usize) -> Option<&'o Outcome>,
    ) {
        let mut captured = BTreeSet::new();
        let mut landed = BTreeMap::new();
        for (index, operation) in operations.iter().enumerate() {
            let Some(name) = branch_of(operation) else { continue };
            if !self.checked_out.contains_key(&name) {
                continue;
            }
            let (is_captured, is_push) = match &operation.kind {
                OperationKind::Commit(commit) => (commit.worktree.is_some(), false),
                OperationKind::Merge(_) => (false, false),
                OperationKind::Push(_) => (false, true),
            };
            if is_captured {
                captured.insert(name);
            } else if let Some(Outcome::Landed { commit, .. }) = end_of(index)
                && (!is_push || landed.contains_key(&name))
            {
                landed.insert(name, *commit);
            }
        }
        // Those move here, with their worktrees.
        landed.retain(|name, _| !captured.contains(name));
        self.landed = landed;
    }

    /// Where a branch goes on that is at `here`: at what operations of the input have landed on it, if that
    /// is at the remote still and the branch is behind it. All else would be without that commit, or take
    /// it back to the remote.
    fn landed_beyond(
        &mut self,
        name: &FullName,
        here: Option<ObjectId>,
    ) -> Result<Option<ObjectId>, OpError> {
        let Some(&commit) = self.landed.get(name) else { return Ok(None) };
        if here == Some(commit) {
            return Ok(None);
        }
        if let Some(error) = &self.landed_fault {
            return Err(error.clone());
        }
        let there = match self.remote_tip(name) {
            Ok(there) => there,
            Err(error) => {
                // A fault of this branch alone says nothing of others.
                if self.remote.is_none() {
                    self.landed_fault = Some(error.clone());
                }
                return Err(error);
            }
        };
        let store = &self.session.store;
        let is_there = there.is_some_and(|there| store.contains(there, commit));
        let is_behind = here.is_none_or(|here| store.contains(commit, here));
        Ok((is_there && is_behind).then_some(commit))
    }
}
