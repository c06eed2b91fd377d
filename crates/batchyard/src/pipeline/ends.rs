//! What became of each task, by what became of its operations.

use git_batch::{Class, OpErrorKind, Operation, Outcome};

use super::apart::takes_some;
use super::board::{Board, Failure, Standing};
use super::ops::Operations;
use super::round::{Done, Round};
use crate::output::Output;
use crate::wire::outcomes::OpLine;

/// What a landing came to.
pub(super) struct Ends<'a> {
    output: &'a Output,
    operations: &'a Operations,
    /// What became of the commits.
    made: &'a Done,
    rounds: Vec<Round>,
    /// The last round of each task, and the last one in which it alone was refused.
    last: Vec<(Option<usize>, Option<usize>)>,
    takes_some: bool,
}

impl<'a> Ends<'a> {
    pub(super) fn new(
        board: &Board<'_>,
        output: &'a Output,
        operations: &'a Operations,
        made: &'a Done,
        rounds: Vec<Round>,
    ) -> Ends<'a> {
        let mut last = vec![(None, None); board.plan.tasks.len()];
        for (number, round) in rounds.iter().enumerate() {
            for at in &round.tasks {
                last[*at].0 = Some(number);
            }
            if let Some(at) = round.blamed() {
                last[at].1 = Some(number);
            }
        }
        let takes_some = takes_some(&rounds, operations);
        Ends { output, operations, made, rounds, last, takes_some }
    }

    /// Returns the last round that a task was part of.
    fn round(&self, at: usize) -> Option<&Round> {
        self.last[at].0.map(|number| &self.rounds[number])
    }

    /// Returns how many branches the remote has now.
    pub(super) fn pushed(&self) -> usize {
        let is_in = |op: &Operation| {
            self.rounds.iter().any(|round| round.done.get(&op.id).is_some_and(Outcome::is_success))
        };
        self.operations.pushes.iter().filter(|(_, op)| is_in(op)).count()
    }

    /// Says whether the remote has refused for good what is held, and nothing else was in the way.
    pub(super) fn is_refused_for_good(&self) -> bool {
        !self.rounds.iter().any(Round::may_pass)
    }

    /// Says what holds a task, as it is told of all that are held.
    pub(super) fn fault(&self, board: &Board<'_>, at: usize, held: &Failure) -> Failure {
        if let Some(whole) = self.round(at).and_then(|round| round.whole.clone()) {
            return whole;
        }
        let message = format!("task \"{}\": {}", board.plan.tasks[at].id, held.message);
        Failure { message, ..held.clone() }
    }

    /// Returns why the remote has refused a task alone, where it takes others and that is what keeps the task
    /// from landing still. A hook here that does so may as well have been unable to do its work, as where it
    /// asks a server; git says the same of both, so that the task is held.
    fn blame(&self, at: usize, round: &Round) -> Option<Failure> {
        let blamed = &self.rounds[self.last[at].1.filter(|_| self.takes_some)?];
        let is_so_still = round.is_refused || round.names(at);
        let whole = blamed.whole.as_ref().filter(|_| is_so_still && !blamed.is_of_hook)?;
        let message =
            format!("with this change, and not without it, {}", in_short(whole.clone()).message);
        Some(Failure::new("rejected", message))
    }

    /// Returns where a task stands after the landing.
    pub(super) fn standing(&self, board: &Board<'_>, at: usize) -> Standing {
        let committed = self.operations.commit(at).and_then(|op| self.made.get(&op.id));
        let Some(Outcome::Landed { commit, .. } | Outcome::NoChange { commit, .. }) = committed
        else {
            let failed = committed.and_then(|end| stopped(end, None));
            let blank = || Standing::Held(Failure::new("not_landed", "no commit was made"));
            return failed.unwrap_or_else(blank);
        };
        let commit = commit.to_string();
        let on_branch = |standing: Standing| match standing {
            Standing::Failed(failure) => Standing::Failed(failure.with_commit(&commit)),
            Standing::Held(failure) => Standing::Held(failure.with_commit(&commit)),
            other => other,
        };
        let Some(round) = self.round(at) else {
            let failure = Failure::new("not_landed", "it was not tried");
            return on_branch(Standing::Held(failure));
        };
        if let Some(blame) = self.blame(at, round) {
            return on_branch(Standing::Failed(blame));
        }
        let whole = round.whole.clone().map(in_short);
        let outcome = |op: Option<&Operation>| op.and_then(|op| round.done.get(&op.id));
        let merged = outcome(self.operations.merge(at));
        if let Some(standing) = merged.and_then(|end| stopped(end, whole.as_ref())) {
            return on_branch(match standing {
                Standing::Failed(failure) => Standing::Failed(self.told(failure)),
                Standing::Held(failure) => Standing::Held(in_short(failure)),
                other => other,
            });
        }
        if let Some(whole) = &whole
            && (merged.is_some() || round.is_untried())
        {
            return on_branch(Standing::Held(whole.clone()));
        }
        let pushed = outcome(self.operations.push(at));
        let named = |failure: Failure| {
            let message = format!("{}: {}", board.plan.tasks[at].branch(), failure.message);
            Failure { message, ..failure }
        };
        match pushed.and_then(|end| stopped(end, whole.as_ref())) {
            Some(Standing::Failed(failure) | Standing::Held(failure)) if merged.is_some() => {
                // Its change is where the plan wants it.
                let (remote, branch) = (&board.plan.remote, board.plan.tasks[at].branch());
                let cure = match pushed {
                    // With a lease: nobody has looked at what comes there after the fetch.
                    Some(outcome) if outcome.is_moved() => format!(
                        "; look at it with: git fetch {remote} {branch}; if nobody needs what is there: \
                         git push --force-with-lease={branch}:FETCH_HEAD {remote} {branch}"
                    ),
                    Some(Outcome::Rejected { class: Class::Transient, .. }) => {
                        format!("; to try it again: git push {remote} {branch}")
                    }
                    _ => String::new(),
                };
                self.output.note(format!("note: not pushed: {}{cure}", named(failure).message));
                Standing::Landed { commit }
            }
            Some(Standing::Failed(failure)) => on_branch(Standing::Failed(named(failure))),
            Some(Standing::Held(failure)) => on_branch(Standing::Held(named(failure))),
            _ => Standing::Landed { commit },
        }
    }

    /// Tells the user what a gate has printed and keeps it out of the failure, which becomes a lesson.
    fn told(&self, failure: Failure) -> Failure {
        if failure.kind == OpErrorKind::Gate.as_str() {
            self.output.note(&failure.message);
        }
        in_short(failure)
    }
}

/// Where an operation leaves its task that did not succeed. `whole` is what keeps all of them from landing.
pub(super) fn stopped(outcome: &Outcome, whole: Option<&Failure>) -> Option<Standing> {
    let failure = failure(outcome)?;
    let is_own = match outcome {
        Outcome::Conflict { .. } => true,
        // Where the gate fails by itself, it has named nobody.
        Outcome::Failed(error) if error.kind == OpErrorKind::Gate => {
            whole.is_none_or(|whole| whole.kind != OpErrorKind::Gate.as_str())
        }
        Outcome::Failed(error) => is_of_task(error.kind),
        Outcome::Rejected { class, .. } => whole.is_none() && *class != Class::Transient,
        _ => false,
    };
    Some(if is_own { Standing::Failed(failure) } else { Standing::Held(failure) })
}

/// Returns why an operation did not succeed.
pub(super) fn failure(outcome: &Outcome) -> Option<Failure> {
    let error = OpLine::of("", outcome).error?;
    match outcome {
        Outcome::Superseded => None,
        _ => Some(Failure::new(error.kind, error.message)),
    }
}

/// Whether an answer can be at fault for it; all else is to be put right in the repository, the settings
/// or the remote.
fn is_of_task(kind: OpErrorKind) -> bool {
    use OpErrorKind as Kind;
    match kind {
        Kind::MissingIdentity
        | Kind::InvalidIdentity
        | Kind::UnknownBranch
        | Kind::UnknownBase
        | Kind::BaseNotAncestor
        | Kind::CheckedOut
        | Kind::UnrelatedHistories
        | Kind::BranchClash
        | Kind::BranchMoved
        | Kind::Remote
        | Kind::Repository => false,
        // Also the gate: who is named by it is at fault.
        _ => true,
    }
}

/// Leaves out what a gate has printed.
fn in_short(mut failure: Failure) -> Failure {
    let end = " on the merged tree";
    if failure.kind == OpErrorKind::Gate.as_str()
        && let Some(at) = failure.message.find(end)
    {
        failure.message.truncate(at + end.len());
    }
    failure
}
