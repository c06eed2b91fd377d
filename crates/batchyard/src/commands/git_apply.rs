//! `git apply`: operations from JSON Lines, any number of tasks, one push.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use git_batch::{ApplyError, GitBatch, OnMoved, OpenError, Settings};

use crate::cli::{Session, duration, resume_command};
use crate::exit::{Exit, Stop, chain};
use crate::gate::GateOptions;
use crate::input::{Input, existing_folder};
use crate::wire::ops;
use crate::wire::outcomes::{OpLine, OpSummary};

/// The operations, one of each.
const OPERATIONS: &str = r#"Operations:

    {"id":"1","op":"commit","branch":"a","message":"Add a","changes":[{"path":"a","content":"a"}]}
    {"id":"2","op":"merge","source":"a","into":"b","strategy":"squash"}
    {"id":"3","op":"push","branch":"a","after":["1"]}
    {"id":"4","op":"commit","branch":"agent/4","message":"Work","worktree":"../agent-4","all":true}

A branch that is not there yet begins at the "base" of its commit, by default the remote's default
branch; a merge needs both branches. A change has a path and one of content, content_base64,
"delete":true, from (a path of the parent) and oid; mode is 100644, 100755, 120000 or 160000.
"after" names operations that must succeed first; of the operations of one "group" all are done or
none is. In place of changes, "worktree" names a worktree of
the repository that has the branch checked out, with "files":[PATH...] or "all":true: its content is
committed as git add would, and git status is clean there afterwards.

The same input again, with the same content of its worktrees, does nothing twice: what landed is
reported once more with "replayed":true, what failed or was refused is tried again, and what was
interrupted is finished.

With --gate, what is pushed of each branch has passed the command, which runs in a folder of its own;
an operation that its branch fails with is left out ("kind":"gate")."#;

#[derive(Debug, clap::Args)]
#[command(after_long_help = OPERATIONS)]
pub(crate) struct Options {
    /// The repository
    #[arg(long, value_name = "DIR")]
    repo: PathBuf,
    /// The remote to push to
    #[arg(long, value_name = "NAME", default_value = "origin")]
    remote: String,
    /// Operations of one batch at most; by default all of the input is one batch
    #[arg(long, value_name = "N")]
    max_items: Option<NonZeroUsize>,
    /// A name for the input: an input of that name, with the same ids, is done once, whatever else it
    /// contains; without it, what it contains tells
    #[arg(long, value_name = "ID", conflicts_with = "dry_run")]
    batch_id: Option<String>,
    /// Build and check everything, say what would be done, and write and push nothing
    #[arg(long)]
    dry_run: bool,
    /// How long to wait for another process that writes to the repository, such as 30s; by default
    /// without end
    #[arg(long, value_name = "D", value_parser = duration)]
    wait: Option<Duration>,
    /// What a push does where the remote's branch has commits that the local one lacks
    #[arg(long, value_enum, value_name = "HOW", default_value = "merge")]
    on_moved: Moved,
    /// The operations, one JSON object a line; - for stdin
    #[arg(value_name = "OPS.jsonl")]
    ops: PathBuf,
    #[command(flatten)]
    gate: GateOptions,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Moved {
    /// Merge them and push the result
    Merge,
    /// Make the local commits again on top of them and push those
    Rebase,
    /// Fail
    Fail,
}

pub(crate) fn run(session: &Session, options: &Options) -> Result<Exit, Stop> {
    let started = Instant::now();
    let mut settings =
        Settings::default().with_remote(&options.remote).with_on_moved(match options.on_moved {
            Moved::Merge => OnMoved::Merge,
            Moved::Rebase => OnMoved::Rebase,
            Moved::Fail => OnMoved::Fail,
        });
    if let Some(max_items) = options.max_items {
        settings = settings.with_max_items(max_items.get());
    }
    if let Some(wait) = options.wait {
        settings = settings.with_wait(wait);
    }
    if let Some(gate) = options.gate.gate(session) {
        settings = settings.with_gate(gate);
    }
    let git = open(&options.repo, settings)?;
    let ops = ops::read(&Input::from(options.ops.clone()))?;

    let ids: Vec<String> = ops.iter().map(|op| op.id.clone()).collect();
    let asked = ops.iter().filter(|op| op.is_push()).count();
    let (operations, refused) = ops::split(ops);
    if options.ops.as_os_str() != "-" {
        session.interrupt.resume_with(Some(resume_command()));
    }
    let report = session
        .interrupt
        .shielded(|| match &options.batch_id {
            _ if options.dry_run => git.preview(&operations),
            Some(name) => git.apply_as(name, operations),
            None => git.apply(operations),
        })
        .map_err(|error| not_applied(&error))?;

    let mut summary = OpSummary::default();
    let mut outcomes = report.outcomes.iter();
    for id in &ids {
        let line = match refused.get(id) {
            Some(refusal) => OpLine::refused(id, refusal),
            None => match outcomes.next() {
                Some((id, outcome)) => OpLine::reported(&report, id, outcome),
                None => return Err(Stop::failed(format_args!("{id:?} has no outcome"))),
            },
        };
        summary.count(&line);
        line.print(&session.output);
    }
    summary.dry_run = options.dry_run;
    summary.pushed(asked, report.pushes().into());
    summary.took(&report);
    summary.seconds = started.elapsed().as_secs_f64();
    summary.print(&session.output);
    if report.outcomes.iter().any(|(_, outcome)| outcome.is_moved()) {
        session.output.note(match options.on_moved {
            Moved::Fail => {
                "help: fetch, and merge or rebase the branch, or run again with --on-moved merge"
            }
            Moved::Merge | Moved::Rebase => {
                "help: run again to go on from what the remote has then; nothing is done twice"
            }
        });
    }
    Ok(Exit::of_failed(summary.failed + summary.skipped))
}

/// Opens a repository; everything that is wrong with it is the user's to put right.
pub(crate) fn open(repo: &std::path::Path, settings: Settings) -> Result<GitBatch, Stop> {
    existing_folder(repo, "the repository")?;
    GitBatch::open(repo, settings).map_err(|error| {
        let stop = Stop::refused(chain(&error));
        match &error {
            OpenError::UnknownRemote { name, known, .. } if known.is_empty() => {
                stop.help(format_args!("make one: git remote add {name} URL"))
            }
            OpenError::UnknownRemote { .. } => {
                stop.help("name another remote, or add that one with git remote add")
            }
            _ => stop,
        }
    })
}

/// Says why nothing of an input was done.
pub(crate) fn not_applied(error: &ApplyError) -> Stop {
    let message = chain(error);
    match error {
        ApplyError::Busy { .. } => {
            Stop::unfinished(message).help("nothing was done; run again when it has ended")
        }
        ApplyError::Unheard { .. } => Stop::unfinished(message),
        _ => Stop::refused(message),
    }
}
