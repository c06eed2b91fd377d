//! Local branches of a group that its push does not publish: they move before it, and back if it is
//! refused.

use std::collections::BTreeMap;

use bstr::ByteSlice;
use gix::ObjectId;
use gix::refs::FullName;

use super::{Batch, Pending, PendingKind};
use crate::store::{Faults, RefMove};
use crate::{OpError, OpErrorKind, Outcome, stops};

impl Batch<'_, '_> {
    /// The branches of a group that will not be at the remote as they are here.
    pub(super) fn early(
        &self,
        is_member: &impl Fn(&Pending) -> bool,
        wanted: &BTreeMap<FullName, ObjectId>,
        pending: &[Pending],
    ) -> Vec<RefMove> {
        let is_of = |m: &RefMove| {
            let is_local = |p: &Pending| p.kind == PendingKind::Local && p.branch == m.name;
            wanted.get(&m.name) != Some(&m.new)
                && pending.iter().any(|p| is_local(p) && is_member(p))
        };
        self.moves(pending).into_iter().filter(is_of).collect()
    }

    /// Moves them. If one of them cannot move, none has, and the group has failed.
    pub(super) fn move_early(
        &mut self,
        moves: &[RefMove],
        pending: &mut Vec<Pending>,
        outcomes: &mut [Option<Outcome>],
    ) -> bool {
        if moves.is_empty() {
            return true;
        }
        self.wait_for_worktrees();
        let mut done = moves.to_vec();
        let faults = match self.session.store.move_refs(moves, &self.session.signer) {
            Ok(results) => {
                let named = moves.iter().map(|m| m.name.clone()).zip(results);
                let failed = named.filter_map(|(name, result)| Some((name, result.err()?)));
                let faults: Vec<_> = failed.collect();
                done.retain(|m| faults.iter().all(|(name, _)| *name != m.name));
                faults
            }
            Err(faults) => {
                done.clear();
                faults
            }
        };
        stops::reach("group moved");
        if faults.is_empty() {
            return true;
        }
        for (name, error) in faults {
            self.stays(&name, &error, pending, outcomes);
        }
        self.take_back(done, outcomes);
        false
    }

    /// Moves those that are where they were although their group is at the remote already, and gives
    /// those that cannot move. All others have moved before its push, wherever they are now.
    pub(super) fn move_late(&mut self, moves: &[RefMove]) -> Faults {
        let store = &mut self.session.store;
        let is_behind = |m: &&RefMove| store.branch_tip(&m.name) == Ok(m.old);
        let mut behind: Vec<RefMove> = moves.iter().filter(is_behind).cloned().collect();
        let mut faults = Faults::new();
        while !behind.is_empty() {
            match store.move_refs(&behind, &self.session.signer) {
                Ok(results) => {
                    let names = behind.into_iter().map(|m| m.name).zip(results);
                    faults.extend(names.filter_map(|(name, result)| Some((name, result.err()?))));
                    break;
                }
                // None has moved then.
                Err(found) => {
                    behind.retain(|m| found.iter().all(|(name, _)| *name != m.name));
                    faults.extend(found);
                }
            }
        }
        faults
    }

    /// What is still waited for has landed with its group, but for `late`, which could not follow it; the
    /// rest of the branches move back, unless nobody has said what became of the push.
    pub(super) fn settle_early(
        &mut self,
        early: Vec<RefMove>,
        late: &Faults,
        is_heard: bool,
        pending: &mut Vec<Pending>,
        outcomes: &mut [Option<Outcome>],
    ) {
        let is_waited_for = |m: &RefMove| {
            pending.iter().any(|p| p.kind == PendingKind::Local && p.branch == m.name)
        };
        let (landed, refused): (Vec<_>, Vec<_>) = early.into_iter().partition(is_waited_for);
        let result = |m: &RefMove| match late.iter().find(|(name, _)| *name == m.name) {
            Some((_, error)) => Err(error.clone()),
            None => Ok(()),
        };
        let results = landed.iter().map(result).collect();
        self.settle(&landed, results, pending, outcomes);
        if is_heard {
            self.take_back(refused, outcomes);
        }
    }

    /// Moves branches back to where they were. One that somebody has gone on from stays, and its
    /// operations say so.
    fn take_back(&mut self, moves: Vec<RefMove>, outcomes: &mut [Option<Outcome>]) {
        let null = self.session.store.null_id();
        let back = |m: RefMove| {
            let mut worktree = m.worktree;
            for update in worktree.iter_mut().flat_map(|moved| moved.updates.values_mut()) {
                *update = update.undone();
            }
            let (old, new) = (Some(m.new), m.old.unwrap_or(null));
            let message = "git-batch: its group was refused".into();
            RefMove { name: m.name, old, new, message, worktree, is_again: false, instead: None }
        };
        let mut left: Vec<RefMove> = moves.into_iter().map(back).collect();
        while !left.is_empty() {
            let Err(faults) = self.session.store.take_back(&left, &self.session.signer) else {
                break;
            };
            let before = left.len();
            for (name, error) in faults {
                left.retain(|m| m.name != name);
                self.cannot_go_back(&name, &error, outcomes);
            }
            if left.len() == before {
                break;
            }
        }
    }

    fn cannot_go_back(&self, name: &FullName, error: &OpError, outcomes: &mut [Option<Outcome>]) {
        let steps = self.branches.get(name).map_or(&[][..], |branch| &branch.steps);
        for step in steps {
            let outcome = &mut outcomes[step.operation];
            if matches!(outcome, Some(Outcome::Skipped { .. })) {
                let name = name.shorten().to_str_lossy();
                let message = format!(
                    "the rest of its group did not land, but branch {name:?} keeps the commit: {error}"
                );
                *outcome = Some(Outcome::Failed(OpError::new(OpErrorKind::BranchMoved, message)));
            }
        }
    }
}
