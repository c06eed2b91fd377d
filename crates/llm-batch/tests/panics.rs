//! A provider whose code panics: what is paid for is kept, and what is told gives nothing away.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::steps::Steps;
use common::stub::{Stub, Stubbed, stub};
use common::{KEY, Place, ask, wait_until};
use llm_batch::{
    Answer, BatchError, Builder, CallError, CreateError, Created, Draft, Entry, Error, LaneChoice,
    LlmBatch, Progress, Request, RequestError, Stop,
};
use serde_json::value::{RawValue, to_raw_value};

/// Panics where it is told to, and answers who is called `gated` when it is told to.
#[derive(Debug, Default)]
struct Fragile {
    steps: Steps,
    panics_in_encode: AtomicBool,
    panics_in_answer: AtomicBool,
    asks: AtomicUsize,
    creates: AtomicUsize,
}

impl Stub for Fragile {
    fn encode(&self, request: &Request) -> Result<Box<RawValue>, RequestError> {
        assert!(!self.panics_in_encode.load(Ordering::SeqCst), "with the key {KEY}");
        Ok(to_raw_value(&request.id).unwrap())
    }

    fn create(&self, _: &Draft<'_>) -> Result<Created, CreateError> {
        self.creates.fetch_add(1, Ordering::SeqCst);
        Ok(Created { batch_id: "b".to_owned(), progress: Progress::Running })
    }

    fn poll(&self, _: &str) -> Result<Progress, CallError> {
        Ok(Progress::Running)
    }

    fn ask(&self, entry: &Entry<'_>) -> Result<Box<RawValue>, CreateError> {
        self.asks.fetch_add(1, Ordering::SeqCst);
        if entry.id == "gated" {
            self.steps.reach("asks");
            self.steps.wait_for("may answer");
        }
        Ok(to_raw_value(entry.id).unwrap())
    }

    fn answer(&self, response: Box<RawValue>) -> Answer {
        if self.panics_in_answer.load(Ordering::SeqCst) {
            self.steps.wait_for("asks");
            self.steps.reach("panics");
            panic!("with the key {KEY}");
        }
        Answer::new(response)
    }
}

fn settings(provider: &Arc<Stubbed<Fragile>>, place: &Place) -> Builder {
    LlmBatch::builder(Arc::clone(provider) as _)
        .state(place.state())
        .linger(Duration::from_hours(1))
        .poll_interval(Duration::from_millis(1))
}

/// Returns what a ticket was told.
fn told(ended: Result<Answer, BatchError<RequestError>>) -> RequestError {
    match ended {
        Err(BatchError::Failed(error)) => RequestError::clone(&error),
        other => panic!("{other:?}"),
    }
}

/// It came back to a pass that was not there any more, and was asked and paid for again, or lost.
#[test]
fn an_answer_that_is_on_its_way_when_another_one_panics_is_kept() {
    let (provider, place) = (stub(Fragile::default()), Place::quick());
    provider.panics_in_answer.store(true, Ordering::SeqCst);
    let llm = settings(&provider, &place).lane(LaneChoice::Sync).build().unwrap();
    let tickets = ["gated", "panics"].map(|id| llm.submit(ask(id)).unwrap());
    let flushed = llm.flush();
    provider.steps.wait_for("panics");
    for ticket in tickets {
        let error = told(ticket.wait());
        assert!(error.may_be_paid(), "{error}");
        assert_eq!(error.to_string().find(KEY), None, "{error}");
    }
    flushed.wait().unwrap();
    drop(llm);
    let open = || settings(&provider, &place).lane(LaneChoice::Sync).linger(Duration::ZERO).build();
    // What was asked may still be read there, and the answer is kept there.
    assert!(matches!(open(), Err(Error::StateBusy { .. })));
    provider.panics_in_answer.store(false, Ordering::SeqCst);
    provider.steps.reach("may answer");
    // The last of its threads lets go of the folder.
    wait_until(|| open().is_ok());
    let llm = open().unwrap();
    for id in ["gated", "panics"] {
        let answer = llm.submit(ask(id)).unwrap().wait().unwrap();
        assert_eq!(answer.response.get(), format!("\"{id}\""));
    }
    assert_eq!(provider.asks.load(Ordering::SeqCst), 2);
}

/// Whoever was told that it is not asks elsewhere, and pays twice.
#[test]
fn a_request_that_went_out_before_may_be_paid_for_whatever_happens_to_it_now() {
    let (provider, place, stop) = (stub(Fragile::default()), Place::quick(), Stop::new());
    let llm = settings(&provider, &place).stop(stop.clone()).build().unwrap();
    let sent = llm.submit(ask("sent")).unwrap();
    let flushed = llm.flush();
    wait_until(|| llm.accounting().batches == 1);
    stop.stop();
    assert_eq!(told(sent.wait()).kind(), "pending");
    flushed.wait().unwrap();
    drop(llm);
    provider.panics_in_encode.store(true, Ordering::SeqCst);
    let llm = settings(&provider, &place).build().unwrap();
    let tickets = ["sent", "new"].map(|id| llm.submit(ask(id)).unwrap());
    llm.flush().wait().unwrap();
    let [sent, new] = tickets.map(|ticket| told(ticket.wait()));
    assert!(sent.may_be_paid(), "{sent:?}");
    assert!(!new.may_be_paid(), "{new:?}");
    for error in [sent, new] {
        assert!(error.to_string().ends_with("the provider's code panicked"), "{error}");
    }
    assert_eq!(provider.creates.load(Ordering::SeqCst), 1);
}
