//! A lesson for each failure.

use std::path::Path;

use lessons_index::Failure as Seen;

use super::board::{Board, Failure, Standing};
use crate::cli::Session;
use crate::commands::lessons::{open, record_all};
use crate::exit::Stop;
use crate::plan::Task;

/// Counts one failure for each task that failed, in one write: as a new lesson, or once more where the
/// same is known of tasks of that kind, whoever has recorded it and whatever the task was called.
///
/// Returns how many failures were counted.
pub(crate) fn learn(session: &Session, board: &Board<'_>, path: &Path) -> Result<usize, Stop> {
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
    let advised = seen.into_iter().map(|failure| match known.seen_before(&failure) {
        // What somebody has written there stays.
        Some(lesson) if !lesson.resolution().is_empty() => failure.resolution(""),
        _ => failure,
    });
    Ok(record_all(session, &index, advised.collect())?.len())
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
