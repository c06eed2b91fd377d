//! Faults of others that must not come back: one test each, named for what holds here.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::collections::HashSet;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::{Faults, Place, Reply, Sim, ask, assert_answered, builder, jsonl, open, run};
use llm_batch::{BatchError, Error, Kind, LlmBatch, Request, RequestError};

fn lingering(sim: &Sim, place: &Place) -> LlmBatch {
    builder(&sim.server.url, &place.state()).linger(Duration::from_hours(1)).build().unwrap()
}

/// The seed hands out results with a `select` that drops them where nobody is ready, and leaves
/// requests without a result waiting for ever.
#[test]
fn a_requester_whose_result_is_missing_is_told_and_a_late_one_still_gets_its_own() {
    let sim = Sim::start(Faults {
        results: Some(Box::new(|_, lines| jsonl(&lines[..1]))),
        ..Faults::default()
    });
    let place = Place::new();
    let llm = lingering(&sim, &place);
    let [kept, lost] = ["a", "b"].map(|id| llm.submit(ask(id)).unwrap());
    llm.flush().wait().unwrap();
    // Nobody was waiting when the results came in.
    assert_eq!(kept.wait().unwrap().text.unwrap(), "answer to question a");
    let Err(BatchError::Failed(error)) = lost.wait() else { panic!("an answer") };
    assert!(matches!(*error, RequestError::Missing { .. }));
}

/// The seed groups through a map, so batches leave in another order each time.
#[test]
fn batches_leave_in_the_order_in_which_their_first_requests_came() {
    let kinds = ["k3", "k1", "k4", "k0", "k2", "k6", "k5"];
    for _ in 0..3 {
        let (sim, place) = (Sim::start(Faults::default()), Place::new());
        let requests = kinds.iter().chain(&kinds).enumerate().map(|(at, kind)| {
            Request::prompt(at.to_string(), *kind, *kind).with_kind(Kind::Other((*kind).to_owned()))
        });
        run(&open(&sim, &place), requests).1.unwrap();
        let order: Vec<String> = sim
            .bodies()
            .iter()
            .map(|body| body["requests"][0]["params"]["model"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(order, kinds);
    }
}

/// The seed leaves a failed batch at the head of its queue, where it is all that comes out.
#[test]
fn a_failed_batch_does_not_stand_in_the_way_of_the_next() {
    let sim = Sim::start(Faults {
        create: Some(Box::new(|nth, _| {
            (nth == 0).then(|| Reply::error(400, "invalid_request_error", "no"))
        })),
        ..Faults::default()
    });
    let place = Place::new();
    let llm = lingering(&sim, &place);
    let failed = llm.submit(ask("a")).unwrap();
    llm.flush().wait().unwrap();
    assert!(failed.wait().is_err());
    let next = llm.submit(ask("b")).unwrap();
    llm.flush().wait().unwrap();
    assert_eq!(next.wait().unwrap().text.unwrap(), "answer to question b");
    let stats = llm.stats();
    assert_eq!((stats.queued, stats.in_flight, stats.completed, stats.failed), (0, 0, 1, 1));
}

/// The seed names requests after the clock, and batches after a count that `Clear` does not know.
#[test]
fn names_made_here_do_not_repeat() {
    let (sim, place) = (Sim::start(Faults::default()), Place::new());
    let llm = builder(&sim.server.url, &place.state()).linger(Duration::ZERO).build().unwrap();
    let (send, receive) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..4 {
            let (llm, send) = (&llm, send.clone());
            scope.spawn(move || {
                for _ in 0..8 {
                    let ticket = llm.submit(Request::prompt("", "model-a", "q")).unwrap();
                    send.send(ticket.wait().is_ok()).unwrap();
                }
            });
        }
    });
    drop(send);
    assert_eq!(receive.iter().filter(|answered| *answered).count(), 32);
    let mut names = HashSet::new();
    for body in sim.bodies() {
        for request in body["requests"].as_array().unwrap() {
            assert!(names.insert(request["custom_id"].as_str().unwrap().to_owned()));
        }
    }
    assert_eq!(names.len(), 32);
}

/// The official SDKs send a create three times when its response is lost.
#[test]
fn a_lost_response_is_paid_for_once() {
    let sim = Sim::start(Faults {
        create: Some(Box::new(|_, _| Some(Reply::Drop))),
        ..Faults::default()
    });
    let place = Place::new();
    let ended = run(&open(&sim, &place), [ask("a")]).1;
    assert!(matches!(ended, Err(Error::Ambiguous { .. })), "{ended:?}");
    assert_eq!(sim.creates(), 1);
}

/// A header of the server's makes the official SDKs send a create again that was refused.
#[test]
fn a_server_cannot_order_a_second_create() {
    let sim = Sim::start(Faults {
        create: Some(Box::new(|_, _| {
            Some(
                Reply::error(429, "rate_limit_error", "slow down")
                    .with_header("x-should-retry", "true")
                    .with_header("retry-after-ms", "1"),
            )
        })),
        ..Faults::default()
    });
    let place = Place::new();
    let (outcomes, ended) = run(&open(&sim, &place), [ask("a")]);
    assert!(outcomes[0].1.as_ref().unwrap_err().is_retryable());
    assert_eq!(ended.unwrap().accounting.submissions, 1);
    assert_eq!(sim.creates(), 1);
}

/// `str.splitlines` and its like cut result lines at U+2028 and U+0085, which JSON allows.
#[test]
fn lines_end_at_newlines_alone() {
    let sim = Sim::start(Faults {
        results: Some(Box::new(|_, lines| {
            jsonl(&[lines[0].replace("question a", "question\u{2028}\u{85}a")])
        })),
        ..Faults::default()
    });
    let place = Place::new();
    let (outcomes, _) = run(&open(&sim, &place), [ask("a")]);
    let answer = outcomes[0].1.as_ref().unwrap();
    assert_eq!(answer.text.as_deref(), Some("answer to question\u{2028}\u{85}a"));
}

/// A result line without its newline at the end of the file is a line; one with CRLF is too.
#[test]
fn a_last_line_without_newline_counts() {
    let sim = Sim::start(Faults {
        results: Some(Box::new(|_, lines| Reply::Full {
            status: 200,
            headers: Vec::new(),
            body: lines.join("\r\n").into_bytes(),
        })),
        ..Faults::default()
    });
    let place = Place::new();
    let (outcomes, _) = run(&open(&sim, &place), ["a", "b"].map(ask));
    assert_answered(&outcomes, &["a", "b"]);
}
