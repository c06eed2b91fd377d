//! What a run says at its end: one line a task, and what was saved.

use serde::Serialize;
use serde_json::json;

use super::ask::Asked;
use super::board::{Board, Failure, Standing};
use super::land::Landing;
use crate::demo::OneByOne;
use crate::output::Output;

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

/// Prints one line for each task.
pub(crate) fn tasks(output: &Output, board: &Board<'_>) {
    let width = board.plan.tasks.iter().map(|task| task.id.chars().count()).max().unwrap_or(0);
    for (_, task, standing) in board.iter() {
        let (status, commit, failure) = match standing {
            Standing::Landed { commit } => ("succeeded", Some(commit), None),
            Standing::Answered { .. } => ("succeeded", None, None),
            Standing::Waiting => ("planned", None, None),
            Standing::Failed(failure) => ("failed", failure.commit.as_ref(), Some(failure.clone())),
            Standing::Held(failure) => ("pending", failure.commit.as_ref(), Some(failure.clone())),
            Standing::Skipped { because } => {
                let why = format!("it needs \"{because}\", which failed");
                ("skipped", None, Some(Failure::new("skipped", why)))
            }
        };
        if output.json {
            let mut line = json!({ "id": task.id, "kind": task.kind, "status": status });
            if let Some(commit) = commit {
                line["branch"] = json!(task.branch());
                line["commit"] = json!(commit);
            }
            if let Some(Failure { kind, message, .. }) = failure {
                line["error"] = json!({ "kind": kind, "message": message });
            }
            if task.expect_failure {
                line["expect"] = json!("fail");
            }
            output.object(&line);
            continue;
        }
        let expected = if task.expect_failure { " (as expected)" } else { "" };
        let commit = commit.map(|commit| commit.get(..10).unwrap_or(commit).to_owned());
        let what = match (failure, commit) {
            (None, commit) => commit.unwrap_or_default(),
            (Some(Failure { kind, message, .. }), None) => format!("{kind}{expected}: {message}"),
            (Some(Failure { kind, message, .. }), Some(commit)) => {
                format!("{kind}{expected}: {message} ({commit} on {})", task.branch())
            }
        };
        output.human(format!("{status:<9}  {:<width$}  {:<11}  {what}", task.id, task.kind));
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
    let cost = summary.cost.map_or_else(|| "-".to_owned(), |cost| format!("{cost:.4} USD"));
    let rows = [
        (
            "tasks",
            summary.tasks.to_string(),
            match summary.pending {
                0 => format!("{} succeeded, {} failed", summary.succeeded, summary.failed),
                pending => format!(
                    "{} succeeded, {} failed, {pending} pending",
                    summary.succeeded, summary.failed
                ),
            },
        ),
        (
            "submissions",
            summary.submissions.to_string(),
            format!("{} calls saved", summary.calls_saved),
        ),
        ("HTTP calls", summary.http_calls.to_string(), String::new()),
        (
            "pushes",
            summary.pushes.to_string(),
            format!("{} round trips saved", summary.round_trips_saved),
        ),
        (
            "tokens",
            (summary.input_tokens + summary.output_tokens).to_string(),
            format!("{} in, {} out", summary.input_tokens, summary.output_tokens),
        ),
        ("cost", cost, String::new()),
        ("time", format!("{:.2} s", summary.seconds), String::new()),
    ];
    output.human("");
    for (name, value, more) in rows {
        output.human(format!("{name:<12} {value:>10}  {more}").trim_end());
    }
    match one_by_one {
        Some(compared) => output.human(format!(
            "one by one   {:>8.2} s  {} submissions and {} pushes, really run: {:.1} times as long",
            compared.seconds,
            compared.submissions,
            compared.pushes,
            compared.seconds / summary.seconds.max(f64::EPSILON),
        )),
        None if has_demo => {}
        None => output.human(format!("{:<12} {:>10}", "one by one", "-")),
    }
}
