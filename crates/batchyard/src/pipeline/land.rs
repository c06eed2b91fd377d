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
    /// Branches that were to be pushed.
    pub(crate) asked: usize,
    /// Push commands run against the remote.
    pub(crate) pushes: u64,
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
    let bases =
        session.interrupt.shielded(|| begin(board, place, &remote, start, begun.is_some()))?;
    let name = begun.map_or_else(|| place.state.begin_landing(), Ok);
    let name = name.map_err(|error| unreachable(error.to_string()))?;
    let base = |branch: &str| bases.get(branch).copied().flatten().map(|id| id.to_string());
    let operations = ops::make(board, place.onto, base);
    if let Some(argv) = &board.plan.gate {
        session.output.note(format!("gate: {}", argv.join(" ")));
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
    if let Some(why) = not_heard(&operations, &report) {
        return Err(unreachable(why));
    }
    for at in tasks {
        let standing = standing(session, board, &operations, at, &report);
        board.set(at, standing);
    }
    let is_asked = |op: &&Operation| {
        matches!(op.kind, OperationKind::Push(_))
            && !matches!(report.get(&op.id), Some(Outcome::Skipped { .. }))
    };
    Ok(Landing {
        asked: all.iter().filter(is_asked).count(),
        pushes: report.pushes().into(),
        held_back: (!place.may_push).then_some(STOPPED),
    })
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

/// Why all that was to be pushed may still arrive if the same is tried again.
fn not_heard(operations: &ops::Operations, report: &Report) -> Option<String> {
    // Where the base is pushed, it decides.
    let base = operations.pushes.iter().find(|(task, _)| task.is_none());
    let pushes = match base {
        Some(base) => std::slice::from_ref(base),
        None => &operations.pushes,
    };
    let mut why = None;
    for end in pushes.iter().filter_map(|(_, op)| report.get(&op.id)) {
        match end {
            Outcome::Rejected { class: Class::Transient, reason } => why = Some(reason.clone()),
            Outcome::Failed(error) if error.kind == OpErrorKind::Remote => {
                why = Some(error.message.clone());
            }
            Outcome::Skipped { .. } => {}
            _ => return None,
        }
    }
    why
}

/// Where a task stands after the landing.
fn standing(
    session: &Session,
    board: &Board<'_>,
    operations: &ops::Operations,
    at: usize,
    report: &Report,
) -> Standing {
    let end = |op: &Operation| Some((op.id.clone(), report.get(&op.id)?.clone()));
    let outcome = |operations: &[(usize, Operation)]| {
        operations.iter().find(|(task, _)| *task == at).and_then(|(_, op)| end(op))
    };
    let failure = |(id, outcome): (String, Outcome)| {
        let error = OpLine::of(&id, &outcome).error?;
        Some(Failure::new(error.kind, error.message))
    };
    let Some((id, committed)) = outcome(&operations.commits) else {
        return Standing::Failed(Failure::new("not_landed", "no commit was made"));
    };
    let commit = match committed {
        Outcome::Landed { commit, .. } | Outcome::NoChange { commit, .. } => commit.to_string(),
        other => {
            let failed = failure((id, other));
            let failed = failed.unwrap_or_else(|| Failure::new("not_landed", "it was not made"));
            return Standing::Failed(failed);
        }
    };
    let merged = outcome(&operations.merges);
    let is_merged = merged.is_some();
    if let Some(failed) = merged.and_then(failure) {
        return Standing::Failed(told(session, failed));
    }
    let pushed = operations.pushes.iter().find(|(task, _)| *task == Some(at));
    if let Some(failed) = pushed.and_then(|(_, op)| end(op)).and_then(failure) {
        let branch = board.plan.tasks[at].branch();
        let message = format!("{branch}: {}", failed.message);
        if !is_merged {
            return Standing::Failed(Failure::new(failed.kind, message));
        }
        // Its change is where the plan wants it.
        session.output.note(format!("note: not pushed: {message}"));
    }
    Standing::Landed { commit }
}

/// Tells the user what a gate has printed and keeps it out of the failure, which becomes a lesson.
fn told(session: &Session, mut failure: Failure) -> Failure {
    if failure.kind == OpErrorKind::Gate.as_str() {
        session.output.note(&failure.message);
        let end = " on the merged tree";
        if let Some(at) = failure.message.find(end) {
            failure.message.truncate(at + end.len());
        }
    }
    failure
}

fn unreachable(why: String) -> Stop {
    Stop::unfinished(why).help("the answers are kept; run again to go on, nothing is paid twice")
}
