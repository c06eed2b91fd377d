//! What must never cost money twice, or show the key: one test for each way in which it once did.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use std::{fs, mem};

use common::{KEY, Place, ask, assert_answered, builder, changed, run, run_until, settings};
use llm_batch::providers::Anthropic;
use llm_batch::{Builder, Error, LaneChoice, Prices};
use llm_simulator::{Call, Endpoint, Reply, Simulator};
use serde_json::{Value, json};

fn open_ai(simulator: &Simulator, place: &Place) -> Builder {
    settings(common::open_ai(simulator.url(), KEY), &place.state())
}

/// A provider that takes the first create and loses the answer, and whose list is changed.
fn forgetful(
    list: impl Fn(&Call<'_>, &mut Value) + std::marker::Send + Sync + 'static,
) -> Simulator {
    Simulator::builder()
        .after(move |call, usual| match (call.endpoint, call.nth) {
            (Endpoint::Create, 0) => Reply::Drop,
            (Endpoint::List, _) => changed(usual, |page| list(call, page)),
            _ => usual,
        })
        .start()
        .unwrap()
}

/// Asserts that the lost create is found in the end, and nothing was sent again.
fn assert_found(simulator: &Simulator, settings: Builder) {
    let (outcomes, ended) = run(&settings.build().unwrap(), ["a", "b"].map(ask));
    assert_answered(&outcomes, &["a", "b"]);
    ended.unwrap();
    assert_eq!((simulator.count(Endpoint::Create), simulator.paid().len()), (1, 2));
}

/// The second pass took the batch, once the first had found it, for another create's, and sent its
/// request again.
#[test]
fn two_passes_that_look_for_one_create_pay_for_it_once() {
    let place = Place::quick();
    let status = place.state().join("000001.status.json");
    let is_armed = Arc::new(AtomicBool::new(false));
    let (entered, inside) = mpsc::channel();
    let (gate, go) = mpsc::channel();
    let (armed, go) = (Arc::clone(&is_armed), Mutex::new(go));
    let simulator = Simulator::builder()
        .running(usize::MAX)
        .after(move |call, usual| match (call.endpoint, call.nth) {
            (Endpoint::Create, 0) => Reply::Drop,
            (Endpoint::List, _) => {
                if armed.swap(false, Ordering::SeqCst) {
                    // The first pass waits here until the second looks too, and then finds it.
                    entered.send(()).unwrap();
                    go.lock().unwrap().recv().unwrap();
                    return usual;
                }
                let _ = gate.send(());
                if fs::read_to_string(&status).is_ok_and(|status| status.contains("submitted")) {
                    return usual;
                }
                changed(usual, |page| {
                    for batch in page["data"].as_array_mut().unwrap() {
                        batch["processing_status"] = json!("in_progress");
                    }
                })
            }
            _ => usual,
        })
        .start()
        .unwrap();
    let settings = || builder(simulator.url(), &place.state()).linger(Duration::ZERO);
    let is_looked_for = || simulator.count(Endpoint::List) > 1;
    let ended = run_until(is_looked_for, settings(), ["a", "b"].map(ask)).1;
    assert!(matches!(ended, Err(Error::Ambiguous { .. })), "{ended:?}");
    simulator.end_batches();
    let llm = settings().build().unwrap();
    is_armed.store(true, Ordering::SeqCst);
    let first = llm.submit(ask("a")).unwrap();
    inside.recv().unwrap();
    let second = llm.submit(ask("b")).unwrap();
    assert_eq!(first.wait().unwrap().text.unwrap(), "answer to question a");
    assert_eq!(second.wait().unwrap().text.unwrap(), "answer to question b");
    assert_eq!((simulator.count(Endpoint::Create), simulator.paid().len()), (1, 2));
}

/// The second pass had read the list before the first one gave the create up and deleted its file:
/// it took the file for deleted by somebody else.
#[test]
fn a_pass_that_looks_for_what_another_one_gives_up_goes_on_with_it() {
    let place = Place::quick();
    let is_armed = Arc::new(AtomicBool::new(false));
    let (entered, inside) = mpsc::channel();
    let (gate, go) = mpsc::channel();
    let (armed, go) = (Arc::clone(&is_armed), Mutex::new(go));
    let simulator = Simulator::builder()
        .before(move |call| {
            if call.endpoint == Endpoint::Create && call.nth == 0 {
                return Some(Reply::Drop);
            }
            if call.endpoint == Endpoint::Files && armed.swap(false, Ordering::SeqCst) {
                entered.send(()).unwrap();
                go.lock().unwrap().recv().unwrap();
            }
            None
        })
        .after(move |call, usual| {
            if call.endpoint == Endpoint::Files && call.seen.method == "DELETE" {
                let _ = gate.send(());
            }
            usual
        })
        .start()
        .unwrap();
    let settings = || open_ai(&simulator, &place).linger(Duration::ZERO);
    let patient = settings().list_lag(Duration::from_mins(1));
    let is_looked_for = || simulator.count(Endpoint::List) > 0;
    let ended = run_until(is_looked_for, patient, ["a", "b"].map(ask)).1;
    assert!(matches!(ended, Err(Error::Ambiguous { .. })), "{ended:?}");
    let llm = settings().build().unwrap();
    is_armed.store(true, Ordering::SeqCst);
    let second = llm.submit(ask("b")).unwrap();
    inside.recv().unwrap();
    let first = llm.submit(ask("a")).unwrap();
    assert_eq!(first.wait().unwrap().text.unwrap(), "answer to question a");
    assert_eq!(second.wait().unwrap().text.unwrap(), "answer to question b");
    assert_eq!((simulator.count(Endpoint::Create), simulator.paid().len()), (3, 2));
}

/// A proxy says 503 also after the provider got the request.
#[test]
fn an_ask_that_a_proxy_answers_with_503_is_of_unknown_fate() {
    for (status, kind) in [(503, "api_error"), (529, "unknown")] {
        let simulator = Simulator::builder()
            .after(move |call, usual| match call.endpoint {
                Endpoint::Ask => Reply::error(status, kind, "upstream"),
                _ => usual,
            })
            .start()
            .unwrap();
        let place = Place::quick();
        let settings = builder(simulator.url(), &place.state()).lane(LaneChoice::Sync);
        let ended = run(&settings.build().unwrap(), [ask("a")]).1;
        assert!(matches!(ended, Err(Error::Ambiguous { requests: 1, .. })), "{ended:?}");
        assert_eq!((simulator.count(Endpoint::Ask), simulator.paid().len()), (1, 1));
    }
}

/// The state of a batch is ahead of its files and counts now and then.
#[test]
fn an_expired_batch_without_files_yet_is_read_again_before_its_requests_are_sent_again() {
    for counts in [Value::Null, json!({"total": 2, "completed": 0, "failed": 0})] {
        let simulator = Simulator::builder()
            .after(move |call, usual| match (call.endpoint, call.nth) {
                // The poll, and what the first reading of results looks at.
                (Endpoint::Poll, 0..3) => changed(usual, |batch| {
                    batch["status"] = json!("expired");
                    batch["output_file_id"] = Value::Null;
                    batch["error_file_id"] = Value::Null;
                    batch["request_counts"] = counts.clone();
                }),
                _ => usual,
            })
            .start()
            .unwrap();
        assert_found(&simulator, open_ai(&simulator, &Place::quick()));
    }
}

/// Nothing says of it that it was not run.
#[test]
fn an_expired_batch_without_file_or_count_for_good_is_told_as_missing() {
    let simulator = Simulator::builder()
        .after(move |call, usual| match call.endpoint {
            Endpoint::Poll => changed(usual, |batch| {
                batch["status"] = json!("expired");
                batch["output_file_id"] = Value::Null;
                batch["error_file_id"] = Value::Null;
                batch["request_counts"] = Value::Null;
            }),
            _ => usual,
        })
        .start()
        .unwrap();
    let place = Place::quick();
    let (outcomes, _) = run(&open_ai(&simulator, &place).build().unwrap(), [ask("a")]);
    assert_eq!(outcomes[0].1.as_ref().unwrap_err().kind(), "missing_result");
    assert_eq!(simulator.count(Endpoint::Create), 1);
}

#[test]
fn a_list_that_breaks_off_does_not_prove_that_a_batch_is_absent() {
    let list = |call: &Call<'_>, page: &mut Value| {
        // The waits double: that is longer than the list may lag behind.
        if (1..8).contains(&call.nth) {
            page["data"] = json!([]);
            page["has_more"] = json!(true);
        }
    };
    let simulator = forgetful(list);
    assert_found(&simulator, open_ai(&simulator, &Place::quick()));
    let (simulator, place) = (forgetful(list), Place::quick());
    assert_found(&simulator, builder(simulator.url(), &place.state()));
}

#[test]
fn a_list_that_does_not_tell_files_or_counts_does_not_prove_that_a_batch_is_absent() {
    let simulator = forgetful(|call, page| {
        if call.nth < 100 {
            for batch in page["data"].as_array_mut().unwrap() {
                batch.as_object_mut().unwrap().remove("input_file_id");
            }
        }
    });
    assert_found(&simulator, open_ai(&simulator, &Place::quick()));
    let place = Place::quick();
    let simulator = forgetful(|_, page| {
        for batch in page["data"].as_array_mut().unwrap() {
            batch["request_counts"] = json!({});
        }
    });
    assert_found(&simulator, builder(simulator.url(), &place.state()));
}

#[test]
fn a_list_with_the_oldest_first_is_read_to_its_end() {
    let rest: Mutex<Value> = Mutex::default();
    let simulator = forgetful(move |call, page| {
        let mut rest = rest.lock().unwrap();
        if call.seen.query("after").is_some() {
            *page = mem::take(&mut *rest);
            return;
        }
        let old = json!({"data": [{"id": "old_1", "created_at": 1, "input_file_id": "file-x"},
                                  {"id": "old_2", "created_at": 9999, "input_file_id": "file-y"}],
                         "has_more": true});
        *rest = mem::replace(page, old);
    });
    assert_found(&simulator, open_ai(&simulator, &Place::quick()));
}

/// Two clocks behind one list need not agree to the second.
#[test]
fn a_batch_that_seems_a_little_older_than_the_fence_is_found() {
    let simulator = forgetful(|_, page| {
        let batches = page["data"].as_array_mut().unwrap();
        if let [newest, fence] = batches.as_mut_slice() {
            let moment: jiff::Timestamp = fence["created_at"].as_str().unwrap().parse().unwrap();
            let earlier = moment - Duration::from_secs(30);
            newest["created_at"] = json!(earlier.to_string());
        }
    });
    simulator.plant_foreign(3);
    let place = Place::quick();
    let llm = builder(simulator.url(), &place.state()).build().unwrap();
    let (outcomes, ended) = run(&llm, ["a", "b"].map(ask));
    assert_answered(&outcomes, &["a", "b"]);
    ended.unwrap();
    assert_eq!(simulator.count(Endpoint::Create), 1);
}

/// A message was cut first, and of half a key nothing was found.
#[test]
fn half_a_key_at_the_end_of_a_long_message_is_removed_too() {
    let simulator = Simulator::builder()
        .after(|call, usual| {
            if call.endpoint != Endpoint::Results {
                return usual;
            }
            let lines = String::from_utf8_lossy(usual.body()).into_owned();
            let lines = lines.lines().map(|line| {
                let mut line: Value = serde_json::from_str(line).unwrap();
                line["response"] = json!({"status_code": 400,
                    "body": [format!("{}{KEY}", "x".repeat(488))]});
                line.to_string()
            });
            Reply::jsonl(&lines.collect::<Vec<_>>())
        })
        .start()
        .unwrap();
    let place = Place::quick();
    let (outcomes, _) = run(&open_ai(&simulator, &place).build().unwrap(), [ask("a")]);
    let error = outcomes[0].1.as_ref().unwrap_err().to_string();
    assert!(error.contains("xxx") && !error.contains("sk-"), "{error}");
}

/// A limit that was lowered held only for requests that nothing was known of.
#[test]
fn a_lower_limit_to_the_cost_holds_for_what_was_not_sent_yet() {
    let prices =
        r#"{"as_of": "2026-01-01", "models": {"model-a": {"input": 0, "output": 1000000}}}"#;
    let simulator = Simulator::builder()
        .before(|call| {
            let is_create = call.endpoint == Endpoint::Create && call.nth == 0;
            is_create.then(|| {
                Reply::error(429, "rate_limit_error", "slow").with_header("retry-after", "60")
            })
        })
        .start()
        .unwrap();
    let place = Place::quick();
    let limited = |max| {
        let settings = builder(simulator.url(), &place.state());
        settings.prices(Prices::parse(prices).unwrap()).max_cost(max)
    };
    let question = || [ask("b").with_max_tokens(10)];
    let ended = |max| run(&limited(max).build().unwrap(), question()).1;
    let is_refused = || simulator.count(Endpoint::Create) > 0;
    let first = run_until(is_refused, limited(5.0), question()).1;
    assert!(matches!(first, Err(Error::Pending { .. })), "{first:?}");
    for max in [1.0, f64::NAN] {
        let refused = ended(max);
        assert!(matches!(refused, Err(Error::OverBudget { .. })), "{refused:?}");
    }
    assert_eq!(ended(5.0).unwrap().accounting.succeeded, 1);
}

/// An error line came first, and the answer behind it was thrown away and asked for again.
#[test]
fn an_answer_behind_an_error_for_the_same_request_is_handed_over() {
    let simulator = Simulator::builder()
        .after(|call, usual| {
            if call.endpoint != Endpoint::Results {
                return usual;
            }
            let line = String::from_utf8_lossy(usual.body()).into_owned();
            let mut error: Value = serde_json::from_str(line.trim()).unwrap();
            error["result"] = json!({"type": "expired"});
            Reply::jsonl(&[error.to_string(), line.trim().to_owned()])
        })
        .start()
        .unwrap();
    let place = Place::quick();
    let llm = builder(simulator.url(), &place.state()).build().unwrap();
    let (outcomes, ended) = run(&llm, [ask("a")]);
    assert_answered(&outcomes, &["a"]);
    assert_eq!(ended.unwrap().accounting.submissions, 1);
}

/// Such a server says of itself that nothing was run, and has results all the same.
#[test]
fn a_failed_batch_with_results_is_read() {
    let simulator = Simulator::builder()
        .after(|call, usual| match call.endpoint {
            Endpoint::Poll => changed(usual, |batch| batch["status"] = json!("failed")),
            _ => usual,
        })
        .start()
        .unwrap();
    assert_found(&simulator, open_ai(&simulator, &Place::quick()));
}

/// As many strays as there are requests came first, and the batch was somebody else's: it was sent again.
#[test]
fn strays_in_front_of_its_results_do_not_make_a_lost_batch_somebody_elses() {
    let simulator = Simulator::builder()
        .after(|call, usual| match (call.endpoint, call.nth) {
            (Endpoint::Create, 0) => Reply::Drop,
            (Endpoint::Results, _) => {
                let text = String::from_utf8_lossy(usual.body()).into_owned();
                let strays =
                    text.lines().map(|line| line.replace("custom_id\":\"", "custom_id\":\"f"));
                Reply::jsonl(&strays.chain(text.lines().map(str::to_owned)).collect::<Vec<_>>())
            }
            _ => usual,
        })
        .start()
        .unwrap();
    let place = Place::quick();
    assert_found(&simulator, builder(simulator.url(), &place.state()));
}

/// A stray line came first, and the line that would have told was too long to be kept.
#[test]
fn a_line_that_cannot_be_read_does_not_make_a_lost_batch_somebody_elses() {
    let simulator = Simulator::builder()
        .after(|call, usual| match (call.endpoint, call.nth) {
            (Endpoint::Create, 0) => Reply::Drop,
            (Endpoint::Results, _) => {
                let line = String::from_utf8_lossy(usual.body()).trim().to_owned();
                let stray = line.replace("custom_id\":\"", "custom_id\":\"f");
                Reply::jsonl(&[stray, line.replace("answer to", &"x".repeat(9_000))])
            }
            _ => usual,
        })
        .start()
        .unwrap();
    let place = Place::quick();
    let provider = Anthropic::builder(KEY).base_url(simulator.url()).max_line(5_000).build();
    let settings = settings(Arc::new(provider.unwrap()), &place.state());
    let is_read = || simulator.count(Endpoint::Results) > 1;
    let ended = run_until(is_read, settings, [ask("a")]).1.unwrap_err();
    assert!(ended.to_string().contains("cannot be read"), "{ended}");
    assert_eq!((simulator.count(Endpoint::Create), simulator.paid().len()), (1, 1));
}
