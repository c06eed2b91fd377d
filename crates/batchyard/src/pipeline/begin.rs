//! Where the branches of tasks are when a landing begins, or goes on.

use std::collections::{BTreeMap, BTreeSet};
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
    /// What the commits that it has to make are called together: those of tasks in neither `landed` nor `tips`.
    pub(super) name: String,
    /// The tasks whose own commits are where the plan wants them, with those: nothing is left to be done.
    pub(super) landed: BTreeMap<usize, ObjectId>,
    /// Where a branch begins that is not there yet.
    pub(super) bases: Tips,
    /// Where a branch is whose task has its commit, perhaps with one of somebody on top.
    pub(super) tips: Tips,
    /// Those of the tips that the landing has made itself and that are not noted to be left over.
    pub(super) left: Vec<(String, ObjectId)>,
    /// The commits of others that are noted to be gone on with in place of its own.
    pub(super) others: Tips,
}

/// Branches and commits on them.
pub(super) type Tips = BTreeMap<String, ObjectId>;

/// Sets the branches of tasks to where they begin, and notes that the landing has begun; `start` is the
/// base as the remote has it.
///
/// What an earlier run has left and nobody has published is no part of this one; it stays in the
/// branch's reflog. What somebody has committed there since is gone on from. The commits of a landing that
/// goes on are put back where another run has taken their branch, or somebody has deleted it; what of them
/// has landed is not done again, whatever has become of it since.
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
    let (mut name, mut made) = match begun {
        // The project may have been moved, or this is another clone of it.
        Some((name, at)) if at == here || is_gone(&at, place) => {
            (Some(name), place.state.made().map_err(|error| unreachable(error.to_string()))?)
        }
        Some((_, at)) => return Err(begun_elsewhere(&at, &here, place.state)),
        None => (None, Tips::new()),
    };
    // Listed once, so that all below decides by the same. No other run lands meanwhile, and a branch that
    // somebody moves is set from the commit listed here or not at all.
    let known = place.repository.branches("batchyard").map_err(unreachable)?;
    let noted = place.state.others().map_err(|error| unreachable(error.to_string()))?;
    let mut others = noted.clone();
    let present = present(place, remote, [&made, &others])?;
    others.retain(|_, commit| present.contains(commit));
    // A branch that is at its own commit again has nothing else in the place of it.
    others.retain(|branch, commit| {
        let own = made.get(branch).copied();
        let tip = known.get(branch).map(|local| local.tip);
        own == Some(*commit) || own.is_none() || tip != own
    });
    if !made.values().all(|commit| present.contains(commit)) {
        // Gone with the repository that they were made in: they are made anew in this one.
        made.retain(|_, commit| present.contains(commit));
        name = None;
    }
    let landed = landed(board, place, (remote, start), [&made, &others])?;
    let is_new = name.is_none();
    let (bases, tips) = session.interrupt.shielded(|| {
        if is_new {
            // What stays for now is forgotten by a later run.
            let _ = place.repository.forget_left(&known, start);
        }
        say_what_stays(session, board, place, &known, &landed);
        set_branches(board, place, (remote, start), &known, (&made, &landed))
    })?;
    let name = match name {
        Some(name) => place.state.note_landing(&name, &here).map(|()| name),
        None => place.state.begin_landing(&here, &made),
    };
    let name = name.map_err(|error| unreachable(error.to_string()))?;
    let is_other = |branch: &String, tip: &ObjectId| {
        made.get(branch) != Some(tip) || others.get(branch) == Some(tip)
    };
    let (foreign, mut left): (Vec<_>, Vec<_>) =
        tips.clone().into_iter().partition(|(branch, tip)| is_other(branch, tip));
    // What was noted of branches that go on does not count any more; of the rest it does, also where its commit
    // is not here.
    let rest = noted.iter().filter(|(branch, _)| !tips.contains_key(*branch));
    let others: Tips = rest.map(|(branch, tip)| (branch.clone(), *tip)).chain(foreign).collect();
    if others != noted {
        // Before it lands: it is known by this where it has, also when somebody has gone on from it.
        place.state.note_others(&others).map_err(|error| unreachable(error.to_string()))?;
    }
    let is_noted = |branch: &String, tip: ObjectId| {
        known.get(branch).is_some_and(|local| local.is_of_a_run && local.tip == tip)
    };
    left.retain(|(branch, tip)| !is_noted(branch, *tip));
    // What has been made already is no part of what is to be made.
    Ok(Begun { name: format!("{name}/{}", made.len()), landed, bases, tips, left, others })
}

/// Returns those of the commits of a landing that are here. A new clone that has the base alone gets the
/// branches of the others: what has landed there would be taken for gone, and be done again on top.
fn present(
    place: &Place<'_>,
    remote: &RemoteBranches,
    [made, others]: [&Tips; 2],
) -> Result<BTreeSet<ObjectId>, Stop> {
    let commits: Vec<ObjectId> = made.values().chain(others.values()).copied().collect();
    let present = place.repository.present(&commits).map_err(unreachable)?;
    let is_away = |(branch, commit): &(&String, &ObjectId)| {
        !present.contains(*commit) && remote.tips.contains_key(*branch)
    };
    let away: BTreeSet<&String> =
        made.iter().chain(others).filter(is_away).map(|(branch, _)| branch).collect();
    if away.is_empty() {
        return Ok(present);
    }
    place.repository.fetch_all(&away).map_err(unreachable)?;
    place.repository.present(&commits).map_err(unreachable)
}

/// Returns what of the commits of a landing is where the plan wants it: in the base, or else in the branch of
/// the task at the remote. It may be a commit of somebody that was landed in the place of its own.
fn landed(
    board: &Board<'_>,
    place: &Place<'_>,
    (remote, start): (&RemoteBranches, ObjectId),
    [made, others]: [&Tips; 2],
) -> Result<BTreeMap<usize, ObjectId>, Stop> {
    let repository = place.repository;
    let commits: Vec<ObjectId> = made.values().chain(others.values()).copied().collect();
    let pushes_base = board.plan.land.push != Push::Branches;
    let outside = repository.outside(&commits, start).map_err(unreachable)?;
    let mut landed = BTreeMap::new();
    for at in board.answered() {
        let branch = board.plan.tasks[at].branch();
        // Its own may be gone, with the repository where somebody has amended it.
        for &commit in others.get(&branch).into_iter().chain(made.get(&branch)) {
            let is_in = match remote.tips.get(&branch) {
                _ if pushes_base => !outside.contains(&commit),
                None => false,
                Some(tip) if *tip == commit => true,
                Some(_) => {
                    let tip = repository.fetch(remote, &branch).map_err(unreachable)?;
                    repository.is_ancestor(commit, tip)
                }
            };
            if is_in {
                landed.insert(at, commit);
                break;
            }
        }
    }
    Ok(landed)
}

/// Says of tasks that have landed what somebody has committed to their branches since.
fn say_what_stays(
    session: &Session,
    board: &Board<'_>,
    place: &Place<'_>,
    known: &BTreeMap<String, LocalBranch>,
    landed: &BTreeMap<usize, ObjectId>,
) {
    for (at, commit) in landed {
        let branch = board.plan.tasks[*at].branch();
        if let Some(local) = known.get(&branch)
            && local.tip != *commit
            && place.repository.is_ancestor(*commit, local.tip)
        {
            session.output.note(format!(
                "note: {branch} has landed before; what was committed to it since stays there"
            ));
        }
    }
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

/// Sets the branches of tasks that have not landed, and says where new ones begin, and where those are that go
/// on. `made` has the commits that this landing has made.
fn set_branches(
    board: &Board<'_>,
    place: &Place<'_>,
    (remote, start): (&RemoteBranches, ObjectId),
    known: &BTreeMap<String, LocalBranch>,
    (made, landed): (&Tips, &BTreeMap<usize, ObjectId>),
) -> Result<(Tips, Tips), Stop> {
    let repository = place.repository;
    let merges = board.plan.land.push != Push::Branches;
    let pushes_branches = board.plan.land.push != Push::Base;
    let (mut bases, mut tips) = (Tips::new(), Tips::new());
    for (at, task, standing) in board.iter() {
        if !matches!(standing, Standing::Answered { .. }) || landed.contains_key(&at) {
            continue;
        }
        let branch = task.branch();
        let own = made.get(&branch).copied();
        // The remote's branch is gone on from, unless the base has all of it, or would get what is no
        // more than left over.
        let published = match remote.tips.get(&branch) {
            Some(_) if own.is_none() => {
                Some(repository.fetch(remote, &branch).map_err(unreachable)?)
            }
            // Also what somebody has gone on to there: a push has to know that it is behind. Without it the
            // push alone is refused.
            Some(tip) if pushes_branches && own != Some(*tip) => {
                repository.fetch(remote, &branch).ok()
            }
            _ => None,
        };
        let is_left = |there| {
            let local = known.get(&branch);
            merges && local.is_some_and(|local| local.is_of_a_run && local.tip == there)
        };
        let published =
            published.filter(|there| !is_left(*there) && !repository.is_ancestor(*there, start));
        let from = published.unwrap_or(start);
        let Some(local) = known.get(&branch) else {
            match own {
                Some(own) => {
                    repository.set_branch(&branch, None, own).map_err(unreachable)?;
                    tips.insert(branch, own);
                }
                None => drop(bases.insert(branch, from)),
            }
            continue;
        };
        let is_in = |commit, of| repository.is_ancestor(commit, of);
        let to = match own {
            // What another run has committed there goes, and what somebody had committed before that stays.
            Some(own) if local.is_of_a_run && local.tip != own => {
                let before = repository.parent(local.tip);
                let is_somebody_s = |at: &ObjectId| is_in(own, *at) && !is_in(*at, start);
                Some(before.filter(is_somebody_s).unwrap_or(own))
            }
            // Not what somebody has put in its place.
            Some(own) => {
                let is_before = is_in(local.tip, start) || is_in(local.tip, own);
                (is_before && !is_in(own, local.tip)).then_some(own)
            }
            None if local.tip == from => None,
            None if local.is_of_a_run => Some(from),
            None if local.is_checked_out => None,
            // Somebody is at work there, unless all of it is in what it begins at.
            None => is_in(local.tip, from).then_some(from),
        };
        if own.is_some() {
            tips.insert(branch.clone(), to.unwrap_or(local.tip));
        }
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
    Ok((bases, tips))
}
