//! The clients: how many, what they send, and what has to come back.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use super::Fallible;
use super::rounds::per_item;

/// Threads or tasks that submit.
pub(super) const CLIENTS: u32 = 2;

/// Items that a client submits before it waits for them.
pub(super) const OUTSTANDING: u32 = 500;

/// Items of a batch.
pub(super) const BATCH: u32 = 100;

/// How often a client submits and waits. Few, so that a run is over before the system takes the
/// processor away on a busy machine; the rounds make up for it.
pub(super) const WAVES: u32 = 20;

/// Items of one run.
pub(super) const ITEMS: u32 = CLIENTS * OUTSTANDING * WAVES;

/// No batch waits as long: 500 outstanding items of each client make full batches.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// The items of one wave.
pub(super) fn wave() -> impl ExactSizeIterator<Item = u64> {
    (0..OUTSTANDING).map(u64::from)
}

/// What the processor of every case does with an item.
pub(super) fn answer(item: u64) -> u64 {
    item + 1
}

/// The sum of the answers to one run.
pub(super) fn expected() -> u64 {
    u64::from(CLIENTS * WAVES) * wave().map(answer).sum::<u64>()
}

/// Runs the clients as threads that start together. A client does all its waves and returns the
/// sum of its answers. The time runs from the first start to the last end.
pub(super) fn run(client: impl Fn() -> Fallible<u64> + Sync) -> Fallible<f64> {
    let start = Barrier::new(CLIENTS as usize);
    let runs: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    let started = Instant::now();
                    let sum = client().map_err(|error| error.to_string());
                    (started, sum, Instant::now())
                })
            })
            .collect();
        clients.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let mut sum = 0;
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for run in runs {
        let (started, part, ended) = run.map_err(|_| "a client panicked")?;
        sum += part?;
        starts.push(started);
        ends.push(ended);
    }
    let (first, last) = (starts.into_iter().min(), ends.into_iter().max());
    let (first, last) = first.zip(last).ok_or("no client ran")?;
    per_item(last - first, ITEMS, sum, expected())
}
