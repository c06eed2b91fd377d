//! From usable answers to branches at the remote, in one push.

use std::collections::BTreeMap;
use std::path::Path;

use git_batch::publish::{PushStatus, RefUpdate};
use git_batch::{Class, GitBatch, ObjectId, Outcome};

use super::board::{Board, Failure, Standing};
use super::gate;
use super::ops::{self, Operations};
use crate::cli::Session;
use crate::exit::{Stop, chain};
use crate::plan::Push;
use crate::repository::{RemoteBranches, Repository};
use crate::wire::outcomes::OpLine;

/// How often the merges are done again because the base moved at the remote meanwhile.
const MAX_ATTEMPTS: u32 = 3;

/// Where a run lands.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) git: &'a GitBatch,
    pub(crate) repository: &'a Repository,
    /// The base branch.
    pub(crate) onto: &'a str,
    /// Whether anything may leave the machine.
    pub(crate) may_push: bool,
    /// A folder for the gate's checkout, which is made and removed.
    pub(crate) scratch: &'a Path,
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

/// What is committed and merged here, and waits for the gate and the push.
struct Built {
    /// The base that the merges stand on, as the remote had it.
    start: ObjectId,
    /// The base after the merges; the same if there are none.
    merged: ObjectId,
    /// The commit of each task that is still well.
    commits: BTreeMap<usize, ObjectId>,
}

/// Commits, merges, checks and pushes what was answered; the board says what became of it.
///
/// The base is taken as the remote has it now, and merged on a branch of its own, so that a branch
/// that somebody has checked out, or has not pulled for a while, is not in the way. If the base
/// moves at the remote before the push, the merges and the gate are done again.
///
/// # Errors
///
/// The remote or the repository cannot be used; the answers stay in the state of the run.
pub(crate) fn land(
    session: &Session,
    board: &mut Board<'_>,
    place: &Place<'_>,
) -> Result<Landing, Stop> {
    let mut landing = Landing::default();
    let tasks = board.answered();
    if tasks.is_empty() {
        return Ok(landing);
    }
    let mut failures: BTreeMap<usize, Failure> = BTreeMap::new();
    let mut landed = BTreeMap::new();
    let staging = format!("batchyard-merge/{}", place.onto);
    let _held = place.repository.hold()?;
    for attempt in 1.. {
        failures.clear();
        let remote = place.repository.remote_branches().map_err(unreachable)?;
        let built =
            session.interrupt.shielded(|| build(board, place, &remote, &staging, &mut failures))?;
        landed.clone_from(&built.commits);
        if !passes_gate(session, board, place, &built, &mut failures) {
            landed.clear();
            break;
        }
        if !place.may_push {
            landing.held_back = Some(STOPPED);
            break;
        }
        let moved = session
            .interrupt
            .shielded(|| push(board, place, &remote, &built, &mut landing, &mut failures))?;
        landed.retain(|at, _| !failures.contains_key(at));
        if !moved {
            if built.merged != built.start && !landed.is_empty() {
                place.repository.follow(place.onto, &staging);
            }
            break;
        }
        if attempt == MAX_ATTEMPTS {
            break;
        }
        session.output.note(format!("{} moved at the remote; merging again", place.onto));
    }
    if board.plan.land.push != Push::Branches {
        // What was to be done is done by now, so this is told and takes nothing back.
        if let Err(why) = place.repository.delete_branch(&staging) {
            session.output.note(format!("note: the branch {staging} is left: {why}"));
        }
    }
    for at in tasks {
        let standing = match (failures.remove(&at), landed.get(&at)) {
            (Some(failure), _) => Standing::Failed(failure),
            (None, Some(commit)) => Standing::Landed { commit: commit.to_string() },
            (None, None) => Standing::Failed(Failure::new("not_landed", "no commit was made")),
        };
        board.set(at, standing);
    }
    Ok(landing)
}

const STOPPED: &str = "recorded answers are pushed only to a remote that the run itself made; the \
                       commits are on the local branches batchyard/ID";

/// Commits on the branches of the tasks and merges them on the staging branch, all locally.
fn build(
    board: &Board<'_>,
    place: &Place<'_>,
    remote: &RemoteBranches,
    staging: &str,
    failures: &mut BTreeMap<usize, Failure>,
) -> Result<Built, Stop> {
    let repository = place.repository;
    let start = repository.fetch(remote, place.onto).map_err(unreachable)?;
    let known = repository.branches().map_err(unreachable)?;
    let base = |branch: &str| (!known.contains(branch)).then(|| start.to_string());
    let Operations { commits, merges, .. } = ops::make(board, place.onto, staging, base);
    if board.plan.land.push != Push::Branches {
        repository.set_branch(staging, start).map_err(unreachable)?;
    }
    let (tasks, operations): (Vec<usize>, Vec<_>) = commits.into_iter().chain(merges).unzip();
    let report = place.git.apply(operations).map_err(|error| unreachable(chain(&error)))?;
    let mut built = Built { start, merged: start, commits: BTreeMap::new() };
    for (at, (id, outcome)) in tasks.into_iter().zip(&report.outcomes) {
        match outcome {
            Outcome::Landed { commit, .. } | Outcome::NoChange { commit, .. } => {
                // The first is the task's own commit; a merge of it comes later.
                built.commits.entry(at).or_insert(*commit);
            }
            // A merge that was skipped has failed with its commit already.
            other => {
                if let Some(error) = OpLine::of(id, other).error {
                    failures.entry(at).or_insert(Failure::new(error.kind, error.message));
                }
            }
        }
    }
    built.commits.retain(|at, _| !failures.contains_key(at));
    if let Some(merged) = repository.branch(staging) {
        built.merged = merged;
    }
    Ok(built)
}

fn passes_gate(
    session: &Session,
    board: &Board<'_>,
    place: &Place<'_>,
    built: &Built,
    failures: &mut BTreeMap<usize, Failure>,
) -> bool {
    let Some(argv) = &board.plan.gate else { return true };
    if built.commits.is_empty() {
        return true;
    }
    session.output.note(format!("gate: {}", argv.join(" ")));
    let merged = built.merged.to_string();
    let Err(why) = gate::run(place.repository.folder(), &merged, argv, place.scratch) else {
        return true;
    };
    for at in built.commits.keys() {
        failures.insert(*at, Failure::new("gate", why.clone()));
    }
    false
}

/// Pushes the branches of the tasks and the base with one command; each ref lands or fails alone.
///
/// Returns whether the base has moved at the remote, so that trying again makes sense.
///
/// # Errors
///
/// The remote could not be asked at all; the commits are here and the answers in the state.
fn push(
    board: &Board<'_>,
    place: &Place<'_>,
    remote: &RemoteBranches,
    built: &Built,
    landing: &mut Landing,
    failures: &mut BTreeMap<usize, Failure>,
) -> Result<bool, Stop> {
    let how = board.plan.land.push;
    let mut updates = Vec::new();
    // The task of each update; the base belongs to all of them.
    let mut owners = Vec::new();
    if how != Push::Base {
        for (&at, &new) in &built.commits {
            let branch = board.plan.tasks[at].branch();
            let expect = remote.tips.get(&branch).copied();
            if expect != Some(new) {
                updates.push(RefUpdate { name: full(&branch).into(), expect, new });
                owners.push(Some(at));
            }
        }
    }
    if how != Push::Branches && built.merged != built.start {
        let (expect, new) = (Some(built.start), built.merged);
        updates.push(RefUpdate { name: full(place.onto).into(), expect, new });
        owners.push(None);
    }
    landing.asked = landing.asked.max(updates.len());
    if updates.is_empty() {
        return Ok(false);
    }
    let report = place.repository.push(&updates).map_err(unreachable)?;
    landing.pushes += u64::from(report.pushes);
    let mut moved = false;
    for (owner, (name, status)) in owners.into_iter().zip(&report.refs) {
        let reason = match status {
            PushStatus::Rejected { class, reason } => {
                moved |= owner.is_none() && *class == Class::Transient;
                reason.as_str()
            }
            landed if landed.is_landed() => continue,
            _ => "the remote did not confirm it",
        };
        let failure = Failure::new("rejected", format!("{name}: {reason}"));
        match owner {
            Some(at) => {
                failures.insert(at, failure);
            }
            None => {
                for at in built.commits.keys() {
                    failures.entry(*at).or_insert_with(|| failure.clone());
                }
            }
        }
    }
    Ok(moved)
}

fn full(branch: &str) -> String {
    format!("refs/heads/{branch}")
}

fn unreachable(why: String) -> Stop {
    Stop::unfinished(why).help("the answers are kept; run again to go on, nothing is paid twice")
}
