//! Landings with fewer tasks, where the remote does not take the base with all of them.

use std::collections::{HashMap, HashSet, VecDeque};

use git_batch::{Outcome, Place as At};

use super::board::Failure;
use super::land::{Place, unreachable};
use super::ops::Operations;
use super::round::{Done, Round};
use crate::cli::Session;
use crate::exit::{Stop, chain};
use crate::plan::Plan;

/// How many landings are tried before any is taken, where each costs a run of the gate, or of a hook.
const GATED_PATIENCE: usize = 3;

/// Lands all tasks whose commits are there, in one push. Where the remote does not take the base with
/// all of them, halves are landed, and their halves, until those are alone that it does not take. It may as
/// well take nothing at all from anybody, so that is given up soon where it takes none; the next run goes on
/// with the halves that were left.
///
/// Without the others a task may fail that would not fail with them: what it needs is not there yet, or what
/// it clashes with is not and should be the first. So those are landed once more when all others are decided.
///
/// The last round that a task was part of says what became of it.
///
/// # Errors
///
/// The repository cannot be used; nothing has landed.
pub(super) fn land(
    session: &Session,
    place: &Place<'_>,
    plan: &Plan,
    operations: &Operations,
    made: &Done,
) -> Result<Vec<Round>, Stop> {
    let is_made = |id: &str| made.get(id).is_some_and(Outcome::is_success);
    let commits = operations.commits.iter();
    let tasks: Vec<usize> = commits.filter(|(_, op)| is_made(&op.id)).map(|(at, _)| *at).collect();
    // One bad task of N is found in so many.
    let levels = tasks.len().max(1).next_power_of_two().trailing_zeros() as usize;
    let mut rounds: Vec<Round> = Vec::new();
    let mut open = VecDeque::from([tasks]);
    while let Some(tasks) = open.pop_front().filter(|tasks| !tasks.is_empty()) {
        let all = operations.landing(&tasks);
        let landed =
            session.interrupt.shielded(|| place.git.land_with(place.onto, &all, place.extent()));
        let round = match landed {
            Ok(report) => {
                Round::new(tasks, report, operations, || place.repository.has_push_hook())
            }
            Err(error) if rounds.is_empty() => return Err(unreachable(chain(&error))),
            // What is known so far stands, and the rest is for the next run.
            Err(error) => {
                open.push_front(tasks);
                give_up(&mut rounds, open, operations, Failure::new("not_landed", chain(&error)));
                break;
            }
        };
        let why = round.whole.clone();
        let left = if rounds.is_empty() { place.state.search() } else { Vec::new() };
        let left = if round.is_refused { left_over(&round, left) } else { Vec::new() };
        // One part would be what was refused just now.
        let parts = if left.len() > 1 { left } else { parts(&round, plan, operations) };
        // Such as a network that is gone.
        let is_stopped = why.is_some() && !round.is_refused
            || rounds.is_empty() && round.takes_no_branch(operations);
        rounds.push(round);
        let is_cut = !parts.is_empty();
        open.extend(parts);
        let is_gated = plan.gate.is_some() || rounds.iter().any(|round| round.is_of_hook);
        let patience = if is_gated { GATED_PATIENCE } else { 1 + 2 * levels };
        let goes_on = rounds.len() < patience || takes_some(&rounds, operations);
        if is_stopped || !goes_on || session.interrupt.seen() {
            if !goes_on {
                // Without the note the next run begins the search at its beginning.
                let _ = place.state.note_search(&open);
            }
            let why = why.unwrap_or_else(|| Failure::new("not_landed", "it was not tried"));
            give_up(&mut rounds, open, operations, why);
            break;
        }
        if let (true, Some(why)) = (is_cut, why) {
            session.output.note(format!("note: {}; trying with fewer tasks", why.message));
        }
        if open.is_empty() {
            open.extend(once_more(&rounds, operations));
        }
    }
    Ok(rounds)
}

/// Leaves what could not be tried to the next run.
fn give_up(
    rounds: &mut Vec<Round>,
    open: VecDeque<Vec<usize>>,
    operations: &Operations,
    why: Failure,
) {
    let mut left: Vec<usize> =
        open.into_iter().chain(once_more(rounds, operations)).flatten().collect();
    left.sort_unstable();
    left.dedup();
    if !left.is_empty() {
        rounds.push(Round::untried(left, why));
    }
}

/// Says whether the remote has taken something from one of these rounds, so that it takes some: the base,
/// where that is pushed.
pub(super) fn takes_some(rounds: &[Round], operations: &Operations) -> bool {
    rounds.iter().any(|round| has_moved(round, operations))
}

/// Says whether the remote has taken what a round was to push: the base, or else any branch.
fn has_moved(round: &Round, operations: &Operations) -> bool {
    let base = operations.base_name();
    let moved = round.done.receipts.iter().flat_map(|receipt| &receipt.refs);
    moved
        .filter(|change| change.place == At::Remote)
        .any(|change| base.as_ref().is_none_or(|base| change.name == base.as_str()))
}

/// Returns what to land apart of a round that was refused, such as halves; nothing where it is not for what
/// a task holds, or there is one only. Who failed in it for another reason waits until the others are decided.
fn parts(round: &Round, plan: &Plan, operations: &Operations) -> Vec<Vec<usize>> {
    let tasks = round.sent();
    if !round.is_refused || tasks.len() < 2 {
        return Vec::new();
    }
    match round.told_apart(operations) {
        Some(parts) => parts.into(),
        None => halves(&tasks, |at| &plan.tasks[at].after).into(),
    }
}

/// Returns what the search of an earlier run has left of the tasks of a round, and at last, each alone, those
/// that it had found to be refused.
fn left_over(round: &Round, left: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    if left.is_empty() {
        return left;
    }
    let sent = round.sent();
    let is_known: HashSet<usize> = left.iter().flatten().copied().collect();
    let alone = sent.iter().filter(|at| !is_known.contains(at)).map(|at| vec![*at]);
    let is_sent = |at: &usize| sent.binary_search(at).is_ok();
    let left = left.into_iter().map(|part| part.into_iter().filter(is_sent).collect());
    left.chain(alone).filter(|part: &Vec<usize>| !part.is_empty()).collect()
}

/// Cuts tasks in two, in their order; those of which one needs another stay together, unless all do.
fn halves<'p>(tasks: &[usize], needs: impl Fn(usize) -> &'p [usize]) -> [Vec<usize>; 2] {
    let number: HashMap<usize, usize> = tasks.iter().enumerate().map(|(n, at)| (*at, n)).collect();
    // The first of each one's company; leads there over others.
    let mut first: Vec<usize> = (0..tasks.len()).collect();
    let find = |first: &mut [usize], mut n: usize| {
        while first[n] != n {
            first[n] = first[first[n]];
            n = first[n];
        }
        n
    };
    for (n, at) in tasks.iter().enumerate() {
        for needed in needs(*at).iter().filter_map(|needed| number.get(needed)) {
            let (one, other) = (find(&mut first, n), find(&mut first, *needed));
            first[one.max(other)] = one.min(other);
        }
    }
    let mut companies: Vec<Vec<usize>> = vec![Vec::new(); tasks.len()];
    for (n, at) in tasks.iter().enumerate() {
        companies[find(&mut first, n)].push(*at);
    }
    companies.retain(|company| !company.is_empty());
    if companies.len() == 1 {
        let (first, second) = tasks.split_at(tasks.len() / 2);
        return [first.to_vec(), second.to_vec()];
    }
    let sizes = companies.iter().scan(0, |sum, company| {
        *sum += company.len();
        Some(*sum)
    });
    let sizes = sizes.take(companies.len() - 1).enumerate();
    let cut = sizes.min_by_key(|(_, size)| (2 * size).abs_diff(tasks.len()));
    let second = companies.split_off(cut.map_or(1, |(before, _)| before + 1));
    [companies, second].map(|half| {
        let mut half = half.concat();
        half.sort_unstable();
        half
    })
}

/// Returns those to land once more when all are decided: first together those that were named beside others
/// which have not landed, or before others have, then each alone those that were refused before that.
fn once_more(rounds: &[Round], operations: &Operations) -> Vec<Vec<usize>> {
    let (mut named, mut blamed) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    let mut has_landed_since = false;
    for round in rounds.iter().rev() {
        for &at in round.tasks.iter().filter(|at| seen.insert(**at)) {
            if round.names(at) && (round.is_refused || has_landed_since) {
                named.push(at);
            } else if round.blamed() == Some(at) && has_landed_since {
                blamed.push(at);
            }
        }
        has_landed_since |= has_moved(round, operations);
    }
    named.sort_unstable();
    blamed.sort_unstable();
    let named = Some(named).filter(|named| !named.is_empty());
    named.into_iter().chain(blamed.into_iter().map(|at| vec![at])).collect()
}

#[cfg(test)]
mod tests {
    use git_batch::{Class, Operation, Report};

    use super::*;

    /// No server is at hand that says all of this.
    #[test]
    fn a_base_that_is_protected_by_name_is_not_taken_apart() {
        let pushes = vec![(None, Operation::push("base/push", "main"))];
        let operations = Operations { pushes, ..Operations::default() };
        let is_refused = |class, reason: &str| {
            let mut report = Report::default();
            let outcome = Outcome::Rejected { class, reason: reason.to_owned() };
            report.outcomes.push(("base/push".to_owned(), outcome));
            Round::new(vec![4, 5, 6], report, &operations, || true).is_refused
        };
        assert!(is_refused(Class::Permanent, "pre-receive hook declined"));
        assert!(is_refused(Class::Permanent, "push declined due to repository rule violations"));
        for reason in ["protected branch hook declined", "branch is currently checked out"] {
            assert!(!is_refused(Class::Permanent, reason), "{reason}");
        }
        assert!(!is_refused(Class::Transient, "fetch first"));
    }

    #[test]
    fn tasks_that_need_each_other_are_in_one_half() {
        let halves = |tasks: &[usize], needs: &[&'static [usize]]| halves(tasks, |at| needs[at]);
        assert_eq!(halves(&[0, 1, 2], &[&[], &[], &[]]), [vec![0], vec![1, 2]]);
        assert_eq!(halves(&[0, 1, 2, 3], &[&[], &[], &[0], &[]]), [vec![0, 2], vec![1, 3]]);
        // Also where the one between them is in no part of it, or where they come in another order.
        assert_eq!(halves(&[0, 2, 3], &[&[3], &[0], &[1], &[]]), [vec![0, 3], vec![2]]);
        assert_eq!(halves(&[0, 1, 2, 3], &[&[], &[], &[0, 1], &[]]), [vec![0, 1, 2], vec![3]]);
        assert_eq!(halves(&[1, 2, 3], &[&[], &[], &[1], &[2]]), [vec![1], vec![2, 3]]);
    }

    #[test]
    fn a_search_that_goes_on_leaves_nobody_out() {
        let mut round = Round::untried(vec![0, 1, 2, 3, 4], Failure::new("rejected", ""));
        round.named = vec![1];
        let left = vec![vec![2, 1], vec![1], vec![9]];
        assert_eq!(left_over(&round, left), [vec![2], vec![0], vec![3], vec![4]]);
    }
}
