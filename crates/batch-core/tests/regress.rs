//! Faults that were found in review, each named for what holds instead.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::convert::Infallible;
use std::future::{Future, IntoFuture};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use batch_core::{
    Batch, BatchError, BatchOf, BatchProcessor, Batcher, Clock, Close, Disposition, Event,
    FlushWouldDeadlock, ItemId, ManualClock, Observer, Refusal, Retry, Tasks, Ticket, TicketFuture,
    Unsent, batch_fn, keyed_fn,
};
use common::{Gate, LONG, Recorder, block_on};

type Kept = Arc<Mutex<Vec<Batch<u64, u64, Infallible>>>>;

/// Puts every batch aside, to be resolved by the test.
fn keeper() -> (Kept, impl batch_core::BatchProcessor<Item = u64, Output = u64, Error = Infallible>)
{
    let kept = Kept::default();
    let store = Arc::clone(&kept);
    (kept, keyed_fn(|_: &u64| (), move |(), batch| store.lock().unwrap().push(batch)))
}

fn resolve_next(kept: &Kept) {
    let batch = kept.lock().unwrap().remove(0);
    for slot in batch.slots() {
        assert!(slot.resolve(Ok(slot.item() + 1)));
    }
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

/// The engine went with the last handle, and what waited behind a kept batch with it: its ticket
/// was waited for without end.
#[test]
fn inline_items_behind_a_kept_batch_outlive_the_last_handle() {
    let (kept, processor) = keeper();
    let batcher = Batcher::builder(processor).inline().build().unwrap();
    let first = batcher.submit(1).unwrap();
    let second = batcher.submit(2).unwrap();
    assert_eq!(kept.lock().unwrap().len(), 1);
    drop(batcher);
    resolve_next(&kept);
    assert_eq!(first.wait().unwrap(), 2);
    assert_eq!(kept.lock().unwrap().len(), 1);
    resolve_next(&kept);
    assert_eq!(second.wait().unwrap(), 3);
}

/// A waiting thread that was asked to run the next batch found the engine gone with the handle of
/// the one who had asked.
#[test]
fn an_inline_hand_over_outlives_the_last_handle() {
    for _ in 0..200 {
        let batcher = Batcher::builder(Recorder::open()).inline().build().unwrap();
        thread::scope(|scope| {
            for item in 0..3 {
                let batcher = batcher.clone();
                scope.spawn(move || {
                    let ticket = batcher.submit(item).unwrap();
                    drop(batcher);
                    assert_eq!(ticket.wait().unwrap(), item + 1);
                });
            }
            drop(batcher);
        });
    }
}

/// The batch waited for the message of a panic that never came out of the processor.
#[test]
fn a_batch_dropped_in_a_panic_that_the_processor_caught_is_unresolved() {
    let processor = keyed_fn(
        |_: &u64| (),
        |(), batch: Batch<u64, u64, Infallible>| {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                let _batch = batch;
                panic!("caught by the processor");
            }));
            assert!(caught.is_err());
        },
    );
    let batcher = Batcher::new(processor).unwrap();
    let outcome = batcher.submit(1).unwrap().wait_timeout(LONG).unwrap();
    assert!(matches!(outcome, Err(BatchError::Unresolved { .. })), "{outcome:?}");
}

struct Rude;

impl Wake for Rude {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

struct Polite(Gate);

impl Wake for Polite {
    fn wake(self: Arc<Self>) {
        self.0.open();
    }
}

/// A waker that panicked kept the others from being woken, and ended the worker where the batch
/// had been left unresolved.
#[test]
fn a_waker_that_panics_harms_no_other() {
    let entered = Gate::default();
    let gate = Gate::default();
    let (inside, go) = (entered.clone(), gate.clone());
    let processor = keyed_fn(
        |_: &u64| (),
        move |(), batch: Batch<u64, u64, Infallible>| {
            inside.open();
            go.pass();
            assert!(batch.items()[0] > 1, "leaves the batch unresolved");
            batch.resolve_all(batch.items().iter().map(|item| Ok(*item)).collect());
        },
    );
    let batcher = Batcher::new(processor).unwrap();
    let mut rude = Vec::new();
    let mut tickets: Vec<_> = batcher.submit_all([1, 1, 1]).unwrap().into_iter().collect();
    let mut polite = pin!(tickets.pop().unwrap().into_future());
    entered.pass();
    for ticket in tickets {
        let mut future = Box::pin(ticket.into_future());
        assert!(poll(future.as_mut(), &Waker::from(Arc::new(Rude))).is_pending());
        rude.push(future);
    }
    let mut flush = pin!(batcher.flush());
    assert!(poll(flush.as_mut(), &Waker::from(Arc::new(Rude))).is_pending());
    let woken = Gate::default();
    assert!(poll(polite.as_mut(), &Waker::from(Arc::new(Polite(woken.clone())))).is_pending());
    gate.open();
    woken.pass();
    assert!(matches!(block_on(polite), Err(BatchError::Unresolved { .. })));
    for mut future in rude {
        assert!(poll(future.as_mut(), Waker::noop()).is_ready());
    }
    assert_eq!(batcher.submit(2).unwrap().wait_timeout(LONG).unwrap().unwrap(), 2);
}

struct Curious(Mutex<Option<Ticket<u64, Infallible>>>);

impl Wake for Curious {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Curious {
    fn drop(&mut self) {
        assert!(!self.0.lock().unwrap().as_ref().unwrap().is_done());
    }
}

/// A replaced waker was dropped under the lock of its batch: a task that ended there and looked at
/// another ticket of the batch waited for itself.
#[test]
fn a_replaced_waker_is_dropped_under_no_lock() {
    let (kept, processor) = keeper();
    let batcher = Batcher::builder(processor).inline().build().unwrap();
    let mut tickets = batcher.submit_all([1, 2, 3]).unwrap().into_iter();
    let mut future: TicketFuture<_, _> = tickets.next().unwrap().into_future();
    for ticket in tickets {
        let curious = Waker::from(Arc::new(Curious(Mutex::new(Some(ticket)))));
        assert!(poll(Pin::new(&mut future), &curious).is_pending());
    }
    assert!(poll(Pin::new(&mut future), Waker::noop()).is_pending());
    resolve_next(&kept);
    assert_eq!(block_on(future).unwrap(), 2);
}

/// Items handed back were in no count, and their tickets in the dark, until what was in flight had
/// ended.
#[test]
fn an_abort_hands_back_at_once() {
    let recorder = Recorder::default();
    let batcher = Batcher::builder(recorder.clone()).max_batch_items(1).build().unwrap();
    let mut tickets = batcher.submit_all([1, 2, 3]).unwrap().into_iter();
    recorder.entered.pass();
    let first = tickets.next().unwrap();
    thread::scope(|scope| {
        let closing = scope.spawn(|| batcher.close(Close::Abort, LONG));
        for ticket in tickets {
            let outcome = ticket.wait_timeout(LONG).unwrap();
            assert!(matches!(outcome, Err(BatchError::Closed)), "{outcome:?}");
        }
        let stats = batcher.stats();
        assert_eq!((stats.accepted, stats.handed_back), (3, 2));
        assert_eq!((stats.queued, stats.in_flight), (0, 1));
        recorder.gate.open();
        let report = closing.join().unwrap();
        assert_eq!(report.leftovers.iter().map(|left| left.1).collect::<Vec<_>>(), [2, 3]);
    });
    assert_eq!(first.wait().unwrap(), 2);
}

/// One close took away what another waited for, and did not say so.
#[test]
fn a_drain_ends_when_an_abort_empties_the_queue() {
    let (resolved, gate) = (Gate::default(), Gate::default());
    let (done, go) = (resolved.clone(), gate.clone());
    // It resolves its batch and stays busy: nothing is in flight, and nobody takes the next.
    let processor = keyed_fn(
        |item: &u64| *item,
        move |_, batch: Batch<u64, u64, Infallible>| {
            batch.resolve_all(batch.items().iter().map(|item| Ok(*item)).collect());
            done.open();
            go.pass();
        },
    );
    let batcher = Batcher::new(processor).unwrap();
    let first = batcher.submit(1).unwrap();
    resolved.pass();
    let second = batcher.submit(2).unwrap();
    thread::scope(|scope| {
        let draining = scope.spawn(|| batcher.close(Close::Drain, LONG));
        while batcher.try_submit(3).is_ok_and(|ticket| {
            ticket.detach();
            true
        }) {
            thread::yield_now();
        }
        let aborted = batcher.close(Close::Abort, LONG);
        assert!(aborted.leftovers.iter().any(|left| left.1 == 2));
        assert!(draining.join().unwrap().leftovers.is_empty());
    });
    gate.open();
    assert_eq!(first.wait().unwrap(), 1);
    assert!(matches!(second.wait(), Err(BatchError::Closed)));
}

/// An item whose result was not delivered yet was neither final nor in flight.
#[test]
fn a_close_lists_what_is_resolved_and_not_delivered() {
    let (kept, processor) = keeper();
    let batcher = Batcher::builder(processor).inline().build().unwrap();
    let tickets = batcher.submit_all([1, 2]).unwrap();
    let ids: Vec<_> = tickets.into_iter().map(|ticket| ticket.id()).collect();
    assert!(kept.lock().unwrap()[0].slot(0).resolve(Ok(1)));
    let report = batcher.close(Close::Abort, std::time::Duration::ZERO);
    assert_eq!((report.in_flight, report.stats.in_flight), (ids, 2));
}

/// A submit waited for room that only a batch which lingers could make, though nothing more could
/// join that batch.
#[test]
fn nothing_lingers_while_a_submit_waits_for_room() {
    let batcher = Batcher::builder(Recorder::open())
        .capacity(2)
        .max_batch_items(10)
        .linger(LONG)
        .max_block(None)
        .build()
        .unwrap();
    let tickets = batcher.submit_all([1, 2, 3]).unwrap();
    batcher.flush().wait().unwrap();
    assert_eq!(tickets.wait().into_iter().map(Result::unwrap).collect::<Vec<_>>(), [2, 3, 4]);
}

/// The same with single submits: the one that waits accepts nothing, and has to call a worker.
#[test]
fn a_single_submit_that_waits_for_room_ends_the_linger() {
    let builder = Batcher::builder(Recorder::open()).capacity(1).linger(LONG).max_block(None);
    let batcher = builder.delivery_timeout(None).build().unwrap();
    let first = batcher.submit(1).unwrap();
    let second = batcher.submit(2).unwrap();
    assert_eq!(first.wait().unwrap(), 2);
    batcher.flush().wait().unwrap();
    assert_eq!(second.wait().unwrap(), 3);
}

/// A batch that may weigh nothing takes nothing.
#[test]
fn a_weight_limit_of_0_is_refused() {
    let echo = || batch_fn(|items: &[u8]| items.iter().map(|i| Ok::<_, Infallible>(*i)).collect());
    let refused = Batcher::builder(echo()).max_batch_weight(0).build().unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    assert!(refused.to_string().contains("max_batch_weight is 0"));
    let batcher = Batcher::builder(echo()).max_batch_weight(1).build().unwrap();
    assert_eq!(batcher.submit(7).unwrap().wait().unwrap(), 7);
    batcher.close(Close::Drain, LONG);
    assert_eq!(*batcher.submit(8).unwrap_err().reason(), Refusal::Closed);
}

/// A waker that uses the batcher when it is dropped.
struct Nosy(std::sync::Mutex<Option<Batcher<Recorder>>>);

impl std::task::Wake for Nosy {
    fn wake(self: std::sync::Arc<Self>) {}
}

impl Drop for Nosy {
    fn drop(&mut self) {
        if let Some(batcher) = self.0.get_mut().unwrap().take() {
            assert!(batcher.cancel(batch_core::ItemId { epoch: 9, seq: 9 }).is_none());
        }
    }
}

/// Giving up an async submit or close dropped the waker while the lock was held.
#[test]
fn a_waker_of_one_who_gives_up_is_dropped_under_no_lock() {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Waker};

    let recorder = Recorder::default();
    let batcher = Batcher::builder(recorder.clone()).capacity(1).build().unwrap();
    batcher.submit(1).unwrap().detach();
    recorder.entered.pass();
    let nosy = || {
        let batcher = std::sync::Mutex::new(Some(batcher.clone()));
        Waker::from(std::sync::Arc::new(Nosy(batcher)))
    };
    let mut submit = batcher.submit_async(2);
    assert!(Pin::new(&mut submit).poll(&mut Context::from_waker(&nosy())).is_pending());
    assert!(Pin::new(&mut submit).poll(&mut Context::from_waker(&nosy())).is_pending());
    drop(submit);
    let mut close = batcher.close_async(batch_core::Close::Drain, common::LONG);
    assert!(Pin::new(&mut close).poll(&mut Context::from_waker(&nosy())).is_pending());
    assert!(Pin::new(&mut close).poll(&mut Context::from_waker(&nosy())).is_pending());
    recorder.gate.open();
    common::block_on(close);
}

/// The drop of the last handle made ready what lingered, and told nobody to run it.
#[test]
fn what_lingers_inline_outlives_the_last_handle() {
    for is_virtual in [false, true] {
        let recorder = Recorder::open();
        let builder = Batcher::builder(recorder.clone()).inline().linger(LONG);
        let builder = if is_virtual { builder.clock(ManualClock::new()) } else { builder };
        let batcher = builder.delivery_timeout(None).build().unwrap();
        batcher.submit(1).unwrap().detach();
        drop(batcher);
        recorder.entered.pass();
        assert_eq!(recorder.batches(), [[1]]);
    }
}

/// Panics when it is dropped.
#[derive(Debug)]
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a drop that panics");
    }
}

/// Fails at the first attempt with an error whose drop panics, and has more such values refused.
struct Mined;

impl BatchProcessor for Mined {
    type Key = ();
    type Item = Option<Bomb>;
    type Output = Option<Bomb>;
    type Error = Bomb;

    fn key(&self, _: &Option<Bomb>) {}

    fn process(&self, (): &(), batch: BatchOf<Self>) {
        if batch.slot(0).attempt() == 1 {
            batch.resolve_all(batch.items().iter().map(|_| Err(Bomb)).collect());
            batch.resolve_all(batch.items().iter().map(|_| Ok(Some(Bomb))).collect());
            batch.resolve_all(vec![Ok(Some(Bomb)), Ok(Some(Bomb))]);
        } else if batch.slot(0).attempt() == 2 {
            // The errors of the first attempt are dropped one by one here, and below all at once.
            batch.slots().for_each(|slot| assert!(slot.resolve(Err(Bomb))));
        } else {
            batch.resolve_all(batch.items().iter().map(|_| Ok(None)).collect());
        }
    }

    fn classify(&self, _: &Bomb) -> Disposition {
        Disposition::Retry { after: None }
    }
}

/// A second value whose drop panicked ended the process, and an error of an earlier attempt was
/// dropped under the lock of its batch, which then had no end.
#[test]
fn values_whose_drops_panic_end_neither_the_process_nor_the_books() {
    let retry = Retry::default().base(Duration::ZERO);
    let batcher = Batcher::builder(Mined).linger(LONG).retry(retry).build().unwrap();
    let tickets = batcher.submit_all((0..3).map(|_| Some(Bomb))).unwrap();
    batcher.flush().wait().unwrap();
    assert!(tickets.wait().iter().all(|outcome| matches!(outcome, Ok(None))));
    let stats = batcher.stats();
    assert_eq!((stats.completed, stats.calls, stats.in_flight), (3, 3, 0));
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A worker or keeper that was polled again dropped its waker while the lock was held.
#[test]
fn a_waker_of_a_task_is_dropped_under_no_lock() {
    let tasks: Arc<Mutex<Vec<Task>>> = Arc::default();
    let spawned = Arc::clone(&tasks);
    let spawn = move |task| spawned.lock().unwrap().push(task);
    let driver = Tasks::new(spawn, |_| std::future::pending());
    let batcher = Batcher::builder(Recorder::open()).tasks(driver).build().unwrap();
    let nosy = || Waker::from(Arc::new(Nosy(Mutex::new(Some(batcher.clone())))));
    let mut tasks = std::mem::take(&mut *tasks.lock().unwrap());
    for _ in 0..3 {
        for task in &mut tasks {
            assert!(poll(task.as_mut(), &nosy()).is_pending());
        }
    }
    drop(tasks);
    assert_eq!(*batcher.submit(1).unwrap_err().reason(), Refusal::Closed);
}

/// A clock that tells nobody when it is set.
#[derive(Clone, Default)]
struct Dial(Arc<AtomicU64>);

impl Clock for Dial {
    fn now(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

/// The thread that had taken the next batch ran `on_dropped` before it, which waited for that
/// batch, and so for itself.
#[test]
fn a_wait_inside_on_dropped_is_refused() {
    for workers in [0, 1] {
        let (dial, itself) = (Dial::default(), Arc::new(OnceLock::<Batcher<Recorder>>::new()));
        let own = Arc::clone(&itself);
        let refused = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&refused);
        let batcher = Batcher::builder(Recorder::open())
            .clock(dial.clone())
            .workers(workers)
            .capacity(2)
            .linger(LONG)
            .delivery_timeout(Some(Duration::from_mins(1)))
            .on_dropped(move |_, item, _| {
                let batcher = own.get().unwrap();
                let ticket = batcher.submit(item + 2_000).unwrap();
                let full = batcher.submit(item).unwrap_err().into_parts().1;
                let flushed = batcher.flush().wait();
                seen.lock().unwrap().push((
                    full,
                    flushed,
                    ticket.wait().map_err(|e| e.to_string()),
                ));
            })
            .build()
            .unwrap();
        assert!(itself.set(batcher.clone()).is_ok());
        let first = batcher.submit(1).unwrap();
        dial.0.store(30, Ordering::SeqCst);
        let second = batcher.submit(1_001).unwrap();
        dial.0.store(60, Ordering::SeqCst);
        drop(batcher.flush());
        assert!(matches!(first.wait(), Err(BatchError::Expired)));
        assert_eq!(second.wait().unwrap(), 1_002);
        let deadlock = BatchError::<Infallible>::WouldDeadlock.to_string();
        let expected = (Refusal::WouldDeadlock, Err(FlushWouldDeadlock), Err(deadlock));
        assert_eq!(*refused.lock().unwrap(), [expected]);
    }
}

type Leftovers = Arc<Mutex<Vec<(ItemId, u64)>>>;

/// Keeps its batches, and calls every error fatal.
#[derive(Clone, Default)]
struct Strict(Arc<Mutex<Vec<BatchOf<Self>>>>);

impl BatchProcessor for Strict {
    type Key = ();
    type Item = u64;
    type Output = ();
    type Error = ();

    fn key(&self, _: &u64) {}

    fn process(&self, (): &(), batch: BatchOf<Self>) {
        self.0.lock().unwrap().push(batch);
    }

    fn classify(&self, (): &()) -> Disposition {
        Disposition::Fatal
    }
}

/// Closes the batcher as soon as items are handed back, and keeps what the report has of them.
struct Closer(Arc<OnceLock<Batcher<Strict>>>, Leftovers);

impl<K> Observer<K> for Closer {
    fn event(&self, event: &Event<'_, K>) {
        if let Event::Unsent { end: Unsent::HandedBack, .. } = event {
            let report = self.0.get().unwrap().close(Close::Abort, Duration::ZERO);
            self.1.lock().unwrap().extend(report.leftovers);
        }
    }
}

/// What a batcher that had ended took out of its queue was for a moment neither there nor among
/// the leftovers, and a close at that moment reported nothing of it.
#[test]
fn a_close_finds_what_is_being_handed_back() {
    let (itself, leftovers) = (Arc::new(OnceLock::new()), Leftovers::default());
    let strict = Strict::default();
    let builder = Batcher::builder(strict.clone()).inline().delivery_timeout(None);
    let closer = Closer(Arc::clone(&itself), Arc::clone(&leftovers));
    let batcher = builder.observer(closer).build().unwrap();
    assert!(itself.set(batcher.clone()).is_ok());
    let first = batcher.submit(1).unwrap();
    let second = batcher.submit(2).unwrap();
    let batch = strict.0.lock().unwrap().pop().unwrap();
    assert!(batch.slot(0).resolve(Err(())));
    assert!(matches!(first.wait(), Err(BatchError::Failed(_))));
    assert_eq!(*leftovers.lock().unwrap(), [(second.id(), 2)]);
    assert!(matches!(second.wait(), Err(BatchError::Closed)));
}

/// Closes the batcher when it is dropped, if it has one.
struct Parting(Option<Arc<OnceLock<Batcher<Halves>>>>, Arc<Mutex<Vec<ItemId>>>);

impl Drop for Parting {
    fn drop(&mut self) {
        if let Some(batcher) = self.0.take() {
            let report = batcher.get().unwrap().close(Close::Drain, Duration::ZERO);
            self.1.lock().unwrap().extend(report.in_flight);
        }
    }
}

/// Completes the first item of a batch, and wants the others once more.
struct Halves;

impl BatchProcessor for Halves {
    type Key = ();
    type Item = Parting;
    type Output = ();
    type Error = ();

    fn key(&self, _: &Parting) {}

    fn process(&self, (): &(), batch: BatchOf<Self>) {
        batch
            .resolve_all((0..batch.len()).map(|i| if i == 0 { Ok(()) } else { Err(()) }).collect());
    }

    fn classify(&self, (): &()) -> Disposition {
        Disposition::Retry { after: None }
    }
}

/// On its way from its batch to the queue an item was in neither, and a close at that moment
/// reported it neither as in flight nor as left over.
#[test]
fn a_close_finds_what_is_on_its_way_to_be_retried() {
    let (itself, in_flight) = (Arc::new(OnceLock::new()), Arc::default());
    let batcher = Batcher::builder(Halves).inline().linger(LONG).build().unwrap();
    assert!(itself.set(batcher.clone()).is_ok());
    let first = batcher.submit(Parting(Some(Arc::clone(&itself)), Arc::clone(&in_flight))).unwrap();
    let second = batcher.submit(Parting(None, Arc::clone(&in_flight))).unwrap();
    drop(batcher.flush());
    assert!(first.wait().is_ok());
    assert_eq!(*in_flight.lock().unwrap(), [second.id()]);
    let report = batcher.close(Close::Drain, Duration::ZERO);
    assert_eq!((report.leftovers.len(), report.in_flight.len()), (1, 0));
    assert!(matches!(second.wait(), Err(BatchError::Closed)));
}
