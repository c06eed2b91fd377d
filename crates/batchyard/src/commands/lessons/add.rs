//! `lessons add`: records of stdin into the file.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use lessons_index::{AddError, Failure, Lesson, LessonsIndex, WriteError};
use serde_json::{Map, Value, json};

use super::open;
use crate::cli::Session;
use crate::exit::{Exit, Stop, chain};
use crate::input::{Input, plain_file};

/// A record with all its keys.
pub(super) const RECORD: &str = r#"A record needs an id only; unknown keys are kept:

    {"id":"oom-1","task_type":"implementer","activity_type":"build","failure_type":"oom",
     "failure_msg":"linker: out of memory","resolution":"link with fewer jobs","pattern":"memory",
     "times_seen":3,"first_seen":"2026-01-31T08:00:00Z","last_seen":"2026-02-01T08:00:00Z"}

all in one line. With --count a record is a failure: it is counted up where one with the same
scope, failure_type and message is known, whatever paths, numbers and names the message speaks of.
Its id, its times_seen and keys that are not known are left out then. `batchyard run` finds the lessons of a task by task_type, which is its kind."#;

#[derive(Debug, clap::Args)]
pub(crate) struct Add {
    /// The lessons file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Count each record as a failure instead, and print its id and how often it was seen
    #[arg(long)]
    count: bool,
}

/// Adds all records of stdin, or none: they are checked before the file is touched.
pub(super) fn run(session: &Session, options: &Add) -> Result<Exit, Stop> {
    let path = &options.file;
    if options.count {
        return count(session, path);
    }
    let stdin = Input::Stdin;
    let mut lessons = Vec::new();
    for line in stdin.lines()? {
        let lesson = Lesson::parse_line(&line.text).map_err(|error| {
            Stop::refused(format_args!("{}:{}: {error}", stdin.name(), line.number))
                .help("nothing was added; put the line right and run again")
        })?;
        lessons.push(lesson);
    }
    writable(path)?;
    let index = open(path)?;
    let added = lessons.len();
    add_all(session, &index, lessons)?;
    let total = index.snapshot().len();
    if session.output.json {
        session.output.object(&json!({ "summary": { "added": added, "lessons": total } }));
    } else {
        session.output.human(format!("{added} added, {total} lessons"));
    }
    Ok(Exit::Done)
}

/// Counts all failures of stdin, or none.
fn count(session: &Session, path: &Path) -> Result<Exit, Stop> {
    let stdin = Input::Stdin;
    let mut failures = Vec::new();
    for line in stdin.lines()? {
        failures.push(failure(&line.text).map_err(|error| {
            Stop::refused(format_args!("{}:{}: {error}", stdin.name(), line.number))
                .help("nothing was counted; put the line right and run again")
        })?);
    }
    writable(path)?;
    let index = open(path)?;
    let counted = record_all(session, &index, failures)?;
    for lesson in &counted {
        let (id, times) = (&lesson.id, lesson.times_seen);
        if session.output.json {
            session.output.object(&json!({ "id": id, "times_seen": times }));
        } else {
            session.output.human(format!("{id} seen {times} times"));
        }
    }
    let (counted, total) = (counted.len(), index.snapshot().len());
    if session.output.json {
        session.output.object(&json!({ "summary": { "counted": counted, "lessons": total } }));
    } else {
        session.output.human(format!("{counted} counted, {total} lessons"));
    }
    Ok(Exit::Done)
}

fn failure(line: &str) -> Result<Failure, String> {
    let record: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| format!("no JSON object: {error}"))?;
    let text = |key: &str| match record.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(format!("{key:?} is {other}, not a string")),
    };
    let message = text("failure_msg")?;
    if message.is_empty() {
        return Err("\"failure_msg\" is missing or empty, and a failure is known by it".to_owned());
    }
    let mut failure = Failure::new(text("failure_type")?, message)
        .scope(text("scope")?)
        .task_type(text("task_type")?)
        .activity_type(text("activity_type")?)
        .pattern(text("pattern")?)
        .resolution(text("resolution")?);
    let at = text("last_seen")?;
    if !at.is_empty() {
        let time: Timestamp =
            at.parse().map_err(|_| format!("\"last_seen\" is {at:?}, not a time of RFC 3339"))?;
        failure = failure.at(time);
    }
    match record.get("metadata") {
        None | Some(Value::Null) => Ok(failure),
        Some(Value::Object(metadata)) => Ok(failure.metadata(metadata.clone())),
        Some(other) => Err(format!("\"metadata\" is {other}, not an object")),
    }
}

/// Adds lessons in one write.
///
/// # Errors
///
/// Says which of them was not added first, and why: status 2 if the file is as it was, else 1.
fn add_all(session: &Session, index: &LessonsIndex, lessons: Vec<Lesson>) -> Result<(), Stop> {
    all_or_why(session.interrupt.shielded(|| index.add_all(lessons))).map(drop)
}

/// Counts failures in one write, and returns their lessons.
///
/// # Errors
///
/// As [`add_all`].
pub(crate) fn record_all(
    session: &Session,
    index: &LessonsIndex,
    failures: Vec<Failure>,
) -> Result<Vec<Arc<Lesson>>, Stop> {
    all_or_why(session.interrupt.shielded(|| index.record_all(failures)))
}

fn all_or_why(done: Vec<Result<Arc<Lesson>, AddError>>) -> Result<Vec<Arc<Lesson>>, Stop> {
    let changed_file = |error: &AddError| matches!(error, AddError::Write { source, .. } if source.has_changed_file());
    let nothing_done =
        done.iter().all(|done| done.as_ref().is_err_and(|error| !changed_file(error)));
    done.into_iter().collect::<Result<Vec<_>, _>>().map_err(|error| {
        if nothing_done { not_written(&error, Stop::refused) } else { Stop::failed(chain(&error)) }
    })
}

/// Says why nothing was written. Who has the lock will give it back, so that running again goes on.
pub(super) fn not_written(error: &AddError, otherwise: impl FnOnce(String) -> Stop) -> Stop {
    match error {
        AddError::Write { source, .. } if matches!(**source, WriteError::Held { .. }) => {
            Stop::unfinished(chain(error)).help("run it again when the other is done")
        }
        _ => otherwise(chain(error)),
    }
}

/// Checks that the file can be written to, so that a refusal comes before any work. Nothing is left behind.
pub(crate) fn writable(path: &Path) -> Result<(), Stop> {
    /// As many as Linux follows.
    const MAX_LINKS: usize = 40;
    let cannot = |error: io::Error| {
        Stop::refused(format_args!("cannot write to {}: {error}", path.display()))
    };
    plain_file(path)?;
    match OpenOptions::new().append(true).open(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot(error)),
        _ => {}
    }
    // The file and its lock are made where they are not there yet; of a link, where that leads.
    let mut target = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(next) = fs::read_link(&target) else { break };
        target = target.parent().map_or_else(|| next.clone(), |folder| folder.join(&next));
    }
    let mut lock = target.as_os_str().to_owned();
    lock.push(".lock");
    if target.exists() && Path::new(&lock).exists() {
        return Ok(());
    }
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    match tempfile::tempfile_in(folder.unwrap_or(Path::new("."))) {
        // Of a folder that is not there, more is said where the file is opened.
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Stop::refused(format_args!("cannot write beside {}: {error}", path.display()))
                .help("make its folder writable, or name a file in another one"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// It was told refused, as if the input were wrong, or done in part.
    #[test]
    fn a_file_that_another_run_holds_is_to_be_tried_again() {
        let path = PathBuf::from("l.jsonl.lock");
        let held = WriteError::Held { path, waited: Duration::from_mins(1), by: Some(7) };
        let stop =
            not_written(&AddError::Write { id: "a".into(), source: held.into() }, Stop::refused);
        assert_eq!(stop.exit, Exit::Unfinished);
        assert!(stop.message().contains("process 7"), "{}", stop.message());
        let other = AddError::Refused { id: "a".into(), reason: "it is full".into() };
        assert_eq!(not_written(&other, Stop::failed).exit, Exit::SomeFailed);
    }
}
