//! What a run cost, what it would have cost one by one, and what it must cost.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use common::{Faults, Place, Sim, builder, priced, run};
use llm_batch::{Error, Kind, LaneChoice, Prices, Request};
use llm_simulator::{Endpoint, Simulator};

fn prices() -> Prices {
    let table = r#"{"as_of": "2026-01-01", "models": {"m": {"input": 1000, "output": 10000}}}"#;
    Prices::parse(table).expect("a table")
}

fn ask(id: &str, model: &str) -> Request {
    Request::prompt(id, model, format!("question {id}")).with_max_tokens(100)
}

/// Three tokens in and five out, at a thousand and ten thousand dollars a million.
const ONE: f64 = (3.0 * 1000.0 + 5.0 * 10_000.0) / 1_000_000.0;

fn is(cost: Option<f64>, expected: f64) -> bool {
    cost.is_some_and(|cost| (cost - expected).abs() < 1e-9)
}

#[test]
fn the_cost_is_that_of_the_lane_and_beside_it_stands_that_of_one_by_one() {
    for (lane, share) in [(LaneChoice::Batch, 0.5), (LaneChoice::Sync, 1.0)] {
        let (sim, place) = (Sim::start(Faults::default()), Place::quick());
        let llm = builder(sim.url(), &place.state()).prices(prices()).lane(lane).build().unwrap();
        let requests = || {
            let judge = ask("b", "m").with_kind(Kind::Judge);
            [ask("a", "m"), judge, ask("c", "m")]
        };
        let counts = run(&llm, requests()).1.unwrap().accounting;
        assert!(is(counts.cost, 3.0 * ONE * share), "{counts:?}");
        assert!(is(counts.cost_one_by_one, 3.0 * ONE), "{counts:?}");
        let groups: Vec<(&str, u64)> =
            counts.groups.iter().map(|group| (group.kind.as_str(), group.requests)).collect();
        assert_eq!(groups, [("judge", 1), ("other", 2)]);
        assert!(is(counts.groups[1].cost, 2.0 * ONE * share));
        assert_eq!(llm.accounting().groups.len(), 2);
        // Whoever asks again is told the same, also in another process.
        drop(llm);
        let again = builder(sim.url(), &place.state()).prices(prices()).build().unwrap();
        assert_eq!(run(&again, requests()).1.unwrap().accounting.cost, counts.cost);
    }
}

#[test]
fn one_model_without_a_price_leaves_no_sum() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    let llm = builder(sim.url(), &place.state()).prices(prices()).build().unwrap();
    let counts = run(&llm, [ask("a", "m"), ask("b", "unknown")]).1.unwrap().accounting;
    assert_eq!((counts.cost, counts.cost_one_by_one), (None, None));
    assert!(counts.groups[0].cost.is_some());
}

#[test]
fn a_run_that_may_cost_too_much_is_refused_before_anything_is_sent() {
    let (sim, place) = (Sim::start(Faults::default()), Place::quick());
    let limited = |dollars| {
        let llm = builder(sim.url(), &place.state()).prices(prices()).max_cost(dollars);
        run(&llm.build().unwrap(), [ask("a", "m"), ask("b", "m")])
    };
    // A hundred tokens of answer each, at half of ten thousand dollars a million, are one dollar.
    let (outcomes, ended) = limited(1.0);
    assert!(outcomes.is_empty());
    assert!(matches!(ended, Err(Error::OverBudget { max, .. }) if max < 1.5), "{ended:?}");
    assert_eq!(sim.seen().len(), 0);
    limited(1.2).1.unwrap();
    assert_eq!(sim.creates(), 1);
    // What sends nothing is not refused, whatever it has cost.
    limited(0.0).1.unwrap();

    let llm = builder(sim.url(), &place.state()).prices(prices()).max_cost(9.0).build().unwrap();
    let ended = run(&llm, [ask("c", "unknown")]).1;
    assert!(matches!(&ended, Err(Error::NoPrice { model }) if model == "unknown"), "{ended:?}");
}

/// In cents the limit was more than itself.
#[test]
fn a_limit_to_the_cost_says_what_it_is() {
    let (simulator, place) = (Simulator::start().unwrap(), Place::quick());
    let limited = priced::open(&simulator, &place).max_cost(4.999);
    let said = priced::go(limited, [priced::ask("a")]).1.unwrap_err().to_string();
    assert!(
        said.contains("5.00 USD, more than the 5.00 USD allowed (5.000 against 4.999);"),
        "{said}"
    );
    assert_eq!(simulator.count(Endpoint::Create), 0);
}
