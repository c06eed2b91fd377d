//! `llm status` and `llm cancel`: what a state folder says, also while a run is using it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use llm_batch::{Overview, Stage, Submission, cancel as cancel_batch};
use serde_json::{Value, json};

use crate::cli::Session;
use crate::exit::{Exit, Stop, chain};
use crate::plan::ProviderName;
use crate::provider::{self, Place};

/// How long the provider has for the answer to one cancel.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Folder of the state: the results file with .state behind it, unless the run named another
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    folder: Options,
    /// Another address of the provider, as it was given to the run; the key is sent there
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
}

/// Prints one line a submission and a summary. Nothing is asked and nothing is changed.
pub(crate) fn status(session: &Session, options: &Options) -> Result<Exit, Stop> {
    let overview = read(options)?;
    let output = &session.output;
    for submission in &overview.submissions {
        if output.json {
            output.object(&object(submission));
        } else {
            output.human(line(submission));
        }
    }
    let Overview { requests, delivered, succeeded, .. } = overview;
    let waiting = requests - delivered;
    if output.json {
        output.object(&json!({ "summary": {
            "requests": requests,
            "succeeded": succeeded,
            "failed": delivered - succeeded,
            "pending": waiting,
            "submissions": overview.submissions.len(),
        } }));
    } else {
        output.human(format!(
            "{requests} requests: {succeeded} succeeded, {} failed, {waiting} pending",
            delivered - succeeded
        ));
    }
    Ok(Exit::Done)
}

/// Asks the provider to stop working on every batch that has not ended as far as is known. A run
/// that waits for them collects what was done by then.
pub(crate) fn cancel(session: &Session, options: &Cancel) -> Result<Exit, Stop> {
    let overview = read(&options.folder)?;
    let output = &session.output;
    let open = overview.submissions.iter().filter_map(|submission| {
        let batch_id = submission.batch_id.as_ref()?;
        (submission.stage == Stage::Submitted).then_some((submission, batch_id))
    });
    // All keys are there, or nothing is asked.
    let open: Vec<_> = open
        .map(|(submission, batch_id)| Ok((submission, provider_of(submission, options)?, batch_id)))
        .collect::<Result<_, Stop>>()?;
    let is_here = |(submission, provider, _): &(&Submission, Arc<dyn llm_batch::Provider>, _)| {
        provider.endpoint() == submission.endpoint
    };
    if let Some((submission, provider, _)) = open.first()
        && !open.iter().any(is_here)
    {
        let state = options.folder.state.display();
        let (there, here) = (&submission.endpoint, provider.endpoint());
        let what = format_args!("the batches of {state} are at {there}, not at {here}");
        return Err(Stop::refused(what).help(allowing(there)));
    }
    let (asked, mut refused) = (open.len(), 0);
    for one in &open {
        let (submission, provider, batch_id) = one;
        let problem = if is_here(one) {
            cancel_batch(&**provider, batch_id, PATIENCE).err().map(|error| error.to_string())
        } else {
            let there = &submission.endpoint;
            Some(format!("it is at {there}; {}", allowing(there)))
        };
        refused += usize::from(problem.is_some());
        if output.json {
            let status = if problem.is_some() { "refused" } else { "canceling" };
            output.object(&json!({ "batch": batch_id, "status": status, "message": problem }));
        } else {
            let became = problem.map_or("canceling".to_owned(), |why| format!("refused: {why}"));
            output.human(format!("{batch_id}: {became}"));
        }
    }
    if output.json {
        let summary = json!({ "batches": asked, "canceling": asked - refused, "refused": refused });
        output.object(&json!({ "summary": summary }));
    } else if asked == 0 {
        output.human("no batch is being waited for");
    } else {
        output.note("note: run `llm run` again to collect what was done by then");
    }
    Ok(Exit::of_failed(refused))
}

fn read(options: &Options) -> Result<Overview, Stop> {
    if !options.state.is_dir() {
        return Err(Stop::refused(format_args!("{} is no state folder", options.state.display()))
            .help("it is named after the results: RESULTS.jsonl.state"));
    }
    Overview::read(&options.state).map_err(|error| Stop::refused(chain(&error)))
}

/// Returns the provider of a submission, at the address that the user names or at its own: the state may
/// be somebody else's, so that no key goes where it says.
fn provider_of(
    submission: &Submission,
    options: &Cancel,
) -> Result<Arc<dyn llm_batch::Provider>, Stop> {
    let name = match submission.provider.as_str() {
        "anthropic" => ProviderName::Anthropic,
        "openai" => ProviderName::Openai,
        other => {
            return Err(Stop::refused(format_args!("batches of {other:?} cannot be cancelled")));
        }
    };
    let base_url = options.base_url.as_deref();
    provider::open(name, Place { base_url, answers: None })
}

/// Says how a user allows a key to be sent there.
fn allowing(endpoint: &str) -> String {
    format!("if that is where the key may be sent to, say so: --base-url {endpoint}")
}

fn object(submission: &Submission) -> Value {
    json!({
        "submission": submission.number,
        "provider": submission.provider,
        "lane": submission.lane,
        "kind": submission.kind,
        "model": submission.model,
        "requests": submission.requests,
        "pending": submission.waiting,
        "status": submission.stage.as_str(),
        "batch": submission.batch_id,
        "reason": submission.reason,
    })
}

fn line(submission: &Submission) -> String {
    let Submission { number, kind, model, requests, waiting, stage, .. } = submission;
    let mut line = format!(
        "{number}: {} of {requests} requests pending, {kind} {model}, {}",
        waiting,
        stage.as_str()
    );
    for detail in [&submission.batch_id, &submission.reason].into_iter().flatten() {
        line.push_str(", ");
        line.push_str(detail);
    }
    line
}
