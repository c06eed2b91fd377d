//! The order in which what is built is carried out: nothing before what it needs has come.

use std::collections::{BTreeMap, BTreeSet};

use gix::refs::FullName;

use super::circle::endless;
use super::group::Bonds;
use super::unchanged::has_come;
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

/// What is done at once, and something that has to come before.
struct Wait {
    unit: usize,
    before: usize,
    /// Not only before, but in an earlier step.
    is_next: bool,
}

impl Batch<'_, '_> {
    /// Takes out of what is left what is done next: nearly always it is all. What needs something that comes
    /// later in a step than itself, as a branch that starts at a commit which is to be at the remote only,
    /// is in a later step. What needs itself in that way, by others, is in one step with those.
    pub(super) fn next_step(&self, left: &mut Vec<Pending>) -> Vec<Pending> {
        let steps = self.step_of_each(left);
        let first = steps.iter().min();
        let mut steps = steps.iter();
        left.extract_if(.., |_| steps.next() == first).collect()
    }

    /// Skips what needs an operation that did not come in an earlier step.
    pub(super) fn skip_failed(&self, pending: &mut Vec<Pending>, outcomes: &mut [Option<Outcome>]) {
        let needs: BTreeSet<usize> = pending.iter().flat_map(|p| &p.needs).copied().collect();
        let has_failed = |need: &usize| outcomes[*need].as_ref().is_some_and(|end| !has_come(end));
        let failed = needs.into_iter().filter(has_failed).collect();
        self.skip(failed, pending, outcomes);
    }

    /// The number of the step that each is in.
    pub(super) fn step_of_each(&self, pending: &[Pending]) -> Vec<usize> {
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
        let mut built = vec![None; self.operations.len()];
        for p in pending {
            built[p.operation] = Some(p);
        }
        let mut waits = Vec::new();
        for p in pending {
            let unit = units.root(p.operation);
            for &need in p.needs.iter().filter(|need| units.root(**need) != unit) {
                let Some(other) = built[need] else { continue };
                let is_in_time = match (phase(other), phase(p)) {
                    _ if other.branch == p.branch => true,
                    (Phase::Moves, Phase::Moves) => true,
                    (first, second) => first < second,
                };
                waits.push(Wait { unit, before: units.root(need), is_next: !is_in_time });
            }
        }
        let mut steps = number(&waits, self.operations.len());
        // Where it goes round there is no number: there the order of the phases has to do.
        let round = round(&waits, &steps);
        if !round.is_empty() {
            for wait in &mut waits {
                wait.is_next &= !(round.contains(&wait.unit) && round.contains(&wait.before));
            }
            steps = number(&waits, self.operations.len());
        }
        let step_of = |p: &Pending| steps[units.root(p.operation)].unwrap_or_default();
        pending.iter().map(step_of).collect()
    }

    /// Says what is done at once: what stands or falls together, a local branch, and a push with what it
    /// brings to the remote; of a landing all that is pushed.
    fn units(&self, pending: &[Pending]) -> Bonds {
        let mut units = self.bonds(pending);
        let mut local: BTreeMap<&FullName, usize> = BTreeMap::new();
        let mut pushes: BTreeMap<&FullName, usize> = BTreeMap::new();
        let mut brought = Vec::new();
        for p in pending.iter().rev() {
            match p.kind {
                PendingKind::Push => drop(pushes.insert(&p.branch, p.operation)),
                PendingKind::Remote => {
                    brought.extend(pushes.get(&p.branch).map(|push| (*push, p.operation)));
                }
                PendingKind::Local => drop(local.insert(&p.branch, p.operation)),
            }
        }
        // The first ones first, so that the way from each to the one that stands for all is short.
        for (push, operation) in brought.into_iter().rev() {
            units.join(push, operation);
        }
        let mut landing = None;
        for p in pending {
            let first = match p.kind {
                PendingKind::Local => local.get(&p.branch).copied(),
                _ if self.is_landing => Some(*landing.get_or_insert(p.operation)),
                PendingKind::Remote | PendingKind::Push => None,
            };
            if let Some(first) = first {
                units.join(first, p.operation);
            }
        }
        units
    }
}

/// Numbers the steps, of `count` units at most; none for what waits for itself.
fn number(waits: &[Wait], count: usize) -> Vec<Option<usize>> {
    let late: BTreeSet<usize> =
        waits.iter().filter(|wait| wait.is_next).map(|wait| wait.before).collect();
    // A larger one can be reached only by going round.
    let most = late.len();
    let mut steps = vec![0; count];
    let mut has_changed = most > 0;
    while std::mem::take(&mut has_changed) {
        for &Wait { unit, before, is_next } in waits {
            let least = (steps[before] + usize::from(is_next)).min(most + 1);
            if steps[unit] < least {
                steps[unit] = least;
                has_changed = true;
            }
        }
    }
    steps.into_iter().map(|step| (step <= most).then_some(step)).collect()
}

/// The units that wait for themselves, and those between two such. What only comes after them has no number
/// either, but nothing that goes round waits for it.
fn round(waits: &[Wait], steps: &[Option<usize>]) -> BTreeSet<usize> {
    let goes_round = |unit: usize| steps[unit].is_none();
    let inside = waits.iter().filter(|wait| goes_round(wait.unit) && goes_round(wait.before));
    endless(inside.map(|wait| (wait.before, wait.unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait((unit, before, is_next): (usize, usize, bool)) -> Wait {
        Wait { unit, before, is_next }
    }

    #[test]
    fn what_waits_is_behind_what_it_waits_for() {
        let waits = [(1, 0, true), (2, 1, false), (3, 2, true), (5, 4, false)].map(wait);
        let steps: Vec<_> = number(&waits, 6).into_iter().flatten().collect();
        assert_eq!(steps, [0, 1, 1, 2, 0, 0]);
    }

    #[test]
    fn what_goes_round_has_no_number_and_keeps_no_other_from_its_own() {
        // Two that wait for each other, one behind them, and two others.
        let waits = [(0, 1, true), (1, 0, false), (2, 1, true), (4, 3, true)].map(wait);
        let steps = number(&waits, 5);
        assert_eq!(steps, [None, None, None, Some(0), Some(1)]);
        assert_eq!(round(&waits, &steps), [0, 1].into());
        // Without a step between them it is no circle.
        let waits = [(0, 1, false), (1, 0, false), (2, 1, true)].map(wait);
        assert_eq!(number(&waits, 3), [Some(0), Some(0), Some(1)]);
    }
}
