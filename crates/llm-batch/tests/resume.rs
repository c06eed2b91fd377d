//! Runs that are cut, by time, by hand or by faults, and go on.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Faults, Place, Reply, Sim, ask, assert_answered, builder, jsonl, open, run};
use llm_batch::{Delivered, Error, Kind, PendingReason, Request, Status, Stop, Usage};

#[test]
fn a_download_that_breaks_off_goes_on_without_telling_anyone_twice() {
    let sim = Sim::start(Faults {
        results: Some(Box::new(|nth, lines| {
            let Reply::Full { body, .. } = jsonl(&lines) else { unreachable!() };
            let cut = body.len() * (nth + 1) / 4;
            match nth {
                0..3 => Reply::CutShort { body: body[..cut].to_vec(), announced: body.len() },
                _ => jsonl(&lines),
            }
        })),
        ..Faults::default()
    });
    let place = Place::new();
    let ids = ["a", "b", "c", "d", "e", "f"];
    let (outcomes, ended) = run(&open(&sim, &place), ids.map(ask));
    assert_answered(&outcomes, &ids);
    assert_eq!(ended.unwrap().stray_results, 0);
}

#[test]
fn a_run_that_timed_out_goes_on_without_a_create() {
    let sim = Sim::start(Faults {
        poll: Some(Box::new(|nth, _| (nth == 0).then_some(Reply::Silence))),
        ..Faults::default()
    });
    let place = Place::new();
    let hasty = builder(sim.url(), &place.state()).timeout(Duration::from_secs(3)).build().unwrap();
    let (outcomes, ended) = run(&hasty, ["a", "b"].map(ask));
    assert!(outcomes.is_empty());
    let Err(Error::Pending { reason: PendingReason::TimedOut, run: came_to, .. }) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!((came_to.accounting.pending, came_to.accounting.batches), (2, 1));
    drop(hasty);

    let (outcomes, ended) = run(&open(&sim, &place), ["a", "b"].map(ask));
    assert_answered(&outcomes, &["a", "b"]);
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.succeeded, counts.submissions, counts.calls_saved), (2, 1, 1));
    assert_eq!(sim.creates(), 1);
}

#[test]
fn a_stopped_run_ends_and_goes_on_later() {
    let stop = Stop::new();
    let hand = stop.clone();
    let sim = Sim::start(Faults {
        poll: Some(Box::new(move |nth, _| {
            if nth == 0 {
                hand.stop();
            }
            None
        })),
        running: 1,
        ..Faults::default()
    });
    let place = Place::new();
    let llm = builder(sim.url(), &place.state()).stop(stop).build().unwrap();
    let (outcomes, ended) = run(&llm, [ask("a")]);
    assert!(outcomes.is_empty());
    let Err(Error::Pending { reason: PendingReason::Stopped, .. }) = ended else {
        panic!("{ended:?}")
    };
    drop(llm);
    let (outcomes, _) = run(&open(&sim, &place), [ask("a")]);
    assert_answered(&outcomes, &["a"]);
    assert_eq!(sim.creates(), 1);
}

#[test]
fn what_was_handed_over_is_not_handed_over_again() {
    let sim = Sim::start(Faults {
        results: Some(Box::new(|nth, lines| match nth {
            // The first line and half of the second.
            0 => Reply::CutShort {
                body: format!("{}\n{}", lines[0], &lines[1][..20]).into_bytes(),
                announced: 9999,
            },
            _ => jsonl(&lines),
        })),
        ..Faults::default()
    });
    let place = Place::new();
    let stop = Stop::new();
    let llm = builder(sim.url(), &place.state()).stop(stop.clone()).build().unwrap();
    let mut outcomes = Vec::new();
    let ended = llm.run(["a", "b", "c"].map(ask), |id, outcome| {
        stop.stop();
        outcomes.push((id.to_owned(), outcome));
    });
    assert_answered(&outcomes, &["a"]);
    let Err(error) = ended else { panic!("{ended:?}") };
    assert_eq!(error.run().unwrap().outcomes[0], ("a".to_owned(), Status::Succeeded));
    drop(llm);

    let (outcomes, ended) = run(&open(&sim, &place), ["a", "b", "c"].map(ask));
    assert_answered(&outcomes, &["b", "c"]);
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.succeeded, counts.input_tokens, counts.submissions), (3, 9, 1));

    // And once more: nothing is left to fetch, so nothing is fetched.
    let calls = sim.seen().len();
    let (outcomes, ended) = run(&open(&sim, &place), ["a", "b", "c"].map(ask));
    assert!(outcomes.is_empty());
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.succeeded, counts.http_calls, counts.output_tokens), (3, 0, 15));
    assert_eq!(sim.seen().len(), calls);
}

#[test]
fn what_the_caller_holds_decides_where_it_says_so() {
    let sim = Sim::start(Faults::default());
    let place = Place::new();
    run(&open(&sim, &place), ["a", "b", "c"].map(ask)).1.unwrap();
    // The caller lost `b` and `c`, whatever the record says.
    let usage = Some(Usage { input_tokens: 3, output_tokens: 5, ..Usage::default() });
    let held = Delivered { status: Status::Succeeded, usage };
    let llm = builder(sim.url(), &place.state())
        .held(HashMap::from([("a".to_owned(), held)]))
        .build()
        .unwrap();
    let (outcomes, ended) = run(&llm, ["a", "b", "c"].map(ask));
    assert_answered(&outcomes, &["b", "c"]);
    assert_eq!(ended.unwrap().accounting.input_tokens, 9);
    assert_eq!(sim.creates(), 1);
}

#[test]
fn new_requests_of_a_repeated_run_are_sent_and_old_ones_are_not() {
    let sim = Sim::start(Faults::default());
    let place = Place::new();
    run(&open(&sim, &place), ["a", "b"].map(ask)).1.unwrap();
    let (outcomes, ended) = run(&open(&sim, &place), ["b", "c", "a"].map(ask));
    assert_answered(&outcomes, &["c"]);
    assert_eq!(ended.unwrap().accounting.submissions, 2);
    assert_eq!(sim.bodies()[1]["requests"].as_array().unwrap().len(), 1);
}

#[test]
fn a_known_id_with_another_content_is_refused_and_nothing_is_sent() {
    let sim = Sim::start(Faults::default());
    let place = Place::new();
    run(&open(&sim, &place), [ask("a")]).1.unwrap();
    let calls = sim.seen().len();
    let other: [Request; 5] = [
        Request::prompt("a", "model-a", "another question"),
        Request::prompt("a", "model-b", "question a"),
        ask("a").with_kind(Kind::Judge),
        ask("a").with_max_tokens(5),
        Request::prompt("a", "", "question a"),
    ];
    for request in other {
        let (outcomes, ended) = run(&open(&sim, &place), [ask("new"), request]);
        assert!(outcomes.is_empty());
        assert!(matches!(&ended, Err(Error::Conflict { id, .. }) if id == "a"), "{ended:?}");
    }
    let elsewhere = builder("http://127.0.0.1:9", &place.state()).build().unwrap();
    assert!(matches!(run(&elsewhere, [ask("a")]).1, Err(Error::Conflict { .. })));
    assert_eq!(sim.seen().len(), calls);
}

#[test]
fn passing_errors_of_polls_and_downloads_never_end_the_wait() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&order);
    let sim = Sim::start(Faults {
        poll: Some(Box::new(move |nth, _| {
            log.lock().unwrap().push(nth);
            match nth {
                0 => Some(Reply::error(500, "api_error", "no")),
                1 => Some(Reply::error(529, "overloaded_error", "no")),
                2 => Some(
                    Reply::error(429, "rate_limit_error", "no").with_header("retry-after", "0"),
                ),
                3 => Some(Reply::Drop),
                4 => Some(Reply::CutShort { body: b"{".to_vec(), announced: 10 }),
                5 => Some(jsonl(&["no json".to_owned()])),
                6 => Some(common::batch_object("msgbatch_other", true)),
                7 => Some(Reply::error(408, "timeout", "no")),
                _ => None,
            }
        })),
        results: Some(Box::new(|nth, lines| match nth {
            0 => Reply::error(503, "api_error", "no"),
            1 => Reply::Drop,
            _ => jsonl(&lines),
        })),
        running: 2,
        ..Faults::default()
    });
    let place = Place::new();
    let (outcomes, ended) = run(&open(&sim, &place), ["a", "b"].map(ask));
    assert_answered(&outcomes, &["a", "b"]);
    assert_eq!(order.lock().unwrap().len(), 11);
    let run = ended.unwrap();
    // A look at the list, the create, the polls and the downloads.
    assert_eq!(run.accounting.http_calls, 1 + 1 + 11 + 3);
    assert_eq!(run.accounting.submissions, 1);
}

#[test]
fn a_poll_that_is_refused_for_good_leaves_the_batch_pending_and_the_others_go_on() {
    let sim = Sim::start(Faults {
        poll: Some(Box::new(|_, seen| {
            seen.path.ends_with("_0").then(|| Reply::error(401, "authentication_error", "bad key"))
        })),
        ..Faults::default()
    });
    let place = Place::new();
    let other = Request::prompt("b", "model-b", "question b");
    let (outcomes, ended) = run(&open(&sim, &place), [ask("a"), other]);
    assert_answered(&outcomes, &["b"]);
    let Err(Error::Pending { reason: PendingReason::Refused { batch_id, message }, .. }) = ended
    else {
        panic!("{ended:?}")
    };
    assert_eq!(batch_id, "msgbatch_0");
    assert!(message.contains("401") && message.contains("bad key"), "{message}");
    assert_eq!(sim.creates(), 2);
}

#[test]
fn a_folder_that_breaks_half_way_ends_the_run_with_what_was_done() {
    let place = Place::new();
    let state = place.state();
    let sim = Sim::start(Faults {
        create: Some(Box::new(move |nth, _| {
            if nth == 1 {
                fs::remove_dir_all(&state).unwrap();
            }
            None
        })),
        ..Faults::default()
    });
    let llm = open(&sim, &place);
    let other = Request::prompt("b", "model-b", "question b");
    let (_, ended) = run(&llm, [ask("a"), other, Request::prompt("c", "model-c", "question c")]);
    let Err(Error::Pending { reason: PendingReason::State { problem }, run, .. }) = ended else {
        panic!("{ended:?}")
    };
    // The one thing that is not written down is said.
    assert!(problem.contains("msgbatch_1"), "{problem}");
    assert_eq!((run.accounting.submissions, run.accounting.pending), (2, 3));
    assert_eq!(sim.creates(), 2);
}

#[test]
fn a_folder_that_cannot_be_written_stops_the_run_before_the_create() {
    let sim = Sim::start(Faults::default());
    let place = Place::new();
    let llm = open(&sim, &place);
    fs::remove_dir_all(place.state()).unwrap();
    let (outcomes, ended) = run(&llm, [ask("a")]);
    assert!(outcomes.is_empty());
    assert!(matches!(ended, Err(Error::StateIo { .. })), "{ended:?}");
    assert_eq!(sim.creates(), 0);
}
