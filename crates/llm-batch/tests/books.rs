//! What is kept in the books of requests: what was told, what it may have cost, and what may be spent.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, SystemTime};

use common::priced::{ask, expiring, go, losing, open, retrying};
use common::steps::Steps;
use common::{KEY, Place, changed, run_until};
use llm_batch::{
    Body, Error, LaneChoice, Message, OnAmbiguous, Overview, PendingReason, Prices, Request,
    RequestError, Role, Stage, Submission,
};
use llm_simulator::{Call, Endpoint, Reply, Simulator};
use serde_json::{Value, json};

/// A provider that does not take the first create or ask, and asks to wait for a minute.
fn busy_once() -> Simulator {
    let busy = |call: &Call<'_>| {
        let is_first = matches!(call.endpoint, Endpoint::Create | Endpoint::Ask) && call.nth == 0;
        let busy = || Reply::error(429, "rate_limit_error", "slow");
        is_first.then(|| busy().with_header("retry-after", "60"))
    };
    Simulator::builder().before(busy).start().unwrap()
}

/// Where a process ended in between, the delivery of the older request of an id was taken for that
/// of the newer one, which was never told.
#[test]
fn a_newer_request_of_an_id_is_not_taken_for_told_because_the_older_one_was() {
    let simulator = Simulator::builder().running(1).start().unwrap();
    let place = Place::quick();
    let settings = || open(&simulator, &place).fresh(true);
    go(settings(), [ask("a")]).1.unwrap();
    let newer = || Request::prompt("a", "model-a", "question newer");
    let is_there = |submission: &Submission| submission.stage == Stage::Submitted;
    let is_sent = || Overview::read(place.state()).unwrap().submissions.iter().any(is_there);
    let rarely = settings().poll_interval(Duration::from_hours(1));
    let pending = run_until(is_sent, rarely, [newer()]).1;
    assert!(matches!(pending, Err(Error::Pending { .. })), "{pending:?}");
    assert_eq!(simulator.count(Endpoint::Create), 2);
    let (outcomes, ended) = go(settings(), [newer()]);
    assert_eq!(outcomes.len(), 1);
    assert_eq!(outcomes[0].1.as_ref().unwrap().text.as_deref(), Some("answer to question newer"));
    ended.unwrap();
    // Told once, in this process or another.
    let (outcomes, ended) = go(settings(), [newer()]);
    assert_eq!((outcomes.len(), ended.unwrap().accounting.succeeded), (0, 1));
    assert_eq!(simulator.paid().len(), 2);
}

/// Each process began with what the limit left for the first repetition.
#[test]
fn a_limit_to_the_cost_is_not_filled_up_by_starting_again() {
    let (simulator, place) = (losing(Endpoint::Ask), Place::quick());
    for _ in 0..4 {
        let ended = go(retrying(&simulator, &place).max_cost(35.0), [ask("a")]).1;
        assert!(matches!(ended, Err(Error::Ambiguous { .. })), "{ended:?}");
        assert_eq!(simulator.count(Endpoint::Ask), 3);
    }
    let ended = go(retrying(&simulator, &place).max_cost(45.0), [ask("a")]).1;
    assert!(matches!(ended, Err(Error::Ambiguous { .. })), "{ended:?}");
    assert_eq!(simulator.count(Endpoint::Ask), 4);
}

/// It counted as free.
#[test]
fn an_answer_that_does_not_tell_its_tokens_counts_as_what_it_may_have_cost() {
    let simulator = Simulator::builder()
        .after(|call, usual| match call.endpoint {
            Endpoint::Ask => changed(usual, |answer| answer["usage"] = Value::Null),
            _ => usual,
        })
        .start()
        .unwrap();
    let place = Place::quick();
    let limited = || open(&simulator, &place).lane(LaneChoice::Sync).max_cost(15.0);
    let counts = go(limited(), [ask("a")]).1.unwrap().accounting;
    assert_eq!((counts.succeeded, counts.output_tokens, counts.cost), (1, 0, None));
    let ended = go(limited(), ["a", "b"].map(ask)).1;
    assert!(
        matches!(ended, Err(Error::OverBudget { estimate, .. }) if estimate > 19.0),
        "{ended:?}"
    );
    assert_eq!(simulator.paid().len(), 1);
}

/// What was told to be of unknown fate counted as free, too.
#[test]
fn what_was_given_up_and_may_be_paid_for_counts_as_what_it_may_have_cost() {
    let (simulator, place) = (losing(Endpoint::Ask), Place::quick());
    let limited = || {
        let settings = open(&simulator, &place).lane(LaneChoice::Sync).max_cost(15.0);
        settings.on_ambiguous(OnAmbiguous::Fail)
    };
    let (outcomes, _) = go(limited(), [ask("a")]);
    assert!(outcomes[0].1.as_ref().unwrap_err().may_be_paid());
    let ended = go(limited(), ["a", "b"].map(ask)).1;
    assert!(matches!(ended, Err(Error::OverBudget { .. })), "{ended:?}");
}

/// A request that was told something and had not been sent counted as one that is not sent.
#[test]
fn a_limit_holds_for_what_was_told_and_is_asked_for_again() {
    let simulator = busy_once();
    let place = Place::quick();
    let is_refused = || simulator.count(Endpoint::Create) > 0;
    let ended = run_until(is_refused, open(&simulator, &place), [ask("a")]).1;
    assert!(matches!(ended, Err(Error::Pending { .. })), "{ended:?}");
    let (outcomes, _) = go(open(&simulator, &place), [ask("a").with_budget(1.0)]);
    assert_eq!(outcomes[0].1.as_ref().unwrap_err().kind(), "over_budget");
    // The caller has lost what he was told.
    let again = || open(&simulator, &place).held(HashMap::new());
    let ended = go(again().max_cost(1.0), [ask("a")]).1;
    assert!(matches!(ended, Err(Error::OverBudget { .. })), "{ended:?}");
    assert_eq!(simulator.paid().len(), 0);
    assert_eq!(go(again().max_cost(6.0), [ask("a")]).1.unwrap().accounting.succeeded, 1);
}

/// A limit that was lowered while a batch was at the provider did not hold for what came back unrun.
#[test]
fn a_lower_limit_holds_for_what_comes_back_and_would_be_sent_again() {
    let (simulator, place) = (expiring(), Place::quick());
    let with = |dollars| open(&simulator, &place).max_cost(dollars);
    let ended = run_until(|| simulator.count(Endpoint::Poll) > 0, with(9.0), [ask("a")]).1;
    assert!(matches!(ended, Err(Error::Pending { .. })), "{ended:?}");
    simulator.end_batches();
    let ended = go(with(1.0), [ask("a")]).1;
    let Err(Error::Pending { reason: PendingReason::OverBudget { problem }, .. }) = ended else {
        panic!("{ended:?}");
    };
    assert!(problem.contains("1.00 USD"), "{problem}");
    assert_eq!(simulator.count(Endpoint::Create), 1);
}

/// The run was refused as a whole, and the batch that was paid for was not brought home.
#[test]
fn a_lower_limit_keeps_no_batch_from_being_brought_home() {
    let simulator = Simulator::builder()
        .running(usize::MAX)
        .before(|call| {
            let is_second = (call.endpoint, call.nth) == (Endpoint::Create, 1);
            let busy = || Reply::error(429, "rate_limit_error", "slow");
            is_second.then(|| busy().with_header("retry-after", "60"))
        })
        .start()
        .unwrap();
    let place = Place::quick();
    let with = |dollars| open(&simulator, &place).max_items(1).max_cost(dollars);
    let are_sent = || simulator.count(Endpoint::Create) == 2;
    let ended = run_until(are_sent, with(11.0), ["a", "b"].map(ask)).1;
    assert!(matches!(ended, Err(Error::Pending { .. })), "{ended:?}");
    simulator.end_batches();
    let (outcomes, ended) = go(with(6.0), ["a", "b"].map(ask));
    assert_eq!(outcomes.len(), 1);
    assert_eq!((&*outcomes[0].0, outcomes[0].1.is_ok()), ("a", true));
    let Err(Error::Pending { reason: PendingReason::OverBudget { .. }, .. }) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!((simulator.count(Endpoint::Create), simulator.paid().len()), (2, 1));
    // With nothing to bring home it is refused before anything is done.
    let ended = go(with(6.0), ["a", "b"].map(ask)).1;
    assert!(matches!(ended, Err(Error::OverBudget { .. })), "{ended:?}");
}

#[test]
fn writing_into_a_cache_is_in_the_estimate() {
    let prices = r#"{"as_of": "2026-01-01", "models": {"model-a": {"input": 1000, "output": 0,
        "cache_write": 1250, "cache_write_1h": 2000}}}"#;
    let simulator = Simulator::start().unwrap();
    let refused = |request: &[Request], mark: bool, dollars: f64| {
        let place = Place::quick();
        let settings = open(&simulator, &place).prices(Prices::parse(prices).unwrap());
        let ended = go(settings.max_cost(dollars).cache_prefixes(mark), request.to_vec()).1;
        match ended {
            Ok(_) => false,
            Err(Error::OverBudget { .. }) => true,
            Err(other) => panic!("{other}"),
        }
    };
    // Some 2,000 tokens by the estimate, at half of a thousand dollars a million: one dollar to
    // read, and two to write.
    let body = |mark: &str| {
        let text = "x".repeat(6_000);
        let system = json!([{"type": "text", "text": text}]).to_string();
        let system = system.replace("\"text\",", &format!("\"text\",{mark}"));
        let body = format!(
            r#"{{"model":"model-a","max_tokens":1,"system":{system},"messages":[{{"role":"user","content":"q"}}]}}"#
        );
        vec![Request::new("a", "model-a", Body::raw(&body).unwrap())]
    };
    let marked = body(r#""cache_control":{"type":"ephemeral","ttl":"1h"},"#);
    assert!(!refused(&body(""), false, 1.2));
    assert!(refused(&marked, false, 1.2), "the caller's own mark");
    assert!(!refused(&marked, false, 2.4));

    let shared = |id: &str| {
        let messages =
            vec![Message::new(Role::System, "x".repeat(6_000)), Message::new(Role::User, "q")];
        Request::new(id, "model-a", Body::Messages(messages)).with_max_tokens(1)
    };
    let shared = ["a", "b"].map(shared);
    assert!(!refused(&shared, false, 2.4));
    assert!(refused(&shared, true, 2.4), "our mark");
    assert!(!refused(&shared, true, 4.8));
}

/// What came too late for its second create, or out of it, was told as if nobody could bill it.
#[test]
fn a_request_that_is_too_late_says_so_where_an_earlier_create_may_be_paid_for() {
    for is_taken in [false, true] {
        let simulator = Simulator::builder()
            .running(usize::MAX)
            .before(move |call| {
                let is_second = call.endpoint == Endpoint::Create && call.nth > 0 && !is_taken;
                let busy = || Reply::error(429, "rate_limit_error", "slow");
                is_second.then(|| busy().with_header("retry-after", "60"))
            })
            .after(|call, usual| match call.endpoint {
                Endpoint::Create if call.nth == 0 => Reply::Drop,
                Endpoint::List => changed(usual, |page| page["data"] = json!([])),
                _ => usual,
            })
            .start()
            .unwrap();
        let place = Place::quick();
        let settings = || open(&simulator, &place).on_ambiguous(OnAmbiguous::Resubmit);
        let are_sent = || simulator.count(Endpoint::Create) == 2;
        assert!(run_until(are_sent, settings(), [ask("a")]).1.is_err());
        let deadline = SystemTime::now() + Duration::from_secs(1);
        let settings = settings().headroom(Duration::from_millis(300));
        let (outcomes, _) = go(settings, [ask("a").with_deadline(deadline)]);
        let told = outcomes[0].1.as_ref().unwrap_err();
        assert!(matches!(told, RequestError::DeadlineMissed { may_be_paid: true }), "{told:?}");
        // One that was not taken is tried once more, if there is time.
        let creates = simulator.count(Endpoint::Create);
        assert!(if is_taken { creates == 2 } else { creates <= 3 }, "{creates}");
        assert_eq!(simulator.count(Endpoint::Cancel), usize::from(is_taken));
    }
}

/// Each of them has a record of its own, and was sent in a create of its own.
#[test]
fn requests_that_were_asked_alone_in_vain_go_into_one_batch() {
    let steps = Steps::default();
    let simulator = Simulator::builder()
        .before(move |call| {
            if call.endpoint != Endpoint::Ask {
                return None;
            }
            // The first is not refused before there is another one.
            match call.nth {
                0 => steps.wait_for("second"),
                _ => steps.reach("second"),
            }
            let busy = Reply::error(429, "rate_limit_error", "slow");
            Some(busy.with_header("retry-after", "60"))
        })
        .start()
        .unwrap();
    let place = Place::quick();
    let ids = ["a", "b", "c", "d", "e"];
    let alone = open(&simulator, &place).lane(LaneChoice::Sync);
    let ended = run_until(|| simulator.count(Endpoint::Ask) > 1, alone, ids.map(ask)).1;
    assert!(matches!(ended, Err(Error::Pending { .. })), "{ended:?}");
    let asks = simulator.count(Endpoint::Ask) as u64;
    assert!(asks > 1);
    let (outcomes, ended) = go(open(&simulator, &place), ids.map(ask));
    common::assert_answered(&outcomes, &ids);
    let counts = ended.unwrap().accounting;
    assert_eq!((counts.submissions, counts.batches), (asks + 1, 1));
    assert_eq!(simulator.count(Endpoint::Create), 1);
    // The same again, of another process.
    let counts = go(open(&simulator, &place), ids.map(ask)).1.unwrap().accounting;
    assert_eq!((counts.submissions, counts.batches), (asks + 1, 1));
}

/// The answer comes after the time is up: the request was read, and may be paid for.
#[test]
fn an_ask_that_the_time_out_cuts_is_of_unknown_fate_and_is_not_asked_again_unasked() {
    let simulator = Simulator::builder()
        .after(|call, usual| match call.endpoint {
            Endpoint::Ask if call.nth < 2 => Reply::Silence,
            _ => usual,
        })
        .start()
        .unwrap();
    let place = Place::quick();
    let short = || open(&simulator, &place).lane(LaneChoice::Sync);
    let ended = go(short().timeout(Duration::from_secs(2)), [ask("a")]).1;
    assert!(matches!(ended, Err(Error::Ambiguous { requests: 1, .. })), "{ended:?}");
    for lane in [LaneChoice::Sync, LaneChoice::Auto, LaneChoice::Batch] {
        let ended = go(short().lane(lane), [ask("a")]).1;
        assert!(matches!(ended, Err(Error::Ambiguous { requests: 1, .. })), "{ended:?}");
        let said = ended.unwrap_err().to_string();
        let is_told = said.contains("cannot be looked for") && said.contains("`sync_retry`");
        assert!(is_told && !said.contains("go on looking"), "{said}");
    }
    assert_eq!((simulator.count(Endpoint::Ask), simulator.count(Endpoint::Create)), (1, 0));
    let retry = || short().sync_retry(true);
    let ended = go(retry().timeout(Duration::from_secs(2)), [ask("a")]).1;
    assert!(matches!(ended, Err(Error::Ambiguous { .. } | Error::Pending { .. })), "{ended:?}");
    let counts = go(retry(), [ask("a")]).1.unwrap().accounting;
    assert_eq!((counts.possibly_paid_twice, counts.submissions), (1, 3));
    assert_eq!(simulator.paid().len(), 3);
}

/// However short its waits are: each is twice the one before.
#[test]
fn a_provider_that_stays_busy_is_asked_less_and_less_often() {
    let check = |lane| {
        let simulator = Simulator::builder()
            .before(|call| {
                let is_paid = matches!(call.endpoint, Endpoint::Create | Endpoint::Ask);
                let busy = || Reply::error(429, "rate_limit_error", "slow");
                is_paid.then(|| busy().with_header("retry-after", "0"))
            })
            .start()
            .unwrap();
        let place = Place::quick();
        let settings = open(&simulator, &place).lane(lane).timeout(Duration::from_secs(1));
        let ended = go(settings, [ask("a")]).1;
        // The last one may be cut by the time-out once it is sent: its fate is unknown.
        let is_open = matches!(ended, Err(Error::Pending { .. } | Error::Ambiguous { .. }));
        assert!(is_open, "{ended:?}");
        let calls = simulator.count(Endpoint::Create) + simulator.count(Endpoint::Ask);
        // 1 + 2 + 4 and so on are over a second after ten, and a quarter less after eleven.
        assert!((2..=11).contains(&calls), "{calls}");
    };
    thread::scope(|scope| {
        for lane in [LaneChoice::Batch, LaneChoice::Sync] {
            scope.spawn(move || check(lane));
        }
    });
}

/// It must tell nothing of the key to who reads the folder: neither by itself nor beside another one.
#[test]
fn the_books_hold_a_digest_of_the_key_that_nothing_can_be_told_from() {
    let simulator = Simulator::start().unwrap();
    let place = Place::quick();
    let intent = |number: u32| -> Value {
        let intent = place.state().join(format!("00000{number}.intent.json"));
        serde_json::from_slice(&std::fs::read(intent).unwrap()).unwrap()
    };
    go(open(&simulator, &place), [ask("a")]).1.unwrap();
    go(open(&simulator, &place), [ask("b")]).1.unwrap();
    let accounts = [1, 2].map(|number| intent(number)["account"].as_str().unwrap().to_owned());
    assert_ne!(accounts[0], accounts[1], "of one key");
    let nonce = intent(1)["nonce"].as_str().unwrap().to_owned();
    let of_key = |key: &str| common::anthropic(simulator.url(), key).account(&nonce).unwrap();
    assert_eq!(of_key(KEY), accounts[0]);
    assert_ne!(of_key("another"), accounts[0]);
    for account in &accounts {
        assert!(account.len() == 32 && !account.contains(KEY));
        // Not of the key alone, nor of the key and what stands in the folder, in a plain way.
        let texts = [KEY.to_owned(), format!("{nonce}{KEY}"), format!("{KEY}{nonce}")];
        for text in texts {
            assert!(!blake3::hash(text.as_bytes()).to_hex().starts_with(account.as_str()));
        }
    }
}
