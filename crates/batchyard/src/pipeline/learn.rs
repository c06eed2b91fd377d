//! A lesson for each failure.

use std::path::Path;

use jiff::Timestamp;
use lessons_index::{InvalidLesson, Lesson, Snapshot};

use super::board::{Board, Failure, Standing};
use crate::cli::Session;
use crate::commands::lessons::{add_all, open};
use crate::exit::{Stop, chain};
use crate::plan::Task;

/// Adds one lesson for each task that failed; a failure that is known is counted once more.
///
/// Returns how many lessons were recorded.
pub(crate) fn learn(session: &Session, board: &Board<'_>, path: &Path) -> Result<usize, Stop> {
    let failures: Vec<(&Task, &Failure)> = board
        .iter()
        .filter_map(|(_, task, standing)| match standing {
            Standing::Failed(failure) => Some((task, failure)),
            _ => None,
        })
        .collect();
    if failures.is_empty() {
        return Ok(0);
    }
    let index = open(path)?;
    let snapshot = index.snapshot();
    let lessons = failures
        .iter()
        .map(|(task, failure)| lesson(&snapshot, task, failure))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Stop::failed(chain(&error)))?;
    let count = lessons.len();
    add_all(session, &index, lessons)?;
    Ok(count)
}

fn lesson(known: &Snapshot, task: &Task, failure: &Failure) -> Result<Lesson, InvalidLesson> {
    let now = Timestamp::now();
    let id = format!("{}:{}", failure.kind, task.id);
    if let Some(known) = known.get(&id) {
        let mut lesson = (*known).clone();
        lesson.times_seen = lesson.times_seen.saturating_add(1);
        lesson.last_seen = lesson.last_seen.max(Some(now));
        lesson.failure_msg.clone_from(&failure.message);
        return Ok(lesson);
    }
    Lesson::builder(id)
        .task_type(&task.kind)
        .activity_type("run")
        .failure_type(&failure.kind)
        .failure_msg(&failure.message)
        .resolution(resolution(&failure.kind))
        .pattern(&failure.kind)
        .times_seen(1)
        .first_seen(now)
        .last_seen(now)
        .build()
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
        _ => "",
    }
}
