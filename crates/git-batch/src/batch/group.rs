//! Groups: of their operations all are done, or none is.

use std::collections::{BTreeMap, BTreeSet};

use gix::ObjectId;
use gix::refs::FullName;

use super::deliver::MAX_RETRIES;
use super::push::unheard;
use super::{Batch, Pending, PendingKind};
use crate::publish::push;
use crate::{Class, OpError, OpErrorKind, Outcome};

/// What was pushed of each branch.
type Results = BTreeMap<FullName, Result<ObjectId, Outcome>>;

impl Batch<'_, '_> {
    /// Makes each operation of a group need all others of it, and returns those that have ended
    /// without success.
    pub(super) fn bind_groups(
        &self,
        order: &[usize],
        pending: &mut [Pending],
        outcomes: &[Option<Outcome>],
    ) -> BTreeSet<usize> {
        let mut groups: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for &index in order {
            if let Some(group) = self.operations[index].group.as_deref() {
                groups.entry(group).or_default().insert(index);
            }
        }
        // What could be in no batch is in no order either.
        for (index, operation) in self.operations.iter().enumerate() {
            if let Some(members) = operation.group.as_deref().and_then(|name| groups.get_mut(name))
            {
                members.insert(index);
            }
        }
        for p in pending {
            let group = self.operations[p.operation].group.as_deref();
            let members = group.and_then(|group| groups.get(group)).into_iter().flatten();
            p.needs.extend(members.filter(|member| **member != p.operation));
        }
        let has_failed =
            |index: &usize| outcomes[*index].as_ref().is_some_and(|outcome| !outcome.is_success());
        groups.into_values().flatten().filter(has_failed).collect()
    }

    /// Pushes each group with one atomic command, again where that may help. What is refused, or has
    /// moved here meanwhile, takes the whole group with it.
    pub(super) fn push_groups(
        &mut self,
        pending: &mut Vec<Pending>,
        outcomes: &mut [Option<Outcome>],
    ) {
        let operations = self.operations;
        let group_of = |p: &Pending| operations[p.operation].group.as_deref();
        let mut groups: Vec<&str> = Vec::new();
        for group in pending.iter().filter_map(group_of) {
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        for group in groups {
            let of_group = |p: &&Pending| group_of(p) == Some(group);
            let wanted: BTreeMap<FullName, ObjectId> = pending
                .iter()
                .filter(of_group)
                .filter(|p| p.kind == PendingKind::Push)
                .map(|p| (p.branch.clone(), p.commit))
                .collect();
            if wanted.is_empty() {
                continue;
            }
            let members: Vec<&Pending> = pending.iter().filter(of_group).collect();
            match self.push_group(&wanted, &members) {
                Ok(results) => self.settle_group(group, &wanted, &results, pending, outcomes),
                Err((operation, error)) => {
                    self.fail(BTreeSet::from([operation]), &error, pending, outcomes);
                }
            }
        }
    }

    /// Pushes one group; an error is that a local branch has moved, and then nothing was pushed.
    fn push_group(
        &mut self,
        wanted: &BTreeMap<FullName, ObjectId>,
        members: &[&Pending],
    ) -> Result<Results, (usize, OpError)> {
        let mut left = wanted.clone();
        for (name, id) in self.resumed.iter().flatten() {
            if let Some(wanted) = left.get_mut(name) {
                *wanted = *id;
            }
        }
        for retry in 0.. {
            if !self.is_pushed(&left)
                && let Some(moved) = members.iter().find_map(|p| self.has_moved(p))
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
                    Err(outcome) => return Ok([(name, Err(outcome))].into()),
                }
            }
        }
        unreachable!("the last retry returns")
    }

    /// Whether an earlier process has pushed all of a group.
    fn is_pushed(&mut self, wanted: &BTreeMap<FullName, ObjectId>) -> bool {
        if self.resumed.is_none() || self.look_behind(wanted).is_err() {
            return false;
        }
        let Ok(remote) = self.remote() else { return false };
        let theirs: Vec<_> = wanted
            .iter()
            .map(|(name, id)| (*id, remote.refs.get(name.as_bstr()).copied()))
            .collect();
        let store = &self.session.store;
        theirs.into_iter().all(|(id, there)| there.is_some_and(|there| store.contains(there, id)))
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
        group: &str,
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
        let operations = self.operations;
        let is_at_remote = |p: &Pending| {
            operations[p.operation].group.as_deref() == Some(group) && p.kind != PendingKind::Local
        };
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
                    let commit = if is_push { *pushed } else { p.commit };
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

    /// Why a local branch of a group could not move after its push.
    fn has_moved(&self, p: &Pending) -> Option<(usize, OpError)> {
        let state = self.branches.get(&p.branch).filter(|_| p.kind == PendingKind::Local)?;
        let error = match self.session.store.branch_tip(&p.branch) {
            Ok(tip) if tip == state.start => return None,
            Ok(Some(tip))
                if self.resumed.is_some()
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
