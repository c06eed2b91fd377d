//! A provider that takes no more for now: how often all batches of tickets together try.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::steps::Steps;
use common::stub::{Stub, first, stub};
use common::{Place, ask, wait_until};
use llm_batch::{
    CallError, Collected, CreateError, Created, Draft, LlmBatch, Overview, Progress, Rejection,
    Sink, Stage, Stop, Submission,
};

fn full() -> Progress {
    Progress::Rejected(Rejection {
        kind: "token_limit_exceeded".to_owned(),
        message: "the queue is full".to_owned(),
        lines: Vec::new(),
        is_passing: true,
    })
}

/// Takes no create, or takes all and says of each later that its queue was full, but for the first ones,
/// whose results cannot be read.
#[derive(Debug, Default)]
struct Full {
    takes: bool,
    runs: usize,
    creates: AtomicUsize,
}

impl Stub for Full {
    fn create(&self, _: &Draft<'_>) -> Result<Created, CreateError> {
        let batch_id = self.creates.fetch_add(1, Ordering::SeqCst).to_string();
        if !self.takes {
            return Err(CreateError::Busy { message: "too many".to_owned(), retry_after: None });
        }
        Ok(Created { batch_id, progress: Progress::Running })
    }

    fn poll(&self, batch_id: &str) -> Result<Progress, CallError> {
        if batch_id.parse::<usize>().unwrap() < self.runs {
            return Ok(Progress::Ended);
        }
        Ok(full())
    }

    fn results(&self, _: &str, _: &Draft<'_>, _: &mut Sink<'_>) -> Result<Collected, CallError> {
        Err(CallError::Passing { message: "a bad day".to_owned(), retry_after: None })
    }
}

/// Returns how many creates 200 batches come to until their time is up.
fn creates(provider: Full) -> usize {
    let (provider, place) = (stub(provider), Place::quick());
    let llm = LlmBatch::builder(Arc::clone(&provider) as _)
        .state(place.state())
        .max_items(1)
        .max_in_flight(4)
        .linger(Duration::ZERO)
        .poll_interval(Duration::from_millis(1))
        .timeout(Duration::from_secs(1))
        .build()
        .unwrap();
    let tickets: Vec<_> = (0..200).map(|n| llm.submit(ask(&n.to_string())).unwrap()).collect();
    assert!(tickets.into_iter().all(|ticket| ticket.wait().is_err()));
    provider.creates.load(Ordering::SeqCst)
}

/// Each of them waited longer and longer only for what it was refused itself.
#[test]
fn batches_wait_together_for_an_account_that_may_create_no_more() {
    let creates = creates(Full::default());
    assert!((2..60).contains(&creates), "{creates}");
}

#[test]
fn batches_wait_together_for_a_queue_that_is_full() {
    let creates = creates(Full { takes: true, ..Full::default() });
    assert!((2..150).contains(&creates), "{creates}");
}

/// Each attempt to read the results of one that has ended counted as room in the queue.
#[test]
fn batches_whose_results_cannot_be_read_make_room_once() {
    let creates = creates(Full { takes: true, runs: 20, ..Full::default() });
    // On a busy machine the twenty end one after the other, and each lets some go: 50 to 200 creates.
    assert!((2..700).contains(&creates), "{creates}");
}

/// Says of one batch that its queue is full, and of another one, once that is known, that it is done when
/// its create is answered.
#[derive(Debug, Default)]
struct Sudden(Steps);

impl Stub for Sudden {
    fn create(&self, draft: &Draft<'_>) -> Result<Created, CreateError> {
        let batch_id = first(draft).to_owned();
        if batch_id == "sudden" {
            self.0.reach("creates");
            self.0.wait_for("is full");
        }
        let progress = if batch_id == "full" { full() } else { Progress::Ended };
        Ok(Created { batch_id, progress })
    }
}

/// Only one that a poll told of made room: the next one waited as long as one that is refused.
#[test]
fn a_batch_that_has_ended_when_its_create_is_answered_makes_room() {
    let (provider, place, stop) = (stub(Sudden::default()), Place::quick(), Stop::new());
    let llm = LlmBatch::builder(Arc::clone(&provider) as _)
        .state(place.state())
        .linger(Duration::ZERO)
        .poll_interval(Duration::from_hours(1))
        .stop(stop.clone())
        .build()
        .unwrap();
    let sudden = llm.submit(ask("sudden")).unwrap();
    provider.0.wait_for("creates");
    let full = llm.submit(ask("full")).unwrap();
    let is_void = |submission: &Submission| submission.stage == Stage::Void;
    wait_until(|| Overview::read(place.state()).unwrap().submissions.iter().any(is_void));
    provider.0.reach("is full");
    sudden.wait().unwrap();
    let next = llm.submit(ask("next")).unwrap();
    assert!(next.wait_timeout(Duration::from_mins(1)).unwrap().is_ok());
    stop.stop();
    assert!(full.wait().is_err());
}
