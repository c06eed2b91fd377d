//! What a run says at its end: one line a task, and what was saved.

use serde::Serialize;
use serde_json::json;

use super::ask::Asked;
use super::board::{Board, Failure, Standing};
use super::land::Landing;
use crate::demo::OneByOne;
use crate::output::Output;
use crate::plan::Task;

/// The summary of a run. The one-by-one comparison is in none of its figures.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    tasks: usize,
    succeeded: usize,
    failed: usize,
    /// Tasks whose answers are kept for the next run.
    pending: usize,
    batches: u64,
    submissions: u64,
    calls_saved: i64,
    http_calls: u64,
    cache_hits: u64,
    pushes: u64,
    round_trips_saved: i64,
    input_tokens: u64,
    output_tokens: u64,
    cost: Option<f64>,
    seconds: f64,
}

impl Summary {
    pub(crate) fn new(
        board: &Board<'_>,
        calls: &Asked,
        landing: &Landing,
        seconds: f64,
    ) -> Summary {
        let (failed, _) = board.verdict();
        let tasks = board.plan.tasks.len();
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        // Nothing is saved by what did not get through, or had nothing to bring.
        let pushed = if landing.pushes == 0 { 0 } else { landing.pushed as u64 };
        let saved = signed(pushed) - signed(landing.pushes);
        Summary {
            tasks,
            succeeded: board.succeeded(),
            failed,
            pending: board.held(),
            batches: calls.batches,
            submissions: calls.submissions,
            calls_saved: calls.saved(),
            http_calls: calls.http_calls,
            cache_hits: 0,
            pushes: landing.pushes,
            round_trips_saved: saved.max(0),
            input_tokens: calls.input_tokens,
            output_tokens: calls.output_tokens,
            cost: calls.cost,
            seconds,
        }
    }
}

/// How a task ended, as it is told.
#[derive(Debug)]
pub(super) struct Told<'b> {
    pub(super) status: &'static str,
    /// The commit on its branch.
    pub(super) commit: Option<&'b str>,
    pub(super) failure: Option<Failure>,
}

impl Told<'_> {
    pub(super) fn of(standing: &Standing) -> Told<'_> {
        let (status, commit, failure) = match standing {
            Standing::Landed { commit } => ("succeeded", Some(commit.as_str()), None),
            Standing::Answered { .. } => ("succeeded", None, None),
            Standing::Waiting => ("planned", None, None),
            Standing::Failed(failure) => {
                ("failed", failure.commit.as_deref(), Some(failure.clone()))
            }
            Standing::Held(failure) => {
                ("pending", failure.commit.as_deref(), Some(failure.clone()))
            }
            Standing::Skipped { because } => {
                let why = format!("it needs \"{because}\", which failed");
                ("skipped", None, Some(Failure::new("skipped", why)))
            }
        };
        Told { status, commit, failure }
    }

    /// Returns why it did not succeed, in a line for people.
    pub(super) fn why(&self, task: &Task) -> Option<String> {
        let Failure { kind, message, .. } = self.failure.as_ref()?;
        let expected = if task.expect_failure { " (as expected)" } else { "" };
        Some(format!("{kind}{expected}: {message}"))
    }
}

/// Returns the beginning of a commit's name, enough for people.
pub(super) fn short(commit: &str) -> &str {
    commit.get(..10).unwrap_or(commit)
}

/// Prints one line for each task.
pub(crate) fn tasks(output: &Output, board: &Board<'_>) {
    let width = board.plan.tasks.iter().map(|task| task.id.chars().count()).max().unwrap_or(0);
    for (_, task, standing) in board.iter() {
        let told = Told::of(standing);
        let status = told.status;
        if output.json {
            let mut line = json!({ "id": task.id, "kind": task.kind, "status": status });
            if let Some(commit) = told.commit {
                line["branch"] = json!(task.branch());
                line["commit"] = json!(commit);
            }
            if let Some(Failure { kind, message, .. }) = told.failure {
                line["error"] = json!({ "kind": kind, "message": message });
            }
            if task.expect_failure {
                line["expect"] = json!("fail");
            }
            output.object(&line);
            continue;
        }
        let what = match (told.why(task), told.commit.map(short)) {
            (None, commit) => commit.unwrap_or_default().to_owned(),
            (Some(why), None) => why,
            (Some(why), Some(commit)) => format!("{why} ({commit} on {})", task.branch()),
        };
        let line = format!("{status:<9}  {:<width$}  {:<11}  {what}", task.id, task.kind);
        output.human(line.trim_end());
    }
}

/// A figure of a run: its name, its value, and what more there is to say.
pub(super) type Figure = (&'static str, String, String);

impl Summary {
    /// Returns the figures as people read them.
    pub(super) fn figures(&self) -> [Figure; 7] {
        let cost = self.cost.map_or_else(|| "-".to_owned(), |cost| format!("{cost:.4} USD"));
        let mut ends = format!("{} succeeded, {} failed", self.succeeded, self.failed);
        if self.pending > 0 {
            ends = format!("{ends}, {} pending", self.pending);
        }
        let calls_saved = format!("{} calls saved", self.calls_saved);
        let trips_saved = format!("{} round trips saved", self.round_trips_saved);
        let tokens = self.input_tokens + self.output_tokens;
        let parts = format!("{} in, {} out", self.input_tokens, self.output_tokens);
        [
            ("tasks", self.tasks.to_string(), ends),
            ("submissions", self.submissions.to_string(), calls_saved),
            ("HTTP calls", self.http_calls.to_string(), String::new()),
            ("pushes", self.pushes.to_string(), trips_saved),
            ("tokens", tokens.to_string(), parts),
            ("cost", cost, String::new()),
            ("time", format!("{:.2} s", self.seconds), String::new()),
        ]
    }

    /// Returns the comparison, where it was made.
    pub(super) fn compared(&self, one_by_one: &OneByOne) -> Figure {
        let times = one_by_one.seconds / self.seconds.max(f64::EPSILON);
        let OneByOne { submissions, pushes, .. } = one_by_one;
        let more = format!(
            "{submissions} submissions and {pushes} pushes, really run: {times:.1} times as long"
        );
        ("one by one", format!("{:.2} s", one_by_one.seconds), more)
    }
}

/// Prints what was saved, the summary last.
pub(crate) fn savings(
    output: &Output,
    summary: &Summary,
    one_by_one: Option<&OneByOne>,
    has_demo: bool,
) {
    if output.json {
        if let Some(compared) = one_by_one {
            output.object(&json!({ "one_by_one": compared }));
        }
        output.object(&json!({ "summary": summary }));
        return;
    }
    output.human("");
    let compared = match one_by_one {
        Some(compared) => Some(summary.compared(compared)),
        None if has_demo => None,
        None => Some(("one by one", "-".to_owned(), String::new())),
    };
    for (name, value, more) in summary.figures().into_iter().chain(compared) {
        output.human(format!("{name:<12} {value:>10}  {more}").trim_end());
    }
}
