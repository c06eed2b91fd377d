//! Where the branches of tasks are when a landing begins, or goes on.

use std::collections::BTreeMap;
use std::path::Path;

use git_batch::ObjectId;

use super::board::{Board, Standing};
use super::land::{Place, unreachable};
use super::state::RunState;
use crate::cli::Session;
use crate::exit::Stop;
use crate::plan::Push;
use crate::repository::{LocalBranch, RemoteBranches};

/// A landing whose branches are where they begin.
pub(super) struct Begun {
    /// What it is called.
    pub(super) name: String,
    /// Where a branch begins that is not there yet.
    pub(super) bases: BTreeMap<String, ObjectId>,
}

/// Sets the branches of tasks to where they begin, and notes that the landing has begun; `start` is the
/// base as the remote has it.
///
/// What an earlier run has left and nobody has published is no part of this one; it stays in the
/// branch's reflog. What somebody has committed there since is gone on from. The commits of a landing that
/// goes on are put back where another run has taken their branch, or somebody has deleted it.
///
/// # Errors
///
/// The state or the repository cannot be used, or the landing has begun elsewhere.
pub(super) fn begin(
    session: &Session,
    board: &Board<'_>,
    place: &Place<'_>,
    remote: &RemoteBranches,
    start: ObjectId,
) -> Result<Begun, Stop> {
    let here = format!("{} at {}", place.onto, place.repository.place());
    let begun = place.state.landing().map_err(|error| unreachable(error.to_string()))?;
    let (name, made) = match begun {
        Some((name, at)) if at == here => go_on(place, name)?,
        // The project was moved, or this is another clone of it.
        Some((name, at)) if is_gone(&at, place) => go_on(place, name)?,
        Some((_, at)) => return Err(begun_elsewhere(&at, &here, place.state)),
        None => (None, Some(BTreeMap::new())),
    };
    let is_new = name.is_none();
    let bases = session.interrupt.shielded(|| {
        let known = place.repository.branches("batchyard").map_err(unreachable)?;
        if is_new {
            // What stays for now is forgotten by a later run.
            let _ = place.repository.forget_left(&known, start);
        }
        set_branches(board, place, (remote, start), &known, made.as_ref())
    })?;
    let name = match name {
        Some(name) => place.state.note_landing(&name, &here).map(|()| name),
        None => place.state.begin_landing(&here),
    };
    let name = name.map_err(|error| unreachable(error.to_string()))?;
    Ok(Begun { name, bases })
}

/// The commits that a landing has made, by their branches; `None` where nobody knows.
type Made = Option<BTreeMap<String, ObjectId>>;

/// Returns the name of the landing that has begun, with its commits; none where they are gone with the
/// repository that they were made in, as this is a new clone of it.
fn go_on(place: &Place<'_>, name: String) -> Result<(Option<String>, Made), Stop> {
    let made = place.state.made().map_err(|error| unreachable(error.to_string()))?;
    let commits: Vec<ObjectId> = made.iter().flatten().map(|(_, commit)| *commit).collect();
    let is_here = place.repository.has_all(&commits).map_err(unreachable)?;
    Ok(if is_here { (Some(name), made) } else { (None, Some(BTreeMap::new())) })
}

/// Says whether a landing onto the same base and remote began in a folder that is not there any more.
fn is_gone(at: &str, place: &Place<'_>) -> bool {
    let beginning = format!("{} at {}", place.onto, place.repository.remote_of());
    let folder = at.strip_prefix(&beginning).map(Path::new);
    folder.is_some_and(|folder| folder.try_exists().is_ok_and(|is_there| !is_there))
}

fn begun_elsewhere(at: &str, here: &str, state: &RunState) -> Stop {
    let state = state.folder().display();
    Stop::unfinished(format_args!("the run has begun to land on {at}, not on {here}")).help(
        format_args!("let it end there, or remove {state} to give the answers up and begin anew"),
    )
}

/// Sets the branches and says where new ones begin. `made` has the commits that this landing has made;
/// `None` where nobody knows.
fn set_branches(
    board: &Board<'_>,
    place: &Place<'_>,
    (remote, start): (&RemoteBranches, ObjectId),
    known: &BTreeMap<String, LocalBranch>,
    made: Option<&BTreeMap<String, ObjectId>>,
) -> Result<BTreeMap<String, ObjectId>, Stop> {
    let repository = place.repository;
    let merges = board.plan.land.push != Push::Branches;
    let mut bases = BTreeMap::new();
    for (_, task, standing) in board.iter() {
        if !matches!(standing, Standing::Answered { .. }) {
            continue;
        }
        let branch = task.branch();
        // The remote's branch is gone on from, unless the base has all of it, or would get what is no
        // more than left over.
        let published = if remote.tips.contains_key(&branch) {
            Some(repository.fetch(remote, &branch).map_err(unreachable)?)
        } else {
            None
        };
        let is_left = |there| {
            let local = known.get(&branch);
            merges && local.is_some_and(|local| local.is_of_a_run && local.tip == there)
        };
        let published =
            published.filter(|there| !is_left(*there) && !repository.is_ancestor(*there, start));
        let from = published.unwrap_or(start);
        let own = made.and_then(|made| made.get(&branch).copied());
        let Some(local) = known.get(&branch) else {
            match own {
                Some(own) => repository.set_branch(&branch, None, own).map_err(unreachable)?,
                None => drop(bases.insert(branch, from)),
            }
            continue;
        };
        let is_in = |commit, of| repository.is_ancestor(commit, of);
        let to = match own {
            // It may have committed there.
            None if made.is_none() => None,
            // Not what somebody has put in its place.
            Some(own) => {
                let is_over = local.is_of_a_run || is_in(local.tip, start);
                (is_over && !is_in(own, local.tip)).then_some(own)
            }
            None if local.tip == from => None,
            None if local.is_of_a_run => Some(from),
            None if local.is_checked_out => None,
            // Somebody is at work there, unless all of it is in what it begins at.
            None => is_in(local.tip, from).then_some(from),
        };
        match to {
            None => {}
            // Not to be set, and not to be gone on from: a commit on it would take that along.
            Some(_) if local.is_checked_out => {
                return Err(unreachable(format!(
                    "branch \"{branch}\" is checked out, and has what another run left there; \
                     switch to another branch"
                )));
            }
            Some(to) => {
                repository.set_branch(&branch, Some(local.tip), to).map_err(unreachable)?;
            }
        }
    }
    Ok(bases)
}
