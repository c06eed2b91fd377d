//! Callers that may not block, and batches that run in tasks.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use batch_core::{
    BatchError, BatchOf, BatchProcessor, Batcher, Close, Disposition, ManualClock, Refusal, Tasks,
    batch_fn,
};
use common::{LONG, Recorder, block_on};

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn an_async_submit_waits_for_room_in_its_turn() {
    let recorder = Recorder::default();
    let batcher = Batcher::builder(recorder.clone()).capacity(1).max_batch_items(1);
    let batcher = batcher.max_block(None).build().unwrap();
    let running = block_on(batcher.submit_async(1)).unwrap();
    recorder.entered.pass();
    let (mut second, mut third) = (batcher.submit_async(2), batcher.submit_async(3));
    assert!(poll_once(&mut second).is_pending());
    assert!(poll_once(&mut third).is_pending());
    recorder.gate.open();
    running.wait().unwrap();
    // There is room for one, and the second was first.
    assert!(poll_once(&mut third).is_pending());
    assert_eq!(block_on(async { second.await.unwrap().await }).unwrap(), 3);
    assert_eq!(block_on(async { third.await.unwrap().await }).unwrap(), 4);
}

#[test]
fn an_async_submit_that_is_dropped_leaves_its_place_to_the_next() {
    let recorder = Recorder::default();
    let batcher = Batcher::builder(recorder.clone()).capacity(1).max_batch_items(1);
    let batcher = batcher.max_block(None).build().unwrap();
    let running = batcher.submit(1).unwrap();
    recorder.entered.pass();
    let mut second = batcher.submit_async(2);
    assert!(poll_once(&mut second).is_pending());
    let blocked = thread::spawn(move || batcher.submit(3).unwrap().wait().unwrap());
    drop(second);
    recorder.gate.open();
    running.wait().unwrap();
    assert_eq!(blocked.join().unwrap(), 4);
    assert_eq!(recorder.batches(), [[1], [3]]);
}

#[test]
fn an_async_submit_gives_its_item_back_when_its_patience_ends() {
    let (recorder, clock) = (Recorder::default(), ManualClock::new());
    let batcher = Batcher::builder(recorder.clone()).capacity(1).clock(clock.clone());
    let batcher = batcher.delivery_timeout(None).max_block(Some(LONG)).build().unwrap();
    let running = batcher.submit(1).unwrap();
    recorder.entered.pass();
    let mut second = batcher.submit_async(2);
    assert!(poll_once(&mut second).is_pending());
    clock.advance(LONG);
    let (item, reason) = block_on(second).unwrap_err().into_parts();
    assert_eq!((item, reason), (2, Refusal::Full { capacity: 1 }));
    recorder.gate.open();
    running.wait().unwrap();
}

#[test]
fn blocked_submits_are_served_in_the_order_in_which_they_came() {
    let recorder = Recorder::default();
    let batcher = Batcher::builder(recorder.clone()).capacity(1).max_batch_items(1);
    let batcher = batcher.max_block(None).build().unwrap();
    let running = batcher.submit(0).unwrap();
    recorder.entered.pass();
    let mut futures: Vec<_> = (1..20).map(|item| batcher.submit_async(item)).collect();
    for future in &mut futures {
        assert!(poll_once(future).is_pending());
    }
    recorder.gate.open();
    // Polled from the last to the first, they still come in as they asked.
    let tickets = futures.into_iter().rev().map(|future| {
        thread::spawn(move || block_on(async { future.await.unwrap().await }).unwrap())
    });
    for ticket in tickets.collect::<Vec<_>>() {
        ticket.join().unwrap();
    }
    running.wait().unwrap();
    assert!(recorder.batches().concat().is_sorted());
}

#[test]
fn a_close_that_is_awaited_reports_as_one_that_blocks() {
    let recorder = Recorder::default();
    let batcher = Batcher::builder(recorder.clone()).max_batch_items(1).build().unwrap();
    let running = batcher.submit(1).unwrap();
    recorder.entered.pass();
    let waiting = batcher.submit(2).unwrap();
    let mut closing = pin!(batcher.close_async(Close::Drain, LONG));
    assert!(closing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(matches!(batcher.submit(3).unwrap_err().reason(), Refusal::Closed));
    recorder.gate.open();
    let report = block_on(closing);
    assert!(report.leftovers.is_empty() && report.in_flight.is_empty());
    assert_eq!((running.wait().unwrap(), waiting.wait().unwrap()), (2, 3));
}

#[test]
fn a_close_whose_time_is_over_hands_back_what_was_not_sent() {
    let (recorder, clock) = (Recorder::default(), ManualClock::new());
    let batcher = Batcher::builder(recorder.clone()).max_batch_items(1).clock(clock.clone());
    let batcher = batcher.build().unwrap();
    let running = batcher.submit(1).unwrap();
    recorder.entered.pass();
    let waiting = batcher.submit(2).unwrap();
    let mut closing = pin!(batcher.close_async(Close::Drain, Duration::from_secs(9)));
    assert!(closing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    clock.advance(Duration::from_secs(9));
    let report = block_on(closing);
    assert_eq!(report.leftovers.iter().map(|(_, item)| *item).collect::<Vec<_>>(), [2]);
    assert_eq!(report.in_flight, [running.id()]);
    assert!(matches!(waiting.wait(), Err(BatchError::Closed)));
    recorder.gate.open();
    running.wait().unwrap();
}

#[test]
fn a_close_that_is_dropped_leaves_what_it_took_to_the_next() {
    let recorder = Recorder::default();
    let batcher = Batcher::builder(recorder.clone()).max_batch_items(1).build().unwrap();
    let running = batcher.submit(1).unwrap();
    recorder.entered.pass();
    let _waiting = batcher.submit(2).unwrap();
    drop(batcher.close_async(Close::Abort, LONG));
    recorder.gate.open();
    running.wait().unwrap();
    let report = batcher.close(Close::Abort, LONG);
    assert_eq!(report.leftovers.into_iter().map(|(_, item)| item).collect::<Vec<_>>(), [2]);
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An executor whose tasks run when it is told so, all on one thread.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Vec<Task>>>);

impl Shelf {
    fn tasks(&self) -> Tasks {
        let queue = Arc::clone(&self.0);
        Tasks::new(move |task| queue.lock().unwrap().push(task), |_| std::future::pending())
    }

    fn run(&self) {
        for _ in 0..100 {
            let tasks = std::mem::take(&mut *self.0.lock().unwrap());
            let mut context = Context::from_waker(Waker::noop());
            let pending = tasks.into_iter().filter_map(|mut task| {
                task.as_mut().poll(&mut context).is_pending().then_some(task)
            });
            let pending: Vec<_> = pending.collect();
            self.0.lock().unwrap().extend(pending);
        }
    }
}

fn double(items: &[u32]) -> Vec<Result<u32, String>> {
    items.iter().map(|item| Ok(item * 2)).collect()
}

#[test]
fn batches_run_in_tasks_on_one_thread() {
    let shelf = Shelf::default();
    let batcher = Batcher::builder(batch_fn(double)).tasks(shelf.tasks()).build().unwrap();
    let tickets = batcher.submit_all([1, 2, 3]).unwrap();
    shelf.run();
    let outputs: Vec<_> = tickets.wait().into_iter().map(Result::unwrap).collect();
    assert_eq!(outputs, [2, 4, 6]);
    assert_eq!(batcher.stats().calls, 1);
    let last = batcher.submit(4).unwrap();
    drop(batcher);
    shelf.run();
    assert_eq!(last.wait().unwrap(), 8);
    assert!(shelf.0.lock().unwrap().is_empty(), "the tasks end with the batcher");
}

/// Keeps its batches until the test takes them.
#[derive(Clone, Default)]
struct Keeps(Arc<Mutex<Vec<BatchOf<Keeps>>>>);

impl BatchProcessor for Keeps {
    type Key = ();
    type Item = u64;
    type Output = u64;
    type Error = Disposition;

    fn key(&self, _: &u64) {}

    fn process(&self, (): &(), batch: BatchOf<Self>) {
        self.0.lock().unwrap().push(batch);
    }

    fn classify(&self, error: &Disposition) -> Disposition {
        *error
    }
}

impl Keeps {
    fn resolve(&self, outcome: Result<u64, Disposition>) {
        let batch = self.0.lock().unwrap().pop().expect("a batch was sent");
        batch.slot(0).resolve(outcome);
    }
}

/// The workers stay while what the processor has may come back.
#[test]
fn what_fails_after_the_last_handle_is_gone_is_tried_again() {
    let (shelf, keeps, clock) = (Shelf::default(), Keeps::default(), ManualClock::new());
    let builder = Batcher::builder(keeps.clone()).delivery_timeout(Some(LONG)).clock(clock.clone());
    let batcher = builder.tasks(shelf.tasks()).build().unwrap();
    let ticket = batcher.submit(1).unwrap();
    shelf.run();
    drop(batcher);
    shelf.run();
    keeps.resolve(Err(Disposition::Retry { after: None }));
    clock.advance(LONG / 2);
    shelf.run();
    keeps.resolve(Ok(10));
    assert_eq!(ticket.wait().unwrap(), 10);
    shelf.run();
    assert!(shelf.0.lock().unwrap().is_empty(), "the tasks end with the last batch");
}

#[test]
fn an_executor_that_is_shut_down_leaves_nobody_waiting() {
    let shelf = Shelf::default();
    let batcher = Batcher::builder(batch_fn(double)).tasks(shelf.tasks()).build().unwrap();
    let ticket = batcher.submit(1).unwrap();
    let tasks = std::mem::take(&mut *shelf.0.lock().unwrap());
    drop(tasks);
    assert!(matches!(ticket.wait(), Err(BatchError::Closed)));
    assert!(matches!(batcher.submit(2).unwrap_err().reason(), Refusal::Closed));
    let report = batcher.close(Close::Drain, LONG);
    assert_eq!(report.leftovers.into_iter().map(|(_, item)| item).collect::<Vec<_>>(), [1]);
}
