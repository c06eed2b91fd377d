//! `lessons stats`, `lessons check` and `lessons verify`.

use std::collections::BTreeMap;
use std::path::Path;

use lessons_index::Fault;
use serde_json::json;

use super::{open_existing, options, say_faults};
use crate::cli::Session;
use crate::exit::{Exit, Stop, chain};
use crate::input::{open_file, plain_file};

pub(super) fn stats(session: &Session, path: &Path) -> Result<Exit, Stop> {
    let index = open_existing(path)?;
    let report = index.report();
    say_faults(session, path, &report);
    let snapshot = index.snapshot();
    let mut by_field: [BTreeMap<&str, u64>; 4] = Default::default();
    let mut seen: u64 = 0;
    for lesson in snapshot.query().iter() {
        let values =
            [lesson.task_type(), lesson.activity_type(), lesson.failure_type(), lesson.pattern()];
        for (counts, value) in by_field.iter_mut().zip(values) {
            *counts.entry(value).or_default() += 1;
        }
        seen = seen.saturating_add(lesson.times_seen());
    }
    let [task_types, activity_types, failure_types, patterns] = &by_field;
    if session.output.json {
        session.output.object(&json!({ "summary": {
            "lines": report.lines,
            "lessons": report.lessons,
            "faults": report.faults_total,
            "duplicates": report.duplicates,
            "times_seen": seen,
            "task_types": task_types,
            "activity_types": activity_types,
            "failure_types": failure_types,
            "patterns": patterns,
        } }));
        return Ok(Exit::Done);
    }
    let output = &session.output;
    output.human(format!("{} lessons, seen {seen} times", report.lessons));
    let names = ["task type", "activity type", "failure type", "pattern"];
    for (name, counts) in names.into_iter().zip(&by_field) {
        for (value, count) in counts {
            let value = if value.is_empty() { "(none)" } else { value };
            output.human(format!("{name:<14} {value:<30} {count}"));
        }
    }
    Ok(Exit::Done)
}

pub(super) fn check(session: &Session, path: &Path) -> Result<Exit, Stop> {
    plain_file(path)?;
    open_file(path)?;
    let output = &session.output;
    let print = |fault: &Fault| {
        if output.json {
            output.object(&json!({
                "line": fault.line,
                "offset": fault.offset,
                "kind": fault.kind.as_str(),
                "excerpt": fault.excerpt,
                "detail": fault.detail,
            }));
        } else {
            output.human(format!("{}: {fault}", path.display()));
        }
    };
    let report = lessons_index::check_each(path, &options(), print)
        .map_err(|error| Stop::refused(chain(&error)))?;
    if output.json {
        output.object(&json!({ "summary": {
            "lines": report.lines,
            "lessons": report.lessons,
            "faults": report.faults_total,
            "duplicates": report.duplicates,
        } }));
    } else {
        output.human(format!(
            "{} lines, {} lessons, {} faults, {} duplicates",
            report.lines, report.lessons, report.faults_total, report.duplicates
        ));
    }
    Ok(Exit::of_failed(usize::try_from(report.faults_total).unwrap_or(usize::MAX)))
}

/// Something that changes the file in place, without its lock, shows between two readings.
pub(super) fn verify(session: &Session, path: &Path) -> Result<Exit, Stop> {
    let index = open_existing(path)?;
    say_faults(session, path, &index.report());
    let verified = index.verify().map_err(|error| Stop::refused(chain(&error)))?;
    let (lessons, stale) = (verified.lessons, &verified.stale);
    if session.output.json {
        session.output.object(&json!({ "summary": { "lessons": lessons, "stale": stale } }));
    } else {
        for id in stale {
            session.output.human(format!("{id:?} is another now"));
        }
        session.output.human(format!("{lessons} lessons, {} are another now", stale.len()));
    }
    Ok(Exit::of_failed(stale.len()))
}
