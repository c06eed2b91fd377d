//! From usable answers to branches at the remote, in one push.

use std::collections::BTreeMap;

use git_batch::{Extent, GitBatch, ObjectId, Operation, Outcome};

use super::apart;
use super::begin::{Begun, Tips, begin};
use super::board::{Board, Failure, Standing};
use super::ends::Ends;
use super::ops::{self, Operations};
use super::round::Done;
use super::state::RunState;
use crate::cli::Session;
use crate::exit::{Stop, chain};
use crate::plan::Push;
use crate::repository::Repository;

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

impl Place<'_> {
    /// Returns how much of a landing is done.
    pub(super) fn extent(&self) -> Extent {
        if self.may_push { Extent::All } else { Extent::Local }
    }
}

/// Pushes of a landing.
#[derive(Debug, Default)]
pub(crate) struct Landing {
    /// Branches that the remote has now.
    pub(crate) pushed: usize,
    /// Push commands run against the remote.
    pub(crate) pushes: u64,
    /// What keeps tasks from landing that are not at fault.
    pub(crate) fault: Option<Failure>,
    /// The remote has refused for good what is held, and nothing else was in the way.
    pub(crate) is_refused_for_good: bool,
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
    let held_back = (!place.may_push).then_some(STOPPED);
    if board.answered().is_empty() {
        return Ok(Landing::default());
    }
    if let Some(end) = place.state.end().map_err(|error| unreachable(error.to_string()))? {
        end.put(board);
        return Ok(Landing { held_back, ..Landing::default() });
    }
    let _held = place.repository.hold()?;
    let remote = place.repository.remote_branches().map_err(unreachable)?;
    let start = place.repository.fetch(&remote, place.onto).map_err(unreachable)?;
    let Begun { name, landed, bases, tips, left, others } =
        begin(session, board, place, &remote, start)?;
    for (at, commit) in landed {
        board.set(at, Standing::Landed { commit: commit.to_string() });
    }
    let tasks = board.answered();
    let begins = |branch: &str| bases.get(branch).map(ObjectId::to_string);
    let operations = ops::make(board, place.onto, begins);
    if let Some(gate) = &board.plan.gate {
        session.output.note(format!("gate: {}", gate.argv.join(" ")));
    }
    let tip = |at: usize| tips.get(&board.plan.tasks[at].branch()).copied();
    let commits = operations.commits.iter().filter(|(at, _)| tip(*at).is_none());
    let commits: Vec<Operation> = commits.map(|(_, op)| op.clone()).collect();
    let mut made = Done::default();
    if !commits.is_empty() {
        let report = session.interrupt.shielded(|| place.git.apply_as(&name, commits));
        made = Done::from(report.map_err(|error| unreachable(chain(&error)))?);
    }
    note_left(session, board, place, &operations, &made, (left, others));
    make_unchanged(board, place, &bases, &operations, &made)?;
    for (at, op) in &operations.commits {
        if let Some(commit) = tip(*at) {
            made.note(&op.id, Outcome::Landed { commit, left_out: Vec::new() });
        }
    }
    let rounds = apart::land(session, place, board.plan, &operations, &made)?;
    let pushes = rounds.iter().map(|round| &round.done).chain([&made]).map(Done::pushes).sum();
    if pushes == 0 {
        // It may have been the gate that was stopped.
        session.interrupt.check()?;
    }
    let ends = Ends::new(board, &session.output, &operations, &made, rounds);
    let mut fault = None;
    for at in tasks {
        let standing = ends.standing(board, at);
        if let Standing::Held(failure) = &standing {
            fault.get_or_insert_with(|| ends.fault(board, at, failure));
        }
        board.set(at, standing);
    }
    Ok(Landing {
        pushed: if place.may_push { ends.pushed() } else { 0 },
        pushes,
        fault,
        is_refused_for_good: ends.is_refused_for_good(),
        held_back,
    })
}

/// Returns the way to go on with answers that could not land.
pub(crate) fn unlanded(landing: &Landing, fault: &Failure, push: Push, state: &RunState) -> Stop {
    let state = state.folder().display();
    let more = match (fault.kind.as_str(), push) {
        ("gate", _) => {
            "[gate] may be another one by then; `env` there names variables that it lacks. Or "
        }
        ("rejected", _) if !landing.is_refused_for_good => "Or ",
        ("rejected", Push::Branches) => {
            "If it is for what the answers hold, none of them will be taken: then "
        }
        ("rejected", _) => {
            "If the base takes nothing from you, `push = \"branches\"` in [land] lands each task on a \
             branch of its own. If it is for what the answers hold, none of them will be taken: then "
        }
        _ => "Or ",
    };
    let how = match fault.kind.as_str() {
        // Such as a push of somebody else: there may be nothing to put right.
        "rejected" if !landing.is_refused_for_good => {
            "run again to go on from what the remote has then, and put right what is in the way still"
        }
        _ => "put it right and run again to go on",
    };
    Stop::unfinished(&fault.message).help(format_args!(
        "the answers are kept; {how}: nothing is paid twice. {more}remove {state} to give the answers up"
    ))
}

/// Notes the commits that are on the branches of tasks now: for this landing, should it be cut off, and for
/// the next run. `left` has those that were made before, and are not noted for the next run; `others` has those
/// of others that are noted.
fn note_left(
    session: &Session,
    board: &Board<'_>,
    place: &Place<'_>,
    operations: &Operations,
    made: &Done,
    (mut left, mut others): (Vec<(String, ObjectId)>, Tips),
) {
    let (mut own, mut unchanged) = (Vec::new(), Vec::new());
    for (at, op) in &operations.commits {
        let branch = board.plan.tasks[*at].branch();
        match made.get(&op.id) {
            Some(Outcome::Landed { commit, .. }) => own.push((branch, *commit)),
            // It is no commit of the run, and nothing is left to be done where it has landed.
            Some(Outcome::NoChange { commit, .. }) => unchanged.push((branch, *commit)),
            _ => {}
        }
    }
    left.extend(own.iter().cloned());
    own.extend(unchanged.iter().cloned());
    // In this order: what the repository calls left over must be known to be this landing's.
    let others_noted = if unchanged.is_empty() {
        Ok(())
    } else {
        others.extend(unchanged);
        place.state.note_others(&others)
    };
    let noted = others_noted.and_then(|()| place.state.note_made(&own));
    let noted = noted.map_err(|error| error.to_string());
    if let Err(why) = noted.and_then(|()| place.repository.note_left(&left)) {
        // The next run goes on from there.
        session.output.note(format!("note: {why}"));
    }
}

/// Makes the branches of answers that change nothing of what they begin at: no commit has made them, and
/// there is something to merge where that is the remote's branch.
fn make_unchanged(
    board: &Board<'_>,
    place: &Place<'_>,
    bases: &BTreeMap<String, ObjectId>,
    operations: &Operations,
    made: &Done,
) -> Result<(), Stop> {
    for (at, op) in &operations.commits {
        let branch = board.plan.tasks[*at].branch();
        if let Some(Outcome::NoChange { commit, .. }) = made.get(&op.id)
            && bases.contains_key(&branch)
        {
            place.repository.set_branch(&branch, None, *commit).map_err(unreachable)?;
        }
    }
    Ok(())
}

/// Something keeps all answers from landing, and may be gone when the run is started again.
pub(super) fn unreachable(why: String) -> Stop {
    Stop::unfinished(why).kept()
}
