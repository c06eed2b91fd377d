//! What operations name without containing it: the tips of branches, and what worktrees have.

use std::collections::{BTreeMap, BTreeSet};

use gix::ObjectId;
use gix::refs::FullName;

use super::session::Session;
use crate::record::{References, Wire};
use crate::{Operation, OperationKind, guard};

impl Session<'_> {
    /// The tips of the branches that operations read which no other operation of the input has moved
    /// before: as they are held, or as they are now.
    pub(super) fn tips(
        &self,
        operations: &[&Operation],
        order: &[usize],
        held: &BTreeMap<FullName, Option<ObjectId>>,
    ) -> References {
        let mut written = BTreeSet::new();
        let mut tips = References::new();
        for &index in order {
            let (read, moved) = match &operations[index].kind {
                OperationKind::Commit(commit) => (None, Some(&commit.branch)),
                OperationKind::Merge(merge) => (Some(&merge.source), Some(&merge.into)),
                OperationKind::Push(push) => (Some(&push.branch), None),
            };
            if let Some(branch) = read.filter(|branch| !written.contains(branch)) {
                let now = |name: &FullName| self.store.branch_tip(name).ok().flatten();
                let tip_of =
                    |name: FullName| held.get(&name).copied().unwrap_or_else(|| now(&name));
                let tip: Option<ObjectId> = guard::refname::branch(branch).ok().and_then(tip_of);
                let mut bytes = Vec::new();
                tip.put(&mut bytes);
                tips.insert(index, bytes);
            }
            written.extend(moved);
        }
        tips
    }

    /// Reads all worktrees that operations name, as if their commits were to be made.
    pub(super) fn capture_references(
        &mut self,
        operations: &[&Operation],
        order: &[usize],
        references: &mut References,
    ) {
        let has_any = order.iter().any(|index| match &operations[*index].kind {
            OperationKind::Commit(commit) => commit.worktree.is_some(),
            _ => false,
        });
        if !has_any {
            return;
        }
        let counted = self.counted;
        self.measured(operations, order, |batch| {
            for &index in order {
                if let OperationKind::Commit(commit) = &operations[index].kind
                    && let Some(from) = &commit.worktree
                {
                    // What is wrong with it shows again when it is done.
                    let _ = batch.capture(index, commit, from);
                }
            }
            references.append(&mut batch.references);
        });
        // It is in the receipt of what is done next.
        self.counted = counted;
    }
}
