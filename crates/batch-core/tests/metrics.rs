//! What the metrics of a batcher say, and that they say what its counters say.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::float_cmp, reason = "sums of whole numbers are exact")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use batch_core::{
    BatchOf, BatchProcessor, Batcher, Close, Disposition, MetricsObserver, Retry, Sim, Stats,
};
use common::memory::{Memory, Mood};
use common::{Gate, LONG, Recorder as Processor, Watched, block_on};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit, with_local_recorder,
};

/// Keeps what every metric was told, by its name and labels.
#[derive(Clone, Default)]
struct Board(Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

struct Entry(Board, String);

impl Board {
    /// Returns what a metric was told: the sum of a counter or gauge.
    fn sum(&self, name: &str) -> f64 {
        self.values(name).iter().sum()
    }

    fn values(&self, name: &str) -> Vec<f64> {
        self.0.lock().unwrap().get(name).cloned().unwrap_or_default()
    }

    /// Returns the sum of all metrics whose name and labels begin so.
    fn total(&self, prefix: &str) -> f64 {
        let board = self.0.lock().unwrap();
        board.iter().filter(|(name, _)| name.starts_with(prefix)).flat_map(|(_, all)| all).sum()
    }

    fn entry(&self, key: &Key) -> Arc<Entry> {
        let labels = key.labels().filter(|label| label.key() != "batcher");
        let labels: Vec<_> =
            labels.map(|label| format!("{}={}", label.key(), label.value())).collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        assert!(key.labels().any(|label| label.key() == "batcher" && label.value() == "b"));
        Arc::new(Entry(self.clone(), name))
    }
}

impl Entry {
    fn add(&self, value: f64) {
        self.0.0.lock().unwrap().entry(self.1.clone()).or_default().push(value);
    }
}

impl CounterFn for Entry {
    fn increment(&self, value: u64) {
        self.add(f64::from(u32::try_from(value).unwrap()));
    }

    fn absolute(&self, _: u64) {
        unreachable!("no counter is set")
    }
}

impl GaugeFn for Entry {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, value: f64) {
        self.add(value);
    }
}

impl HistogramFn for Entry {
    fn record(&self, value: f64) {
        self.add(value);
    }
}

impl Recorder for Board {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.entry(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.entry(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.entry(key))
    }
}

fn observer(board: &Board) -> MetricsObserver {
    with_local_recorder(board, || MetricsObserver::new("b"))
}

/// Holds the metrics against the counters of the batcher.
fn check(board: &Board, stats: Stats) {
    let figure = |count: u64| f64::from(u32::try_from(count).unwrap());
    let outcome = |outcome: &str| board.total(&format!("batch.items{{outcome={outcome}"));
    assert_eq!(outcome("completed"), figure(stats.completed));
    assert_eq!(outcome("failed"), figure(stats.failed));
    assert_eq!(outcome("cancelled"), figure(stats.cancelled));
    assert_eq!(outcome("expired"), figure(stats.expired));
    assert_eq!(outcome("handed_back"), figure(stats.handed_back));
    assert_eq!(outcome("refused"), figure(stats.refused));
    assert_eq!(board.sum("batch.queue.size{}"), figure(stats.queued));
    assert_eq!(board.sum("batch.inflight{}"), figure(stats.in_flight));
    assert_eq!(board.sum("batch.retries{}"), figure(stats.retries));
    assert_eq!(board.sum("batch.splits{}"), figure(stats.splits));
    assert_eq!(board.total("batch.flush{"), figure(stats.calls));
    assert_eq!(board.values("batch.size{}").len(), usize::try_from(stats.calls).unwrap());
}

#[test]
fn a_batch_is_measured_from_its_submit_to_its_end() {
    let board = Board::default();
    let builder = Batcher::builder(Processor::open()).observer(observer(&board)).capacity(10);
    let (batcher, mut sim) = Sim::new(builder.linger(Duration::from_secs(3)), 1).unwrap();
    let tickets = batcher.submit_all([2, 3]).unwrap();
    assert_eq!(board.sum("batch.queue.size{}"), 2.0);
    assert!(sim.run(10));
    drop(tickets.wait());
    assert_eq!(board.values("batch.queue.capacity{}"), [10.0]);
    assert_eq!(board.values("batch.size{}"), [2.0]);
    assert_eq!(board.values("batch.weight{}"), [5.0]);
    assert_eq!(board.values("batch.queue.time{}"), [3.0]);
    assert_eq!(board.values("batch.exec.time{}"), [0.0]);
    assert_eq!(board.values("batch.flush{reason=linger}"), [1.0]);
    assert_eq!(board.values("batch.items{outcome=completed}"), [2.0]);
    check(&board, batcher.stats());
}

/// Decides by the item and the attempt what becomes of it; keeps every tenth batch for good.
#[derive(Debug, Default)]
struct Moody(Mutex<Vec<BatchOf<Moody>>>);

impl BatchProcessor for Moody {
    type Key = u64;
    type Item = u64;
    type Output = ();
    type Error = Disposition;

    fn key(&self, item: &u64) -> u64 {
        item % 3
    }

    fn weight(&self, item: &u64) -> u64 {
        item % 50
    }

    fn process(&self, _: &u64, batch: BatchOf<Self>) {
        if batch.id().0 % 10 == 9 {
            return self.0.lock().unwrap().push(batch);
        }
        match batch.id().0 % 10 {
            3 => return batch.resolve_all(Vec::new()),
            6 => return drop(batch.withdraw()),
            _ => {}
        }
        for slot in batch.slots() {
            let again = slot.attempt() < 4;
            slot.resolve(match slot.item() % 7 {
                0 => Err(Disposition::Fail),
                1 if again => Err(Disposition::Retry { after: None }),
                2 => Err(Disposition::Split),
                // Left unresolved.
                3 => continue,
                _ => Ok(()),
            });
        }
    }

    fn classify(&self, error: &Disposition) -> Disposition {
        *error
    }
}

#[test]
fn every_count_is_that_of_the_stats() {
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        let board = Board::default();
        let builder = Batcher::builder(Moody::default()).observer(observer(&board));
        let builder = builder.max_batch_items(5).capacity(40).linger(Duration::from_secs(1));
        let builder = builder.capacity_weight(600).max_batch_weight(48);
        let builder = builder.retry(Retry::default().max_attempts(3).budget(3));
        let (batcher, mut sim) = Sim::new(builder, seed).unwrap();
        drop(batcher.submit_all((0..50).map(|item| seed * 1_000 + item)).unwrap_err());
        for round in 0..60 {
            let items = (0..=round % 8).map(|item| seed * 1_000 + round * 10 + item);
            let tickets: Vec<_> = items.map_while(|item| batcher.submit(item).ok()).collect();
            for ticket in tickets.into_iter().skip(2).step_by(3) {
                ticket.cancel();
            }
            drop(batcher.try_submit(49));
            sim.step();
            check(&board, batcher.stats());
        }
        assert!(sim.run(10_000));
        check(&board, batcher.stats());
        drop(batcher.submit(seed));
        drop(batcher.close(Close::Abort, LONG));
        assert!(batcher.submit(1).is_err());
        check(&board, batcher.stats());
        seen.extend(board.0.lock().unwrap().keys().cloned());
    }
    // Every end came up.
    for end in [
        "completed",
        "cancelled",
        "failed,error.type=failed",
        "failed,error.type=unresolved",
        "failed,error.type=wrong_count",
        "expired,error.type=expired",
        "expired,error.type=timed_out",
        "handed_back",
        "refused,error.type=full",
        "refused,error.type=full_weight",
        "refused,error.type=too_heavy",
        "refused,error.type=closed",
    ] {
        assert!(
            seen.contains(&format!("batch.items{{outcome={end}}}")),
            "{end} is not in {seen:?}"
        );
    }
    assert!(seen.contains("batch.retries{}") && seen.contains("batch.splits{}"));
}

#[test]
fn what_a_close_gives_back_is_counted() {
    let board = Board::default();
    let builder = Batcher::builder(Processor::open()).observer(observer(&board)).full_only();
    let batcher = builder.build().unwrap();
    drop(batcher.submit_all([1, 2, 1_001]).unwrap());
    assert_eq!(batcher.close(Close::Abort, LONG).leftovers.len(), 3);
    assert_eq!(board.values("batch.items{outcome=handed_back}"), [3.0]);
    check(&board, batcher.stats());
}

#[test]
fn what_the_journal_refuses_is_counted_submit_by_submit() {
    let (board, journal) = (Board::default(), Memory::new());
    let builder = Batcher::builder(Processor::open()).observer(observer(&board));
    let batcher = builder.journal(Arc::clone(&journal)).inline().build().unwrap();
    let gate = journal.append.hold(1);
    let mut submits: Vec<_> = (1..4).map(|item| batcher.submit_async(item)).collect();
    for submit in &mut submits {
        assert!(Pin::new(submit).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    // The first is on its way alone, if not all are; the others go to the journal together.
    journal.append.waits.pass();
    journal.append.set(Mood::Fails);
    gate.open();
    for submit in submits {
        assert!(block_on(submit).is_err());
    }
    assert!(batcher.submit_all([4, 5]).is_err());
    assert_eq!(board.sum("batch.items{outcome=refused,error.type=journal}"), 4.0);
    check(&board, batcher.stats());
}

#[test]
fn counts_add_up_with_many_threads() {
    let board = Board::default();
    let gone = Gate::default();
    let watched = Watched(observer(&board), gone.clone());
    let builder = Batcher::builder(Processor::open()).observer(watched).capacity(8);
    let batcher = builder.max_batch_items(4).workers(2).build().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let batcher = &batcher;
            scope.spawn(move || {
                for item in 0..200 {
                    batcher.submit(thread * 1_000 + item).unwrap().wait().unwrap();
                }
            });
        }
    });
    let report = batcher.close(Close::Drain, LONG);
    assert_eq!(report.stats.completed, 800);
    drop(batcher);
    gone.pass();
    check(&board, report.stats);
    // Each batch has come to its end, and its time was taken.
    assert_eq!(board.values("batch.exec.time{}").len(), board.values("batch.size{}").len());
}
