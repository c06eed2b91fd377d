//! One item at a time through an idle inline batcher, whatever happens meanwhile.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::cell::Cell;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use batch_core::{
    Batch, BatchError, BatchOf, BatchProcessor, Batcher, Clock, Close, DispatchReason, Disposition,
    ManualClock, Stats, batch_fn, keyed_fn,
};
use common::{LONG, Recorder, block_on};

/// Adds 1, after it did something that the test wants done in the call.
fn adder<F>(run: F) -> impl BatchProcessor<Key = (), Item = u64, Output = u64, Error = Infallible>
where
    F: Fn(u64) + Send + Sync + 'static,
{
    batch_fn(move |items: &[u64]| {
        for item in items {
            run(*item);
        }
        items.iter().map(|item| Ok(item + 1)).collect()
    })
}

/// Has its first item tried again, long after.
struct Retries;

impl BatchProcessor for Retries {
    type Key = ();
    type Item = u64;
    type Output = u64;
    type Error = Disposition;

    fn key(&self, _: &u64) {}

    fn process(&self, (): &(), batch: BatchOf<Self>) {
        for slot in batch.slots() {
            let item = *slot.item();
            let again = Disposition::Retry { after: Some(LONG) };
            slot.resolve(if item == 1 { Err(again) } else { Ok(item) });
        }
    }

    fn classify(&self, error: &Disposition) -> Disposition {
        *error
    }
}

#[test]
fn what_a_cancelled_item_held_back_goes() {
    for workers in [0, 1] {
        let builder = Batcher::builder(Retries).workers(workers).delivery_timeout(None);
        let batcher = builder.clock(ManualClock::new()).build().unwrap();
        let first = batcher.submit(1).unwrap();
        let is_put_back = |stats: Stats| (stats.calls, stats.in_flight) == (1, 0);
        while !is_put_back(batcher.stats()) {
            thread::yield_now();
        }
        let second = batcher.submit(2).unwrap();
        assert!(!second.is_done() && first.cancel());
        assert_eq!(second.wait().unwrap(), 2);
    }
}

#[test]
fn an_item_alone_is_counted_like_any_other() {
    let batcher = Batcher::builder(adder(|_| ())).inline().build().unwrap();
    for item in 0..3 {
        let ticket = batcher.submit(item).unwrap();
        assert_eq!((ticket.id().seq, ticket.is_done()), (item, true));
        assert_eq!(ticket.wait().unwrap(), item + 1);
    }
    let stats = batcher.stats();
    assert_eq!((stats.accepted, stats.calls, stats.completed), (3, 3, 3));
    assert_eq!((stats.queued, stats.in_flight), (0, 0));
    let past = batcher.history();
    let seen: Vec<_> = past.iter().map(|b| (b.id.0, b.items, b.completed, b.reason)).collect();
    assert_eq!(seen, (0..3).map(|id| (id, 1, 1, DispatchReason::Natural)).collect::<Vec<_>>());
}

/// Whoever looks while the item is at the processor finds it there.
#[test]
fn others_see_the_item_while_it_is_run() {
    let recorder = Recorder::default();
    let batcher = Batcher::builder(recorder.clone()).inline().build().unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| batcher.submit(1).unwrap().wait().unwrap());
        recorder.entered.pass();
        let Stats { accepted, in_flight, queued, .. } = batcher.stats();
        assert_eq!((accepted, in_flight, queued), (1, 1, 0));
        let flush = batcher.flush();
        let flush = flush.wait_timeout(Duration::ZERO).unwrap_err().into_inner();
        let report = batcher.close(Close::Drain, Duration::ZERO);
        assert_eq!(report.in_flight.len(), 1);
        recorder.gate.open();
        flush.wait_timeout(LONG).unwrap();
        assert_eq!(first.join().unwrap(), 2);
    });
    assert_eq!(batcher.stats().completed, 1);
    assert!(batcher.submit(1).is_err(), "it was closed");
}

/// A processor may look at its own batcher, before and after it gives the result. The stats, which
/// are read without a lock, have that once the call is over, or once somebody looked closer.
#[test]
fn the_processor_may_look_while_it_runs_the_item() {
    type Own = dyn BatchProcessor<Key = (), Item = u64, Output = u64, Error = Infallible>;
    for looks_before in [true, false] {
        let itself: Arc<OnceLock<Batcher<_>>> = Arc::default();
        let seen: Arc<Mutex<Vec<(u64, usize)>>> = Arc::default();
        let (inner, notes) = (Arc::clone(&itself), Arc::clone(&seen));
        let run = move |(): &(), batch: Batch<u64, u64, Infallible>| {
            let batcher: &Batcher<Box<Own>> = inner.get().unwrap();
            if looks_before {
                notes.lock().unwrap().push((batcher.stats().completed, batcher.history().len()));
            }
            batch.resolve_all(vec![Ok(batch.items()[0] + 1)]);
            notes.lock().unwrap().push((batcher.stats().completed, batcher.history().len()));
            assert_eq!(batcher.stats().completed, batcher.history().len() as u64);
        };
        let processor: Box<Own> = Box::new(keyed_fn(|_: &u64| (), run));
        let batcher = Batcher::builder(processor).inline().build().unwrap();
        assert!(itself.set(batcher.clone()).is_ok());
        for item in 0..2 {
            assert_eq!(batcher.submit(item).unwrap().wait().unwrap(), item + 1);
        }
        let expected: &[_] =
            if looks_before { &[(0, 0), (1, 1), (1, 1), (2, 2)] } else { &[(0, 1), (1, 2)] };
        assert_eq!(*seen.lock().unwrap(), expected);
        assert_eq!((batcher.stats().completed, batcher.history().len()), (2, 2));
    }
}

/// Items that come while one is run alone are run by the same thread, once it is done.
#[test]
fn what_comes_meanwhile_is_run_next() {
    type Own = dyn BatchProcessor<Key = (), Item = u64, Output = u64, Error = Infallible>;
    let itself: Arc<OnceLock<Batcher<_>>> = Arc::default();
    let tickets = Arc::new(Mutex::new(Vec::new()));
    let (inner, kept) = (Arc::clone(&itself), Arc::clone(&tickets));
    let run = move |(): &(), batch: Batch<u64, u64, Infallible>| {
        let batcher: &Batcher<Box<Own>> = inner.get().unwrap();
        if batch.items()[0] < 3 {
            let item = batch.items()[0] + 1;
            kept.lock().unwrap().push(batcher.submit(item).unwrap());
        }
        batch.resolve_all(batch.items().iter().map(|item| Ok(*item)).collect());
    };
    let processor: Box<Own> = Box::new(keyed_fn(|_: &u64| (), run));
    let batcher = Batcher::builder(processor).inline().build().unwrap();
    assert!(itself.set(batcher.clone()).is_ok());
    assert_eq!(batcher.submit(0).unwrap().wait().unwrap(), 0);
    let tickets = std::mem::take(&mut *tickets.lock().unwrap());
    let outcomes: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait().unwrap()).collect();
    assert_eq!(outcomes, [1, 2, 3]);
    assert_eq!(batcher.stats().calls, 4);
}

/// Keeps what it is given.
#[derive(Clone, Default)]
struct Keeper(Arc<Mutex<Vec<BatchOf<Self>>>>);

impl BatchProcessor for Keeper {
    type Key = u64;
    type Item = u64;
    type Output = u64;
    type Error = u64;

    fn key(&self, item: &u64) -> u64 {
        item / 10
    }

    fn process(&self, _: &u64, batch: BatchOf<Self>) {
        self.0.lock().unwrap().push(batch);
    }

    fn classify(&self, tries: &u64) -> Disposition {
        if *tries > 0 { Disposition::Retry { after: None } } else { Disposition::Fail }
    }
}

impl Keeper {
    fn take(&self) -> BatchOf<Self> {
        self.0.lock().unwrap().remove(0)
    }
}

/// An item whose batch is kept is in flight: its key waits for it, and another does not.
#[test]
fn an_item_that_is_kept_holds_its_key_alone() {
    let keeper = Keeper::default();
    let batcher = Batcher::builder(keeper.clone()).inline().build().unwrap();
    let first = batcher.submit(1).unwrap();
    let second = batcher.submit(2).unwrap();
    let other = batcher.submit(11).unwrap();
    assert_eq!((keeper.0.lock().unwrap().len(), first.is_done()), (2, false));
    let batch = keeper.take();
    let resolve = thread::spawn(move || batch.resolve_all(vec![Ok(7)]));
    assert_eq!(block_on(first).unwrap(), 7);
    resolve.join().unwrap();
    keeper.take().resolve_all(vec![Ok(8)]);
    assert_eq!(other.wait().unwrap(), 8);
    let batch = keeper.take();
    assert_eq!(batch.items(), [2]);
    batch.resolve_all(vec![Ok(9)]);
    drop(batch);
    assert_eq!(second.wait().unwrap(), 9);
    assert_eq!((batcher.stats().completed, batcher.stats().in_flight), (3, 0));
}

/// Wants every failed item once more.
struct Again<P>(P);
impl<P: BatchProcessor<Error = u64>> BatchProcessor for Again<P> {
    type Key = P::Key;
    type Item = P::Item;
    type Output = P::Output;
    type Error = u64;
    fn key(&self, item: &P::Item) -> P::Key {
        self.0.key(item)
    }
    fn process(&self, key: &P::Key, batch: BatchOf<Self>) {
        self.0.process(key, batch);
    }
    fn classify(&self, _: &u64) -> Disposition {
        Disposition::Retry { after: None }
    }
}

/// A result may come from another thread while the call still goes on, seen by nobody else.
#[test]
fn a_result_may_come_from_another_thread_during_the_call() {
    let run = |(): &(), batch: Batch<u64, u64, Infallible>| {
        thread::scope(|scope| {
            scope.spawn(|| batch.resolve_all(vec![Ok(batch.items()[0] + 1)]));
        });
    };
    let batcher = Batcher::builder(keyed_fn(|_: &u64| (), run)).inline().build().unwrap();
    for item in 0..3 {
        assert_eq!(batcher.submit(item).unwrap().wait().unwrap(), item + 1);
    }
    let stats = batcher.stats();
    assert_eq!((stats.completed, stats.failed, stats.in_flight), (3, 0, 0));
    assert_eq!(batcher.history().len(), 3);
}

/// A batch that was kept from one call and is dropped by the panic of a later one on the same thread
/// ends all the same.
#[test]
fn a_kept_item_ends_with_the_panic_of_another_call() {
    type Own = dyn BatchProcessor<Key = u64, Item = u64, Output = u64, Error = Infallible>;
    let itself: Arc<OnceLock<Batcher<Box<Own>>>> = Arc::default();
    let kept = Arc::new(Mutex::new(None));
    let inner = Arc::clone(&itself);
    let run = move |key: &u64, batch: Batch<u64, u64, Infallible>| {
        if *key == 0 {
            *kept.lock().unwrap() = Some(batch);
            inner.get().unwrap().submit(1).unwrap().detach();
        } else {
            let _dropped = kept.lock().unwrap().take();
            panic!("another");
        }
    };
    let processor: Box<Own> = Box::new(keyed_fn(|item: &u64| *item, run));
    let batcher = Batcher::builder(processor).inline().build().unwrap();
    assert!(itself.set(batcher.clone()).is_ok());
    let outcome = batcher.submit(0).unwrap().wait();
    assert!(matches!(outcome, Err(BatchError::Unresolved { .. })));
    batcher.flush().wait_timeout(LONG).unwrap();
    assert_eq!((batcher.stats().failed, batcher.stats().in_flight), (2, 0));
}

#[test]
fn an_item_alone_may_fail_and_be_tried_again() {
    let run = |(): &(), batch: Batch<u64, u64, u64>| {
        let slot = batch.slot(0);
        assert_eq!(slot.attempt() == 1, *slot.item() == 0 || slot.attempt() == 1);
        slot.resolve(if slot.attempt() > 2 { Ok(slot.attempt().into()) } else { Err(1) });
    };
    let processor = Again(keyed_fn(|_: &u64| (), run));
    let batcher = Batcher::builder(processor).inline().build().unwrap();
    assert_eq!(batcher.submit(1).unwrap().wait().unwrap(), 3);
    let stats = batcher.stats();
    assert_eq!((stats.calls, stats.retries, stats.completed, stats.in_flight), (3, 2, 1, 0));
}

#[test]
fn a_panic_over_an_item_alone_ends_that_item() {
    let resolves = Arc::new(AtomicBool::new(false));
    let first = Arc::clone(&resolves);
    let run = move |(): &(), batch: Batch<u64, u64, Infallible>| {
        if first.load(Relaxed) {
            batch.resolve_all(vec![Ok(5)]);
        }
        panic!("unlucky");
    };
    let batcher = Batcher::builder(keyed_fn(|_: &u64| (), run)).inline().build().unwrap();
    for completed in [0, 1] {
        match batcher.submit(1).unwrap().wait() {
            Ok(output) => assert_eq!((output, completed), (5, 1), "it was resolved before"),
            Err(BatchError::Unresolved { panic }) => {
                assert_eq!((panic.as_deref(), completed), (Some("unlucky"), 0));
            }
            Err(other) => panic!("{other}"),
        }
        let stats = batcher.stats();
        assert_eq!((stats.failed, stats.completed, stats.in_flight), (1, completed, 0));
        resolves.store(true, Relaxed);
    }
    batcher.flush().wait_timeout(LONG).unwrap();
}

/// The clock is user code: one that panics must not leave the batcher to a thread that is gone.
#[test]
fn a_clock_that_panics_after_the_call_leaves_nobody_in_the_lead() {
    #[derive(Clone, Default)]
    struct Faulty(Arc<AtomicBool>);
    impl Clock for Faulty {
        fn now(&self) -> Duration {
            assert!(!self.0.load(Relaxed), "no time");
            Duration::ZERO
        }
    }
    let clock = Faulty::default();
    let fault = clock.clone();
    let processor = adder(move |item| fault.0.store(item == 0, Relaxed));
    let batcher = Batcher::builder(processor).clock(clock.clone()).inline().build().unwrap();
    assert_eq!(batcher.submit(0).unwrap().wait().unwrap(), 1);
    clock.0.store(false, Relaxed);
    assert_eq!(batcher.submit(1).unwrap().wait().unwrap(), 2);
    assert_eq!((batcher.stats().completed, batcher.stats().in_flight), (2, 0));
}

/// Many threads at once: some items go alone, others in batches, and none is lost or swapped.
#[test]
fn threads_that_meet_now_and_then_lose_nothing() {
    let batcher = Batcher::builder(adder(|_| ())).inline().build().unwrap();
    thread::scope(|scope| {
        for client in 0..4 {
            let batcher = &batcher;
            scope.spawn(move || {
                for item in 0..2_000 {
                    let item = client * 10_000 + item;
                    assert_eq!(batcher.submit(item).unwrap().wait().unwrap(), item + 1);
                    if item % 64 == 0 {
                        batcher.flush().wait_timeout(LONG).unwrap();
                    }
                }
            });
        }
    });
    let stats = batcher.stats();
    assert_eq!((stats.accepted, stats.completed), (8_000, 8_000));
    assert_eq!((stats.queued, stats.in_flight), (0, 0));
}

/// Who waits is asked to run the next batch, also if it has waited for a moment only.
#[test]
fn a_caller_does_not_run_the_batches_of_others_without_end() {
    const ROUNDS: u64 = 20_000;
    thread_local! {
        static RUN: Cell<u64> = const { Cell::new(0) };
    }
    let process = |items: &[u64]| {
        RUN.set(RUN.get() + 1);
        items.iter().map(|item| Ok::<_, Infallible>(item + 1)).collect()
    };
    let batcher = Batcher::builder(batch_fn(process)).inline().build().unwrap();
    let longest = |client: u64| {
        let mut longest = 0;
        for item in client * ROUNDS..(client + 1) * ROUNDS {
            RUN.set(0);
            let ticket = batcher.submit(item).unwrap();
            longest = longest.max(RUN.get());
            assert_eq!(ticket.wait().unwrap(), item + 1);
        }
        longest
    };
    let longest = thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|client| scope.spawn(move || longest(client))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).max().unwrap()
    });
    assert!(longest < 1_000, "one submit ran {longest} batches");
}
