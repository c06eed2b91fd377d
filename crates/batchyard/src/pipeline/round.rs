//! What became of some tasks that were landed together.

use std::collections::HashMap;

use git_batch::{Class, OpErrorKind, OperationKind, Outcome, Receipt, Report};

use super::board::{Failure, Standing};
use super::ends::{failure, stopped};
use super::ops::Operations;

/// Words of remotes that refuse a branch, whatever is in it.
const OF_THE_BRANCH: [&str; 5] =
    ["protected", "prohibited", "checked out", "permission", "locked branch"];

/// How git ends a push that its own hook has refused: nothing was sent, so no branch is named.
const NOTHING_SENT: &str = "failed to push some refs";

/// How a message ends that was too long: a hook may have printed a lot before git said that.
const CUT_OFF: &str = " ...";

/// What became of operations, by their ids.
#[derive(Debug, Default)]
pub(super) struct Done {
    outcomes: HashMap<String, Outcome>,
    pub(super) receipts: Vec<Receipt>,
}

impl From<Report> for Done {
    fn from(report: Report) -> Done {
        Done { outcomes: report.outcomes.into_iter().collect(), receipts: report.receipts }
    }
}

impl Done {
    pub(super) fn get(&self, id: &str) -> Option<&Outcome> {
        self.outcomes.get(id)
    }

    /// Notes what became of an operation.
    pub(super) fn note(&mut self, id: &str, outcome: Outcome) {
        self.outcomes.insert(id.to_owned(), outcome);
    }

    /// Returns how many push commands ran against the remote.
    pub(super) fn pushes(&self) -> u64 {
        self.receipts.iter().map(|receipt| u64::from(receipt.pushes)).sum()
    }
}

/// What became of some tasks that were landed together.
#[derive(Debug)]
pub(super) struct Round {
    /// In the order of the plan.
    pub(super) tasks: Vec<usize>,
    pub(super) done: Done,
    /// Why nothing of what was to be pushed has arrived, where that need not be the fault of a task: the
    /// remote did not take the base, whatever is in it, or did not take any branch.
    pub(super) whole: Option<Failure>,
    /// What was to be pushed was refused, and may have been so for what a task has put into it.
    pub(super) is_refused: bool,
    /// It may be a hook of this repository that has refused it.
    pub(super) is_of_hook: bool,
    /// Those of the tasks that did not come as far as the push, by a fault of their own: a conflict with
    /// another one, or the gate.
    pub(super) named: Vec<usize>,
}

impl Round {
    /// Returns the round of some tasks; `has_hook` says whether there is a hook here that may refuse a push.
    pub(super) fn new(
        tasks: Vec<usize>,
        report: Report,
        operations: &Operations,
        has_hook: impl FnOnce() -> bool,
    ) -> Round {
        let done = Done::from(report);
        let whole = refused_whole(operations, &done);
        let is_of_hook = whole.is_some() && may_be_of_a_hook(operations, &done) && has_hook();
        let is_refused = is_of_hook || may_be_of_a_task(operations, &done);
        let is_named = |at: &usize| {
            let merged = operations.merge(*at).and_then(|op| done.get(&op.id));
            let stopped = merged.and_then(|end| stopped(end, whole.as_ref()));
            matches!(stopped, Some(Standing::Failed(_)))
        };
        let named = tasks.iter().copied().filter(is_named).collect();
        Round { tasks, done, whole, is_refused, is_of_hook, named }
    }

    /// What could not be tried any more.
    pub(super) fn untried(tasks: Vec<usize>, why: Failure) -> Round {
        let (done, named) = (Done::default(), Vec::new());
        Round { tasks, done, whole: Some(why), is_refused: false, is_of_hook: false, named }
    }

    /// Says whether these tasks could not be tried any more.
    pub(super) fn is_untried(&self) -> bool {
        self.done.outcomes.is_empty()
    }

    /// Says whether something was in the way that need not stay, such as another push or the network.
    pub(super) fn may_pass(&self) -> bool {
        let is_transient = |outcome: &Outcome| {
            matches!(outcome, Outcome::Rejected { class: Class::Transient, .. })
        };
        self.whole.as_ref().is_some_and(|why| why.kind != "rejected")
            || self.done.outcomes.values().any(is_transient)
    }

    /// Says whether a task is at fault by itself: for a conflict or the gate.
    pub(super) fn names(&self, at: usize) -> bool {
        self.named.binary_search(&at).is_ok()
    }

    /// Returns the tasks that came as far as the push.
    pub(super) fn sent(&self) -> Vec<usize> {
        self.tasks.iter().copied().filter(|at| !self.names(*at)).collect()
    }

    /// Returns the one task whose change alone was to be pushed, and was refused, perhaps for what it holds.
    pub(super) fn blamed(&self) -> Option<usize> {
        match self.sent()[..] {
            [at] if self.is_refused => Some(at),
            _ => None,
        }
    }

    /// Returns what the remote has taken on branches of their own, and the rest; `None` where that does not
    /// tell two of the tasks from each other.
    pub(super) fn told_apart(&self, operations: &Operations) -> Option<[Vec<usize>; 2]> {
        let is_taken = |at: &usize| !self.branch(operations, *at).is_some_and(is_refused);
        let (taken, refused): (Vec<usize>, Vec<usize>) =
            self.sent().iter().partition(|at| is_taken(at));
        (!taken.is_empty() && !refused.is_empty()).then_some([taken, refused])
    }

    /// Says whether the remote has refused the branch of every task, where these are pushed.
    pub(super) fn takes_no_branch(&self, operations: &Operations) -> bool {
        let mut branches = self.tasks.iter().filter_map(|at| self.branch(operations, *at));
        branches.next().is_some_and(is_refused) && branches.all(is_refused)
    }

    /// Returns what became of the push of a task's own branch, where it is pushed.
    fn branch(&self, operations: &Operations, at: usize) -> Option<&Outcome> {
        operations.push(at).and_then(|op| self.done.get(&op.id))
    }
}

fn is_refused(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Rejected { class: Class::Permanent, .. })
}

/// Whether the remote has refused the base, and may have done so for what a task has put into it.
fn may_be_of_a_task(operations: &Operations, done: &Done) -> bool {
    let base = operations.base().and_then(|op| done.get(&op.id));
    let Some(Outcome::Rejected { class: Class::Permanent, reason }) = base else { return false };
    let reason = reason.to_ascii_lowercase();
    !OF_THE_BRANCH.iter().any(|word| reason.contains(word))
}

/// Whether a hook of this repository may have refused the push, in which all branches leave together.
fn may_be_of_a_hook(operations: &Operations, done: &Done) -> bool {
    operations.pushes.iter().filter_map(|(_, op)| done.get(&op.id)).any(|outcome| {
        matches!(outcome, Outcome::Failed(error)
            if error.kind == OpErrorKind::Remote
                && (error.message.contains(NOTHING_SENT) || error.message.ends_with(CUT_OFF)))
    })
}

fn refused_whole(operations: &Operations, done: &Done) -> Option<Failure> {
    if let Some(op) = operations.base() {
        // Where the base is pushed, it decides.
        return failure(done.get(&op.id)?).map(|failure| {
            let OperationKind::Push(push) = &op.kind else { return failure };
            let message = format!("{} is not pushed: {}", push.branch, failure.message);
            Failure { message, ..failure }
        });
    }
    let mut why = None;
    for outcome in operations.pushes.iter().filter_map(|(_, op)| done.get(&op.id)) {
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
