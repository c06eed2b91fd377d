//! Landings with fewer tasks, where the remote does not take the base with all of them.

use std::collections::VecDeque;

use git_batch::{Class, OperationKind, Outcome, Place as At, Report};

use super::board::Failure;
use super::ends::failure;
use super::land::{Place, unreachable};
use super::ops::Operations;
use crate::cli::Session;
use crate::exit::{Stop, chain};

/// How many landings are tried before any is taken, where each costs a run of the gate.
const GATED_PATIENCE: usize = 3;

/// Words of remotes that refuse a branch, whatever is in it.
const OF_THE_BRANCH: [&str; 5] =
    ["protected", "prohibited", "checked out", "permission", "locked branch"];

/// What became of some tasks that were landed together.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) tasks: Vec<usize>,
    pub(super) report: Report,
    /// Why nothing of what was to be pushed has arrived, where that need not be the fault of a task: the
    /// remote did not take the base, whatever is in it, or did not take any branch.
    pub(super) whole: Option<Failure>,
    /// The remote has refused the base, and may have done so for what a task has put into it.
    is_refused: bool,
}

/// Lands all tasks whose commits are there, in one push. Where the remote does not take the base with
/// all of them, halves are landed, and their halves, until those are alone that it does not take. It may as
/// well take nothing at all from anybody, so that is given up soon where it takes none.
///
/// The last round that a task was part of says what became of it.
///
/// # Errors
///
/// The repository cannot be used; nothing has landed.
pub(super) fn land(
    session: &Session,
    place: &Place<'_>,
    is_gated: bool,
    operations: &Operations,
    made: &Report,
) -> Result<Vec<Round>, Stop> {
    let is_made = |id: &str| made.get(id).is_some_and(Outcome::is_success);
    let commits = operations.commits.iter();
    let tasks: Vec<usize> = commits.filter(|(_, op)| is_made(&op.id)).map(|(at, _)| *at).collect();
    // One bad task of N is found in so many.
    let levels = tasks.len().max(1).next_power_of_two().trailing_zeros() as usize;
    let patience = if is_gated { GATED_PATIENCE } else { 1 + 2 * levels };
    let mut rounds: Vec<Round> = Vec::new();
    let mut open = VecDeque::from([tasks]);
    while let Some(tasks) = open.pop_front().filter(|tasks| !tasks.is_empty()) {
        let all = operations.landing(&tasks);
        let landed =
            session.interrupt.shielded(|| place.git.land_with(place.onto, &all, place.extent()));
        let round = match landed {
            Ok(report) => Round::new(tasks, report, operations),
            Err(error) if rounds.is_empty() => return Err(unreachable(chain(&error))),
            // What is known so far stands, and the rest is for the next run.
            Err(error) => {
                let left = open.drain(..).fold(tasks, |left, more| [left, more].concat());
                rounds.push(Round::untried(left, Failure::new("not_landed", chain(&error))));
                break;
            }
        };
        let (halves, why) = (round.halves(operations), round.whole.clone());
        // Such as a network that is gone.
        let is_stopped = why.is_some() && !round.is_refused
            || rounds.is_empty() && round.takes_no_branch(operations);
        rounds.push(round);
        let goes_on = rounds.len() < patience || takes_some(&rounds, place.onto);
        if is_stopped || !goes_on || session.interrupt.seen() {
            let left: Vec<usize> = open.into_iter().flatten().collect();
            if let (true, Some(why), false) = (is_stopped, why, left.is_empty()) {
                rounds.push(Round::untried(left, why));
            }
            break;
        }
        if let ([_, _], Some(why)) = (halves.as_slice(), why) {
            session.output.note(format!("note: {}; trying with fewer tasks", why.message));
        }
        open.extend(halves);
    }
    Ok(rounds)
}

/// Says whether the remote has taken the base from one of these rounds, so that it takes some.
pub(super) fn takes_some(rounds: &[Round], onto: &str) -> bool {
    let base = format!("refs/heads/{onto}");
    let moved = rounds.iter().flat_map(|round| &round.report.receipts).flat_map(|done| &done.refs);
    moved.into_iter().any(|change| change.place == At::Remote && change.name == base)
}

impl Round {
    fn new(tasks: Vec<usize>, report: Report, operations: &Operations) -> Round {
        let whole = refused_whole(operations, &report);
        let is_refused = may_be_of_a_task(operations, &report);
        Round { tasks, report, whole, is_refused }
    }

    /// What could not be tried any more.
    fn untried(tasks: Vec<usize>, why: Failure) -> Round {
        Round { tasks, report: Report::default(), whole: Some(why), is_refused: false }
    }

    /// Says whether these tasks could not be tried any more.
    pub(super) fn is_untried(&self) -> bool {
        self.report.outcomes.is_empty()
    }

    /// Says whether something was in the way that need not stay, such as another push or the network.
    pub(super) fn may_pass(&self) -> bool {
        let is_transient = |(_, outcome): &(String, Outcome)| {
            matches!(outcome, Outcome::Rejected { class: Class::Transient, .. })
        };
        self.whole.as_ref().is_some_and(|why| why.kind != "rejected")
            || self.report.outcomes.iter().any(is_transient)
    }

    /// Says whether the remote has refused the base with this one task, and may have done so for what
    /// it holds.
    pub(super) fn blames(&self, at: usize) -> bool {
        self.is_refused && self.tasks == [at]
    }

    /// Returns what to land apart: what the remote has taken on branches of their own and the rest, or
    /// else halves; nothing where it is not for what a task holds, or there is one only.
    fn halves(&self, operations: &Operations) -> Vec<Vec<usize>> {
        if !self.is_refused || self.tasks.len() < 2 {
            return Vec::new();
        }
        let is_taken = |at: &usize| !self.branch(operations, *at).is_some_and(is_refused);
        let (taken, refused): (Vec<usize>, Vec<usize>) =
            self.tasks.iter().partition(|at| is_taken(at));
        if taken.is_empty() || refused.is_empty() {
            let (first, second) = self.tasks.split_at(self.tasks.len() / 2);
            return vec![first.to_vec(), second.to_vec()];
        }
        vec![taken, refused]
    }

    /// Says whether the remote has refused the branch of every task, where these are pushed.
    fn takes_no_branch(&self, operations: &Operations) -> bool {
        let mut branches = self.tasks.iter().filter_map(|at| self.branch(operations, *at));
        branches.next().is_some_and(is_refused) && branches.all(is_refused)
    }

    /// Returns what became of the push of a task's own branch, where it is pushed.
    fn branch(&self, operations: &Operations, at: usize) -> Option<&Outcome> {
        operations.push(at).and_then(|op| self.report.get(&op.id))
    }
}

fn is_refused(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Rejected { class: Class::Permanent, .. })
}

/// Whether the remote has refused the base, and may have done so for what a task has put into it.
fn may_be_of_a_task(operations: &Operations, report: &Report) -> bool {
    let base = operations.base().and_then(|op| report.get(&op.id));
    let Some(Outcome::Rejected { class: Class::Permanent, reason }) = base else { return false };
    let reason = reason.to_ascii_lowercase();
    !OF_THE_BRANCH.iter().any(|word| reason.contains(word))
}

fn refused_whole(operations: &Operations, report: &Report) -> Option<Failure> {
    if let Some(op) = operations.base() {
        // Where the base is pushed, it decides.
        return failure(report.get(&op.id)?).map(|failure| {
            let OperationKind::Push(push) = &op.kind else { return failure };
            let message = format!("{} is not pushed: {}", push.branch, failure.message);
            Failure { message, ..failure }
        });
    }
    let mut why = None;
    for outcome in operations.pushes.iter().filter_map(|(_, op)| report.get(&op.id)) {
        match outcome {
            Outcome::Skipped { .. } => {}
            Outcome::Rejected { .. } | Outcome::Failed(_) => {
                why = why.or_else(|| failure(outcome));
            }
            _ => return None,
        }
    }
    why
}

#[cfg(test)]
mod tests {
    use git_batch::Operation;

    use super::*;

    /// No server is at hand that says all of this.
    #[test]
    fn a_base_that_is_protected_by_name_is_not_taken_apart() {
        let pushes = vec![(None, Operation::push("base/push", "main"))];
        let operations = Operations { pushes, ..Operations::default() };
        let halves = |class, reason: &str| {
            let mut report = Report::default();
            let outcome = Outcome::Rejected { class, reason: reason.to_owned() };
            report.outcomes.push(("base/push".to_owned(), outcome));
            Round::new(vec![4, 5, 6], report, &operations).halves(&operations)
        };
        let apart = vec![vec![4], vec![5, 6]];
        assert_eq!(halves(Class::Permanent, "pre-receive hook declined"), apart);
        let rules = "push declined due to repository rule violations";
        assert_eq!(halves(Class::Permanent, rules), apart);
        for reason in ["protected branch hook declined", "branch is currently checked out"] {
            assert!(halves(Class::Permanent, reason).is_empty(), "{reason}");
        }
        assert!(halves(Class::Transient, "fetch first").is_empty());
    }
}
