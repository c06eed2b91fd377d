//! `lessons`: the lessons that agents learned, in one JSON Lines file.

mod add;
mod change;
mod query;
mod recall;
mod report;

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use lessons_index::{LessonsIndex, LoadReport, Options, Snapshot};

use crate::cli::Session;
use crate::exit::{Exit, Stop, chain};
use crate::input::{MAX_LINE_BYTES, open_file, plain_file};

pub(crate) use add::{record_all, writable};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Add records, one JSON object a line on stdin; a known id is replaced
    #[command(after_long_help = add::RECORD)]
    Add(add::Add),
    /// Print the lessons that match all that is asked, one a line, as stored
    Query(query::Query),
    /// Print the lessons that were seen most often
    Top(query::Top),
    /// Print the lessons that say most about a text, such as a task or an error
    Recall(recall::Recall),
    /// Count lessons by task, activity, failure and pattern
    Stats(File),
    /// Print every broken line; status 1 if there is one
    Check(File),
    /// Read the file a second time and print the lessons that are another then; status 1 if one is
    Verify(File),
    /// Say that a lesson helped or did harm, which `recall` ranks by
    Feedback(change::Feedback),
    /// Remove lessons; their text is in the file until it is compacted
    Forget(change::Forget),
    /// Write the file anew without the lines that no longer hold
    Compact(change::Compact),
    /// Merge two versions of a file by id, for git
    #[command(after_long_help = change::DRIVER)]
    MergeDriver(change::MergeDriver),
}

#[derive(Debug, clap::Args)]
pub(crate) struct File {
    /// The lessons file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(crate) fn run(session: &Session, command: &Command) -> Result<Exit, Stop> {
    match command {
        Command::Add(options) => add::run(session, options),
        Command::Query(options) => query::run(session, options),
        Command::Top(options) => query::top(session, options),
        Command::Recall(options) => recall::run(session, options),
        Command::Stats(options) => report::stats(session, &options.file),
        Command::Check(options) => report::check(session, &options.file),
        Command::Verify(options) => report::verify(session, &options.file),
        Command::Feedback(options) => change::feedback(session, options),
        Command::Forget(options) => change::forget(session, options),
        Command::Compact(options) => change::compact(session, options),
        Command::MergeDriver(options) => change::merge(session, options),
    }
}

/// The options that all commands read lessons with.
pub(crate) fn options() -> Options {
    let max = usize::try_from(MAX_LINE_BYTES).unwrap_or(usize::MAX);
    Options::default().with_max_line_bytes(max).with_eager_text(false)
}

/// Opens a lessons file to add to it; it need not exist yet.
pub(crate) fn open(path: &Path) -> Result<LessonsIndex, Stop> {
    plain_file(path)?;
    LessonsIndex::open(path, options()).map_err(|error| Stop::refused(chain(&error)))
}

/// Says on stderr how many lines of a file are broken.
pub(crate) fn say_faults(session: &Session, path: &Path, report: &LoadReport) {
    if report.faults_total > 0 {
        session.output.note(format!(
            "note: {} broken lines in {path} were left out; see: batchyard lessons check {path}",
            report.faults_total,
            path = path.display()
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

fn time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "expected a time as in RFC 3339, such as 2026-01-31T08:00:00Z".into())
}
