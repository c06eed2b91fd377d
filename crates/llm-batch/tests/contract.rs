//! What every provider's file must do, whatever its shape: one list of checks for all of them.
//!
//! A new provider is added to [`SHAPES`] and has to pass.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]
#![allow(clippy::print_stderr, reason = "says which provider a check failed for")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use common::{KEY, Outcome, Place, ask, assert_answered, settings};
use llm_batch::providers::{OpenAi, Profile};
use llm_batch::{Builder, Error, LaneChoice, Provider, RequestError, Run, Status, Stop, cancel};
use llm_simulator::{Endpoint, Reply, Said, Simulator};

type Open = fn(&str) -> Arc<dyn Provider>;

/// Every provider over HTTP, by name.
const SHAPES: [(&str, Open); 4] = [
    ("anthropic", |url| common::anthropic(url, KEY)),
    ("openai", |url| open_ai(url, Profile::OPENAI)),
    ("azure", |url| open_ai(url, Profile::AZURE)),
    ("ogx", |url| open_ai(url, Profile::OGX)),
];

fn open_ai(url: &str, profile: Profile) -> Arc<dyn Provider> {
    Arc::new(OpenAi::builder(KEY).profile(profile).base_url(url).build().unwrap())
}

fn each(check: impl Fn(&str, Open)) {
    for (name, open) in SHAPES {
        eprintln!("{name}");
        check(name, open);
    }
}

fn builder(open: Open, simulator: &Simulator, place: &Place) -> Builder {
    settings(open(simulator.url()), &place.state())
}

fn run(builder: Builder, ids: &[&str]) -> (Vec<Outcome>, Result<Run, Error>) {
    common::run(&builder.build().unwrap(), ids.iter().map(|id| ask(id)))
}

const IDS: [&str; 5] = ["a", "b", "c/ d", "日本", "e"];

#[test]
fn every_answer_reaches_its_own_requester_and_no_id_of_the_caller_goes_out() {
    each(|_, open| {
        let simulator = Simulator::builder().key(KEY).running(3).start().unwrap();
        let place = Place::quick();
        let (outcomes, ended) = run(builder(open, &simulator, &place), &IDS);
        assert_answered(&outcomes, &IDS);
        let counts = ended.unwrap().accounting;
        assert_eq!((counts.succeeded, counts.batches, counts.submissions), (5, 1, 1));
        assert_eq!((counts.input_tokens, counts.output_tokens), (15, 25));
        assert_eq!(counts.http_calls, simulator.server().seen().len() as u64);
        let sent: BTreeSet<String> = simulator.batches()[0].custom_ids.iter().cloned().collect();
        assert_eq!(sent.len(), 5);
        assert!(IDS.iter().all(|id| !sent.contains(*id)));
        for seen in simulator.server().seen() {
            let body = String::from_utf8_lossy(&seen.body).into_owned();
            assert!(!body.contains(KEY) && !seen.path.contains(KEY));
            let with_key = seen.headers.iter().filter(|(_, value)| value.contains(KEY)).count();
            assert_eq!(with_key, 1);
        }
    });
}

#[test]
fn what_goes_out_is_as_long_as_the_limits_count_it() {
    each(|_, open| {
        let simulator = Simulator::start().unwrap();
        let limits = open(simulator.url()).limits();
        for count in [1, 2, 5] {
            let place = Place::quick();
            run(builder(open, &simulator, &place), &IDS[..count]).1.unwrap();
            let seen = simulator.server().seen();
            let paths = ["/v1/messages/batches", "/v1/files"];
            let carrier = seen
                .iter()
                .rfind(|seen| seen.method == "POST" && paths.contains(&seen.path.as_str()));
            let body = &carrier.unwrap().body;
            let provider = open(simulator.url());
            let bodies: u64 = IDS[..count]
                .iter()
                .map(|id| provider.encode(&ask(id)).unwrap().get().len() as u64)
                .sum();
            let counted = limits.frame_bytes + bodies + count as u64 * limits.entry_bytes;
            assert_eq!(body.len() as u64, counted);
        }
    });
}

#[test]
fn a_lost_create_is_found_or_sent_once_more_and_paid_once() {
    each(|_, open| {
        for is_taken in [true, false] {
            let lost = move |call: &llm_simulator::Call<'_>| {
                call.endpoint == Endpoint::Create && call.nth == 0
            };
            let simulator = Simulator::builder().list_lag(2);
            let simulator = if is_taken {
                simulator.after(move |call, usual| if lost(call) { Reply::Drop } else { usual })
            } else {
                simulator.before(move |call| lost(call).then_some(Reply::Drop))
            };
            let simulator = simulator.start().unwrap();
            for size in [1, 5, 5, 2] {
                simulator.plant_foreign(size);
            }
            let place = Place::quick();
            let (outcomes, ended) = run(builder(open, &simulator, &place), &IDS);
            assert_answered(&outcomes, &IDS);
            let counts = ended.unwrap().accounting;
            assert_eq!(counts.submissions, if is_taken { 1 } else { 2 });
            assert_eq!((counts.batches, counts.possibly_paid_twice), (1, 0));
            assert_eq!(simulator.paid().len(), 5);
        }
    });
}

#[test]
fn refusals_are_definite_and_busy_ones_are_waited_for() {
    each(|_, open| {
        for status in [400, 401, 403, 404, 422] {
            let simulator = Simulator::builder()
                .before(move |call| {
                    let is_create = call.endpoint == Endpoint::Create;
                    is_create.then(|| Reply::error(status, "some_kind", "no"))
                })
                .start()
                .unwrap();
            let (outcomes, ended) = run(builder(open, &simulator, &Place::quick()), &["a"]);
            assert_eq!(ended.unwrap().accounting.failed, 1);
            assert_eq!(outcomes[0].1.as_ref().unwrap_err().kind(), "some_kind");
            assert_eq!(simulator.count(Endpoint::Create), 1);
        }
        let simulator = Simulator::builder()
            .before(|call| {
                let is_busy = call.endpoint == Endpoint::Create && call.nth < 3;
                is_busy.then(|| Reply::error(429, "rate_limit_error", "slow down"))
            })
            .start()
            .unwrap();
        let (outcomes, _) = run(builder(open, &simulator, &Place::quick()), &["a"]);
        assert_answered(&outcomes, &["a"]);
        assert_eq!((simulator.count(Endpoint::Create), simulator.paid().len()), (4, 1));
    });
}

#[test]
fn every_end_of_a_request_is_told_as_what_it_is() {
    each(|_, open| {
        let simulator = Simulator::builder()
            .model(|question| match question.text.as_str() {
                "question a" => Said::Error { kind: "odd".to_owned(), message: "no".to_owned() },
                "question b" => Said::Expired,
                "question e" => Said::Canceled,
                text => Said::text(format!("answer to {text}")),
            })
            .start()
            .unwrap();
        let (outcomes, ended) = run(builder(open, &simulator, &Place::quick()), &IDS);
        let counts = ended.unwrap().accounting;
        assert_eq!((counts.succeeded, counts.failed), (2, 3));
        let by_id: BTreeMap<String, _> = outcomes.into_iter().collect();
        let status =
            |id: &str| by_id[id].as_ref().map_or_else(RequestError::status, |_| Status::Succeeded);
        assert_eq!(
            IDS.map(status),
            [
                Status::Errored,
                Status::Expired,
                Status::Succeeded,
                Status::Succeeded,
                Status::Canceled,
            ]
        );
        assert_eq!(by_id["a"].as_ref().unwrap_err().kind(), "odd");
        assert_eq!(simulator.paid().len(), 2, "and what was done is delivered");
    });
}

#[test]
fn a_batch_that_is_cancelled_is_collected_to_its_end() {
    each(|_, open| {
        let stop = Stop::new();
        let hand = stop.clone();
        let simulator = Simulator::builder()
            .running(usize::MAX)
            .before(move |call| {
                if call.endpoint == Endpoint::Poll {
                    hand.stop();
                }
                None
            })
            .start()
            .unwrap();
        let place = Place::quick();
        let stopped = builder(open, &simulator, &place).stop(stop);
        assert!(matches!(run(stopped, &IDS).1, Err(Error::Pending { .. })));
        let batch_id = &simulator.batches()[0].id;
        let provider = open(simulator.url());
        cancel(&*provider, batch_id, Duration::from_secs(9)).unwrap();
        let (outcomes, ended) = run(builder(open, &simulator, &place), &IDS);
        assert_eq!(ended.unwrap().accounting.failed, 5);
        let is_canceled = |outcome: &Outcome| {
            outcome.1.as_ref().is_err_and(|error| error.status() == Status::Canceled)
        };
        assert!(outcomes.iter().all(is_canceled), "{outcomes:?}");
        cancel(&*provider, batch_id, Duration::from_secs(9)).unwrap_err();
        cancel(&*provider, "no/id", Duration::from_secs(9)).unwrap_err();
    });
}

#[test]
fn the_lane_sync_asks_one_by_one_and_waits_together_while_the_provider_is_busy() {
    each(|_, open| {
        let simulator = Simulator::builder()
            .before(|call| match (call.endpoint, call.nth) {
                (Endpoint::Ask, 1 | 2) => Some(
                    Reply::error(429, "rate_limit_error", "slow")
                        .with_header("retry-after", "0.05"),
                ),
                (Endpoint::Ask, 3) => Some(Reply::error(529, "overloaded_error", "busy")),
                _ => None,
            })
            .start()
            .unwrap();
        let place = Place::quick();
        let lane = || builder(open, &simulator, &place).lane(LaneChoice::Sync).max_concurrent(2);
        let (outcomes, ended) = run(lane(), &IDS);
        assert_answered(&outcomes, &IDS);
        let counts = ended.unwrap().accounting;
        assert_eq!((counts.succeeded, counts.submissions, counts.batches), (5, 8, 0));
        assert_eq!((counts.possibly_paid_twice, simulator.paid().len()), (0, 5));
        assert_eq!(simulator.count(Endpoint::Create), 0);
        // The state knows the answers: they are not asked for again, whoever lost them.
        let again = lane().held(std::collections::HashMap::new());
        let (outcomes, _) = run(again, &IDS);
        assert_answered(&outcomes, &IDS);
        assert_eq!(simulator.paid().len(), 5);
    });
}

#[test]
fn a_lost_answer_of_the_lane_sync_is_ambiguous_and_asked_again_only_where_that_is_allowed() {
    each(|_, open| {
        let simulator = Simulator::builder()
            .after(|call, usual| match (call.endpoint, call.nth) {
                (Endpoint::Ask, 0) => Reply::Drop,
                _ => usual,
            })
            .start()
            .unwrap();
        let place = Place::quick();
        let lane = || builder(open, &simulator, &place).lane(LaneChoice::Sync).max_concurrent(1);
        let (outcomes, ended) = run(lane(), &["a", "b"]);
        assert_answered(&outcomes, &["b"]);
        assert!(matches!(ended, Err(Error::Ambiguous { requests: 1, .. })), "{ended:?}");
        assert!(matches!(run(lane(), &["a", "b"]).1, Err(Error::Ambiguous { .. })));
        assert_eq!(simulator.paid().len(), 2);
        let (outcomes, ended) = run(lane().sync_retry(true), &["a", "b"]);
        assert_answered(&outcomes, &["a"]);
        let counts = ended.unwrap().accounting;
        assert_eq!((counts.possibly_paid_twice, counts.submissions), (1, 3));
        assert_eq!(simulator.paid().len(), 3, "and so it was");
    });
}
