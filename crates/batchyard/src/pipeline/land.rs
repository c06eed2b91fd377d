//! From usable answers to branches at the remote, in one push.

use std::collections::BTreeMap;

use git_batch::{
    Class, Extent, GitBatch, ObjectId, OpErrorKind, Operation, OperationKind, Outcome, Report,
};

use super::board::{Board, Failure, Standing};
use super::ops;
use super::state::RunState;
use crate::cli::Session;
use crate::exit::{Stop, chain};
use crate::repository::{RemoteBranches, Repository};
use crate::wire::outcomes::OpLine;

/// Where a run lands.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    /// With the gate of the plan.
    pub(crate) git: &'a GitBatch,
    pub(crate) repository: &'a Repository,
    /// The base branch.
    pub(crate) onto: &'a str,
    /// Whether anything may leave the machine.
    pub(crate) may_push: bool,
    /// Knows whether the landing has begun.
    pub(crate) state: &'a RunState,
}

/// Pushes of a landing.
#[derive(Debug, Default)]
pub(crate) struct Landing {
    /// Branches that the remote has now.
    pub(crate) pushed: usize,
    /// Push commands run against the remote.
    pub(crate) pushes: u64,
    /// What keeps tasks from landing that are not at fault.
    pub(crate) fault: Option<String>,
    /// Why nothing was pushed although no task is at fault.
    pub(crate) held_back: Option<&'static str>,
}

const STOPPED: &str = "recorded answers are pushed only to a remote that the run itself made; the \
                       commits are on the local branches batchyard/ID";

/// Commits, merges, checks and pushes what was answered, as one landing; the board says what became
/// of it.
///
/// A landing that was cut off goes on with the commits that it has made: whatever of them is in the
/// base by now is not done a second time.
///
/// All begins at the base as the remote has it now: a local base that somebody has checked out, or
/// has not pulled for a while, is not in the way, and neither is what an earlier run has left on the
/// branch of a task.
///
/// # Errors
///
/// The remote or the repository cannot be used; the answers stay in the state of the run.
pub(crate) fn land(
    session: &Session,
    board: &mut Board<'_>,
    place: &Place<'_>,
) -> Result<Landing, Stop> {
    let tasks = board.answered();
    if tasks.is_empty() {
        return Ok(Landing::default());
    }
    let _held = place.repository.hold()?;
    let remote = place.repository.remote_branches().map_err(unreachable)?;
    let start = place.repository.fetch(&remote, place.onto).map_err(unreachable)?;
    let begun = place.state.landing().map_err(|error| unreachable(error.to_string()))?;
    let at = format!("{} at {}", place.onto, place.repository.place());
    let begun = match begun {
        // The commits of its tasks are made on what was there.
        Some((_, other)) if other != at => return Err(begun_elsewhere(&other, &at, place.state)),
        begun => begun.map(|(name, _)| name),
    };
    let bases =
        session.interrupt.shielded(|| begin(board, place, &remote, start, begun.is_some()))?;
    let name = begun.map_or_else(|| place.state.begin_landing(&at), Ok);
    let name = name.map_err(|error| unreachable(error.to_string()))?;
    let base = |branch: &str| bases.get(branch).copied().flatten().map(|id| id.to_string());
    let operations = ops::make(board, place.onto, base);
    if let Some(gate) = &board.plan.gate {
        session.output.note(format!("gate: {}", gate.argv.join(" ")));
    }
    let commits = operations.commits.iter().map(|(_, op)| op.clone()).collect();
    let mut report = session
        .interrupt
        .shielded(|| place.git.apply_as(&name, commits))
        .map_err(|error| unreachable(chain(&error)))?;
    note_left(session, board, place, &operations, &report);
    let all = to_land(&operations, &report);
    let extent = if place.may_push { Extent::All } else { Extent::Local };
    if !all.is_empty() {
        let landed = session
            .interrupt
            .shielded(|| place.git.land_with(place.onto, &all, extent))
            .map_err(|error| unreachable(chain(&error)))?;
        report.outcomes.extend(landed.outcomes);
        report.receipts.extend(landed.receipts);
    }
    if report.pushes() == 0 {
        // It may have been the gate that was stopped.
        session.interrupt.check()?;
    }
    let whole = refused_whole(&operations, &report);
    let mut fault = whole.as_ref().map(|failure| failure.message.clone());
    let whole = whole.map(in_short);
    for at in tasks {
        let standing = standing(session, board, &operations, at, &report, whole.as_ref());
        if let Standing::Held(Failure { message, .. }) = &standing {
            let id = &board.plan.tasks[at].id;
            fault.get_or_insert_with(|| format!("task \"{id}\": {message}"));
        }
        board.set(at, standing);
    }
    let is_pushed = |op: &&Operation| {
        let outcome = report.get(&op.id);
        matches!(op.kind, OperationKind::Push(_)) && outcome.is_some_and(Outcome::is_success)
    };
    Ok(Landing {
        pushed: if place.may_push { all.iter().filter(is_pushed).count() } else { 0 },
        pushes: report.pushes().into(),
        fault,
        held_back: (!place.may_push).then_some(STOPPED),
    })
}

/// Returns the way to go on with answers that could not land.
pub(crate) fn unlanded(fault: &str, state: &RunState) -> Stop {
    let state = state.folder().display();
    Stop::unfinished(fault).help(format_args!(
        "the answers are kept; put it right and run again to go on: nothing is paid twice. [gate] may \
         be another one by then (`env` there names variables that it lacks), and so may `push` in \
         [land] (\"branches\" lands all that the remote takes). Or remove {state} to give the answers up"
    ))
}

fn begun_elsewhere(other: &str, at: &str, state: &RunState) -> Stop {
    let state = state.folder().display();
    Stop::unfinished(format_args!("the run has begun to land on {other}, not on {at}")).help(
        format_args!("let it end there, or remove {state} to give the answers up and begin anew"),
    )
}

/// Sets branches of tasks to where they begin, and says where a new one does; nothing where a branch is
/// there, or where the landing `has_begun` and may have committed already.
///
/// What an earlier run has left and nobody has published is no part of this one; it stays in the
/// branch's reflog. What somebody has committed there since is gone on from.
fn begin(
    board: &Board<'_>,
    place: &Place<'_>,
    remote: &RemoteBranches,
    start: ObjectId,
    has_begun: bool,
) -> Result<BTreeMap<String, Option<ObjectId>>, Stop> {
    let repository = place.repository;
    let known = repository.branches("batchyard").map_err(unreachable)?;
    if !has_begun {
        // What stays for now is forgotten by a later run.
        let _ = repository.forget_left(&known, start);
    }
    let mut bases = BTreeMap::new();
    for (_, task, standing) in board.iter() {
        if !matches!(standing, Standing::Answered { .. }) {
            continue;
        }
        let branch = task.branch();
        // The remote's branch is gone on from, unless the base has all of it.
        let published = if remote.tips.contains_key(&branch) {
            Some(repository.fetch(remote, &branch).map_err(unreachable)?)
        } else {
            None
        };
        let published = published.filter(|there| !repository.is_ancestor(*there, start));
        let from = published.unwrap_or(start);
        let base = match known.get(&branch) {
            None => Some(from),
            Some(local) if has_begun || local.tip == from => None,
            // Not to be set, and not to be gone on from: a commit on it would take that along.
            Some(local) if local.is_checked_out && local.is_of_a_run => {
                return Err(unreachable(format!(
                    "branch \"{branch}\" is checked out, and has what an earlier run left there; \
                     switch to another branch"
                )));
            }
            Some(local) if local.is_checked_out => None,
            // Somebody is at work there, unless all of it is in what it begins at.
            Some(local) if !local.is_of_a_run && !repository.is_ancestor(local.tip, from) => None,
            Some(local) => {
                repository.set_branch(&branch, local.tip, from).map_err(unreachable)?;
                None
            }
        };
        bases.insert(branch, base);
    }
    Ok(bases)
}

/// The merges and pushes of the tasks whose commits are there.
fn to_land(operations: &ops::Operations, made: &Report) -> Vec<Operation> {
    let is_made = |at: usize| {
        let commit = operations.commits.iter().find(|(task, _)| *task == at);
        commit.and_then(|(_, op)| made.get(&op.id)).is_some_and(Outcome::is_success)
    };
    let is_commit = |id: &String| operations.commits.iter().any(|(_, op)| op.id == *id);
    let merges = operations.merges.iter().map(|(at, op)| (Some(*at), op));
    let pushes = operations.pushes.iter().map(|(at, op)| (*at, op));
    let any = operations.commits.iter().any(|(at, _)| is_made(*at));
    merges
        .chain(pushes)
        .filter(|(at, _)| at.map_or(any, is_made))
        .map(|(_, op)| {
            let mut op = op.clone();
            op.after.retain(|id| !is_commit(id));
            op
        })
        .collect()
}

/// Notes the commits that are on the branches of tasks now, for the next run.
fn note_left(
    session: &Session,
    board: &Board<'_>,
    place: &Place<'_>,
    operations: &ops::Operations,
    report: &Report,
) {
    let branches: Vec<(String, ObjectId)> = operations
        .commits
        .iter()
        .filter_map(|(at, op)| match report.get(&op.id)? {
            Outcome::Landed { commit, .. } => Some((board.plan.tasks[*at].branch(), *commit)),
            _ => None,
        })
        .collect();
    if let Err(why) = place.repository.note_left(&branches) {
        // The next run goes on from there.
        session.output.note(format!("note: {why}"));
    }
}

/// Why nothing of what was to be pushed has arrived, where that is no fault of a task: the remote did
/// not take the base, whatever is in it, or did not take any branch.
fn refused_whole(operations: &ops::Operations, report: &Report) -> Option<Failure> {
    let base = operations.pushes.iter().find(|(task, _)| task.is_none());
    if let Some((_, op)) = base {
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

/// Where a task stands after the landing. `whole` is what keeps all of them from landing.
fn standing(
    session: &Session,
    board: &Board<'_>,
    operations: &ops::Operations,
    at: usize,
    report: &Report,
    whole: Option<&Failure>,
) -> Standing {
    let outcome = |operations: &[(usize, Operation)]| {
        let found = operations.iter().find(|(task, _)| *task == at);
        found.and_then(|(_, op)| report.get(&op.id))
    };
    let Some(Outcome::Landed { commit, .. } | Outcome::NoChange { commit, .. }) =
        outcome(&operations.commits)
    else {
        let failed = outcome(&operations.commits).and_then(|end| stopped(end, whole));
        let blank = || Standing::Held(Failure::new("not_landed", "no commit was made"));
        return failed.unwrap_or_else(blank);
    };
    let commit = commit.to_string();
    let on_branch = |standing: Standing| match standing {
        Standing::Failed(failure) => Standing::Failed(failure.with_commit(&commit)),
        Standing::Held(failure) => Standing::Held(failure.with_commit(&commit)),
        other => other,
    };
    let merged = outcome(&operations.merges);
    if let Some(standing) = merged.and_then(|end| stopped(end, whole)) {
        return on_branch(match standing {
            Standing::Failed(failure) => Standing::Failed(told(session, failure)),
            Standing::Held(failure) => Standing::Held(in_short(failure)),
            other => other,
        });
    }
    if let (Some(whole), Some(_)) = (whole, merged) {
        return on_branch(Standing::Held(whole.clone()));
    }
    let pushed = operations.pushes.iter().find(|(task, _)| *task == Some(at));
    let pushed = pushed.and_then(|(_, op)| report.get(&op.id));
    let named = |failure: Failure| {
        let message = format!("{}: {}", board.plan.tasks[at].branch(), failure.message);
        Failure { message, ..failure }
    };
    match pushed.and_then(|end| stopped(end, whole)) {
        Some(Standing::Failed(failure) | Standing::Held(failure)) if merged.is_some() => {
            // Its change is where the plan wants it.
            session.output.note(format!("note: not pushed: {}", named(failure).message));
            Standing::Landed { commit }
        }
        Some(Standing::Failed(failure)) => on_branch(Standing::Failed(named(failure))),
        Some(Standing::Held(failure)) => on_branch(Standing::Held(named(failure))),
        _ => Standing::Landed { commit },
    }
}

/// Where an operation leaves its task that did not succeed.
fn stopped(outcome: &Outcome, whole: Option<&Failure>) -> Option<Standing> {
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

fn failure(outcome: &Outcome) -> Option<Failure> {
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

/// Tells the user what a gate has printed and keeps it out of the failure, which becomes a lesson.
fn told(session: &Session, failure: Failure) -> Failure {
    if failure.kind == OpErrorKind::Gate.as_str() {
        session.output.note(&failure.message);
    }
    in_short(failure)
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

fn unreachable(why: String) -> Stop {
    Stop::unfinished(why).help("the answers are kept; run again to go on, nothing is paid twice")
}
