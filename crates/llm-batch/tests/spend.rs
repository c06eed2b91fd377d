//! Whatever goes wrong and however often a run begins again: no more is paid than was allowed.
//!
//! `SPEND_SEEDS` says how many seeds are tried, 500 unless said otherwise.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::env;
use std::time::Duration;

use common::{KEY, Place, SHAPES, ask, run, settings};
use llm_batch::{Error, LaneChoice, OnAmbiguous, Prices, Request};
use llm_simulator::{Endpoint, Faults, Reply, Simulator};

const REQUESTS: u32 = 4;
/// An answer has five tokens, and may have no more: five dollars alone, and half of that in a batch.
const PRICES: &str =
    r#"{"as_of": "2026-01-01", "models": {"model-a": {"input": 0, "output": 1000000}}}"#;

#[test]
fn no_run_and_no_later_one_pays_more_than_the_limit() {
    let seeds = env::var("SPEND_SEEDS").map_or(500, |seeds| seeds.parse().unwrap());
    common::each_seed(0..seeds, |seed| {
        let (lane, dollars) =
            if seed % 2 == 0 { (LaneChoice::Sync, 5.0) } else { (LaneChoice::Batch, 2.5) };
        let max = f64::from(REQUESTS + u32::try_from(seed % 5).unwrap()) * dollars;
        // Every second call goes wrong, but for one thing: who asks for one answer and is told that the
        // provider is overloaded takes that at its word, and here it is said of what was done, too.
        let simulator = Simulator::builder()
            .faults(Faults::seeded(seed, 50))
            .after(|call, usual| match &usual {
                Reply::Full { status: 529, .. } if call.endpoint == Endpoint::Ask => {
                    Reply::error(500, "api_error", "simulated")
                }
                _ => usual,
            })
            .start()
            .unwrap();
        let place = Place::quick();
        for round in 0..8 {
            let provider = SHAPES[usize::from(seed % 4 > 1)](simulator.url(), KEY);
            let llm = settings(provider, &place.state())
                .max_in_flight(1)
                .prices(Prices::parse(PRICES).unwrap())
                .max_cost(max)
                .lane(lane)
                .sync_retry(true)
                .on_ambiguous(OnAmbiguous::Resubmit)
                .timeout(Duration::from_millis(20 << round))
                .build()
                .unwrap();
            let requests =
                (0..REQUESTS).map(|n| -> Request { ask(&n.to_string()).with_max_tokens(5) });
            let ended = run(&llm, requests).1;
            let paid = simulator.paid().len();
            let spent = f64::from(u32::try_from(paid).unwrap()) * dollars;
            assert!(spent <= max, "seed {seed}, round {round}: {spent} of {max}: {ended:?}");
            match ended {
                Ok(_) | Err(Error::OverBudget { .. }) => break,
                Err(Error::Pending { .. } | Error::Ambiguous { .. }) => {}
                Err(other) => panic!("seed {seed}: {other}"),
            }
        }
    });
}
