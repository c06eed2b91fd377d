//! The one rule for a failed create: nothing is paid twice, and nothing is given up too early.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{
    Endpoint, Faults, Place, Reply, Sim, ask, assert_answered, builder, jsonl, open, run, run_until,
};
use llm_batch::{Error, OnAmbiguous, PendingReason, Request, RequestError, Status, Stop};

/// A provider that takes every create and answers `reply` all the same.
fn taking(reply: impl Fn() -> Reply + Send + Sync + 'static) -> Sim {
    Sim::start(Faults { create: Some(Box::new(move |_, _| Some(reply()))), ..Faults::default() })
}

/// A provider that takes no create the first times and answers `reply`.
fn losing(times: usize, reply: impl Fn() -> Reply + Send + Sync + 'static) -> Sim {
    Sim::start(Faults {
        refuse: Some(Box::new(move |nth, _| (nth < times).then(&reply))),
        ..Faults::default()
    })
}

/// Runs, and expects that the batch is found and its answers delivered, after one create.
fn assert_found(sim: &Sim, timeout: Duration) {
    let place = Place::quick();
    let llm = builder(sim.url(), &place.state()).timeout(timeout).build().unwrap();
    let (outcomes, ended) = run(&llm, [ask("a"), ask("b")]);
    assert_answered(&outcomes, &["a", "b"]);
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.succeeded, counts.submissions, counts.batches), (2, 1, 1));
    assert_eq!(counts.possibly_paid_twice, 0);
    assert_eq!((sim.creates(), sim.simulator.paid().len()), (1, 2));
}

/// Runs, and expects that the create is sent once more and paid for once.
fn assert_sent_again(sim: &Sim, submissions: u64) {
    let place = Place::quick();
    let (outcomes, ended) = run(&open(sim, &place), [ask("a"), ask("b")]);
    assert_answered(&outcomes, &["a", "b"]);
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.succeeded, counts.submissions, counts.batches), (2, submissions, 1));
    assert_eq!(counts.possibly_paid_twice, 0);
    assert_eq!(sim.simulator.paid().len(), 2);
    // And once more: nothing is left to do.
    let calls = sim.seen().len();
    let counts = run(&open(sim, &place), [ask("a"), ask("b")]).1.unwrap().accounting;
    assert_eq!((counts.submissions, sim.seen().len()), (submissions, calls));
}

const LONG: Duration = Duration::from_mins(1);
const AMBIGUOUS: [u16; 10] = [408, 409, 500, 502, 503, 504, 529, 303, 302, 418];

fn ambiguous(status: u16) -> Reply {
    Reply::error(status, "some_error", "no").with_header("location", "/v1/elsewhere")
}

#[test]
fn a_create_whose_response_is_lost_is_found_and_paid_once() {
    assert_found(&taking(|| Reply::Drop), LONG);
}

#[test]
fn a_create_that_times_out_is_looked_for_by_the_next_run() {
    let sim = Sim::start(Faults {
        create: Some(Box::new(|_, _| Some(Reply::Silence))),
        ..Faults::default()
    });
    let place = Place::quick();
    let timeout = Duration::from_secs(2);
    let llm = builder(sim.url(), &place.state()).timeout(timeout).build().unwrap();
    let (outcomes, ended) = run(&llm, [ask("a"), ask("b")]);
    assert!(outcomes.is_empty());
    let Err(Error::Ambiguous { state, requests: 2, run: came_to, .. }) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!(state, place.state());
    assert!(came_to.outcomes.iter().all(|(_, status)| *status == Status::Ambiguous));
    let counts = &came_to.accounting;
    assert_eq!((counts.requests, counts.pending, counts.submissions), (2, 2, 1));
    drop(llm);
    let (outcomes, ended) = run(&open(&sim, &place), [ask("a"), ask("b")]);
    assert_answered(&outcomes, &["a", "b"]);
    assert_eq!(ended.unwrap().accounting.submissions, 1);
    assert_eq!(sim.creates(), 1);
}

#[test]
fn a_create_that_was_taken_behind_an_error_is_found_and_paid_once() {
    for status in AMBIGUOUS {
        assert_found(&taking(move || ambiguous(status)), LONG);
    }
}

#[test]
fn a_create_that_was_not_taken_behind_an_error_is_sent_again_once_it_is_absent_twice() {
    for status in AMBIGUOUS {
        assert_sent_again(&losing(1, move || ambiguous(status)), 2);
    }
    assert_sent_again(&losing(2, || Reply::Drop), 3);
}

#[test]
fn a_create_whose_answer_makes_no_sense_is_found() {
    assert_found(&taking(|| Reply::CutShort { body: b"{\"id\":".to_vec(), announced: 99 }), LONG);
    for body in ["", "{}", "[]", "{\"id\":\"../../v1/files\"}", "{\"id\":\"\"}"] {
        assert_found(&taking(move || jsonl(&[body.to_owned()])), LONG);
    }
}

#[test]
fn a_batch_that_the_list_shows_late_is_found_within_the_lag() {
    let sim = Sim::start(Faults {
        create: Some(Box::new(|_, _| Some(Reply::Drop))),
        // One list for the fence, and the first look after the create.
        list_lag: 2,
        ..Faults::default()
    });
    assert_found(&sim, LONG);
}

#[test]
fn look_alikes_of_others_are_never_taken_for_ours() {
    for taken in [true, false] {
        let sim = if taken { taking(|| Reply::Drop) } else { losing(1, || Reply::Drop) };
        // Older ones, and of the same size.
        sim.simulator.plant_foreign(2);
        let place = Place::quick();
        let llm = open(&sim, &place);
        run(&llm, [ask("first")]).1.unwrap();
        for _ in 0..3 {
            sim.simulator.plant_foreign(2);
        }
        let (outcomes, ended) = run(&llm, [ask("a"), ask("b")]);
        assert_answered(&outcomes, &["a", "b"]);
        assert_eq!(ended.unwrap().accounting.batches, 1);
        assert_eq!(sim.simulator.paid().len(), 3);
    }
}

#[test]
fn a_look_alike_that_has_not_ended_is_waited_for() {
    let sim = Sim::start(Faults {
        create: Some(Box::new(|_, _| Some(Reply::Drop))),
        running: usize::MAX,
        ..Faults::default()
    });
    let place = Place::quick();
    // The newest batch before, and what may be it, looked at again.
    let is_seen = || sim.simulator.count(Endpoint::List) > 2;
    let ended = run_until(is_seen, builder(sim.url(), &place.state()), [ask("a")]).1;
    let Err(Error::Ambiguous { reason, .. }) = ended else { panic!("{ended:?}") };
    assert!(!reason.contains("200"), "{reason}");
    assert_eq!(sim.creates(), 1, "it may be it, so nothing is sent");
}

#[test]
fn a_lost_create_can_be_given_up_at_once() {
    let fail = |sim: &Sim| {
        let place = Place::quick();
        let llm =
            builder(sim.url(), &place.state()).on_ambiguous(OnAmbiguous::Fail).build().unwrap();
        run(&llm, [ask("a"), ask("b")])
    };
    let (outcomes, ended) = fail(&taking(|| Reply::Drop));
    assert_answered(&outcomes, &["a", "b"]);
    assert_eq!(ended.unwrap().accounting.succeeded, 2);

    let sim = losing(1, || Reply::Drop);
    let (outcomes, ended) = fail(&sim);
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.failed, counts.submissions, sim.creates()), (2, 1, 1));
    for (_, outcome) in outcomes {
        let error = outcome.unwrap_err();
        assert_eq!((error.kind(), error.status()), ("ambiguous", Status::Errored));
    }
}

#[test]
fn a_lost_create_can_be_sent_again_at_once_and_counts_as_possibly_paid_twice() {
    let again = |sim: &Sim, place: &Place| {
        let llm = builder(sim.url(), &place.state())
            .on_ambiguous(OnAmbiguous::Resubmit)
            .list_lag(LONG)
            .build()
            .unwrap();
        run(&llm, [ask("a"), ask("b")])
    };
    let sim = taking(|| Reply::Drop);
    let counts = again(&sim, &Place::quick()).1.unwrap().accounting;
    assert_eq!((counts.submissions, counts.possibly_paid_twice), (1, 0), "it was found");

    let (sim, place) = (losing(1, || Reply::Drop), Place::quick());
    let (outcomes, ended) = again(&sim, &place);
    assert_answered(&outcomes, &["a", "b"]);
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.submissions, counts.batches, counts.possibly_paid_twice), (2, 1, 2));
    // It stays so for the runs to come.
    let counts = again(&sim, &place).1.unwrap().accounting;
    assert_eq!((counts.submissions, counts.possibly_paid_twice), (2, 2));

    // A list that is behind by more than it was trusted to be: really paid twice, and said so.
    let sim = Sim::start(Faults {
        create: Some(Box::new(|nth, _| (nth == 0).then_some(Reply::Drop))),
        list_lag: 9,
        ..Faults::default()
    });
    let counts = again(&sim, &Place::quick()).1.unwrap().accounting;
    assert_eq!((sim.simulator.paid().len(), counts.possibly_paid_twice), (4, 2));
}

/// Each round of a create that was lost and a list that did not show it was one more batch to pay.
#[test]
fn a_create_that_was_sent_again_at_once_and_lost_is_not_sent_at_once_again() {
    let sim = Sim::start(Faults {
        create: Some(Box::new(|_, _| Some(Reply::Drop))),
        list_lag: usize::MAX,
        ..Faults::default()
    });
    let place = Place::quick();
    for _ in 0..2 {
        let llm = builder(sim.url(), &place.state())
            .on_ambiguous(OnAmbiguous::Resubmit)
            .list_lag(LONG)
            .timeout(Duration::from_secs(2))
            .build()
            .unwrap();
        let ended = run(&llm, ["a", "b"].map(ask)).1;
        assert!(matches!(ended, Err(Error::Ambiguous { requests: 2, .. })), "{ended:?}");
        assert_eq!((sim.creates(), sim.simulator.paid().len()), (2, 4));
    }
}

#[test]
fn a_busy_provider_is_waited_for_and_the_wait_it_asks_for_is_kept() {
    for headers in [&[("retry-after", "0.05")][..], &[("retry-after-ms", "50")], &[]] {
        let sim = losing(3, move || {
            let reply = Reply::error(429, "rate_limit_error", "slow down");
            headers.iter().fold(reply, |reply, (name, value)| reply.with_header(name, value))
        });
        let began = Instant::now();
        assert_sent_again(&sim, 4);
        if !headers.is_empty() {
            assert!(began.elapsed() >= Duration::from_millis(150), "three waits of 50 ms");
        }
    }
}

/// The account is limited, so nobody else tries meanwhile: in this run, or with a ticket.
#[test]
fn the_waits_of_one_busy_create_hold_back_the_others() {
    let sim = losing(1, || {
        Reply::error(429, "rate_limit_error", "slow down").with_header("retry-after", "60")
    });
    let place = Place::quick();
    let llm = builder(sim.url(), &place.state()).timeout(Duration::from_secs(1)).build().unwrap();
    let requests = (0..5).map(|n| Request::prompt(n.to_string(), format!("m{n}"), n.to_string()));
    assert!(matches!(run(&llm, requests).1, Err(Error::Pending { .. })));
    let ticket = llm.submit(ask("a")).unwrap();
    llm.flush().wait().unwrap();
    assert!(ticket.wait().is_err());
    assert_eq!(sim.creates(), 1);
}

#[test]
fn a_spend_limit_and_a_used_up_quota_are_not_retried() {
    for (status, kind) in [(400, "invalid_request_error"), (429, "insufficient_quota")] {
        let sim = losing(9, move || Reply::error(status, kind, "You have reached your limit"));
        let place = Place::quick();
        let (outcomes, ended) = run(&open(&sim, &place), [ask("a")]);
        assert_eq!(ended.unwrap().accounting.failed, 1);
        let error = outcomes[0].1.as_ref().unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (kind, false));
        assert_eq!(sim.creates(), 1, "{status}");
    }
}

#[test]
fn a_create_that_is_too_large_is_halved_until_it_fits() {
    let sim = Sim::start(Faults {
        refuse: Some(Box::new(|_, seen| {
            let requests = seen.json()["requests"].as_array().unwrap().len();
            (requests > 2).then(|| Reply::error(413, "request_too_large", "too much"))
        })),
        ..Faults::default()
    });
    let place = Place::quick();
    let ids = ["a", "b", "c", "d", "e", "f", "g"];
    let (outcomes, ended) = run(&open(&sim, &place), ids.map(ask));
    assert_answered(&outcomes, &ids);
    // 7 = 3 + 4, 3 = 1 + 2, 4 = 2 + 2.
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.submissions, counts.batches, sim.creates()), (7, 4, 7));
    let counts = run(&open(&sim, &place), ids.map(ask)).1.unwrap().accounting;
    assert_eq!((counts.submissions, sim.creates()), (7, 7), "and that is how it stays");
}

#[test]
fn one_request_that_is_too_large_fails_alone() {
    let sim = Sim::start(Faults {
        refuse: Some(Box::new(|_, seen| {
            let is_large = String::from_utf8_lossy(&seen.body).contains("question big");
            is_large.then(|| Reply::error(413, "request_too_large", "too much"))
        })),
        ..Faults::default()
    });
    let place = Place::quick();
    let (outcomes, ended) = run(&open(&sim, &place), ["a", "b", "big", "c"].map(ask));
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.succeeded, counts.failed), (3, 1));
    let failed: Vec<_> = outcomes.iter().filter(|(_, outcome)| outcome.is_err()).collect();
    assert_eq!(failed[0].0, "big");
    assert_eq!(failed[0].1.as_ref().unwrap_err().kind(), "request_too_large");
}

#[test]
fn a_create_that_is_refused_is_sent_once_and_its_requests_end_as_errored() {
    for (status, retryable) in [
        (400, false),
        (401, false),
        (402, false),
        (403, false),
        (404, false),
        (422, false),
        (307, false),
        (308, false),
        (301, false),
    ] {
        let sim = losing(9, move || {
            Reply::error(status, "the_kind", "the message")
                .with_header("retry-after", "0")
                .with_header("x-should-retry", "true")
                .with_header("location", "/v1/messages/batches")
        });
        let place = Place::quick();
        let (outcomes, ended) = run(&open(&sim, &place), [ask("a"), ask("b")]);
        let counts = ended.unwrap().accounting;
        assert_eq!((counts.failed, counts.pending, counts.submissions), (2, 0, 1), "{status}");
        assert_eq!((counts.batches, counts.http_calls), (0, 2));
        assert_eq!(outcomes.len(), 2);
        for (_, outcome) in outcomes {
            let error = outcome.unwrap_err();
            let kind = if status < 400 { format!("http_{status}") } else { "the_kind".to_owned() };
            assert_eq!((error.kind(), error.is_retryable()), (kind.as_str(), retryable));
            assert_eq!(error.status(), Status::Errored);
            assert!(matches!(error, RequestError::Refused { status: Some(s), .. } if s == status));
        }
        // Delivered is delivered; nothing is sent and nobody is told twice.
        let (outcomes, ended) = run(&open(&sim, &place), [ask("a"), ask("b")]);
        assert!(outcomes.is_empty());
        assert_eq!(ended.unwrap().accounting.failed, 2);
        assert_eq!(sim.creates(), 1, "{status}");
    }
}

#[test]
fn where_nobody_listens_the_run_gives_up_after_some_tries_and_keeps_its_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let place = Place::quick();
    let llm = builder(&url, &place.state()).build().unwrap();
    let (outcomes, ended) = run(&llm, [ask("a")]);
    assert!(outcomes.is_empty());
    let Err(Error::Pending { reason: PendingReason::Unreachable { .. }, run, .. }) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!((run.accounting.pending, run.accounting.batches), (1, 0));
}

#[test]
fn a_create_that_was_cut_while_it_was_written_is_definite_and_sent_again() {
    let sim = Sim::start(Faults {
        cut: Some(Box::new(|nth| (nth < 3).then_some(1000))),
        ..Faults::default()
    });
    let place = Place::quick_with(64 << 20);
    let big = Request::prompt("a", "model-a", "x".repeat(16 << 20));
    let counts = run(&open(&sim, &place), [big]).1.unwrap().accounting;
    assert_eq!((counts.succeeded, counts.submissions), (1, 4));
    assert_eq!(sim.simulator.count(Endpoint::List), 1, "nothing was looked for");
    assert_eq!(sim.simulator.paid().len(), 1);
}

#[test]
fn a_run_that_is_stopped_between_its_creates_sends_the_others_later() {
    let stop = Stop::new();
    let hand = stop.clone();
    let sim = Sim::start(Faults {
        create: Some(Box::new(move |_, _| {
            hand.stop();
            None
        })),
        ..Faults::default()
    });
    let place = Place::quick();
    let requests = || [ask("a"), Request::prompt("b", "model-b", "question b")];
    let llm = builder(sim.url(), &place.state()).stop(stop).build().unwrap();
    let ended = run(&llm, requests()).1;
    assert!(matches!(ended, Err(Error::Pending { reason: PendingReason::Stopped, .. })));
    assert_eq!(sim.creates(), 1);
    drop(llm);
    let (outcomes, ended) = run(&open(&sim, &place), requests());
    assert_answered(&outcomes, &["a", "b"]);
    assert_eq!(ended.unwrap().accounting.submissions, 2);
    assert_eq!(sim.creates(), 2);
}

#[test]
fn a_create_never_goes_out_on_a_kept_connection() {
    // Every answer is followed by a close that the client is not told of.
    let sim = Sim::start(Faults {
        create: Some(Box::new(|nth, _| {
            Some(Reply::ThenClose(Box::new(common::batch_object(
                &format!("msgbatch_{nth}"),
                false,
            ))))
        })),
        results: Some(Box::new(|_, lines| Reply::ThenClose(Box::new(jsonl(&lines))))),
        ..Faults::default()
    });
    let place = Place::quick();
    let llm = open(&sim, &place);
    for id in ["a", "b", "c"] {
        let (outcomes, ended) = run(&llm, [ask(id)]);
        assert_eq!(ended.unwrap().accounting.submissions, 1);
        assert_answered(&outcomes, &[id]);
    }
    assert_eq!(sim.creates(), 3);
}

#[test]
fn the_intent_is_on_the_disk_before_the_create_arrives() {
    let place = Place::quick();
    let state = place.state();
    let found = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&found);
    let sim = Sim::start(Faults {
        create: Some(Box::new(move |_, seen| {
            let intent = fs::read_to_string(state.join("000001.intent.json")).unwrap();
            assert!(!state.join("000001.status.json").exists());
            *keep.lock().unwrap() = Some((intent, seen.body.clone()));
            None
        })),
        ..Faults::default()
    });
    let (outcomes, ended) = run(&open(&sim, &place), [ask("a"), ask("b")]);
    assert_eq!(ended.unwrap().accounting.succeeded, 2);
    assert_answered(&outcomes, &["a", "b"]);
    let (intent, body) = found.lock().unwrap().take().unwrap();
    let intent: serde_json::Value = serde_json::from_str(&intent).unwrap();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(intent["version"], 1);
    assert_eq!(intent["requests"][1][0], "b");
    let nonce = intent["nonce"].as_str().unwrap();
    assert_eq!(body["requests"][1]["custom_id"], format!("{nonce}-000001"));
}

#[test]
fn a_process_that_died_during_a_create_is_followed_by_one_that_looks_for_the_batch() {
    let sim = Sim::start(Faults::default());
    let place = Place::quick();
    run(&open(&sim, &place), [ask("a")]).1.unwrap();
    // What is left when the process ends between the create and its record.
    fs::remove_file(place.state().join("000001.status.json")).unwrap();
    fs::remove_file(place.state().join("delivered.jsonl")).unwrap();
    let (outcomes, ended) = run(&open(&sim, &place), [ask("a")]);
    assert_answered(&outcomes, &["a"]);
    assert_eq!(ended.unwrap().accounting.submissions, 1);
    assert_eq!(sim.creates(), 1);
}

#[test]
fn one_ambiguous_create_holds_up_neither_the_others_nor_a_later_run_of_others() {
    let sim = Sim::start(Faults {
        refuse: Some(Box::new(|nth, _| (nth == 0).then(|| Reply::error(500, "api_error", "no")))),
        ..Faults::default()
    });
    let place = Place::quick();
    let requests = || [ask("a"), Request::prompt("b", "model-b", "question b")];
    let llm = builder(sim.url(), &place.state())
        .list_lag(LONG)
        .timeout(Duration::from_secs(2))
        .build()
        .unwrap();
    let (outcomes, ended) = run(&llm, requests());
    assert_answered(&outcomes, &["b"]);
    let Err(Error::Ambiguous { requests: 1, reason, run: came_to, .. }) = ended else {
        panic!("{ended:?}")
    };
    assert!(reason.contains("500"), "{reason}");
    let counts = &came_to.accounting;
    assert_eq!((counts.succeeded, counts.pending, counts.submissions), (1, 1, 2));

    let (outcomes, ended) = run(&llm, [ask("new")]);
    assert_answered(&outcomes, &["new"]);
    assert_eq!(ended.unwrap().accounting.succeeded, 1);
}

#[test]
fn a_run_out_of_time_before_its_creates_sends_none() {
    let sim = Sim::start(Faults::default());
    let place = Place::quick();
    let llm = builder(sim.url(), &place.state()).timeout(Duration::ZERO).build().unwrap();
    let (outcomes, ended) = run(&llm, [ask("a")]);
    assert!(outcomes.is_empty());
    let Err(Error::Pending { reason: PendingReason::TimedOut, .. }) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!(sim.creates(), 0);
}

#[test]
fn the_state_folder_is_for_its_owner_alone() {
    let sim = Sim::start(Faults::default());
    let place = Place::quick();
    fs::create_dir(place.state()).unwrap();
    fs::set_permissions(place.state(), fs::Permissions::from_mode(0o755)).unwrap();
    run(&open(&sim, &place), [ask("a")]).1.unwrap();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(place.state()), 0o700);
    let files: Vec<_> =
        fs::read_dir(place.state()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 4, "{files:?}");
    for file in files {
        assert_eq!(mode(file.clone()), 0o600, "{file:?}");
    }
}
