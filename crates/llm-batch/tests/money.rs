//! No create is ever sent twice, whatever happens to it.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::{Faults, Place, Reply, Sim, ask, assert_answered, builder, jsonl, open, run};
use llm_batch::{BatchError, Error, PendingReason, Request, RequestError, Status, Stop};

fn failing(reply: impl Fn() -> Reply + Send + Sync + 'static) -> Sim {
    Sim::start(Faults { create: Some(Box::new(move |_, _| Some(reply()))), ..Faults::default() })
}

/// Runs twice on one state and once through a ticket, and expects one create and no answer.
fn assert_ambiguous(sim: &Sim, timeout: Duration) {
    let place = Place::new();
    for round in 0..2 {
        let llm = builder(&sim.server.url, &place.state()).timeout(timeout).build().unwrap();
        let (outcomes, ended) = run(&llm, [ask("a"), ask("b")]);
        assert!(outcomes.is_empty(), "{outcomes:?}");
        let Err(Error::Ambiguous { state, requests: 2, run, .. }) = ended else {
            panic!("round {round}: {ended:?}")
        };
        assert_eq!(state, place.state());
        assert!(run.outcomes.iter().all(|(_, status)| *status == Status::Ambiguous));
        let counts = &run.accounting;
        assert_eq!((counts.requests, counts.pending, counts.submissions), (2, 2, 1));
        assert_eq!((counts.batches, counts.possibly_paid_twice), (0, 0));
        assert_eq!(sim.creates(), 1, "round {round}");
    }
    let llm = builder(&sim.server.url, &place.state())
        .linger(Duration::ZERO)
        .timeout(timeout)
        .build()
        .unwrap();
    let Err(BatchError::Failed(error)) = llm.submit(ask("a")).unwrap().wait() else {
        panic!("an answer from nowhere")
    };
    assert!(matches!(&*error, RequestError::Ambiguous { .. }), "{error:?}");
    assert_eq!(sim.creates(), 1);
}

const LONG: Duration = Duration::from_mins(1);

#[test]
fn a_create_whose_response_is_lost_is_sent_once() {
    assert_ambiguous(&failing(|| Reply::Drop), LONG);
}

#[test]
fn a_create_that_times_out_is_sent_once() {
    assert_ambiguous(&failing(|| Reply::Silence), Duration::from_secs(3));
}

#[test]
fn a_create_that_is_answered_with_a_server_error_or_a_conflict_is_sent_once() {
    for status in [408, 409, 500, 502, 503, 504, 529, 303, 302, 418] {
        let sim = failing(move || {
            Reply::error(status, "some_error", "no").with_header("location", "/v1/elsewhere")
        });
        assert_ambiguous(&sim, LONG);
    }
}

#[test]
fn a_create_whose_answer_makes_no_sense_is_sent_once() {
    assert_ambiguous(
        &failing(|| Reply::CutShort { body: b"{\"id\":".to_vec(), announced: 99 }),
        LONG,
    );
    for body in ["", "{}", "[]", "{\"id\":\"../../v1/files\"}", "{\"id\":\"\"}"] {
        let sim = failing(move || jsonl(&[body.to_owned()]));
        assert_ambiguous(&sim, LONG);
    }
}

#[test]
fn a_create_that_is_refused_is_sent_once_and_its_requests_end_as_errored() {
    for (status, retryable) in [
        (400, false),
        (401, false),
        (402, false),
        (403, false),
        (404, false),
        (413, false),
        (422, false),
        (307, false),
        (308, false),
        (301, false),
        (429, true),
    ] {
        let sim = failing(move || {
            Reply::error(status, "the_kind", "the message")
                .with_header("retry-after", "0")
                .with_header("x-should-retry", "true")
                .with_header("location", "/v1/messages/batches")
        });
        let place = Place::new();
        let (outcomes, ended) = run(&open(&sim, &place), [ask("a"), ask("b")]);
        let counts = ended.unwrap().accounting;
        assert_eq!((counts.failed, counts.pending, counts.submissions), (2, 0, 1), "{status}");
        assert_eq!((counts.batches, counts.http_calls), (0, 1));
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
fn nothing_is_sent_where_nobody_listens_and_the_requests_end_as_errored() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let place = Place::new();
    let llm = builder(&url, &place.state()).build().unwrap();
    let (outcomes, ended) = run(&llm, [ask("a")]);
    assert_eq!(ended.unwrap().accounting.failed, 1);
    let error = outcomes[0].1.as_ref().unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), ("not_sent", true));
}

#[test]
fn a_create_that_was_cut_while_it_was_written_is_definite_and_sent_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    thread::spawn(move || {
        for stream in listener.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
            // The head and a little of the body, then the connection is gone.
            stream.unwrap().read_exact(&mut [0; 1000]).unwrap();
        }
    });
    let place = Place::new();
    let llm = builder(&url, &place.state()).build().unwrap();
    let big = Request::prompt("a", "model-a", "x".repeat(16 << 20));
    let (outcomes, ended) = run(&llm, [big]);
    assert_eq!(ended.unwrap().accounting.failed, 1);
    assert_eq!(outcomes[0].1.as_ref().unwrap_err().kind(), "not_sent");
    assert_eq!(connections.load(Ordering::SeqCst), 1);
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
    let place = Place::new();
    let requests = || [ask("a"), Request::prompt("b", "model-b", "question b")];
    let llm = builder(&sim.server.url, &place.state()).stop(stop).build().unwrap();
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
    let place = Place::new();
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
    let place = Place::new();
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
fn a_process_that_died_during_a_create_is_not_followed_by_a_second_create() {
    let sim = Sim::start(Faults::default());
    let place = Place::new();
    run(&open(&sim, &place), [ask("a")]).1.unwrap();
    // What is left when the process ends between the create and its record.
    fs::remove_file(place.state().join("000001.status.json")).unwrap();
    fs::remove_file(place.state().join("delivered.jsonl")).unwrap();
    let (outcomes, ended) = run(&open(&sim, &place), [ask("a")]);
    assert!(outcomes.is_empty());
    assert!(matches!(ended, Err(Error::Ambiguous { requests: 1, .. })), "{ended:?}");
    assert_eq!(sim.creates(), 1);
}

#[test]
fn one_ambiguous_create_does_not_hold_up_the_others_of_the_run_but_a_later_run_sends_nothing() {
    let sim = Sim::start(Faults {
        create: Some(Box::new(|nth, _| (nth == 0).then(|| Reply::error(500, "api_error", "no")))),
        ..Faults::default()
    });
    let place = Place::new();
    let requests = || [ask("a"), Request::prompt("b", "model-b", "question b")];
    let (outcomes, ended) = run(&open(&sim, &place), requests());
    assert_answered(&outcomes, &["b"]);
    let Err(Error::Ambiguous { requests: 1, reason, run: came_to, .. }) = ended else {
        panic!("{ended:?}")
    };
    assert!(reason.contains("500"), "{reason}");
    let counts = &came_to.accounting;
    assert_eq!((counts.succeeded, counts.pending, counts.submissions), (1, 1, 2));

    let (outcomes, ended) = run(&open(&sim, &place), requests().into_iter().chain([ask("new")]));
    assert!(outcomes.is_empty());
    let Err(Error::Ambiguous { run, .. }) = ended else { panic!("{ended:?}") };
    assert_eq!(run.outcomes[2], ("new".to_owned(), Status::Pending));
    assert_eq!(sim.creates(), 2);
}

#[test]
fn a_run_out_of_time_before_its_creates_sends_none() {
    let sim = Sim::start(Faults::default());
    let place = Place::new();
    let llm = builder(&sim.server.url, &place.state()).timeout(Duration::ZERO).build().unwrap();
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
    let place = Place::new();
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
