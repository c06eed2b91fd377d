//! One state folder, and keys of more than one account.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{
    KEY, Outcome, Place, SHAPES, Shape, ask, assert_answered, changed, run, run_until, settings,
};
use llm_batch::{Builder, Error, OnAmbiguous, PendingReason, Run, Stop};
use llm_simulator::{Call, Endpoint, Reply, Simulator};
use serde_json::{Value, json};

/// The key of somebody else, who sees nothing of what the owner of [`KEY`] has.
const OTHER: &str = "sk-ant-test-OTHER";
/// Another key of the owner's.
const ROTATED: &str = "sk-ant-test-ROTATED";

fn is_other(call: &Call<'_>) -> bool {
    let key = |name| call.seen.header(name);
    [key("x-api-key"), key("authorization")].into_iter().flatten().any(|key| key.ends_with(OTHER))
}

/// A provider that takes the first create, or does not, and loses its answer. Until the switch is
/// turned off, nobody sees in the list what became of it, and who looks is stopped.
fn forgetful(is_taken: bool, stop: Stop) -> (Simulator, Arc<AtomicBool>) {
    let is_first = |call: &Call<'_>| (call.endpoint, call.nth) == (Endpoint::Create, 0);
    let is_blind = Arc::new(AtomicBool::new(true));
    let blind = Arc::clone(&is_blind);
    let simulator = Simulator::builder()
        .before(move |call| match call.endpoint {
            Endpoint::Create if is_first(call) && !is_taken => Some(Reply::Drop),
            // With one in it, it is the look for the newest batch, before the create.
            Endpoint::List
                if call.seen.query("limit") != Some("1") && blind.load(Ordering::SeqCst) =>
            {
                stop.stop();
                Some(Reply::error(500, "api_error", "no list today"))
            }
            Endpoint::Poll | Endpoint::Files if is_other(call) => {
                Some(Reply::error(404, "not_found_error", "no such thing"))
            }
            _ => None,
        })
        .after(move |call, usual| match call.endpoint {
            Endpoint::Create if is_first(call) => Reply::Drop,
            Endpoint::List if is_other(call) => changed(usual, |page| page["data"] = json!([])),
            _ => usual,
        })
        .start()
        .unwrap();
    // So that there is something in the list before the create.
    simulator.plant_foreign(7);
    (simulator, is_blind)
}

struct Client {
    shape: Shape,
    simulator: Simulator,
    place: Place,
}

impl Client {
    fn settings(&self, key: &str) -> Builder {
        settings((self.shape)(self.simulator.url(), key), &self.place.state())
    }

    fn ask(&self, key: &str, policy: OnAmbiguous) -> (Vec<Outcome>, Result<Run, Error>) {
        let llm = self.settings(key).on_ambiguous(policy).build().unwrap();
        run(&llm, ["a", "b"].map(ask))
    }
}

/// Removes fields of the first intent.
fn forget(place: &Place, fields: &[&str]) {
    let path = place.state().join("000001.intent.json");
    let mut intent: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for field in fields {
        intent.as_object_mut().unwrap().remove(*field).unwrap();
    }
    fs::write(path, intent.to_string()).unwrap();
}

/// In each shape, a state folder with a create of unknown fate.
fn each(is_taken: bool, check: impl Fn(Client)) {
    for shape in SHAPES {
        let stop = Stop::new();
        let (simulator, is_blind) = forgetful(is_taken, stop.clone());
        let client = Client { shape, simulator, place: Place::quick() };
        let llm = client.settings(KEY).stop(stop).build().unwrap();
        let (_, ended) = run(&llm, ["a", "b"].map(ask));
        assert!(matches!(ended, Err(Error::Ambiguous { .. })), "{ended:?}");
        drop(llm);
        is_blind.store(false, Ordering::SeqCst);
        check(client);
    }
}

/// The empty list of another account proved that the batch was absent: it was paid for twice.
#[test]
fn a_key_of_another_account_sends_nothing_again_that_it_would_not_see() {
    each(true, |client| {
        for policy in [OnAmbiguous::Hold, OnAmbiguous::Resubmit] {
            // It does not wait for what waiting does not change.
            let (outcomes, ended) = client.ask(OTHER, policy);
            assert!(outcomes.is_empty());
            let error = ended.unwrap_err().to_string();
            assert!(error.contains("another key"), "{error}");
        }
        let (outcomes, ended) = client.ask(KEY, OnAmbiguous::Hold);
        assert_answered(&outcomes, &["a", "b"]);
        ended.unwrap();
        let Client { simulator, .. } = client;
        assert_eq!((simulator.count(Endpoint::Create), simulator.paid().len()), (1, 2));
    });
}

/// A key that was replaced by another one of the same account still sees what there was, so what is
/// absent from its list is absent.
#[test]
fn a_new_key_of_the_same_account_goes_on() {
    for is_taken in [true, false] {
        each(is_taken, |client| {
            let (outcomes, ended) = client.ask(ROTATED, OnAmbiguous::Hold);
            assert_answered(&outcomes, &["a", "b"]);
            ended.unwrap();
            let Client { simulator, .. } = client;
            let creates = if is_taken { 1 } else { 2 };
            assert_eq!((simulator.count(Endpoint::Create), simulator.paid().len()), (creates, 2));
        });
    }
}

/// It said that there is no such batch, and not why.
#[test]
fn a_batch_that_another_key_cannot_read_is_said_to_be_of_another_key() {
    for shape in SHAPES {
        let simulator = Simulator::builder()
            .running(usize::MAX)
            .before(|call| match call.endpoint {
                Endpoint::Poll if is_other(call) => Some(Reply::error(404, "not_found", "none")),
                _ => None,
            })
            .start()
            .unwrap();
        let client = Client { shape, simulator, place: Place::quick() };
        let is_there = || client.simulator.count(Endpoint::Poll) > 0;
        let (_, ended) = run_until(is_there, client.settings(KEY), ["a", "b"].map(ask));
        assert!(matches!(ended, Err(Error::Pending { .. })), "{ended:?}");
        let (_, ended) = client.ask(OTHER, OnAmbiguous::Hold);
        let Err(Error::Pending { reason: PendingReason::Refused { message, .. }, .. }) = ended
        else {
            panic!("{ended:?}");
        };
        assert!(message.contains("another key"), "{message}");
        assert_eq!(client.simulator.count(Endpoint::Create), 1);
    }
}

/// An intent of before tells no key. What only the account sees tells that it is the same.
#[test]
fn a_create_of_an_unknown_key_is_sent_again_where_its_account_is_proven() {
    each(false, |client| {
        forget(&client.place, &["account"]);
        let (outcomes, ended) = client.ask(KEY, OnAmbiguous::Hold);
        assert_answered(&outcomes, &["a", "b"]);
        ended.unwrap();
        let Client { simulator, .. } = client;
        assert_eq!((simulator.count(Endpoint::Create), simulator.paid().len()), (2, 2));
    });
}

/// With no batch before it there is nothing to prove the account by: the empty list of another one
/// was trusted.
#[test]
fn a_create_of_an_unknown_key_is_not_sent_again_without_proof() {
    each(true, |client| {
        if client.simulator.count(Endpoint::Upload) > 0 {
            return;
        }
        forget(&client.place, &["account", "anchor"]);
        for policy in [OnAmbiguous::Hold, OnAmbiguous::Resubmit] {
            let error = client.ask(OTHER, policy).1.unwrap_err().to_string();
            assert!(error.contains("perhaps sent with another key"), "{error}");
        }
        assert_answered(&client.ask(KEY, OnAmbiguous::Hold).0, &["a", "b"]);
        assert_eq!(
            (client.simulator.count(Endpoint::Create), client.simulator.paid().len()),
            (1, 2)
        );
    });
}

/// It was said to be of another key, which nobody knows.
#[test]
fn a_create_of_an_unknown_key_that_cannot_be_seen_is_perhaps_of_another_key() {
    each(true, |client| {
        forget(&client.place, &["account"]);
        let (_, ended) = client.ask(OTHER, OnAmbiguous::Hold);
        let error = ended.unwrap_err().to_string();
        assert!(error.contains("perhaps sent with another key"), "{error}");
        assert_answered(&client.ask(KEY, OnAmbiguous::Hold).0, &["a", "b"]);
        assert_eq!(client.simulator.count(Endpoint::Create), 1);
    });
}

#[test]
fn a_batch_of_an_unknown_key_that_is_refused_is_not_said_to_be_of_another_key() {
    for shape in SHAPES {
        let simulator = Simulator::builder()
            .running(usize::MAX)
            .before(|call| match call.endpoint {
                Endpoint::Poll if call.nth > 0 => Some(Reply::error(404, "not_found", "none")),
                _ => None,
            })
            .start()
            .unwrap();
        let client = Client { shape, simulator, place: Place::quick() };
        let (_, ended) = client.ask(KEY, OnAmbiguous::Hold);
        assert!(matches!(ended, Err(Error::Pending { .. })), "{ended:?}");
        forget(&client.place, &["account"]);
        let error = client.ask(KEY, OnAmbiguous::Hold).1.unwrap_err().to_string();
        assert!(error.contains("none") && !error.contains("another key"), "{error}");
    }
}

/// Whatever the provider refused was told as a file that somebody deleted.
#[test]
fn a_file_that_may_not_be_read_is_not_said_to_be_deleted() {
    let is_blind = Arc::new(AtomicBool::new(true));
    let blind = Arc::clone(&is_blind);
    let simulator = Simulator::builder()
        .before(move |call| match call.endpoint {
            Endpoint::Create if call.nth == 0 => Some(Reply::Drop),
            Endpoint::Files if blind.load(Ordering::SeqCst) => {
                Some(Reply::error(403, "missing_scope", "lacks api.files.read"))
            }
            _ => None,
        })
        .start()
        .unwrap();
    let client = Client { shape: common::open_ai, simulator, place: Place::quick() };
    let error = client.ask(KEY, OnAmbiguous::Hold).1.unwrap_err().to_string();
    assert!(error.contains("lacks api.files.read") && !error.contains("deleted"), "{error}");
    is_blind.store(false, Ordering::SeqCst);
    assert_answered(&client.ask(KEY, OnAmbiguous::Hold).0, &["a", "b"]);
    assert_eq!((client.simulator.count(Endpoint::Create), client.simulator.paid().len()), (2, 2));
}
