//! Whatever goes wrong, in every lane, and however often a run begins again: no more is paid than was
//! allowed, and nothing twice that was not allowed by name.
//!
//! `SPEND_SEEDS` says how many seeds are tried, 300 unless said otherwise.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::env;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use common::{KEY, Place, SHAPES, ask, run, settings};
use llm_batch::{Builder, Error, LaneChoice, OnAmbiguous, Prices, Request};
use llm_simulator::{Endpoint, Faults, Reply, Simulator};

const REQUESTS: u32 = 4;
/// An answer has five tokens, and may have no more: five dollars in each lane.
const DOLLARS: f64 = 5.0;
const PRICES: &str = r#"{"as_of": "2026-01-01", "batch_share": 1,
    "models": {"model-a": {"input": 0, "output": 1000000}}}"#;

/// Every second call goes wrong, but for one thing: who asks for one answer and is told that the provider is
/// overloaded takes that at its word, and here it is said of what was done, too.
fn simulator(seed: u64, running: usize) -> Simulator {
    Simulator::builder()
        .running(running)
        .faults(Faults::seeded(seed, 50))
        .after(|call, usual| match &usual {
            Reply::Full { status: 529, .. } if call.endpoint == Endpoint::Ask => {
                Reply::error(500, "api_error", "simulated")
            }
            _ => usual,
        })
        .start()
        .unwrap()
}

/// How many seeds came to their end, and how many of them paid for something perhaps twice.
#[derive(Default)]
struct Ends {
    well: AtomicU32,
    in_doubt: AtomicU32,
}

/// Runs each seed again and again, and checks what was paid after each run.
fn each_run(allow: fn(Builder, u64) -> Builder, check: fn(u64, &[String])) -> (u32, u32) {
    let ends = Ends::default();
    let seeds = env::var("SPEND_SEEDS").map_or(300, |seeds| seeds.parse().unwrap());
    common::each_seed(0..seeds, |seed| {
        let (lane, running) = match seed % 3 {
            0 => (LaneChoice::Sync, 0),
            1 => (LaneChoice::Batch, 1),
            // Some of them are late, and asked alone.
            _ => (LaneChoice::Auto, 30),
        };
        let (simulator, place) = (simulator(seed, running), Place::quick());
        simulator.plant_foreign(3);
        let due = SystemTime::now() + Duration::from_millis(400);
        let request = |n: u32| -> Request {
            let request = ask(&n.to_string()).with_max_tokens(5);
            let is_due = lane == LaneChoice::Auto && n.is_multiple_of(2);
            if is_due { request.with_deadline(due) } else { request }
        };
        for round in 0..8 {
            let provider = SHAPES[usize::from(seed % 4 > 1)](simulator.url(), KEY);
            let settings = settings(provider, &place.state())
                .max_in_flight(1)
                .lane(lane)
                .batch_time(Duration::ZERO)
                .headroom(Duration::from_millis(150))
                .timeout(Duration::from_millis(20 << round));
            let llm = allow(settings, seed).build().unwrap();
            let ended = run(&llm, (0..REQUESTS).map(request)).1;
            check(seed, &simulator.paid());
            match ended {
                Ok(run) => {
                    ends.well.fetch_add(1, Ordering::Relaxed);
                    let is_in_doubt = run.accounting.possibly_paid_twice > 0;
                    ends.in_doubt.fetch_add(u32::from(is_in_doubt), Ordering::Relaxed);
                    break;
                }
                Err(Error::OverBudget { .. }) => break,
                Err(Error::Pending { .. } | Error::Ambiguous { .. }) => {}
                Err(other) => panic!("seed {seed}: {other}"),
            }
        }
    });
    (ends.well.into_inner(), ends.in_doubt.into_inner())
}

fn limit(seed: u64) -> f64 {
    f64::from(REQUESTS + u32::try_from(seed % 5).unwrap()) * DOLLARS
}

#[test]
fn no_run_and_no_later_one_pays_more_than_the_limit() {
    let generous = |settings: Builder, seed| {
        settings
            .prices(Prices::parse(PRICES).unwrap())
            .max_cost(limit(seed))
            .sync_retry(true)
            .on_ambiguous(OnAmbiguous::Resubmit)
            .pay_twice_for_deadlines(seed.is_multiple_of(2))
    };
    let (well, in_doubt) = each_run(generous, |seed, paid| {
        let spent = f64::from(u32::try_from(paid.len()).unwrap()) * DOLLARS;
        assert!(spent <= limit(seed), "seed {seed}: {spent} of {}: {paid:?}", limit(seed));
    });
    // Where nothing is spent, no limit is tried.
    assert!(well > 0 && in_doubt > 0, "{well} ended well, {in_doubt} of them in doubt");
}

#[test]
fn in_no_lane_anything_is_paid_twice_without_leave() {
    let careful = |settings: Builder, _| settings.list_lag(Duration::from_millis(40));
    let (well, in_doubt) = each_run(careful, |seed, paid| {
        let mut texts = paid.to_vec();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), paid.len(), "seed {seed}: {paid:?}");
    });
    assert!(well > 0 && in_doubt == 0, "{well} ended well, {in_doubt} of them in doubt");
}
