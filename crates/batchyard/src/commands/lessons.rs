//! `lessons`: the lessons that agents learned, in one JSON Lines file.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use lessons_index::{AddError, Fault, Lesson, LessonsIndex, LoadReport, Options, Snapshot, Sort};
use serde_json::json;

use crate::cli::Session;
use crate::exit::{Exit, Stop, chain};
use crate::input::{Input, MAX_LINE_BYTES, open_file, plain_file};

/// A record with all its keys.
const RECORD: &str = r#"A record needs an id only; unknown keys are kept:

    {"id":"oom-1","task_type":"implementer","activity_type":"build","failure_type":"oom",
     "failure_msg":"linker: out of memory","resolution":"link with fewer jobs","pattern":"memory",
     "times_seen":3,"first_seen":"2026-01-31T08:00:00Z","last_seen":"2026-02-01T08:00:00Z"}

all in one line. `batchyard run` finds the lessons of a task by task_type, which is its kind."#;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Add records, one JSON object a line on stdin; a known id is replaced
    #[command(after_long_help = RECORD)]
    Add(File),
    /// Print the lessons that match all that is asked, one a line, as stored
    Query(Query),
    /// Print the lessons that were seen most often
    Top(Top),
    /// Count lessons by task, activity, failure and pattern
    Stats(File),
    /// Print every broken line; status 1 if there is one
    Check(File),
}

#[derive(Debug, clap::Args)]
pub(crate) struct File {
    /// The lessons file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Top {
    /// The lessons file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Lessons at most
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Query {
    /// The lessons file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Of this type of task, which `run` calls its kind
    #[arg(long, value_name = "T")]
    task_type: Option<String>,
    /// Of this activity
    #[arg(long, value_name = "A")]
    activity_type: Option<String>,
    /// Of this type of failure
    #[arg(long, value_name = "F")]
    failure_type: Option<String>,
    /// Of this pattern
    #[arg(long, value_name = "P")]
    pattern: Option<String>,
    /// Text in the failure message, in any case
    #[arg(long, value_name = "TEXT")]
    contains: Option<String>,
    /// Last seen at this time or later (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Timestamp>,
    /// Last seen at this time or earlier (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Timestamp>,
    /// Lessons at most
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// What comes first
    #[arg(long, value_enum, default_value = "recent")]
    sort: Order,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Order {
    /// Last seen first
    Recent,
    /// Most often seen first
    Frequent,
    /// By id
    Id,
}

pub(crate) fn run(session: &Session, command: &Command) -> Result<Exit, Stop> {
    match command {
        Command::Add(options) => add(session, &options.file),
        Command::Query(options) => query(session, options),
        Command::Top(options) => {
            let snapshot = load(session, &options.file)?;
            print(session, snapshot.top(options.limit));
            Ok(Exit::Done)
        }
        Command::Stats(options) => stats(session, &options.file),
        Command::Check(options) => check(session, &options.file),
    }
}

/// Adds all records of stdin, or none: they are checked before the file is touched.
fn add(session: &Session, path: &Path) -> Result<Exit, Stop> {
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
        session.output.line(format!("{added} added, {total} lessons"));
    }
    Ok(Exit::Done)
}

fn query(session: &Session, options: &Query) -> Result<Exit, Stop> {
    let snapshot = load(session, &options.file)?;
    let mut query = snapshot.query();
    if let Some(value) = &options.task_type {
        query = query.task_type(value);
    }
    if let Some(value) = &options.activity_type {
        query = query.activity_type(value);
    }
    if let Some(value) = &options.failure_type {
        query = query.failure_type(value);
    }
    if let Some(value) = &options.pattern {
        query = query.pattern(value);
    }
    if let Some(text) = &options.contains {
        query = query
            .contains(text)
            .map_err(|error| Stop::refused(format_args!("--contains: {error}")))?;
    }
    let bound = |time: Option<Timestamp>| time.map_or(Bound::Unbounded, Bound::Included);
    if options.since.is_some() || options.until.is_some() {
        query = query.last_seen((bound(options.since), bound(options.until)));
    }
    if let Some(limit) = options.limit {
        query = query.limit(limit);
    }
    let sort = match options.sort {
        Order::Recent => Sort::Recent,
        Order::Frequent => Sort::Frequent,
        Order::Id => Sort::Id,
    };
    print(session, query.sort(sort).run());
    Ok(Exit::Done)
}

fn stats(session: &Session, path: &Path) -> Result<Exit, Stop> {
    let index = open_existing(path)?;
    let report = index.report();
    say_faults(session, path, &report);
    let snapshot = index.snapshot();
    let mut by_field: [BTreeMap<String, u64>; 4] = Default::default();
    let mut seen: u64 = 0;
    for lesson in snapshot.all() {
        let values =
            [&lesson.task_type, &lesson.activity_type, &lesson.failure_type, &lesson.pattern];
        for (counts, value) in by_field.iter_mut().zip(values) {
            *counts.entry(value.clone()).or_default() += 1;
        }
        seen = seen.saturating_add(lesson.times_seen);
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
    output.line(format!("{} lessons, seen {seen} times", report.lessons));
    let names = ["task type", "activity type", "failure type", "pattern"];
    for (name, counts) in names.into_iter().zip(&by_field) {
        for (value, count) in counts {
            let value = if value.is_empty() { "(none)" } else { value };
            output.line(format!("{name:<14} {value:<30} {count}"));
        }
    }
    Ok(Exit::Done)
}

fn check(session: &Session, path: &Path) -> Result<Exit, Stop> {
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
            output.line(format!("{}: {fault}", path.display()));
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
        output.line(format!(
            "{} lines, {} lessons, {} faults, {} duplicates",
            report.lines, report.lessons, report.faults_total, report.duplicates
        ));
    }
    Ok(Exit::of_failed(usize::try_from(report.faults_total).unwrap_or(usize::MAX)))
}

/// The options that all commands read lessons with.
pub(crate) fn options() -> Options {
    let max = usize::try_from(MAX_LINE_BYTES).unwrap_or(usize::MAX);
    Options::default().with_max_line_bytes(max)
}

/// Opens a lessons file to add to it; it need not exist yet.
pub(crate) fn open(path: &Path) -> Result<LessonsIndex, Stop> {
    plain_file(path)?;
    LessonsIndex::open(path, options()).map_err(|error| Stop::refused(chain(&error)))
}

/// Adds lessons in one write.
///
/// # Errors
///
/// Says which of them was not added first, and why: status 2 if the file is as it was, else 1.
pub(crate) fn add_all(
    session: &Session,
    index: &LessonsIndex,
    lessons: Vec<Lesson>,
) -> Result<(), Stop> {
    let added = session.interrupt.shielded(|| index.add_all(lessons));
    let changed_file = |error: &AddError| matches!(error, AddError::Write { source, .. } if source.has_changed_file());
    let nothing_done =
        added.iter().all(|added| added.as_ref().is_err_and(|error| !changed_file(error)));
    match added.into_iter().find_map(Result::err) {
        None => Ok(()),
        Some(error) if nothing_done => Err(Stop::refused(chain(&error))),
        Some(error) => Err(Stop::failed(chain(&error))),
    }
}

/// Says on stderr how many lines of a file are broken.
pub(crate) fn say_faults(session: &Session, path: &Path, report: &LoadReport) {
    if report.faults_total > 0 {
        session.output.note(format!(
            "note: {} broken lines in {} were left out; see: batchyard lessons check",
            report.faults_total,
            path.display()
        ));
    }
}

fn open_existing(path: &Path) -> Result<LessonsIndex, Stop> {
    plain_file(path)?;
    open_file(path)?;
    open(path)
}

fn load(session: &Session, path: &Path) -> Result<Snapshot, Stop> {
    let index = open_existing(path)?;
    say_faults(session, path, &index.report());
    Ok(index.snapshot())
}

/// Checks that the file can be written to, so that a refusal comes before any work.
fn writable(path: &Path) -> Result<(), Stop> {
    let cannot = |error: io::Error| {
        Stop::refused(format_args!("cannot write to {}: {error}", path.display()))
    };
    plain_file(path)?;
    match OpenOptions::new().append(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(cannot(error)),
    }
}

fn print(session: &Session, lessons: impl IntoIterator<Item = Arc<Lesson>>) {
    for lesson in lessons {
        session.output.line(lesson.raw());
    }
}

fn time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "expected a time as in RFC 3339, such as 2026-01-31T08:00:00Z".into())
}
