//! `git land`: local branches, merged onto a branch as the remote has it now, in one push.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use git_batch::{Settings, Strategy};

use super::git_apply::{not_applied, open};
use crate::cli::{Session, duration, resume_command};
use crate::exit::{Exit, Stop};
use crate::gate::GateOptions;
use crate::wire::outcomes::{OpLine, OpSummary};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The repository
    #[arg(long, value_name = "DIR")]
    repo: PathBuf,
    /// The remote to push to
    #[arg(long, value_name = "NAME", default_value = "origin")]
    remote: String,
    /// The branch of the remote to merge onto and to push
    #[arg(long, value_name = "BRANCH")]
    onto: String,
    /// How each branch is merged
    #[arg(long, value_enum, default_value = "merge")]
    strategy: How,
    /// Merge and check everything, the gate included, say what would land, and push nothing
    #[arg(long)]
    dry_run: bool,
    /// How long to wait for another process that writes to the repository, such as 30s; by default
    /// without end
    #[arg(long, value_name = "D", value_parser = duration)]
    wait: Option<Duration>,
    /// The local branches, in the order in which they are merged
    #[arg(value_name = "BRANCH", required = true)]
    branches: Vec<String>,
    #[command(flatten)]
    gate: GateOptions,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum How {
    /// One merge commit for each branch
    Merge,
    /// One plain commit for each branch
    Squash,
    /// The commits of each branch, made again one by one
    Rebase,
}

pub(crate) fn run(session: &Session, options: &Options) -> Result<Exit, Stop> {
    let started = Instant::now();
    for (at, branch) in options.branches.iter().enumerate() {
        if options.branches[..at].contains(branch) {
            return Err(Stop::refused(format_args!("the branch {branch:?} is named twice")));
        }
    }
    let mut settings = Settings::default().with_remote(&options.remote);
    if let Some(wait) = options.wait {
        settings = settings.with_wait(wait);
    }
    if let Some(gate) = options.gate.gate(session) {
        settings = settings.with_gate(gate);
    }
    let git = open(&options.repo, settings)?;
    let strategy = match options.strategy {
        How::Merge => Strategy::Merge,
        How::Squash => Strategy::Squash,
        How::Rebase => Strategy::Rebase,
    };
    let land = || {
        if options.dry_run {
            git.preview_land(&options.onto, &options.branches, strategy)
        } else {
            git.land(&options.onto, &options.branches, strategy)
        }
    };
    session.interrupt.resume_with(Some(resume_command()));
    let report = session.interrupt.shielded(land).map_err(|error| not_applied(&error))?;

    let mut summary = OpSummary::default();
    for (id, outcome) in &report.outcomes {
        let line = OpLine::of(id, outcome);
        summary.count(&line);
        line.print(&session.output);
    }
    summary.dry_run = options.dry_run;
    summary.pushed(options.branches.len(), report.pushes().into());
    summary.took(&report);
    summary.seconds = started.elapsed().as_secs_f64();
    summary.print(&session.output);
    if report.outcomes.iter().any(|(_, outcome)| outcome.is_moved()) {
        session.output.note("help: run again to land on what the remote has then");
    }
    Ok(Exit::of_failed(summary.failed + summary.skipped))
}
