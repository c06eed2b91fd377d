//! What a request may cost by its own budget, which holds before every create and every ask.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::time::Duration;

use common::priced::{PRICES, ask, expired, expiring, go, losing, open, retrying};
use common::{KEY, Place, SHAPES, changed, losing_the_first, run_until, settings};
use llm_batch::{Error, LaneChoice, OnAmbiguous, Prices, Stop};
use llm_simulator::{Endpoint, Reply, Simulator};
use serde_json::{Value, json};

/// One that is asked alone costs twice as much as in a batch.
#[test]
fn a_request_over_its_own_budget_is_not_asked_alone_either() {
    let (simulator, place) = (Simulator::start().unwrap(), Place::quick());
    let settings = open(&simulator, &place).lane(LaneChoice::Sync);
    let (outcomes, _) = go(settings, [ask("a").with_budget(10.0), ask("b").with_budget(9.9)]);
    let outcome = |id| &outcomes.iter().find(|(of, _)| of == id).unwrap().1;
    assert!(outcome("a").is_ok());
    assert_eq!(outcome("b").as_ref().unwrap_err().kind(), "over_budget");
    assert_eq!(simulator.paid(), ["question a"]);
}

#[test]
fn a_lower_budget_of_a_request_holds_for_what_was_asked_alone_in_vain() {
    let simulator = Simulator::builder()
        .before(|call| {
            let busy = || Reply::error(429, "rate_limit_error", "slow");
            let is_first = (call.endpoint, call.nth) == (Endpoint::Ask, 0);
            is_first.then(|| busy().with_header("retry-after", "60"))
        })
        .start()
        .unwrap();
    let place = Place::quick();
    let open = || open(&simulator, &place).lane(LaneChoice::Sync);
    let is_refused = || simulator.count(Endpoint::Ask) > 0;
    let ended = run_until(is_refused, open(), [ask("a").with_budget(10.0)]).1;
    assert!(matches!(ended, Err(Error::Pending { .. })), "{ended:?}");
    let (outcomes, _) = go(open(), [ask("a").with_budget(9.0)]);
    assert_eq!(outcomes[0].1.as_ref().unwrap_err().kind(), "over_budget");
    assert_eq!((simulator.count(Endpoint::Ask), simulator.paid().len()), (1, 0));
}

/// It was told as expired, which is never billed.
#[test]
fn a_request_over_its_lowered_budget_is_kept_where_an_earlier_create_may_be_paid_for() {
    let simulator = Simulator::builder()
        .running(usize::MAX)
        .after(|call, usual| match call.endpoint {
            Endpoint::Create if call.nth == 0 => Reply::Drop,
            Endpoint::List => changed(usual, |page| page["data"] = json!([])),
            _ => expired(call, usual),
        })
        .start()
        .unwrap();
    let place = Place::quick();
    let resubmit = || open(&simulator, &place).on_ambiguous(OnAmbiguous::Resubmit);
    let is_there = || simulator.count(Endpoint::Poll) > 0;
    let ended = run_until(is_there, resubmit(), [ask("a").with_budget(11.0)]).1;
    assert!(matches!(ended, Err(Error::Pending { .. })), "{ended:?}");
    simulator.end_batches();
    let (outcomes, ended) = go(resubmit(), [ask("a").with_budget(6.0)]);
    assert!(outcomes.is_empty(), "{outcomes:?}");
    assert!(matches!(ended, Err(Error::Ambiguous { requests: 1, .. })), "{ended:?}");
    assert_eq!(simulator.count(Endpoint::Create), 2);
}

/// Nor did a lowered budget of its own.
#[test]
fn a_lower_budget_of_a_request_holds_for_what_comes_back_and_would_be_sent_again() {
    let (simulator, place) = (expiring(), Place::quick());
    let is_there = || simulator.count(Endpoint::Poll) > 0;
    let first = open(&simulator, &place);
    assert!(run_until(is_there, first, [ask("a").with_budget(9.0)]).1.is_err());
    simulator.end_batches();
    let (outcomes, _) = go(open(&simulator, &place), [ask("a").with_budget(1.0)]);
    assert_eq!(outcomes[0].1.as_ref().unwrap_err().kind(), "over_budget");
    assert_eq!(simulator.count(Endpoint::Create), 1);
}

/// It held only for what had not been looked for yet.
#[test]
fn a_lower_budget_of_a_request_holds_for_a_lost_create_that_is_absent() {
    for shape in SHAPES {
        let stop = Stop::new();
        let simulator = losing_the_first(false, &stop);
        let place = Place::quick();
        let open = || {
            let settings = settings(shape(simulator.url(), KEY), &place.state());
            settings.prices(Prices::parse(PRICES).unwrap())
        };
        let ended = go(open().stop(stop), ["a", "b"].map(|id| ask(id).with_budget(9.0))).1;
        assert!(matches!(ended, Err(Error::Ambiguous { .. })), "{ended:?}");
        let (outcomes, ended) = go(open(), [ask("a").with_budget(1.0), ask("b").with_budget(9.0)]);
        ended.unwrap();
        let outcome = |id| &outcomes.iter().find(|(of, _)| of == id).unwrap().1;
        assert_eq!(outcome("a").as_ref().unwrap_err().kind(), "over_budget");
        assert!(outcome("b").is_ok());
        assert_eq!(simulator.paid(), ["question b"]);
    }
}

/// Nor did it hold for the rest of a batch that the provider would not run.
#[test]
fn a_lower_budget_of_a_request_holds_for_the_rest_of_a_rejected_batch() {
    for is_full in [false, true] {
        let stop = Stop::new();
        let hand = stop.clone();
        let simulator = Simulator::builder()
            .before(move |call| {
                if call.endpoint == Endpoint::Poll {
                    hand.stop();
                }
                None
            })
            .after(move |call, usual| match call.endpoint {
                Endpoint::Poll if call.seen.path.ends_with("_1") => changed(usual, |batch| {
                    let code = if is_full { "token_limit_exceeded" } else { "invalid_request" };
                    let line = if is_full { Value::Null } else { json!(1) };
                    batch["status"] = json!("failed");
                    batch["output_file_id"] = Value::Null;
                    batch["request_counts"] = json!({"total": 2, "completed": 0, "failed": 0});
                    let fault = json!({"code": code, "line": line, "message": "no"});
                    batch["errors"] = json!({"data": [fault]});
                }),
                _ => usual,
            })
            .start()
            .unwrap();
        let place = Place::quick();
        let open = || {
            let settings = settings(common::open_ai(simulator.url(), KEY), &place.state());
            settings.prices(Prices::parse(PRICES).unwrap())
        };
        let ended = go(open().stop(stop), ["a", "b"].map(|id| ask(id).with_budget(9.0))).1;
        assert!(matches!(ended, Err(Error::Pending { .. })), "{ended:?}");
        let (outcomes, ended) = go(open(), ["a", "b"].map(|id| ask(id).with_budget(1.0)));
        ended.unwrap();
        let kinds: Vec<&str> =
            outcomes.iter().map(|(_, outcome)| outcome.as_ref().unwrap_err().kind()).collect();
        let first = if is_full { "over_budget" } else { "invalid_request" };
        assert_eq!(kinds, [first, "over_budget"]);
        assert_eq!(simulator.count(Endpoint::Create), 1);
    }
}

/// It was asked once, before the first time.
#[test]
fn a_budget_of_a_request_holds_for_all_that_may_be_paid_for_it() {
    let (simulator, place) = (losing(Endpoint::Ask), Place::quick());
    let asked = |dollars: f64| {
        let ended = go(retrying(&simulator, &place), [ask("a").with_budget(dollars)]).1;
        assert!(matches!(ended, Err(Error::Ambiguous { .. })), "{ended:?}");
        simulator.count(Endpoint::Ask)
    };
    assert_eq!(asked(25.0), 2);
    assert_eq!(asked(25.0), 2, "nor after a restart");
    assert_eq!(asked(35.0), 3);
}

#[test]
fn a_lost_create_is_not_sent_again_over_the_budget_of_one_of_its_requests() {
    let simulator = Simulator::builder()
        .after(|call, usual| match call.endpoint {
            Endpoint::Create => Reply::Drop,
            // The fence is seen, and nothing else.
            Endpoint::List if call.nth > 0 => changed(usual, |page| page["data"] = json!([])),
            _ => usual,
        })
        .start()
        .unwrap();
    let place = Place::quick();
    let settings = || {
        let settings = open(&simulator, &place).on_ambiguous(OnAmbiguous::Resubmit);
        settings.list_lag(Duration::from_mins(5)).timeout(Duration::from_secs(2))
    };
    let ended = go(settings(), [ask("a").with_budget(8.0), ask("b")]).1;
    assert!(matches!(ended, Err(Error::Ambiguous { requests: 2, .. })), "{ended:?}");
    assert_eq!(simulator.count(Endpoint::Create), 1);
}
