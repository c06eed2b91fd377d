//! Many batches of tickets that are waited for: no call too many, and all of them end.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::slow::{Slow, settings};
use common::stub::{Stub, stub};
use common::{Place, ask};
use llm_batch::{BatchError, CallError, LaneChoice, LlmBatch, Progress, RequestError, Stop};

#[test]
fn batches_that_are_waited_for_end_when_somebody_says_stop() {
    let (provider, place, stop) = (stub(Slow::default()), Place::quick(), Stop::new());
    // Nothing is due meanwhile.
    let settings = settings(&provider, &place).poll_interval(Duration::from_hours(1));
    let llm = settings.timeout(Duration::from_hours(2)).stop(stop.clone()).build().unwrap();
    let tickets: Vec<_> = (0..50).map(|n| llm.submit(ask(&n.to_string())).unwrap()).collect();
    provider.wait_for(50);
    stop.stop();
    for ticket in tickets {
        let ended = ticket.wait_timeout(Duration::from_mins(1)).unwrap();
        let Err(BatchError::Failed(error)) = ended else { panic!("an answer") };
        assert!(matches!(*error, RequestError::Pending { .. }), "{error}");
    }
}

#[test]
fn batches_are_waited_for_when_nobody_has_the_batcher_any_more() {
    let (provider, place) = (stub(Slow::default()), Place::quick());
    let settings = settings(&provider, &place).poll_interval(Duration::from_millis(1));
    let llm = settings.build().unwrap();
    let tickets: Vec<_> = (0..20).map(|n| llm.submit(ask(&n.to_string())).unwrap()).collect();
    provider.wait_for(20);
    drop(llm);
    provider.has_ended.store(true, Ordering::SeqCst);
    for ticket in tickets {
        ticket.wait().unwrap();
    }
}

/// Each batch had as many of its own.
#[test]
fn no_more_are_asked_alone_at_a_time_than_was_set_whatever_their_batches() {
    let (provider, place) = (stub(Slow::default()), Place::quick());
    let settings = settings(&provider, &place).lane(LaneChoice::Sync).max_concurrent(3);
    let llm = settings.build().unwrap();
    let tickets: Vec<_> = (0..60).map(|n| llm.submit(ask(&n.to_string())).unwrap()).collect();
    for (n, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(ticket.wait().unwrap().response.get(), format!("\"{n}\""));
    }
    let most = provider.most.load(Ordering::SeqCst);
    assert!((2..=3).contains(&most), "{most}");
}

/// Takes every batch; one of them runs, and polls of the others fail.
#[derive(Debug, Default)]
struct Uneven {
    polls: Mutex<BTreeMap<String, usize>>,
    stop: Stop,
}

impl Stub for Uneven {
    fn poll(&self, batch_id: &str) -> Result<Progress, CallError> {
        let mut polls = self.polls.lock().unwrap();
        *polls.entry(batch_id.to_owned()).or_default() += 1;
        if batch_id != "runs" {
            return Err(CallError::Passing { message: "a bad day".to_owned(), retry_after: None });
        }
        let have_failed = ["fails", "fails too"].map(|id| polls.get(id).is_some_and(|n| *n >= 2));
        if polls["runs"] >= 200 && have_failed == [true, true] {
            self.stop.stop();
        }
        Ok(Progress::Running)
    }
}

#[test]
fn each_batch_whose_polls_fail_is_polled_ever_less_and_the_others_as_often_as_before() {
    for through_tickets in [true, false] {
        let (provider, place) = (stub(Uneven::default()), Place::quick());
        let llm = LlmBatch::builder(Arc::clone(&provider) as _)
            .state(place.state())
            .max_items(1)
            .linger(Duration::ZERO)
            .poll_interval(Duration::from_millis(1))
            .stop(provider.stop.clone());
        let llm = llm.build().unwrap();
        if through_tickets {
            let tickets = ["fails", "runs", "fails too"].map(|id| llm.submit(ask(id)).unwrap());
            for ticket in tickets {
                assert!(ticket.wait().is_err());
            }
        } else {
            // The same in one pass.
            let requests = ["fails", "runs", "fails too"].map(ask);
            assert!(llm.run(requests, |_, _| {}).is_err());
        }
        let polls = provider.polls.lock().unwrap();
        // The waits are 1 ms, 2 ms, 4 ms and so on: with more the test would take an hour.
        for id in ["fails", "fails too"] {
            assert!((2..22).contains(&polls[id]), "{polls:?}");
        }
    }
}
