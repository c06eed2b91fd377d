//! The whole engine under many orders of events: who is not woken is a deadlock to shuttle.
//!
//! Half of the orders are random, half have few changes of thread at random places ("PCT"). Time
//! stands still but where a test moves it. 112,000 orders are tried in all; `SHUTTLE_SCHEDULES` sets
//! another number for each test, and `SHUTTLE_SEED` which ones.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::env;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use shuttle::future::{block_on, yield_now};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::{Condvar, Mutex};
use shuttle::{Config, Runner, thread};

use crate::{
    Batch, BatchError, BatchOf, BatchProcessor, Batcher, Builder, Close, Disposition, ItemId,
    Journal, JournalError, ManualClock, Refusal, Tasks,
};

/// Never comes.
const LONG: Duration = Duration::from_hours(1_000);

fn explore(test: impl Fn() + Copy + Send + Sync + 'static) {
    let number = |name, default| {
        env::var(name).map_or(default, |text| text.parse().expect("it is a number"))
    };
    let each = number("SHUTTLE_SCHEDULES", 8_000);
    let seed = number("SHUTTLE_SEED", 1);
    let half = usize::try_from(each / 2).expect("it is not that large");
    Runner::new(RandomScheduler::new_from_seed(seed, half), Config::new()).run(test);
    Runner::new(PctScheduler::new_from_seed(seed, 3, half), Config::new()).run(test);
}

/// Tells when it is dropped, which is when the engine is: no thread or batch has it any more.
#[derive(Clone, Default)]
struct Life {
    is_over: Arc<(Mutex<bool>, Condvar)>,
    processed: Arc<Mutex<usize>>,
}

impl Life {
    /// Returns the number of items that were processed.
    fn wait_for_end(&self) -> usize {
        let mut is_over = self.is_over.0.lock().unwrap();
        while !*is_over {
            is_over = self.is_over.1.wait(is_over).unwrap();
        }
        *self.processed.lock().unwrap()
    }
}

struct Guard(Life);

impl Drop for Guard {
    fn drop(&mut self) {
        *self.0.is_over.0.lock().unwrap() = true;
        self.0.is_over.1.notify_all();
    }
}

/// Adds 1 to each item.
struct Adds(Guard);

impl BatchProcessor for Adds {
    type Key = ();
    type Item = u32;
    type Output = u32;
    type Error = Infallible;

    fn key(&self, _: &u32) {}

    fn process(&self, (): &(), batch: BatchOf<Self>) {
        *self.0.0.processed.lock().unwrap() += batch.len();
        batch.resolve_all(batch.items().iter().map(|item| Ok(item + 1)).collect());
    }
}

/// A batcher, and what tells of its end.
fn adds() -> (Builder<Adds>, Life) {
    let life = Life::default();
    let builder = Batcher::builder(Adds(Guard(life.clone()))).clock(ManualClock::new());
    (builder.max_block(None).delivery_timeout(None), life)
}

fn join<T>(threads: impl IntoIterator<Item = thread::JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn submits_and_waits(batcher: &Batcher<Adds>, items: [u32; 2]) {
    for item in items {
        assert_eq!(batcher.submit(item).unwrap().wait().unwrap(), item + 1);
    }
}

#[test]
fn shuttle_submit_and_wait() {
    explore(|| {
        let (builder, life) = adds();
        let batcher = builder.workers(2).build().unwrap();
        let other = {
            let batcher = batcher.clone();
            thread::spawn(move || submits_and_waits(&batcher, [1, 2]))
        };
        submits_and_waits(&batcher, [3, 4]);
        join([other]);
        assert_eq!(batcher.stats().completed, 4);
        drop(batcher);
        life.wait_for_end();
    });
}

/// Items that their callers left are done after the last handle is gone, and then the threads end.
#[test]
fn shuttle_submit_against_drop() {
    explore(|| {
        let (builder, life) = adds();
        let batcher = builder.workers(2).max_batch_items(1).build().unwrap();
        let clients = [1, 3].map(|item| {
            let batcher = batcher.clone();
            thread::spawn(move || [item, item + 1].map(|item| batcher.submit(item).unwrap()))
        });
        drop(batcher);
        for (ticket, output) in join(clients).into_iter().flatten().zip(2..) {
            assert_eq!(ticket.wait().unwrap(), output);
        }
        life.wait_for_end();
    });
}

/// Each item is refused, done, or left over.
#[test]
fn shuttle_submit_against_close() {
    explore(|| {
        let (builder, life) = adds();
        let batcher = builder.workers(1).max_batch_items(1).build().unwrap();
        let clients = [1, 2].map(|item| {
            let batcher = batcher.clone();
            thread::spawn(move || match batcher.submit(item) {
                Ok(ticket) => match ticket.wait() {
                    Ok(output) => assert_eq!(output, item + 1),
                    Err(error) => assert!(matches!(error, BatchError::Closed)),
                },
                Err(refused) => assert_eq!(refused.into_parts(), (item, Refusal::Closed)),
            })
        });
        let report = batcher.close(Close::Drain, LONG);
        assert!(report.leftovers.is_empty() && report.in_flight.is_empty());
        join(clients);
        let aborted = batcher.close(Close::Abort, LONG);
        assert!(aborted.leftovers.is_empty() && aborted.in_flight.is_empty());
        assert_eq!(aborted.stats.accepted, aborted.stats.completed);
        drop(batcher);
        life.wait_for_end();
    });
}

#[test]
fn shuttle_abort_against_submit_and_wait() {
    explore(|| {
        let (builder, life) = adds();
        let batcher = builder.workers(2).max_batch_items(1).build().unwrap();
        let client = {
            let batcher = batcher.clone();
            thread::spawn(move || {
                let tickets = [1, 2].map(|item| batcher.submit(item).ok());
                let ends = tickets.into_iter().flatten().map(|ticket| ticket.wait());
                ends.filter(|end| matches!(end, Err(BatchError::Closed))).count()
            })
        };
        let closer = {
            let batcher = batcher.clone();
            thread::spawn(move || batcher.close(Close::Abort, LONG).leftovers.len())
        };
        let given_back = batcher.close(Close::Drain, LONG).leftovers.len() + join([closer])[0];
        assert_eq!(given_back, join([client])[0]);
        drop(batcher);
        life.wait_for_end();
    });
}

#[test]
fn shuttle_cancel_against_dispatch() {
    explore(|| {
        let (builder, life) = adds();
        let batcher = builder.workers(1).max_batch_items(1).build().unwrap();
        let tickets = batcher.submit_all([1, 2]).unwrap();
        let cancels = tickets.into_iter().zip([2, 3]).map(|(ticket, output)| {
            thread::spawn(move || {
                let cancelled = ticket.cancel();
                match ticket.wait() {
                    Ok(done) => assert!(done == output && !cancelled),
                    Err(error) => assert!(matches!(error, BatchError::Cancelled) && cancelled),
                }
            })
        });
        join(cancels.collect::<Vec<_>>());
        assert!(batcher.close(Close::Drain, LONG).leftovers.is_empty());
        drop(batcher);
        life.wait_for_end();
    });
}

#[test]
fn shuttle_flush_against_submit() {
    explore(|| {
        let (builder, life) = adds();
        let batcher = builder.workers(2).linger(LONG).build().unwrap();
        let first = batcher.submit(1).unwrap();
        let other = {
            let batcher = batcher.clone();
            thread::spawn(move || {
                let second = batcher.submit(2).unwrap();
                batcher.flush().wait().unwrap();
                assert!(second.is_done());
            })
        };
        batcher.flush().wait().unwrap();
        assert!(first.is_done());
        join([other]);
        drop(batcher);
        life.wait_for_end();
    });
}

/// Those who wait for room are all let in, and what lingers goes when they come.
#[test]
fn shuttle_room() {
    explore(|| {
        let (builder, life) = adds();
        let batcher = builder.workers(1).capacity(1).linger(LONG).build().unwrap();
        let clients = [1, 2].map(|item| {
            let batcher = batcher.clone();
            thread::spawn(move || drop(batcher.submit(item).unwrap()))
        });
        let third = block_on(batcher.submit_async(3)).unwrap();
        join(clients);
        batcher.flush().wait().unwrap();
        assert_eq!(third.wait().unwrap(), 4);
        assert_eq!(batcher.stats().completed, 3);
        drop(batcher);
        life.wait_for_end();
    });
}

/// Items that are alone, while others look, flush, or come in between.
#[test]
fn shuttle_inline_alone_and_seen() {
    explore(|| {
        let (builder, life) = adds();
        let batcher = builder.inline().build().unwrap();
        let looks = {
            let batcher = batcher.clone();
            thread::spawn(move || {
                assert!(batcher.history().len() <= 3);
                batcher.flush().wait().unwrap();
                submits_and_waits(&batcher, [7, 8]);
            })
        };
        submits_and_waits(&batcher, [1, 2]);
        looks.join().unwrap();
        batcher.flush().wait().unwrap();
        let stats = batcher.stats();
        assert_eq!((stats.completed, stats.queued, stats.in_flight), (4, 0, 0));
        drop(batcher);
        assert_eq!(life.wait_for_end(), 4);
    });
}

/// The callers run the batches while somebody closes.
#[test]
fn shuttle_inline_against_close() {
    explore(|| {
        for how in [Close::Drain, Close::Abort] {
            let (builder, life) = adds();
            let batcher = builder.inline().build().unwrap();
            let clients = [1, 2].map(|item| {
                let batcher = batcher.clone();
                thread::spawn(move || match batcher.submit(item) {
                    Ok(ticket) => matches!(ticket.wait(), Err(BatchError::Closed)),
                    Err(refused) => refused.into_parts() != (item, Refusal::Closed),
                })
            });
            let report = batcher.close(how, LONG);
            assert!(report.in_flight.is_empty());
            let given_back = join(clients).into_iter().filter(|is_given_back| *is_given_back);
            assert_eq!(given_back.count(), report.leftovers.len());
            drop(batcher);
            life.wait_for_end();
        }
    });
}

/// The caller runs the batches, its own and those of others.
#[test]
fn shuttle_inline() {
    explore(|| {
        let (builder, life) = adds();
        let batcher = builder.inline().max_batch_items(1).build().unwrap();
        let clients = [1, 3].map(|item| {
            let batcher = batcher.clone();
            thread::spawn(move || submits_and_waits(&batcher, [item, item + 1]))
        });
        assert_eq!(batcher.submit(5).unwrap().wait().unwrap(), 6);
        join(clients);
        drop(batcher);
        life.wait_for_end();
    });
}

/// Runs in tasks, of which another thread may be the last to drop its waker.
#[test]
fn shuttle_tasks() {
    explore(|| {
        let (builder, life) = adds();
        let spawn = |task| drop(shuttle::future::spawn(task));
        let tasks = Tasks::new(spawn, |_| yield_now()).workers(2);
        let batcher = builder.max_batch_items(1).tasks(tasks).build().unwrap();
        let other = {
            let batcher = batcher.clone();
            thread::spawn(move || submits_and_waits(&batcher, [1, 2]))
        };
        block_on(async {
            let ticket = batcher.submit_async(3).await.unwrap();
            assert_eq!(ticket.await.unwrap(), 4);
            join([other]);
            let report = batcher.close_async(Close::Drain, LONG).await;
            assert_eq!(report.stats.completed, 3);
        });
        drop(batcher);
        life.wait_for_end();
    });
}

/// Keeps its batches for the test.
#[derive(Clone, Default)]
struct Keeps(Arc<(Mutex<Vec<BatchOf<Keeps>>>, Condvar)>);

impl BatchProcessor for Keeps {
    type Key = ();
    type Item = u32;
    type Output = u32;
    type Error = Disposition;

    fn key(&self, _: &u32) {}

    fn process(&self, (): &(), batch: BatchOf<Self>) {
        self.0.0.lock().unwrap().push(batch);
        self.0.1.notify_all();
    }

    fn classify(&self, error: &Disposition) -> Disposition {
        *error
    }
}

impl Keeps {
    fn take(&self) -> Batch<u32, u32, Disposition> {
        let mut batches = self.0.0.lock().unwrap();
        loop {
            if let Some(batch) = batches.pop() {
                return batch;
            }
            batches = self.0.1.wait(batches).unwrap();
        }
    }
}

/// Two threads resolve a batch, round by round, while its time runs out.
#[test]
fn shuttle_rounds_against_time() {
    explore(|| {
        let (keeps, clock) = (Keeps::default(), ManualClock::new());
        let batcher = Batcher::builder(keeps.clone()).clock(clock.clone()).linger(LONG);
        let batcher = batcher.delivery_timeout(Some(LONG)).workers(1).build().unwrap();
        let first = batcher.submit(1).unwrap();
        clock.advance(Duration::from_secs(1));
        let second = batcher.submit(2).unwrap();
        drop(batcher.flush());
        let batch = Arc::new(keeps.take());
        let workers = [0, 1].map(|index| {
            let batch = Arc::clone(&batch);
            thread::spawn(move || {
                batch.slot(index).resolve(Ok(7));
                batch.publish();
            })
        });
        let timer = thread::spawn(move || clock.advance(LONG - Duration::from_secs(1)));
        drop(batch);
        assert!(matches!(first.wait(), Ok(7) | Err(BatchError::TimedOut)));
        assert_eq!(second.wait().unwrap(), 7);
        join(workers);
        join([timer]);
        assert_eq!(batcher.close(Close::Drain, LONG).stats.in_flight, 0);
    });
}

/// A batch ends with an item to be tried again while the time of the other one runs out.
#[test]
fn shuttle_again_against_time() {
    explore(|| {
        let (keeps, clock) = (Keeps::default(), ManualClock::new());
        let batcher = Batcher::builder(keeps.clone()).clock(clock.clone()).linger(LONG);
        let batcher = batcher.delivery_timeout(Some(LONG)).workers(1).build().unwrap();
        let first = batcher.submit(1).unwrap();
        clock.advance(Duration::from_secs(1));
        let second = batcher.submit(2).unwrap();
        drop(batcher.flush());
        let batch = keeps.take();
        let timer = thread::spawn(move || clock.advance(LONG - Duration::from_secs(1)));
        batch.slot(1).resolve(Err(Disposition::Split));
        drop(batch);
        keeps.take().slot(0).resolve(Ok(7));
        assert!(matches!(first.wait(), Err(BatchError::TimedOut | BatchError::Unresolved { .. })));
        assert_eq!(second.wait().unwrap(), 7);
        join([timer]);
        assert_eq!(batcher.close(Close::Drain, LONG).stats.in_flight, 0);
    });
}

/// Stores nothing, and lets others run while it does.
struct Slow(Mutex<u64>);

impl Journal<u32> for Slow {
    fn reserve(&self, count: u64) -> ItemId {
        let mut next = self.0.lock().unwrap();
        *next += count;
        ItemId { epoch: 1, seq: *next - count }
    }

    fn append(&self, _: &[(ItemId, &u32)]) -> Result<(), JournalError> {
        thread::yield_now();
        Ok(())
    }

    fn ack(&self, _: &[ItemId]) -> Result<(), JournalError> {
        Ok(())
    }

    fn unacked(&self, _: ItemId) -> Result<Vec<(ItemId, u32)>, JournalError> {
        Ok(Vec::new())
    }
}

/// Submits to a journal: done or refused.
#[test]
fn shuttle_append_against_close() {
    explore(|| {
        let (builder, life) = adds();
        let batcher = builder.workers(1).capacity(2).journal(Slow(Mutex::new(0))).build().unwrap();
        let client = {
            let batcher = batcher.clone();
            thread::spawn(move || match block_on(batcher.submit_async(1)) {
                Ok(ticket) => assert_eq!(ticket.wait().unwrap(), 2),
                Err(refused) => assert_eq!(refused.into_parts(), (1, Refusal::Closed)),
            })
        };
        let blocking = {
            let batcher = batcher.clone();
            thread::spawn(move || match batcher.submit_all([2, 3]) {
                Ok(tickets) => assert!(tickets.wait().iter().all(Result::is_ok)),
                Err(cut) => {
                    assert_eq!(cut.reason, Refusal::Closed);
                    assert_eq!(cut.accepted.len() + cut.rest.len(), 2);
                    assert!(cut.accepted.wait().iter().all(Result::is_ok));
                }
            })
        };
        let report = batcher.close(Close::Drain, LONG);
        assert!(report.leftovers.is_empty() && report.in_flight.is_empty());
        join([client, blocking]);
        drop(batcher);
        life.wait_for_end();
    });
}

/// A future that is dropped on the way to the journal, and the last handle with it: its item is
/// processed all the same.
#[test]
fn shuttle_append_against_drop() {
    explore(|| {
        let (builder, life) = adds();
        let batcher = builder.workers(1).journal(Slow(Mutex::new(0))).build().unwrap();
        let other = {
            let batcher = batcher.clone();
            thread::spawn(move || drop(batcher.submit(2).unwrap()))
        };
        let mut submit = batcher.submit_async(1);
        drop(batcher);
        let mut context = Context::from_waker(Waker::noop());
        drop(Pin::new(&mut submit).poll(&mut context));
        drop(submit);
        join([other]);
        assert_eq!(life.wait_for_end(), 2);
    });
}
