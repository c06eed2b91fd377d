//! What came back without an answer, and unpaid, is sent again: so often, and for so much money.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use common::{Place, ask, assert_answered, builder, run, settings};
use llm_batch::{Builder, OnAmbiguous, Prices, RequestError, Status};
use llm_simulator::{Endpoint, Reply, Said, Simulator};

/// A model that says `first` to the first so many times that each question is asked, and answers
/// it after that.
fn failing(times: usize, first: Said) -> Simulator {
    let asked: Mutex<HashMap<String, usize>> = Mutex::default();
    Simulator::builder()
        .model(move |question| {
            let mut asked = asked.lock().unwrap();
            let count = asked.entry(question.text.clone()).or_default();
            *count += 1;
            // One of them is always answered.
            if *count > times || question.text.ends_with('a') {
                return Said::text(format!("answer to {}", question.text));
            }
            first.clone()
        })
        .start()
        .unwrap()
}

fn error(kind: &str) -> Said {
    Said::Error { kind: kind.to_owned(), message: "not now".to_owned() }
}

fn at(simulator: &Simulator, place: &Place) -> Builder {
    builder(simulator.url(), &place.state())
}

#[test]
fn only_what_failed_in_passing_or_expired_is_sent_again_and_each_is_paid_for_once() {
    for first in [Said::Expired, error("overloaded_error"), error("api_error")] {
        let (simulator, place) = (failing(1, first), Place::quick());
        let (outcomes, ended) = run(&at(&simulator, &place).build().unwrap(), ["a", "b"].map(ask));
        assert_answered(&outcomes, &["a", "b"]);
        let counts = ended.unwrap().accounting;
        assert_eq!((counts.submissions, counts.possibly_paid_twice), (2, 0));
        let texts: Vec<Vec<String>> = simulator.batches().into_iter().map(|b| b.texts).collect();
        assert_eq!(texts[1], ["question b"], "and nothing else");
        assert_eq!(simulator.paid(), ["question a", "question b"]);
    }
}

#[test]
fn what_failed_in_passing_at_openai_is_sent_again() {
    let (simulator, place) = (failing(1, error("server_error")), Place::quick());
    let llm =
        settings(common::open_ai(simulator.url(), common::KEY), &place.state()).build().unwrap();
    let (outcomes, ended) = run(&llm, ["a", "b"].map(ask));
    assert_answered(&outcomes, &["a", "b"]);
    assert_eq!(ended.unwrap().accounting.submissions, 2);
    assert_eq!(simulator.paid().len(), 2);
}

#[test]
fn what_failed_for_good_is_not_sent_again() {
    let (simulator, place) = (failing(1, error("invalid_request_error")), Place::quick());
    let (outcomes, ended) = run(&at(&simulator, &place).build().unwrap(), ["a", "b"].map(ask));
    assert_eq!(outcomes[1].1.as_ref().unwrap_err().kind(), "invalid_request_error");
    assert_eq!(ended.unwrap().accounting.submissions, 1);
}

#[test]
fn it_is_sent_three_times_at_most_or_as_often_as_is_set_and_then_told() {
    for (attempts, sent) in [(None, 3), (Some(1), 1), (Some(0), 1), (Some(5), 5)] {
        let (simulator, place) = (failing(99, Said::Expired), Place::quick());
        let settings = at(&simulator, &place);
        let settings = match attempts {
            Some(attempts) => settings.attempts(attempts),
            None => settings,
        };
        let (outcomes, ended) = run(&settings.build().unwrap(), ["a", "b"].map(ask));
        assert_answered(&outcomes[..1], &["a"]);
        assert_eq!(outcomes[1].1.as_ref().unwrap_err().status(), Status::Expired);
        assert_eq!(ended.unwrap().accounting.submissions, sent);
        assert_eq!(simulator.paid(), ["question a"]);
    }
}

/// The count is in the state, not in the process.
#[test]
fn attempts_of_earlier_runs_count() {
    let (simulator, place) = (failing(99, Said::Expired), Place::quick());
    let stop = llm_batch::Stop::new();
    let llm = at(&simulator, &place).stop(stop.clone()).build().unwrap();
    let ended = llm.run(["a", "b"].map(ask), |id, _| {
        // The results are read to their end, and b is not sent again any more.
        assert_eq!(id, "a");
        stop.stop();
    });
    assert!(ended.is_err());
    drop(llm);
    let (outcomes, ended) = run(&at(&simulator, &place).build().unwrap(), ["a", "b"].map(ask));
    assert_eq!(outcomes.len(), 1, "a was told before");
    assert_eq!(ended.unwrap().accounting.submissions, 3);
    // Once told, it stays so.
    let (outcomes, ended) = run(&at(&simulator, &place).build().unwrap(), ["a", "b"].map(ask));
    assert!(outcomes.is_empty());
    assert_eq!(ended.unwrap().accounting.submissions, 3);
    assert_eq!(simulator.batches().len(), 3);
}

/// Without a count of the provider nobody knows whether a request without a result was paid for.
#[test]
fn a_missing_result_is_asked_for_again_only_where_it_is_unpaid_or_that_is_allowed() {
    let sim = |is_counted: bool| {
        Simulator::builder()
            .after(move |call, usual| match call.endpoint {
                Endpoint::Results if call.seen.path.contains("msgbatch_0/") => {
                    let lines: Vec<String> = String::from_utf8_lossy(usual.body())
                        .lines()
                        .filter(|line| !line.contains("000001"))
                        .map(str::to_owned)
                        .collect();
                    Reply::jsonl(&lines)
                }
                Endpoint::Poll if call.seen.path.contains("msgbatch_0") => {
                    let mut batch: serde_json::Value =
                        serde_json::from_slice(usual.body()).unwrap();
                    batch["request_counts"] = if is_counted {
                        serde_json::json!({"succeeded": 1, "errored": 1})
                    } else {
                        serde_json::json!({})
                    };
                    Reply::json(200, &batch)
                }
                _ => usual,
            })
            .start()
            .unwrap()
    };
    for (is_counted, policy, answers, doubted) in [
        (true, OnAmbiguous::Hold, 2, 0),
        (false, OnAmbiguous::Hold, 1, 0),
        (false, OnAmbiguous::Resubmit, 2, 1),
    ] {
        let (simulator, place) = (sim(is_counted), Place::quick());
        let open = || at(&simulator, &place).on_ambiguous(policy).build().unwrap();
        let (outcomes, ended) = run(&open(), ["a", "b"].map(ask));
        let counts = ended.unwrap().accounting;
        assert_eq!(outcomes.iter().filter(|(_, outcome)| outcome.is_ok()).count(), answers);
        assert_eq!((counts.submissions, counts.possibly_paid_twice), (answers as u64, doubted));
        // The next process knows it too.
        assert_eq!(run(&open(), ["a", "b"].map(ask)).1.unwrap().accounting, {
            let mut again = counts.clone();
            again.http_calls = 0;
            again
        });
    }
}

/// A create that may have been paid for is not sent again where that could cost too much.
#[test]
fn the_limit_to_the_cost_holds_for_what_may_be_paid_twice() {
    let prices = || {
        Prices::parse(
            r#"{"as_of": "2026-01-01", "models": {"model-a": {"input": 0, "output": 1000000}}}"#,
        )
        .unwrap()
    };
    // 10 tokens at most, at 0.5 USD each.
    let question = || ask("b").with_max_tokens(10);
    // One that is not sent again waits as long as it may, which must be enough to send it once.
    let (short, long) = (Duration::from_secs(2), Duration::from_mins(1));
    for (max, sent, patience) in [(5.0, 1, short), (10.0, 2, long)] {
        let simulator = Simulator::builder()
            .list_lag(1_000_000)
            .after(|call, usual| match (call.endpoint, call.nth) {
                (Endpoint::Create, 0) => Reply::Drop,
                _ => usual,
            })
            .start()
            .unwrap();
        let place = Place::quick();
        let llm = at(&simulator, &place)
            .prices(prices())
            .max_cost(max)
            .on_ambiguous(OnAmbiguous::Resubmit)
            .list_lag(Duration::from_hours(1))
            .timeout(patience)
            .build()
            .unwrap();
        let ended = run(&llm, [question()]).1;
        assert_eq!(simulator.count(Endpoint::Create), sent, "{ended:?}");
        assert_eq!(ended.is_ok(), sent == 2);
    }
}

#[test]
fn a_request_over_its_own_budget_fails_alone() {
    let prices = Prices::parse(
        r#"{"as_of": "2026-01-01", "models": {"model-a": {"input": 0, "output": 1000000}}}"#,
    );
    let (simulator, place) = (Simulator::start().unwrap(), Place::quick());
    let llm = at(&simulator, &place).prices(prices.unwrap()).build().unwrap();
    let of = |id: &str, dollars| ask(id).with_max_tokens(10).with_budget(dollars);
    let unknown = llm_batch::Request::prompt("c", "no-price", "c").with_budget(1.0);
    let (outcomes, _) = run(&llm, [of("a", 5.0), of("b", 4.9), unknown]);
    let kinds: HashMap<&str, &str> = outcomes
        .iter()
        .map(|(id, outcome)| {
            (id.as_str(), outcome.as_ref().map_or_else(RequestError::kind, |_| ""))
        })
        .collect();
    assert_eq!(kinds, HashMap::from([("a", ""), ("b", "over_budget"), ("c", "invalid_request")]));
    assert_eq!(simulator.paid(), ["question a"]);
}
