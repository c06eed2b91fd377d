//! `llm run`: requests from JSON Lines in as few submissions as possible.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use llm_batch::{Accounting, Overview, Provider, Stage, cancel};
use serde_json::json;

use super::llm_settings::Settings;
use crate::cli::{Session, resume_command};
use crate::collect::finish;
use crate::exit::{Exit, Stop, not_run};
use crate::input::Input;
use crate::output::Output;
use crate::plan::ProviderName;
use crate::provider::{self, Place};
use crate::results::Found;
use crate::wire::requests;

/// How long the provider has for the answer to one cancel.
const PATIENCE: Duration = Duration::from_secs(20);

/// What goes in and what comes out.
const FORMATS: &str = r#"A request has an id, a model and one of prompt, messages and body; kind, max_tokens (4096),
metadata, deadline (a time) and budget (dollars) may be left out:

    {"id":"a","kind":"planner","model":"the-model","prompt":"How?"}
    {"id":"b","model":"the-model","messages":[{"role":"user","content":"Why?"}]}

A result has id, status (succeeded, errored, expired, canceled), text, response, usage and error.

The key is read from ANTHROPIC_API_KEY or OPENAI_API_KEY. "offline" takes the answer to the request ID from one of
ID.json ({"text":".."}, {"response":{..}} or {"error":{"type":"..","message":".."}}, "usage" beside
text), ID.md and ID.txt (the text alone) in the folder --answers.

The same command, run again, goes on where it was: an id never stands twice in the results. What
failed stays so; to ask again, give it a new id or name another --out. An id that comes again with
another content is refused, unless --fresh asks it anew.

The table of --prices has dollars for a million tokens, and a day from which they are:

    {"as_of":"2026-01-01","models":{"the-model":{"input":3,"output":15}}}

A submission whose answer is lost is looked for in the provider's list, so that nothing is paid for
twice: it is sent again only when two lists --list-lag apart do not have it, with a key of the same
account, and from the very state folder that it was sent from. The state may be moved to another
machine while no run uses it: a run there collects all that the provider has, and holds what is lost
until --on-ambiguous resubmit allows it to be sent again. Of two runs that go on with copies of one
state, each sends what was not sent yet when it was copied."#;

#[derive(Debug, clap::Args)]
#[command(after_long_help = FORMATS)]
pub(crate) struct Options {
    /// The requests, one JSON object a line; - for stdin
    #[arg(value_name = "REQUESTS.jsonl")]
    requests: PathBuf,
    /// Who answers
    #[arg(long, value_enum)]
    provider: ProviderName,
    /// Another address of the provider, https or loopback
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    #[command(flatten)]
    settings: Settings,
    /// On SIGINT or SIGTERM, ask the provider to stop working on the batches; what it has done by
    /// then is collected by the next run
    #[arg(long)]
    cancel_on_interrupt: bool,
    /// Folder of the recorded answers, for the offline provider
    #[arg(long, value_name = "DIR")]
    answers: Option<PathBuf>,
    /// Folder of the state that a later run goes on with; by default OUT with .state behind it
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Where the results go, one JSON object a line, in order of arrival
    #[arg(long, value_name = "RESULTS.jsonl")]
    out: PathBuf,
}

pub(crate) fn run(session: &Session, options: &Options) -> Result<Exit, Stop> {
    let output = &session.output;
    match (options.provider, &options.answers, &options.base_url) {
        (ProviderName::Anthropic | ProviderName::Openai, Some(_), _) => {
            return Err(Stop::refused("--answers belongs to the provider offline only"));
        }
        (ProviderName::Offline, _, Some(_)) => {
            return Err(Stop::refused("--base-url does not belong to the provider offline"));
        }
        _ => {}
    }
    let place =
        Place { base_url: options.base_url.as_deref(), answers: options.answers.as_deref() };
    let provider = provider::open(options.provider, place)?;
    let state = options.state.clone().unwrap_or_else(|| beside(&options.out));
    refuse_inputs(options)?;
    let requests = requests::each(&Input::from(options.requests.clone()))?;
    refuse_orphans(&options.out, &state)?;
    let settings = options.settings.builder(Arc::clone(&provider), &state)?;
    // What is asked anew is in none of the old results; they are set aside once all was read. Until
    // then the file is only looked at.
    let is_fresh = options.settings.fresh;
    let mut found =
        if is_fresh { Found::unread(&options.out)? } else { Found::look(&options.out)? };
    let stop = llm_batch::Stop::new();
    let llm = settings.held(found.held().clone()).stop(stop.clone()).build();
    let ended = llm.map_err(|error| not_run(&error)).and_then(|llm| {
        let mut unreadable = None;
        let requests = requests
            .map(|request| request.map_err(|stop| unreadable.insert(stop).message().to_owned()));
        let loaded = llm.load(requests);
        let loaded = loaded.map_err(|error| unreadable.unwrap_or_else(|| not_run(&error)))?;
        if is_fresh && let Some(aside) = found.set_aside()? {
            output.note(format!("note: the old results are in {}", aside.display()));
        }
        let results = found.begin()?;
        if options.requests.as_os_str() != "-" {
            session.interrupt.resume_with(Some(resume_command()));
        }
        let (total, state) = (loaded.len(), state.display());
        output.detail(format!("{total} requests; the state is in {state}"));
        finish(session, &loaded, &stop, results)
    });
    let is_begun = match &ended {
        Ok(Err(error)) => error.run().is_some(),
        Ok(Ok(_)) => true,
        Err(_) => false,
    };
    if options.cancel_on_interrupt && session.interrupt.seen() && is_begun {
        cancel_open(output, &*provider, &state);
    }
    match ended? {
        Ok(run) => {
            session.interrupt.resume_with(None);
            print(output, &run.accounting);
            if run.accounting.failed > 0 {
                output.note(format!(
                    "note: {} says what failed and why; what failed is not sent again: to ask \
                     again, give it a new id or name another --out",
                    options.out.display()
                ));
            }
            Ok(Exit::of_failed(usize::try_from(run.accounting.failed).unwrap_or(usize::MAX)))
        }
        Err(error) => {
            if let Some(run) = error.run() {
                print(output, &run.accounting);
            }
            Err(not_run(&error))
        }
    }
}

/// Asks the provider to stop working on every batch that has not ended as far as is known.
fn cancel_open(output: &Output, provider: &dyn Provider, state: &Path) {
    let Ok(overview) = Overview::read(state) else { return };
    let open = overview.submissions.into_iter().filter(|one| one.stage == Stage::Submitted);
    for batch_id in open.filter_map(|one| one.batch_id) {
        match cancel(provider, &batch_id, PATIENCE) {
            Ok(()) => output.note(format!("note: {batch_id}: canceling")),
            Err(error) => output.note(format!("note: {batch_id}: not cancelled: {error}")),
        }
    }
}

/// Results whose state is gone may be answers to other requests with the same ids.
fn refuse_orphans(out: &Path, state: &Path) -> Result<(), Stop> {
    let has_results = fs::metadata(out).is_ok_and(|data| data.is_file() && data.len() > 0);
    if has_results && !state.exists() {
        return Err(Stop::refused(format_args!(
            "{} holds results, but their state {} does not exist",
            out.display(),
            state.display()
        ))
        .help("move the results away to start anew, or name their state with --state"));
    }
    Ok(())
}

/// The results must not be written over what is read.
fn refuse_inputs(options: &Options) -> Result<(), Stop> {
    let Ok(out) = fs::metadata(&options.out) else { return Ok(()) };
    let inputs = [Some(&options.requests), options.settings.prices.as_ref()];
    for input in inputs.into_iter().flatten().filter(|input| input.as_os_str() != "-") {
        let is_out = |data: &fs::Metadata| (data.dev(), data.ino()) == (out.dev(), out.ino());
        if fs::metadata(input).is_ok_and(|data| is_out(&data)) {
            return Err(Stop::refused(format_args!(
                "--out {} is the same file as the input {}",
                options.out.display(),
                input.display()
            ))
            .help("name another file for the results"));
        }
    }
    Ok(())
}

fn beside(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".state");
    PathBuf::from(name)
}

fn print(output: &Output, accounting: &Accounting) {
    if output.json {
        output.object(&json!({ "summary": accounting }));
        return;
    }
    let dollars = |cost: Option<f64>| cost.map_or("-".to_owned(), |cost| format!("{cost:.4} USD"));
    let (cost, alone) = (dollars(accounting.cost), dollars(accounting.cost_one_by_one));
    output.human(format!(
        "{} requests: {} succeeded, {} failed, {} pending; {} submissions, {} calls saved, {} \
         HTTP calls; {} tokens in, {} out, cost {cost}, one by one {alone}",
        accounting.requests,
        accounting.succeeded,
        accounting.failed,
        accounting.pending,
        accounting.submissions,
        accounting.calls_saved,
        accounting.http_calls,
        accounting.input_tokens,
        accounting.output_tokens,
    ));
}
