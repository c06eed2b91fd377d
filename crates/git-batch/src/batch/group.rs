//! Groups: of their operations all are done, or none is.

use std::collections::{BTreeMap, BTreeSet};

use gix::ObjectId;
use gix::refs::FullName;

use super::deliver::MAX_RETRIES;
use super::push::unheard;
use super::{Batch, Pending, PendingKind};
use crate::publish::push;
use crate::store::{Faults, RefMove};
use crate::{Class, OpError, OpErrorKind, Outcome};

/// What was pushed of each branch.
type Results = BTreeMap<FullName, Result<ObjectId, Outcome>>;

/// Which operations stand or fall together.
pub(super) struct Bonds {
    /// For each operation another one of its set, or itself.
    next: Vec<usize>,
}

impl Bonds {
    /// The one that stands for the whole set.
    pub(super) fn root(&self, mut at: usize) -> usize {
        while self.next[at] != at {
            at = self.next[at];
        }
        at
    }

    pub(super) fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.next[a.max(b)] = a.min(b);
    }
}

impl Batch<'_, '_> {
    /// Says what stands or falls together: the operations of a group; groups of which one has found nothing
    /// to change because of another; groups that change one and the same local branch, which moves as a
    /// whole; and, where a group changes a branch at the remote only, the pushes that bring it there.
    pub(super) fn bonds(&self, pending: &[Pending]) -> Bonds {
        let operations = self.operations;
        let mut bonds = Bonds { next: (0..operations.len()).collect() };
        let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, operation) in operations.iter().enumerate() {
            if let Some(group) = operation.group.as_deref() {
                bonds.join(*groups.entry(group).or_insert(index), index);
            }
        }
        for (&index, &other) in &self.unchanged {
            if operations[index].group.is_some() && operations[other].group.is_some() {
                bonds.join(other, index);
            }
        }
        let mut local: BTreeMap<&FullName, usize> = BTreeMap::new();
        let mut remote: BTreeMap<&FullName, usize> = BTreeMap::new();
        for p in pending {
            let (branch, operation) = (&p.branch, p.operation);
            let is_grouped = operations[operation].group.is_some();
            match p.kind {
                PendingKind::Local if is_grouped => {
                    bonds.join(*local.entry(branch).or_insert(operation), operation);
                }
                PendingKind::Remote if is_grouped => {
                    bonds.join(*remote.entry(branch).or_insert(operation), operation);
                }
                PendingKind::Push => {
                    if let Some(&other) = remote.get(branch) {
                        bonds.join(other, operation);
                    }
                }
                PendingKind::Local | PendingKind::Remote => {}
            }
        }
        bonds
    }

    /// Makes each operation of a group need all others of it, and returns those that have ended
    /// without success.
    pub(super) fn bind_groups(
        &self,
        order: &[usize],
        pending: &mut [Pending],
        outcomes: &[Option<Outcome>],
    ) -> BTreeSet<usize> {
        let bonds = self.bonds(pending);
        let mut sets: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for &index in order {
            sets.entry(bonds.root(index)).or_default().insert(index);
        }
        // What could be in no batch is in no order either.
        for (index, operation) in self.operations.iter().enumerate() {
            if operation.group.is_some()
                && let Some(members) = sets.get_mut(&bonds.root(index))
            {
                members.insert(index);
            }
        }
        sets.retain(|_, members| members.len() > 1);
        for p in pending {
            let members = sets.get(&bonds.root(p.operation)).into_iter().flatten();
            p.needs.extend(members.filter(|member| **member != p.operation));
        }
        let has_failed =
            |index: &usize| outcomes[*index].as_ref().is_some_and(|outcome| !outcome.is_success());
        sets.into_values().flatten().filter(has_failed).collect()
    }

    /// Pushes each group with one atomic command, again where that may help. What is refused, or has
    /// moved here meanwhile, takes the whole group with it.
    ///
    /// The local branches of a group that it does not push move before its push, so that nothing can
    /// fail after it; if the push is refused, they move back.
    pub(super) fn push_groups(
        &mut self,
        pending: &mut Vec<Pending>,
        outcomes: &mut [Option<Outcome>],
    ) {
        let bonds = self.bonds(pending);
        let is_grouped = |p: &&Pending| self.operations[p.operation].group.is_some();
        let mut roots: Vec<usize> = Vec::new();
        for p in pending.iter().filter(is_grouped) {
            let root = bonds.root(p.operation);
            if !roots.contains(&root) {
                roots.push(root);
            }
        }
        for root in roots {
            let is_member = |p: &Pending| bonds.root(p.operation) == root;
            let wanted: BTreeMap<FullName, ObjectId> = pending
                .iter()
                .filter(|p| is_member(p) && p.kind == PendingKind::Push)
                .map(|p| (p.branch.clone(), p.commit))
                .collect();
            if wanted.is_empty() {
                continue;
            }
            let mut early = self.early(&is_member, &wanted, pending);
            let mut late = Faults::new();
            let results = match self.is_pushed(&self.instead_of(&wanted)) {
                Ok(is_pushed) => {
                    if is_pushed {
                        late = self.move_late(&early);
                    } else if !self.move_early(&early, pending, outcomes) {
                        continue;
                    }
                    let members: Vec<&Pending> = pending.iter().filter(|p| is_member(p)).collect();
                    self.push_group(&wanted, &members, &early)
                }
                Err(error) => {
                    early.clear();
                    self.note_unheard(wanted.keys().cloned(), true);
                    let unheard = |name: &FullName| (name.clone(), Err(error.clone().into()));
                    Ok(wanted.keys().map(unheard).collect())
                }
            };
            match results {
                Ok(results) => self.settle_group(&is_member, &wanted, &results, pending, outcomes),
                Err((operation, error)) => {
                    self.fail(BTreeSet::from([operation]), &error, pending, outcomes);
                }
            }
            let is_heard = wanted.keys().all(|name| !self.unheard.contains(name));
            self.settle_early(early, &late, is_heard, pending, outcomes);
        }
    }

    /// What is pushed of branches: what an earlier process had brought together with the remote's
    /// goes in place of their tips.
    pub(super) fn instead_of(
        &self,
        wanted: &BTreeMap<FullName, ObjectId>,
    ) -> BTreeMap<FullName, ObjectId> {
        let of = |name: &FullName, id: ObjectId| self.instead(name, id).unwrap_or(id);
        wanted.iter().map(|(name, id)| (name.clone(), of(name, *id))).collect()
    }

    /// Pushes one group; an error is that a local branch has moved, and then nothing was pushed.
    fn push_group(
        &mut self,
        wanted: &BTreeMap<FullName, ObjectId>,
        members: &[&Pending],
        early: &[RefMove],
    ) -> Result<Results, (usize, OpError)> {
        let mut left = self.instead_of(wanted);
        for retry in 0.. {
            if self.is_pushed(&left) != Ok(true)
                && let Some(moved) = members.iter().find_map(|p| self.has_moved(p, early))
            {
                return Err(moved);
            }
            let results = self.push_refs(&left, true);
            let may_pass = may_pass(&results) && !self.is_landing && retry < MAX_RETRIES;
            let results = results
                .into_iter()
                .map(|(name, result)| {
                    let pushed = left.get(&name).copied();
                    let pushed = pushed.unwrap_or_else(|| self.session.store.null_id());
                    (name, result.map(|()| pushed))
                })
                .collect();
            if !may_pass || !self.look_again(retry) {
                return Ok(results);
            }
            for (name, result) in self.catch_up_all(wanted) {
                match result {
                    Ok(id) => drop(left.insert(name, id)),
                    // The others wait for it in vain.
                    Err(outcome) => {
                        if !self.unheard.contains(&name) {
                            self.note_not_pushed(&left);
                        }
                        return Ok([(name, Err(outcome))].into());
                    }
                }
            }
        }
        unreachable!("the last retry returns")
    }

    /// Notes that nothing of a group has been pushed, or can be any more: one of its branches was refused,
    /// or has gone on without it. What is there all the same is waited for.
    fn note_not_pushed(&mut self, left: &BTreeMap<FullName, ObjectId>) {
        for (name, id) in left {
            if !self.has_arrived(name, *id) {
                self.unheard.remove(name);
            }
        }
    }

    /// Whether all of a group is at the remote already: by an earlier process, or by a push of this one
    /// that was cut off.
    fn is_pushed(&mut self, wanted: &BTreeMap<FullName, ObjectId>) -> Result<bool, OpError> {
        if !wanted.keys().any(|name| self.may_be_there(name)) {
            return Ok(false);
        }
        self.look_behind(wanted)?;
        let remote = self.remote()?;
        let theirs: Vec<_> = wanted
            .iter()
            .map(|(name, id)| (*id, remote.refs.get(name.as_bstr()).copied()))
            .collect();
        let store = &self.session.store;
        Ok(theirs
            .into_iter()
            .all(|(id, there)| there.is_some_and(|there| store.contains(there, id))))
    }

    /// Lets the local branches of groups follow to what was pushed in their place.
    pub(super) fn follow_groups(&mut self, outcomes: &mut [Option<Outcome>]) {
        for (name, (wanted, pushed)) in self.confirmed.clone() {
            if wanted != pushed && self.follow_push(&name, Some(wanted), pushed) {
                self.rename_remade(&name, outcomes);
            }
        }
    }

    fn settle_group(
        &mut self,
        is_member: &impl Fn(&Pending) -> bool,
        wanted: &BTreeMap<FullName, ObjectId>,
        results: &Results,
        pending: &mut Vec<Pending>,
        outcomes: &mut [Option<Outcome>],
    ) {
        for (name, result) in results {
            if let (Ok(pushed), Some(wanted)) = (result, wanted.get(name)) {
                self.confirmed.insert(name.clone(), (*wanted, *pushed));
            }
        }
        // Others may have a commit in what the group has pushed.
        let has = |pushed: &ObjectId, p: &Pending| self.stands_for(*pushed, p.commit);
        let is_inside = |p: &Pending| {
            p.kind == PendingKind::Remote
                && matches!(results.get(&p.branch), Some(Ok(pushed)) if has(pushed, p))
        };
        let is_at_remote =
            |p: &Pending| is_member(p) && p.kind != PendingKind::Local || is_inside(p);
        let is_innocent = |outcome: &Outcome| matches!(outcome, Outcome::Rejected { reason, .. } if push::is_innocent(reason));
        let has_culprit = results
            .values()
            .any(|result| result.as_ref().is_err_and(|outcome| !is_innocent(outcome)));
        let mut refused = BTreeSet::new();
        pending.retain(|p| {
            if !is_at_remote(p) {
                return true;
            }
            match results.get(&p.branch) {
                // Also where the remote did not keep to the rule: what has moved has landed.
                Some(Ok(pushed)) => {
                    let is_push = p.kind == PendingKind::Push;
                    let commit = if is_push { *pushed } else { self.image_in(*pushed, p.commit) };
                    outcomes[p.operation] = Some(Outcome::landed(commit));
                }
                Some(Err(outcome)) if !is_innocent(outcome) || !has_culprit => {
                    refused.insert(p.operation);
                    outcomes[p.operation] = Some(outcome.clone());
                }
                // It waits for the culprit, like the rest of the group.
                Some(Err(_)) => return true,
                None if has_culprit => return true,
                None => {
                    refused.insert(p.operation);
                    outcomes[p.operation] = Some(unheard(&p.branch).into());
                }
            }
            false
        });
        self.skip(refused, pending, outcomes);
    }

    /// Why a local branch of a group could not move after its push, or is not any more where it was
    /// moved before.
    fn has_moved(&self, p: &Pending, early: &[RefMove]) -> Option<(usize, OpError)> {
        let state = self.branches.get(&p.branch).filter(|_| p.kind == PendingKind::Local)?;
        let is_early = early.iter().any(|m| m.name == p.branch);
        let error = match self.session.store.branch_tip(&p.branch) {
            Ok(tip) if !is_early && tip == state.start => return None,
            Ok(Some(tip))
                if (is_early || self.resumed.is_some())
                    && state.tip.is_some_and(|new| self.session.store.contains(tip, new)) =>
            {
                return None;
            }
            Ok(_) => OpError::new(
                OpErrorKind::BranchMoved,
                format!("somebody else has moved the branch {:?}", p.branch.shorten()),
            ),
            Err(error) => error,
        };
        Some((p.operation, error))
    }
}

/// Whether a group that was refused may land later: nothing about it is final.
fn may_pass(results: &BTreeMap<FullName, Result<(), Outcome>>) -> bool {
    let is_refused = results.values().any(Result::is_err);
    is_refused
        && results.values().all(|result| {
            matches!(result, Ok(()) | Err(Outcome::Rejected { class: Class::Transient, .. }))
        })
}
