//! Operations that find nothing to change, because of others that are not done yet, and those that fail, as far
//! as it matters to what comes after them.

use std::collections::{BTreeMap, BTreeSet};

use gix::refs::FullName;

use super::{Batch, Pending};
use crate::passage::branch_of;
use crate::{OperationKind, Outcome, guard};

impl Batch<'_, '_> {
    /// The last operation of this batch that moved the branch, or what that would start from.
    pub(super) fn last_step(&self, branch: &FullName) -> Option<usize> {
        let last = self.branches.get(branch)?.steps.last().map(|step| step.operation);
        last.or_else(|| self.starts.get(branch).copied())
    }

    /// The same of a branch that is named as a base.
    pub(super) fn last_step_at(&self, base: &str) -> Option<usize> {
        self.last_step(&guard::refname::branch(base).ok()?)
    }

    /// Remembers what later operations on the same new branch have to say about it.
    pub(super) fn note_failure(&mut self, index: usize, kind: &OperationKind, outcome: &Outcome) {
        let name = match kind {
            OperationKind::Commit(commit) => guard::refname::branch(&commit.branch),
            OperationKind::Merge(merge) => guard::refname::branch(&merge.into),
            OperationKind::Push(_) => return,
        };
        let Ok(name) = name else { return };
        let Ok(state) = self.branch(&name) else { return };
        match outcome {
            Outcome::NoChange { commit, .. } => state.unchanged = Some(*commit),
            _ => state.failed = Some(index),
        }
    }

    /// Notes an operation that has found nothing to change, if that is because of another one.
    pub(super) fn note_unchanged(&mut self, index: usize) {
        let operation = self.operations[index];
        let Some(name) = branch_of(operation) else { return };
        let is_new = self.branches.get(&name).is_none_or(|branch| branch.tip.is_none());
        let other = match &operation.kind {
            OperationKind::Commit(commit) if is_new => {
                commit.base.as_deref().and_then(|base| self.last_step_at(base))
            }
            _ => self.last_step(&name),
        };
        if let Some(other) = other {
            self.unchanged.insert(index, other);
            if is_new {
                self.starts.insert(name, other);
            }
        }
    }

    /// Makes a group need what one of it has found there already. What is in no group itself does not need
    /// the group for that.
    pub(super) fn need_unchanged(&self, pending: &mut [Pending]) {
        let group_of = |index: usize| self.operations[index].group.as_deref();
        let mut found: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for (&index, &other) in &self.unchanged {
            if let (Some(group), None) = (group_of(index), group_of(other)) {
                found.entry(group).or_default().insert(other);
            }
        }
        for p in pending {
            let others = group_of(p.operation).and_then(|group| found.get(group));
            p.needs.extend(others.into_iter().flatten());
        }
    }

    /// Forgets these, with what was said of them: nothing of the batch is carried out for now.
    pub(super) fn forget_unchanged(&mut self, outcomes: &mut [Option<Outcome>]) {
        for (index, _) in std::mem::take(&mut self.unchanged) {
            outcomes[index] = None;
        }
    }

    /// Skips those whose others did not come.
    pub(super) fn settle_unchanged(&self, outcomes: &mut [Option<Outcome>]) {
        for (&index, &other) in &self.unchanged {
            if outcomes[other].as_ref().is_some_and(|end| !has_come(end)) {
                let because = self.operations[other].id.clone();
                outcomes[index] = Some(Outcome::Skipped { because });
            }
        }
    }
}

/// Whether what others stand on is there: also where the remote has it with more on top.
pub(super) fn has_come(end: &Outcome) -> bool {
    end.is_success() || *end == Outcome::Superseded
}
