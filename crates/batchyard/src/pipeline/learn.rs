//! A lesson for each failure.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use jiff::{SignedDuration, Timestamp, ToSpan};
use lessons_index::{Failure as Seen, Lesson};

use super::board::{Board, Failure, Standing};
use super::end::End;
use super::state::RunState;
use crate::cli::Session;
use crate::commands::lessons::{open, record_all};
use crate::exit::Stop;
use crate::plan::Task;

/// Counts one failure for each task that failed, in one write: as a new lesson, or once more where the
/// same is known of tasks of that kind, whoever has recorded it and whatever the task was called.
///
/// Once, also where a run is killed behind that: all of them are recorded with one time, which the state knows
/// before and the lessons have from then on.
///
/// Returns how many failures were counted.
pub(crate) fn learn(
    session: &Session,
    board: &Board<'_>,
    path: &Path,
    state: &RunState,
) -> Result<usize, Stop> {
    let seen: Vec<Seen> = board
        .iter()
        .filter_map(|(_, task, standing)| match standing {
            Standing::Failed(failure) => seen(task, failure),
            _ => None,
        })
        .collect();
    if seen.is_empty() {
        return Ok(0);
    }
    let index = open(path)?;
    let known = index.snapshot();
    let (end, of_state) = (state.end(), |error: io::Error| Stop::refused(error));
    let (at, counted) = if let Some(at) = end.map_err(of_state)?.and_then(|end| end.at()) {
        (at, recorded_at(path, at)?)
    } else {
        // Later than what is known, so that it is what the lessons get; but not by far, as where a clock was
        // wrong.
        let lessons = seen.iter().filter_map(|failure| known.seen_before(failure));
        let newest = lessons.filter_map(|lesson| lesson.last_seen()).max();
        let now = Timestamp::now();
        let next = newest.and_then(|newest| newest.checked_add(1.nanosecond()).ok());
        let is_near = |next: &Timestamp| next.duration_since(now) < SignedDuration::from_mins(1);
        let at = next.filter(is_near).map_or(now, |next| next.max(now));
        if let Err(error) = state.note_end(&End::of(board, at)) {
            // They would be counted twice only where the run is killed as well.
            let folder = state.folder().display();
            session
                .output
                .note(format!("note: cannot note the end of the run in {folder}: {error}"));
        }
        (at, HashSet::new())
    };
    let left = seen.into_iter().filter_map(|failure| match known.seen_before(&failure) {
        Some(lesson) if counted.contains(lesson.id()) => None,
        // What somebody has written there stays.
        Some(lesson) if !lesson.resolution().is_empty() => Some(failure.resolution("").at(at)),
        _ => Some(failure.at(at)),
    });
    Ok(record_all(session, &index, left.collect())?.len())
}

/// Returns the ids of the lessons that were recorded with a time: also those that were counted by somebody
/// else since, as their lines are in the file still.
fn recorded_at(path: &Path, at: Timestamp) -> Result<HashSet<String>, Stop> {
    let cannot =
        |error: io::Error| Stop::refused(format_args!("cannot read {}: {error}", path.display()));
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashSet::new()),
        Err(error) => return Err(cannot(error)),
    };
    let time = at.to_string();
    let mut ids = HashSet::new();
    for line in BufReader::new(file).split(b'\n') {
        let line = line.map_err(cannot)?;
        let line = String::from_utf8_lossy(&line);
        if line.contains(&time)
            && let Ok(lesson) = Lesson::parse_line(&line)
        {
            ids.insert(lesson.id);
        }
    }
    Ok(ids)
}

/// Kinds of failure that no agent can do anything about: the template or the account is at fault.
const OF_NO_AGENT: [&str; 6] = [
    Failure::PROMPT,
    "authentication_error",
    "permission_error",
    "billing_error",
    "invalid_api_key",
    "insufficient_quota",
];

/// Returns the failure as it is counted; `None` where no agent can learn from it.
fn seen(task: &Task, failure: &Failure) -> Option<Seen> {
    if OF_NO_AGENT.contains(&failure.kind.as_str()) {
        return None;
    }
    let seen = Seen::new(&failure.kind, &failure.message)
        .scope(&task.kind)
        .task_type(&task.kind)
        .activity_type("run")
        .pattern(&failure.kind)
        .resolution(resolution(&failure.kind));
    Some(seen)
}

/// What helps against a kind of failure, where that is known beforehand.
fn resolution(kind: &str) -> &'static str {
    match kind {
        "unusable_answer" => {
            "End with one closed json fence that holds {\"files\":[..]}; keep it within max_tokens."
        }
        "path_not_allowed" => "Write only to paths that the plan allows.",
        "conflict" => "Keep to files that no other task of the run changes.",
        "gate" => "Make the merged tree pass the gate's command.",
        "rejected" => {
            "Leave out what the remote refuses, such as secrets and files that are too large."
        }
        _ => "",
    }
}
