//! `lessons feedback`, `forget`, `compact` and `merge-driver`.

use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use lessons_index::{Compaction, merge_files};
use serde_json::json;

use super::add::{not_written, writable};
use super::open_existing;
use crate::cli::{Session, duration};
use crate::exit::{Exit, Stop, chain};
use crate::input::open_file;

/// How git is told of the driver.
pub(super) const DRIVER: &str = "\
git asks for it once both of these are set, the first for everybody, the second in each clone:

    echo 'lessons.jsonl merge=lessons' >> .gitattributes
    git config merge.lessons.driver 'batchyard lessons merge-driver %O %A %B'";

#[derive(Debug, clap::Args)]
pub(crate) struct Feedback {
    /// The lessons file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The lesson
    #[arg(value_name = "ID")]
    id: String,
    /// It helped
    #[arg(long, conflicts_with = "harmful", required_unless_present = "harmful")]
    helpful: bool,
    /// It did harm
    #[arg(long)]
    harmful: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Forget {
    /// The lessons file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The lessons
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Compact {
    /// The lessons file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Move broken lines to FILE.quarantine; without, they stay, and a merge conflict is an error
    #[arg(long)]
    quarantine: bool,
    /// How long the mark of a removed lesson stays, so that no merge brings it back
    #[arg(long, value_name = "D", default_value = "30d", value_parser = duration)]
    keep_tombstones: Duration,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MergeDriver {
    /// What both come from; %O in git's configuration
    #[arg(value_name = "BASE")]
    base: PathBuf,
    /// Ours, which the result is written to; %A
    #[arg(value_name = "OURS")]
    ours: PathBuf,
    /// Theirs; %B
    #[arg(value_name = "THEIRS")]
    theirs: PathBuf,
}

pub(super) fn feedback(session: &Session, options: &Feedback) -> Result<Exit, Stop> {
    let index = open_existing(&options.file)?;
    writable(&options.file)?;
    let said = if options.helpful {
        lessons_index::Feedback::Helpful
    } else {
        lessons_index::Feedback::Harmful
    };
    let lesson = session
        .interrupt
        .shielded(|| index.feedback(&options.id, said))
        .map_err(|error| not_written(&error, Stop::failed))?;
    let Some(lesson) = lesson else { return Err(unknown(&options.id)) };
    if session.output.json {
        session.output.object(&json!({
            "id": lesson.id,
            "helpful": lesson.helpful,
            "harmful": lesson.harmful,
        }));
    } else {
        let (helpful, harmful) = (lesson.helpful, lesson.harmful);
        session.output.human(format!("{}: {helpful} helpful, {harmful} harmful", lesson.id));
    }
    Ok(Exit::Done)
}

pub(super) fn forget(session: &Session, options: &Forget) -> Result<Exit, Stop> {
    let index = open_existing(&options.file)?;
    writable(&options.file)?;
    let mut missing = Vec::new();
    for id in &options.ids {
        let forgotten = session.interrupt.shielded(|| index.forget(id));
        if forgotten.map_err(|error| not_written(&error, Stop::failed))?.is_none() {
            missing.push(id);
        }
    }
    let (forgotten, total) = (options.ids.len() - missing.len(), index.snapshot().len());
    for id in &missing {
        session.output.note(format!("no lesson {id:?} in {}", options.file.display()));
    }
    if session.output.json {
        session.output.object(&json!({ "summary": {
            "forgotten": forgotten,
            "unknown": missing,
            "lessons": total,
        } }));
    } else {
        session.output.human(format!("{forgotten} forgotten, {total} lessons"));
    }
    Ok(Exit::of_failed(missing.len()))
}

pub(super) fn compact(session: &Session, options: &Compact) -> Result<Exit, Stop> {
    let index = open_existing(&options.file)?;
    writable(&options.file)?;
    let keep = SignedDuration::try_from(options.keep_tombstones).unwrap_or(SignedDuration::MAX);
    let policy =
        Compaction::default().with_quarantine(options.quarantine).with_keep_tombstones(keep);
    // What was moved there before a failure stays there, and in the file.
    let mut aside = options.file.as_os_str().to_owned();
    aside.push(".quarantine");
    let moved = || std::fs::metadata(&aside).map_or(0, |data| data.len());
    let before = moved();
    let done = session.interrupt.shielded(|| index.compact(&policy)).map_err(|error| {
        let message = chain(&error);
        if moved() == before { Stop::refused(message) } else { Stop::failed(message) }
    })?;
    if session.output.json {
        session.output.object(&json!({ "summary": {
            "kept": done.kept,
            "dropped": done.dropped,
            "quarantined": done.quarantined,
            "bytes_before": done.bytes_before,
            "bytes_after": done.bytes_after,
        } }));
    } else {
        session.output.human(format!(
            "{} kept, {} dropped, {} quarantined, {} to {} bytes",
            done.kept, done.dropped, done.quarantined, done.bytes_before, done.bytes_after
        ));
    }
    Ok(Exit::Done)
}

pub(super) fn merge(session: &Session, options: &MergeDriver) -> Result<Exit, Stop> {
    for file in [&options.base, &options.ours, &options.theirs] {
        open_file(file)?;
    }
    let merged = session
        .interrupt
        .shielded(|| merge_files(&options.base, &options.ours, &options.theirs))
        .map_err(|error| Stop::failed(chain(&error)))?;
    if session.output.json {
        session.output.object(&json!({ "summary": {
            "lessons": merged.lessons,
            "combined": merged.combined,
            "taken": merged.taken,
        } }));
    }
    Ok(Exit::Done)
}

fn unknown(id: &str) -> Stop {
    Stop::failed(format_args!("no lesson {id:?}"))
}
