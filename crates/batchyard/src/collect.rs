//! Requests to a provider, each outcome written down as it comes.

use std::convert::Infallible;

use llm_batch::{Builder, Error, Loaded, Request, Run};

use crate::cli::Session;
use crate::exit::{Stop, not_run};
use crate::progress::Progress;
use crate::results::Results;

/// Runs `requests` through what `llm` builds, and puts each outcome into `results`, which tell what
/// is known already. A signal, or a results file that cannot be written, ends the wait.
///
/// # Errors
///
/// The client cannot be built, or the results cannot be written. What became of the run itself is
/// in the inner result.
pub(crate) fn collect(
    session: &Session,
    llm: Builder,
    requests: impl IntoIterator<Item = Request>,
    results: Results,
) -> Result<Result<Run, Error>, Stop> {
    let stop = llm_batch::Stop::new();
    let llm = llm.held(results.held().clone()).stop(stop.clone()).build();
    let llm = llm.map_err(|error| not_run(&error))?;
    match llm.load(requests.into_iter().map(Ok::<_, Infallible>)) {
        Ok(loaded) => finish(session, &loaded, &stop, results),
        Err(error) => Ok(Err(error)),
    }
}

/// Runs what was loaded, and puts each outcome into `results`; `stop` ends its waits.
///
/// # Errors
///
/// The results cannot be written. What became of the run itself is in the inner result.
pub(crate) fn finish(
    session: &Session,
    loaded: &Loaded<'_>,
    stop: &llm_batch::Stop,
    mut results: Results,
) -> Result<Result<Run, Error>, Stop> {
    let progress = Progress::start(&session.output, loaded.len(), "answers");
    progress.advance(results.held().len().min(loaded.len()));
    let ended = session.interrupt.stopping(stop, || {
        let broken = stop.clone();
        loaded.run(|id, outcome| {
            progress.advance(1);
            if !results.put(id, &outcome) {
                broken.stop();
            }
        })
    });
    drop(progress);
    match &ended {
        // Where nothing was started, nothing is left behind.
        Err(error) if error.run().is_none() => results.abandon(),
        _ => results.finish()?,
    }
    Ok(ended)
}
