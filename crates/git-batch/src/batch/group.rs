//! Groups: of their operations all are done, or none is.

use std::collections::{BTreeMap, BTreeSet};

use gix::ObjectId;
use gix::refs::FullName;

use super::push::unheard;
use super::{Batch, Pending, PendingKind};
use crate::publish::push;
use crate::{OpError, OpErrorKind, Outcome};

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

    /// Pushes each group with one atomic command. What is refused, or has moved here meanwhile, takes
    /// the whole group with it.
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
            let moved = pending.iter().filter(of_group).find_map(|p| self.has_moved(p));
            if let Some((operation, error)) = moved {
                self.fail(BTreeSet::from([operation]), &error, pending, outcomes);
                continue;
            }
            let results = self.push_refs(&wanted, true);
            self.settle_group(group, &results, pending, outcomes);
        }
    }

    fn settle_group(
        &self,
        group: &str,
        results: &BTreeMap<FullName, Result<(), Outcome>>,
        pending: &mut Vec<Pending>,
        outcomes: &mut [Option<Outcome>],
    ) {
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
                Some(Ok(())) => outcomes[p.operation] = Some(Outcome::landed(p.commit)),
                Some(Err(outcome)) if !is_innocent(outcome) || !has_culprit => {
                    refused.insert(p.operation);
                    outcomes[p.operation] = Some(outcome.clone());
                }
                // It waits for the culprit, like the rest of the group.
                Some(Err(_)) => return true,
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
