//! The order in which what is built is carried out: nothing before what it needs has come.

use std::collections::{BTreeMap, BTreeSet};

use gix::refs::FullName;

use super::group::Bonds;
use super::{Batch, Pending, PendingKind};
use crate::Outcome;

/// What is done in one step, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Groups are pushed.
    Groups,
    /// Local branches move.
    Moves,
    /// The rest is pushed.
    Pushes,
}

impl Batch<'_, '_> {
    /// Cuts what is built into steps: nearly always there is one. What needs something that comes later in a
    /// step than itself, as a branch that starts at a commit which is to be at the remote only, is in a
    /// later one. What needs itself in that way, by others, is in one step with all. So is a landing, which
    /// has one push.
    pub(super) fn steps(&self, pending: Vec<Pending>) -> Vec<Vec<Pending>> {
        let steps = self.step_of_each(&pending);
        let mut cut: BTreeMap<usize, Vec<Pending>> = BTreeMap::new();
        for (p, step) in pending.into_iter().zip(steps) {
            cut.entry(step).or_default().push(p);
        }
        cut.into_values().collect()
    }

    /// Skips what needs an operation that has ended without success in an earlier step.
    pub(super) fn skip_failed(&self, pending: &mut Vec<Pending>, outcomes: &mut [Option<Outcome>]) {
        let needs: BTreeSet<usize> = pending.iter().flat_map(|p| &p.needs).copied().collect();
        let has_failed =
            |need: &usize| outcomes[*need].as_ref().is_some_and(|outcome| !outcome.is_success());
        let failed = needs.into_iter().filter(has_failed).collect();
        self.skip(failed, pending, outcomes);
    }

    /// The number of the step that each is in.
    pub(super) fn step_of_each(&self, pending: &[Pending]) -> Vec<usize> {
        let at_once = vec![0; pending.len()];
        if self.is_landing {
            return at_once;
        }
        let units = self.units(pending);
        let grouped: BTreeSet<usize> = pending
            .iter()
            .map(|p| p.operation)
            .filter(|operation| self.operations[*operation].group.is_some())
            .map(|operation| units.root(operation))
            .collect();
        let phase = |p: &Pending| match p.kind {
            _ if self.operations[p.operation].group.is_some() => Phase::Groups,
            PendingKind::Local => Phase::Moves,
            _ if grouped.contains(&units.root(p.operation)) => Phase::Groups,
            PendingKind::Remote | PendingKind::Push => Phase::Pushes,
        };
        let by_operation: BTreeMap<usize, &Pending> =
            pending.iter().map(|p| (p.operation, p)).collect();
        // Who waits for whom, and whether for the next step.
        let mut waits = Vec::new();
        for p in pending {
            for other in p.needs.iter().filter_map(|need| by_operation.get(need)) {
                let (one, before) = (units.root(p.operation), units.root(other.operation));
                if one != before {
                    let is_in_time = match (phase(other), phase(p)) {
                        _ if other.branch == p.branch => true,
                        (Phase::Moves, Phase::Moves) => true,
                        (first, second) => first < second,
                    };
                    waits.push((one, before, usize::from(!is_in_time)));
                }
            }
        }
        let mut step = vec![0; self.operations.len()];
        for _ in 0..=pending.len() {
            let mut has_changed = false;
            for &(one, before, more) in &waits {
                if step[one] < step[before] + more {
                    step[one] = step[before] + more;
                    has_changed = true;
                }
            }
            if !has_changed {
                return pending.iter().map(|p| step[units.root(p.operation)]).collect();
            }
        }
        at_once
    }

    /// Says what is done at once: what stands or falls together, a local branch, and a push with what it
    /// brings to the remote.
    fn units(&self, pending: &[Pending]) -> Bonds {
        let mut units = self.bonds(pending);
        let mut local: BTreeMap<&FullName, usize> = BTreeMap::new();
        let mut pushed: BTreeMap<&FullName, usize> = BTreeMap::new();
        for p in pending.iter().rev() {
            match p.kind {
                PendingKind::Local => {
                    units.join(*local.entry(&p.branch).or_insert(p.operation), p.operation);
                }
                PendingKind::Push => drop(pushed.insert(&p.branch, p.operation)),
                PendingKind::Remote => {
                    if let Some(&push) = pushed.get(&p.branch) {
                        units.join(push, p.operation);
                    }
                }
            }
        }
        units
    }
}
