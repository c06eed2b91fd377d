//! Result lines of git operations.

use git_batch::{Class, LeftOut, Outcome, Receipt, Report};
use serde::Serialize;

use super::ops::Refusal;
use crate::output::Output;

/// One result line.
#[derive(Debug, Serialize)]
pub(crate) struct OpLine {
    pub(crate) id: String,
    pub(crate) status: OpStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    no_change: bool,
    /// The outcome is that of an earlier run of the same input.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replayed: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<LeftOutLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<OpErrorLine>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OpStatus {
    Landed,
    Failed,
    Skipped,
}

/// A path of a worktree that was not committed.
#[derive(Debug, Serialize)]
struct LeftOutLine {
    path: String,
    reason: &'static str,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct OpErrorLine {
    pub(crate) kind: String,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    paths: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    with: Option<Vec<String>>,
    /// Whether the same operation may well succeed later.
    #[serde(skip_serializing_if = "Option::is_none")]
    transient: Option<bool>,
}

/// Counts of the result lines of one command.
#[derive(Debug, Default, Serialize)]
pub(crate) struct OpSummary {
    pub(crate) ops: usize,
    pub(crate) landed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    pub(crate) pushes: u64,
    pub(crate) round_trips_saved: i64,
    pub(crate) batches: usize,
    pub(crate) seconds: f64,
    pub(crate) receipt: ReceiptObject,
    /// Nothing was done: the other figures say what would have been.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) dry_run: bool,
}

/// What all batches of one command did and cost.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ReceiptObject {
    pushes: u32,
    refs: Vec<MovedRef>,
    bytes: u64,
    fsyncs: u32,
    processes: u32,
    /// Runs of a gate; verdicts that were known do not count.
    #[serde(skip_serializing_if = "is_zero")]
    gate_runs: u32,
}

/// One ref that moved.
#[derive(Debug, Serialize)]
struct MovedRef {
    name: String,
    place: &'static str,
    old: Option<String>,
    new: String,
}

impl From<Receipt> for ReceiptObject {
    fn from(receipt: Receipt) -> ReceiptObject {
        let refs = receipt.refs.into_iter().map(|change| MovedRef {
            name: change.name.to_string(),
            place: change.place.as_str(),
            old: change.old.map(|id| id.to_string()),
            new: change.new.to_string(),
        });
        ReceiptObject {
            pushes: receipt.pushes,
            refs: refs.collect(),
            bytes: receipt.bytes,
            fsyncs: receipt.fsyncs,
            processes: receipt.processes,
            gate_runs: receipt.gate_runs,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl OpErrorLine {
    pub(crate) fn new(kind: impl Into<String>, message: impl Into<String>) -> OpErrorLine {
        let (kind, message) = (kind.into(), message.into());
        OpErrorLine { kind, message, paths: None, with: None, transient: None }
    }
}

impl OpLine {
    /// Returns the line of an operation of a report.
    pub(crate) fn reported(report: &Report, id: &str, outcome: &Outcome) -> OpLine {
        OpLine { replayed: report.replayed.contains(id), ..OpLine::of(id, outcome) }
    }

    /// Returns the line of an operation that git was asked for.
    pub(crate) fn of(id: &str, outcome: &Outcome) -> OpLine {
        let mut line = OpLine::new(id, OpStatus::Failed);
        match outcome {
            Outcome::Landed { commit, left_out } => {
                line.status = OpStatus::Landed;
                line.commit = Some(commit.to_string());
                line.leave_out(left_out);
            }
            Outcome::NoChange { commit, left_out } => {
                line.status = OpStatus::Landed;
                line.commit = Some(commit.to_string());
                line.leave_out(left_out);
                line.no_change = true;
            }
            Outcome::Conflict { paths, with } => {
                let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
                let message = format!("conflict in {}", paths.join(", "));
                let mut error = OpErrorLine::new("conflict", message);
                error.paths = Some(paths);
                error.with = Some(with.clone());
                line.error = Some(error);
            }
            Outcome::Rejected { class, reason } => {
                let mut error = OpErrorLine::new("rejected", told(outcome, reason));
                error.transient = Some(matches!(class, Class::Transient));
                line.error = Some(error);
            }
            Outcome::Superseded => {
                let message = "the remote has this commit, and more on top of it";
                line.error = Some(OpErrorLine::new("superseded", message));
            }
            Outcome::Skipped { because } => line.skip(because),
            Outcome::Failed(error) => {
                line.error = Some(OpErrorLine::new(error.kind.as_str(), error.message.clone()));
            }
            other => line.error = Some(OpErrorLine::new("failed", format!("{other:?}"))),
        }
        line
    }

    /// Returns the line of an operation that git was not asked for.
    pub(crate) fn refused(id: &str, refusal: &Refusal) -> OpLine {
        let mut line = OpLine::new(id, OpStatus::Failed);
        match refusal {
            Refusal::Fault(fault) => {
                line.error = Some(OpErrorLine::new(fault.kind, fault.message.clone()));
            }
            Refusal::Skipped(because) => line.skip(because),
        }
        line
    }

    fn new(id: &str, status: OpStatus) -> OpLine {
        let (id, commit, left_out) = (id.to_owned(), None, Vec::new());
        OpLine { id, status, commit, no_change: false, replayed: false, left_out, error: None }
    }

    fn leave_out(&mut self, left_out: &[LeftOut]) {
        let line =
            |left: &LeftOut| LeftOutLine { path: left.path.to_string(), reason: left.why.as_str() };
        self.left_out = left_out.iter().map(line).collect();
    }

    fn skip(&mut self, because: &str) {
        self.status = OpStatus::Skipped;
        let message = format!("not tried, because {because:?} did not succeed");
        self.error = Some(OpErrorLine::new("skipped", message));
    }

    /// Prints the line, as JSON or for people.
    pub(crate) fn print(&self, output: &Output) {
        if output.json {
            output.object(self);
            return;
        }
        let what = match (&self.error, &self.commit) {
            (Some(error), _) => format!("{}: {}", error.kind, error.message),
            (None, Some(commit)) if self.no_change => format!("{commit} (no change)"),
            (None, Some(commit)) if self.replayed => format!("{commit} (done by an earlier run)"),
            (None, commit) => commit.clone().unwrap_or_default(),
        };
        output.human(format!("{:<8} {}  {what}", self.status.word(), self.id));
        for left in &self.left_out {
            output.human(format!("         left out: {:?} ({})", left.path, left.reason));
        }
    }
}

impl OpStatus {
    fn word(self) -> &'static str {
        match self {
            OpStatus::Landed => "landed",
            OpStatus::Failed => "failed",
            OpStatus::Skipped => "skipped",
        }
    }
}

impl OpSummary {
    pub(crate) fn count(&mut self, line: &OpLine) {
        self.ops += 1;
        match line.status {
            OpStatus::Landed => self.landed += 1,
            OpStatus::Failed => self.failed += 1,
            OpStatus::Skipped => self.skipped += 1,
        }
    }

    /// Sets what the pushes came to, of `asked` that were asked for.
    pub(crate) fn pushed(&mut self, asked: usize, made: u64) {
        self.pushes = made;
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.round_trips_saved = if self.dry_run { 0 } else { signed(asked as u64) - signed(made) };
    }

    /// Sets what the batches did and cost.
    pub(crate) fn took(&mut self, report: &Report) {
        self.batches = report.receipts.len();
        self.receipt = report.receipt().into();
    }

    /// Prints the summary, as JSON or for people.
    pub(crate) fn print(&self, output: &Output) {
        if output.json {
            output.object(&serde_json::json!({ "summary": self }));
            return;
        }
        output.human(format!(
            "{} operations: {} landed, {} failed, {} skipped; {} pushes, {} round trips saved, \
             {:.2} s{}",
            self.ops,
            self.landed,
            self.failed,
            self.skipped,
            self.pushes,
            self.round_trips_saved,
            self.seconds,
            if self.dry_run { "; dry run, nothing was written or pushed" } else { "" }
        ));
    }
}

/// Returns why a push was refused, in words of a user where git has only its own.
fn told(outcome: &Outcome, reason: &str) -> String {
    /// How `git-batch` says it of a branch that had moved before the push.
    const BEFORE: &str = "the remote's branch";
    if outcome.is_moved() && !reason.starts_with(BEFORE) {
        return format!("somebody else has moved the branch at the remote meanwhile: {reason}");
    }
    reason.to_owned()
}
