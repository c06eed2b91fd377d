//! Faults that other clients of these providers were reported with, as far as they have no better
//! place. docs/llm-faults.md lists all of them with their tests.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use common::{
    KEY, Place, SHAPES, ask, assert_answered, builder, changed, run, run_until, settings,
};
use llm_batch::providers::Anthropic;
use llm_batch::{
    Body, CallError, Error, LlmBatch, OnAmbiguous, PendingReason, Request, Stop, cancel,
};
use llm_simulator::{Endpoint, Reply, Said, Simulator};
use serde_json::{Value, json};

fn open_ai(simulator: &Simulator, place: &Place) -> LlmBatch {
    settings(common::open_ai(simulator.url(), KEY), &place.state()).build().unwrap()
}

/// Fault 4: two processes with a state each, in one workspace, lose the answers to creates of the same
/// size at the same time. Each finds its own.
#[test]
fn two_clients_of_one_account_that_lose_their_answers_find_each_its_own_batch() {
    let simulator = Simulator::builder()
        .running(3)
        .after(|call, usual| match call.endpoint {
            Endpoint::Create => Reply::Drop,
            _ => usual,
        })
        .start()
        .unwrap();
    thread::scope(|scope| {
        for ids in [["a", "b"], ["c", "d"], ["e", "f"]] {
            let simulator = &simulator;
            scope.spawn(move || {
                let place = Place::quick();
                let llm = builder(simulator.url(), &place.state()).build().unwrap();
                assert_answered(&run(&llm, ids.map(ask)).0, &ids);
            });
        }
    });
    assert_eq!((simulator.count(Endpoint::Create), simulator.paid().len()), (3, 6));
}

/// Fault 7: a batch of which everything failed has no output file, and is complete all the same.
#[test]
fn a_batch_with_an_error_file_alone_is_read() {
    let simulator = Simulator::builder()
        .model(|_| Said::Error { kind: "invalid_request_error".into(), message: "no".into() })
        .start()
        .unwrap();
    let (outcomes, ended) = run(&open_ai(&simulator, &Place::quick()), ["a", "b"].map(ask));
    assert!(
        outcomes.iter().all(|(_, o)| o.as_ref().unwrap_err().kind() == "invalid_request_error")
    );
    assert_eq!(ended.unwrap().accounting.failed, 2);
}

/// Fault 8: one line at fault in a thousand costs one more create, and nobody else's answer.
#[test]
fn one_poison_line_in_a_thousand_fails_alone() {
    let simulator = Simulator::builder()
        .after(|call, usual| match (call.endpoint, call.nth) {
            (Endpoint::Poll, 0) => {
                let mut batch: Value = serde_json::from_slice(usual.body()).unwrap();
                batch["status"] = "failed".into();
                batch["output_file_id"] = Value::Null;
                batch["request_counts"] = Value::Null;
                batch["errors"] = json!({"data": [
                    {"code": "invalid_value", "message": "poison", "line": 501},
                ]});
                Reply::json(200, &batch)
            }
            _ => usual,
        })
        .start()
        .unwrap();
    let requests = (0..1_000).map(|n| ask(&n.to_string()));
    let (outcomes, ended) = run(&open_ai(&simulator, &Place::quick()), requests);
    let failed: Vec<&str> =
        outcomes.iter().filter(|(_, o)| o.is_err()).map(|(id, _)| id.as_str()).collect();
    assert_eq!(failed, ["500"]);
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.succeeded, counts.submissions), (999, 2));
    let second = simulator.batches().pop().unwrap();
    assert!(second.texts.len() == 999 && !second.texts.contains(&"question 500".to_owned()));
}

/// Fault 13: results that the provider keeps no longer leave the requests as they are: paid for, and
/// not sent again.
#[test]
fn results_that_are_gone_are_said_to_be_and_nothing_is_sent_again() {
    let simulator = Simulator::builder()
        .after(|call, usual| match call.endpoint {
            Endpoint::Results => Reply::error(404, "not_found_error", "archived after 29 days"),
            _ => usual,
        })
        .start()
        .unwrap();
    let place = Place::quick();
    for _ in 0..2 {
        let llm = builder(simulator.url(), &place.state()).build().unwrap();
        let Err(Error::Pending { reason: PendingReason::Refused { message, .. }, .. }) =
            run(&llm, [ask("a")]).1
        else {
            panic!("it has results");
        };
        assert!(message.contains("29 days"), "{message}");
    }
    assert_eq!(simulator.count(Endpoint::Create), 1);
}

/// Fault 18: a cancel before, while and after a batch ends, and one of a batch that is not there.
#[test]
fn a_cancel_may_come_at_any_time() {
    let simulator = Simulator::builder().running(2).start().unwrap();
    let provider = common::anthropic(simulator.url(), KEY);
    let place = Place::quick();
    let patience = Duration::from_secs(10);
    let refused =
        |id: &str| matches!(cancel(&*provider, id, patience), Err(CallError::Refused { .. }));
    assert!(refused("msgbatch_99") && refused("../x"));
    let llm = settings(Arc::clone(&provider), &place.state()).build().unwrap();
    thread::scope(|scope| {
        let running = scope.spawn(|| run(&llm, ["a", "b"].map(ask)));
        simulator.server().wait_until(|seen| seen.iter().any(|seen| seen.method == "POST"));
        // In the middle of things: either it is taken or it has ended.
        let _ = cancel(&*provider, "msgbatch_0", patience);
        let (outcomes, ended) = running.join().unwrap();
        let counts = ended.unwrap().accounting;
        assert_eq!(outcomes.len(), 2);
        assert_eq!(counts.succeeded + counts.failed, 2);
    });
    assert!(refused("msgbatch_0"), "it has ended");
}

/// Fault 19: many threads, many tickets, each with the answer to its own question.
#[test]
fn tickets_of_many_threads_get_each_their_own_answer() {
    const THREADS: usize = 8;
    const EACH: usize = 1_500;
    let (simulator, place) = (Simulator::start().unwrap(), Place::quick());
    let llm = builder(simulator.url(), &place.state()).max_items(2_000).build().unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let llm = &llm;
            scope.spawn(move || {
                let ids = (0..EACH).map(|n| format!("{thread}.{n}"));
                let tickets: Vec<_> = ids.map(|id| (llm.submit(ask(&id)).unwrap(), id)).collect();
                drop(llm.flush());
                for (ticket, id) in tickets {
                    let text = ticket.wait().unwrap().text.unwrap();
                    assert_eq!(text, format!("answer to question {id}"));
                }
            });
        }
    });
    let counts = llm.accounting();
    assert_eq!(
        (usize::try_from(counts.succeeded).unwrap(), simulator.paid().len()),
        (THREADS * EACH, THREADS * EACH)
    );
    assert_eq!(counts.input_tokens, 3 * counts.succeeded);
}

/// Fault 22: what a newer version of the API refuses is refused before it is sent.
#[test]
fn parameters_that_the_version_refuses_are_not_sent() {
    for (version, is_sent) in [("2023-06-01", true), ("2026-10-21", false), ("2027-01-01", false)] {
        let (simulator, place) = (Simulator::start().unwrap(), Place::quick());
        let provider =
            Anthropic::builder(KEY).base_url(simulator.url()).api_version(version).build().unwrap();
        let llm = settings(Arc::new(provider), &place.state()).build().unwrap();
        let body = r#"{"model":"m","max_tokens":1,"temperature":0.5,"messages":[{"role":"user","content":"x"}]}"#;
        let (outcomes, _) = run(&llm, [Request::new("a", "m", Body::raw(body).unwrap())]);
        match &outcomes[0].1 {
            Ok(_) => assert!(is_sent),
            Err(error) => assert!(!is_sent && error.to_string().contains("temperature"), "{error}"),
        }
        assert_eq!(simulator.paid().len(), usize::from(is_sent));
    }
}

/// A list that says for ever that there is more, and repeats itself, is not read for ever; and
/// nothing is sent again because of it.
#[test]
fn a_list_without_an_end_is_left() {
    for shape in ["anthropic", "openai"] {
        let made = if shape == "openai" { json!(9_000_000_000_u64) } else { json!("2999-01-01") };
        let simulator = Simulator::builder()
            .after(move |call, usual| match call.endpoint {
                Endpoint::Create => Reply::Drop,
                // The fence is none, and behind it there is always one more.
                Endpoint::List if shape == "anthropic" && call.nth == 0 => {
                    Reply::json(200, &json!({"data": [], "has_more": false}))
                }
                Endpoint::List => Reply::json(
                    200,
                    &json!({"data": [{"id": "again", "created_at": made}], "has_more": true}),
                ),
                _ => usual,
            })
            .start()
            .unwrap();
        let place = Place::quick();
        let open = if shape == "openai" { common::open_ai } else { common::anthropic };
        let provider = open(simulator.url(), KEY);
        let llm = settings(provider, &place.state())
            // One look at the list.
            .on_ambiguous(OnAmbiguous::Fail)
            .build()
            .unwrap();
        let (outcomes, _) = run(&llm, [ask("a")]);
        assert_eq!(outcomes[0].1.as_ref().unwrap_err().kind(), "ambiguous");
        assert_eq!(simulator.count(Endpoint::Create), 1, "{shape}");
        let lists = simulator.count(Endpoint::List);
        assert_eq!(lists, 1_000 + usize::from(shape == "anthropic"), "{shape}");
    }
}

/// It was told about until the time was up, long after a list had shown that it was gone.
#[test]
fn what_an_earlier_look_took_for_the_lost_batch_is_forgotten_when_it_is_absent() {
    let stop = Stop::new();
    let after_that = stop.clone();
    let simulator = Simulator::builder()
        .before(|call| (call.endpoint == Endpoint::Create).then_some(Reply::Drop))
        .after(move |call, usual| match (call.endpoint, call.nth) {
            // The first is the look for the newest batch; then there is one that may be it, and then none.
            (Endpoint::List, 1) => Reply::json(
                200,
                &json!({"data": [{"id": "look-alike", "type": "message_batch",
                                  "processing_status": "in_progress"}], "has_more": false}),
            ),
            (Endpoint::List, 3) => {
                after_that.stop();
                usual
            }
            _ => usual,
        })
        .start()
        .unwrap();
    let place = Place::quick();
    let llm = builder(simulator.url(), &place.state()).stop(stop).build().unwrap();
    let Err(Error::Ambiguous { reason, .. }) = run(&llm, [ask("a")]).1 else { panic!("no") };
    assert_eq!(simulator.count(Endpoint::List), 4);
    assert!(!reason.contains("look-alike"), "{reason}");
}

/// Gives every batch of an answer a status that nobody knows.
fn of_unknown_status(usual: Reply) -> Reply {
    changed(usual, |value| {
        let batches = match value.get_mut("data").and_then(Value::as_array_mut) {
            Some(list) => list.iter_mut().collect(),
            None => vec![value],
        };
        for batch in batches {
            for name in ["status", "processing_status"] {
                if let Some(status) = batch.get_mut(name) {
                    *status = json!("in_review");
                }
            }
        }
    })
}

/// Fault 21: in the answer to its create and in three polls, and where its create was lost, in the list
/// and in three looks at it. Taken for an end, its results would be read too early; taken for a failure,
/// it would be sent again, or never be collected.
#[test]
fn a_batch_with_a_status_that_nobody_knows_is_waited_for() {
    for shape in SHAPES {
        for is_lost in [false, true] {
            let [looks, early] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
            let (looked, read) = (Arc::clone(&looks), Arc::clone(&early));
            let simulator = Simulator::builder()
                .after(move |call, usual| {
                    let is_unknown = looked.load(Ordering::SeqCst) < 3;
                    match call.endpoint {
                        Endpoint::Create if is_lost => Reply::Drop,
                        Endpoint::Create if is_unknown => of_unknown_status(usual),
                        Endpoint::List | Endpoint::Poll if is_unknown => {
                            let is_look = call.seen.query("limit") != Some("1");
                            looked.fetch_add(usize::from(is_look), Ordering::SeqCst);
                            of_unknown_status(usual)
                        }
                        Endpoint::Results => {
                            read.fetch_add(usize::from(is_unknown), Ordering::SeqCst);
                            usual
                        }
                        _ => usual,
                    }
                })
                .start()
                .unwrap();
            let place = Place::quick();
            let llm = settings(shape(simulator.url(), KEY), &place.state()).build().unwrap();
            let (outcomes, ended) = run(&llm, ["a", "b"].map(ask));
            assert_answered(&outcomes, &["a", "b"]);
            ended.unwrap();
            assert_eq!(early.load(Ordering::SeqCst), 0, "results were read too early");
            assert_eq!(looks.load(Ordering::SeqCst), 3);
            assert_eq!((simulator.count(Endpoint::Create), simulator.paid().len()), (1, 2));
        }
    }
}

/// Fault 21, of types: a batch that was taken was of unknown fate, or was waited for until the time was
/// up, where a server told something of no weight in another way than its shape has it.
#[test]
fn what_is_only_of_use_may_be_of_any_type() {
    let changes: [fn(&mut Value); 6] = [
        |batch| batch["created_at"] = json!(1.5e9),
        |batch| batch["created_at"] = Value::Null,
        |batch| batch["request_counts"] = Value::Null,
        |batch| batch["request_counts"] = json!({"completed": "2", "succeeded": "2"}),
        |batch| batch["errors"] = json!({"object": "list", "data": null}),
        |batch| (batch["output_expires_at"], batch["ended_at"]) = (json!("soon"), json!([])),
    ];
    let each = SHAPES.into_iter().flat_map(|shape| changes.map(|change| (shape, change)));
    for (n, (shape, change)) in each.enumerate() {
        // Each is lost once, and found in the list.
        for is_lost in [false, true] {
            let simulator = Simulator::builder()
                .after(move |call, usual| match call.endpoint {
                    Endpoint::Create if is_lost => Reply::Drop,
                    Endpoint::Create | Endpoint::Poll => changed(usual, change),
                    Endpoint::List => changed(usual, |page| {
                        page["data"].as_array_mut().unwrap().iter_mut().for_each(change);
                    }),
                    _ => usual,
                })
                .start()
                .unwrap();
            let place = Place::quick();
            let llm = settings(shape(simulator.url(), KEY), &place.state()).build().unwrap();
            let (outcomes, ended) = run(&llm, ["a", "b"].map(ask));
            assert!(ended.is_ok(), "{n}, {is_lost}: {ended:?}");
            assert_answered(&outcomes, &["a", "b"]);
            assert_eq!(simulator.count(Endpoint::Create), 1, "{n}, {is_lost}");
        }
    }
}

/// It was taken for a batch without results: told as refused, or sent again and paid for twice.
#[test]
fn a_batch_that_names_its_results_in_an_unknown_way_is_waited_for() {
    for file in [json!(17), json!(["file-1"])] {
        let simulator = Simulator::builder()
            .after(move |call, usual| match call.endpoint {
                Endpoint::Poll => changed(usual, |batch| {
                    batch["status"] = "failed".into();
                    batch["output_file_id"] = file.clone();
                    batch["request_counts"] = Value::Null;
                    batch["errors"] = json!({"data": [{"code": "token_limit_exceeded"}]});
                }),
                _ => usual,
            })
            .start()
            .unwrap();
        let place = Place::quick();
        let settings = settings(common::open_ai(simulator.url(), KEY), &place.state());
        let is_asked = || simulator.count(Endpoint::Poll) >= 3;
        let (outcomes, ended) = run_until(is_asked, settings, [ask("a")]);
        let Err(Error::Pending { reason, .. }) = ended else { panic!("{ended:?}") };
        assert_eq!((reason, outcomes.len()), (PendingReason::Stopped, 0));
        assert_eq!(simulator.count(Endpoint::Create), 1);
    }
}

/// Without a line that is at fault all of the batch was refused, for good.
#[test]
fn a_line_at_fault_is_found_however_it_is_told() {
    for line in [json!(2), json!("2"), json!(2.0)] {
        let simulator = Simulator::builder()
            .after(move |call, usual| match (call.endpoint, call.nth) {
                (Endpoint::Poll, 0) => changed(usual, |batch| {
                    batch["status"] = "failed".into();
                    batch["output_file_id"] = Value::Null;
                    batch["request_counts"] = Value::Null;
                    let fault = json!({"code": 400, "line": line, "message": "poison"});
                    batch["errors"] = json!({"data": ["what", fault]});
                }),
                _ => usual,
            })
            .start()
            .unwrap();
        let (mut outcomes, _) =
            run(&open_ai(&simulator, &Place::quick()), ["a", "b", "c"].map(ask));
        outcomes.sort_by(|one, other| one.0.cmp(&other.0));
        let (id, outcome) = outcomes.remove(1);
        let error = outcome.unwrap_err();
        assert_eq!((&*id, error.kind()), ("b", "400"));
        assert!(error.to_string().contains("poison"), "{error}");
        assert_answered(&outcomes, &["a", "c"]);
        assert_eq!(simulator.count(Endpoint::Create), 2);
    }
}
