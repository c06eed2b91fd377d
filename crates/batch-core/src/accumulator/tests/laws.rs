//! The laws of the accumulator, over random policies and calls.

use std::thread;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use super::pair::{Dice, Pair};
use super::*;

/// Draws a policy that meets its limits often.
fn random_policy(mut dice: Dice) -> Policy {
    let dispatch = match dice.roll(4) {
        0 => Dispatch::Natural,
        1 => Dispatch::Full,
        2 if dice.roll(8) == 0 => Dispatch::Linger(u64::MAX),
        _ => Dispatch::Linger(1 + dice.roll(12)),
    };
    let short = |dice: &mut Dice, most| usize::try_from(1 + dice.roll(most)).unwrap();
    let (max_items, capacity_items, max_in_flight) =
        (short(&mut dice, 6), short(&mut dice, 24), short(&mut dice, 4));
    let limit = |dice: &mut Dice| if dice.roll(2) == 0 { u64::MAX } else { 6 + dice.roll(30) };
    Policy {
        dispatch,
        max_items,
        max_weight: limit(&mut dice),
        order: if dice.roll(2) == 0 { Order::Fifo } else { Order::Unordered },
        capacity_items,
        capacity_weight: limit(&mut dice),
        max_in_flight,
        delivery_timeout: [None, Some(40), Some(12), Some(u64::MAX)][short(&mut dice, 4) - 1],
        retry: RetryPolicy {
            base: [0, 1, 3, u64::MAX][short(&mut dice, 4) - 1],
            cap: [0, 4, 20, u64::MAX][short(&mut dice, 4) - 1],
            max_attempts: u32::try_from(dice.roll(6)).unwrap(),
            budget: [0, 1, 6, u32::MAX][short(&mut dice, 4) - 1],
        },
        history: short(&mut dice, 4) - 1,
        seed: dice.roll(1_000),
    }
}

/// Runs `cases` of 1,000 operations; a failing one is made small, and printed with its seed.
fn run(cases: u32, seed: u64, test: impl Fn(u64, Vec<u64>) -> Result<(), TestCaseError>) {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        rng_seed: RngSeed::Fixed(seed),
        ..Config::default()
    };
    let calls = (any::<u64>(), vec(any::<u64>(), 500..1_500));
    TestRunner::new(config).run(&calls, |(policy, calls)| test(policy, calls)).unwrap();
}

fn follow(policy: u64, calls: &[u64]) -> Pair {
    let mut pair = Pair::new(random_policy(Dice(policy)));
    for &call in calls {
        pair.step(Dice(call));
    }
    pair.wind_up();
    pair
}

/// A million operations.
#[test]
fn the_laws_hold_for_any_calls() {
    let halves = [0x0BA7_C4E5, 0x1BA7_C4E5];
    thread::scope(|scope| {
        for seed in halves {
            scope.spawn(move || {
                run(500, seed, |policy, calls| {
                    follow(policy, &calls);
                    Ok(())
                });
            });
        }
    });
}

#[test]
fn the_same_calls_give_the_same_trace() {
    run(20, 0x0BA7_C4E5, |policy, calls| {
        let traces = [0; 2].map(|_| format!("{:?}", follow(policy, &calls).trace));
        prop_assert_eq!(&traces[0], &traces[1]);
        Ok(())
    });
}
