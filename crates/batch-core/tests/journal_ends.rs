//! What a batcher owes to its journal, and what it keeps from it: how items end, and come back.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use batch_core::{
    Batch, BatchError, BatchOf, BatchProcessor, Batcher, Builder, Close, Disposition, Event,
    ManualClock, Observer, Pull, Refusal, Ticket,
};
use common::memory::{Memory, Mood};
use common::{Gate, LONG, Recorder};

/// Counts the complaints about the journal.
#[derive(Clone, Default)]
struct Complaints(Arc<Mutex<Vec<String>>>);

impl Observer<u64> for Complaints {
    fn event(&self, event: &Event<'_, u64>) {
        if let Event::JournalFailed { error } = event {
            self.0.lock().unwrap().push(error.to_string());
        }
    }
}

/// Keeps its batches until the test takes them.
#[derive(Clone, Default)]
struct Keeps {
    batches: Arc<Mutex<Vec<BatchOf<Keeps>>>>,
    has_one: Gate,
}

impl BatchProcessor for Keeps {
    type Key = ();
    type Item = u64;
    type Output = u64;
    type Error = Disposition;

    fn key(&self, _: &u64) {}

    fn process(&self, (): &(), batch: BatchOf<Self>) {
        self.batches.lock().unwrap().push(batch);
        self.has_one.open();
    }

    fn classify(&self, error: &Disposition) -> Disposition {
        *error
    }
}

impl Keeps {
    fn take(&self) -> Batch<u64, u64, Disposition> {
        self.has_one.pass();
        self.batches.lock().unwrap().pop().expect("the gate opens with the first batch")
    }
}

const RETRY: Disposition = Disposition::Retry { after: None };

fn recording(recorder: &Recorder, journal: &Arc<Memory>) -> Builder<Recorder> {
    Batcher::builder(recorder.clone()).journal(Arc::clone(journal))
}

fn keeping(keeps: &Keeps, journal: &Arc<Memory>) -> Builder<Keeps> {
    Batcher::builder(keeps.clone()).journal(Arc::clone(journal))
}

#[test]
fn an_item_is_acknowledged_before_anybody_sees_its_result() {
    let (recorder, journal) = (Recorder::open(), Memory::new());
    let batcher = recording(&recorder, &journal).build().unwrap();
    let gate = journal.ack.hold(1);
    let ticket = batcher.submit(1).unwrap();
    journal.ack.waits.pass();
    assert!(!ticket.is_done());
    gate.open();
    assert_eq!((ticket.wait().unwrap(), journal.acked()), (2, vec![1]));
}

#[test]
fn an_acknowledgement_that_fails_is_told_and_made_again_with_the_next() {
    for mood in [Mood::Fails, Mood::Panics] {
        let (recorder, journal) = (Recorder::open(), Memory::new());
        let complaints = Complaints::default();
        let batcher = recording(&recorder, &journal).observer(complaints.clone()).build().unwrap();
        journal.ack.set(mood);
        assert_eq!(batcher.submit(1).unwrap().wait().unwrap(), 2);
        let told = complaints.0.lock().unwrap().clone();
        assert!(matches!(&told[..], [one] if one.contains("no ack")), "{told:?}");
        journal.ack.set(Mood::Well);
        // The books are in order, and the key is not blocked.
        assert_eq!(batcher.submit(2).unwrap().wait().unwrap(), 3);
        let report = batcher.close(Close::Drain, LONG);
        assert_eq!((report.stats.completed, report.stats.in_flight), (2, 0));
        assert_eq!((journal.left(), journal.acked()), (vec![], vec![2, 1]));
    }
}

#[test]
fn an_acknowledgement_that_fails_is_made_again_by_the_close() {
    let (recorder, journal) = (Recorder::open(), Memory::new());
    let batcher = recording(&recorder, &journal).build().unwrap();
    journal.ack.set(Mood::Fails);
    assert_eq!(batcher.submit(1).unwrap().wait().unwrap(), 2);
    journal.ack.set(Mood::Well);
    batcher.close(Close::Drain, LONG);
    assert_eq!((journal.left(), journal.acked()), (vec![], vec![1]));
}

/// The engine goes with the last handle, as nothing else holds it.
#[test]
fn a_batch_that_outlives_its_engine_is_acknowledged() {
    for workers in [0, 1] {
        let (keeps, journal) = (Keeps::default(), Memory::new());
        let builder = keeping(&keeps, &journal).workers(workers).delivery_timeout(None);
        let batcher = builder.build().unwrap();
        let ticket = batcher.submit(1).unwrap();
        let batch = keeps.take();
        drop(batcher);
        batch.slot(0).resolve(Ok(10));
        assert_eq!(ticket.wait().unwrap(), 10);
        assert_eq!((journal.left(), journal.acked()), (vec![], vec![1]));
    }
}

#[test]
fn what_is_let_go_of_without_a_word_comes_back_if_the_batcher_is_closed() {
    let (keeps, journal) = (Keeps::default(), Memory::new());
    let batcher = keeping(&keeps, &journal).build().unwrap();
    let first = batcher.submit(0).unwrap();
    drop(keeps.take());
    assert!(matches!(first.wait(), Err(BatchError::Unresolved { panic: None })));
    assert_eq!(journal.acked(), [0], "to drop it was what the processor did with it");
    keeps.has_one.shut();
    let tickets = batcher.submit_all([1, 2]).unwrap();
    let batch = keeps.take();
    batcher.close(Close::Drain, Duration::ZERO);
    batch.slot(0).resolve(Ok(10));
    drop(batch);
    let outcomes = tickets.wait();
    assert!(matches!(&outcomes[..], [Ok(10), Err(BatchError::Unresolved { panic: None })]));
    assert_eq!((journal.left(), journal.acked()), (vec![2], vec![0, 1]));
}

#[test]
fn what_is_parked_when_the_last_handle_goes_stays_in_the_journal() {
    let journal = Memory::new();
    let batcher = Pull::<(), u64, u64, String>::by(|_| ()).journal(Arc::clone(&journal));
    let batcher = batcher.build().unwrap();
    let tickets = batcher.submit_all([1, 2, 3]).unwrap();
    drop(batcher);
    assert!(tickets.wait().iter().all(Result::is_err));
    assert_eq!((journal.left(), journal.acked()), (vec![1, 2, 3], vec![]));
}

#[test]
fn items_that_end_without_being_sent_are_acknowledged() {
    let (recorder, journal, clock) = (Recorder::open(), Memory::new(), ManualClock::new());
    let batcher = recording(&recorder, &journal).linger(LONG * 2).clock(clock.clone());
    let batcher = batcher.delivery_timeout(Some(LONG)).build().unwrap();
    let [first, second, third] = [1, 2, 3].map(|item| batcher.submit(item).unwrap());
    assert!(first.cancel());
    assert_eq!(batcher.cancel(second.id()), Some(2));
    assert_eq!(journal.acked(), [1, 2]);
    clock.advance(LONG);
    assert!(matches!(third.wait(), Err(BatchError::Expired)));
    assert_eq!(journal.acked(), [1, 2, 3]);
}

#[test]
fn items_that_time_out_are_acknowledged_once() {
    let (recorder, journal, clock) = (Recorder::default(), Memory::new(), ManualClock::new());
    let batcher = recording(&recorder, &journal).clock(clock.clone());
    let batcher = batcher.delivery_timeout(Some(LONG)).build().unwrap();
    let ticket = batcher.submit(1).unwrap();
    recorder.entered.pass();
    clock.advance(LONG);
    assert!(matches!(ticket.wait(), Err(BatchError::TimedOut)));
    recorder.gate.open();
    // By then the worker has resolved the first one too.
    assert_eq!(batcher.submit(2).unwrap().wait().unwrap(), 3);
    assert_eq!((batcher.stats().late, journal.acked()), (1, vec![1, 2]));
}

#[test]
fn items_that_fail_or_are_not_tried_again_are_acknowledged() {
    let (keeps, journal) = (Keeps::default(), Memory::new());
    let batcher = keeping(&keeps, &journal).build().unwrap();
    let ticket = batcher.submit(1).unwrap();
    // It is alone and cannot be split.
    keeps.take().fail_all(Disposition::Split);
    assert!(matches!(ticket.wait(), Err(BatchError::Failed(_))));
    assert_eq!(journal.acked(), [1]);
}

#[test]
fn items_that_wait_to_be_tried_again_are_not_acknowledged() {
    let (keeps, journal) = (Keeps::default(), Memory::new());
    let batcher = keeping(&keeps, &journal).build().unwrap();
    let tickets = batcher.submit_all([1, 2]).unwrap();
    let batch = keeps.take();
    batch.slot(0).resolve(Ok(10));
    batch.slot(1).resolve(Err(Disposition::Retry { after: Some(Duration::from_secs(30)) }));
    drop(batch);
    let mut tickets = tickets.into_iter();
    assert_eq!(tickets.next().unwrap().wait().unwrap(), 10);
    assert_eq!((journal.acked(), journal.left()), (vec![1], vec![2]));
}

#[test]
fn leftovers_stay_in_the_journal() {
    let (recorder, journal) = (Recorder::open(), Memory::new());
    let batcher = recording(&recorder, &journal).linger(LONG).build().unwrap();
    let tickets = batcher.submit_all([1, 2]).unwrap();
    let report = batcher.close(Close::Abort, LONG);
    assert!(report.leftovers.iter().map(|(_, item)| *item).eq([1, 2]));
    assert!(tickets.wait().iter().all(|outcome| matches!(outcome, Err(BatchError::Closed))));
    assert_eq!((journal.acked(), journal.left()), (vec![], vec![1, 2]));
}

#[test]
fn what_waits_behind_a_fatal_error_stays_in_the_journal() {
    let (keeps, journal) = (Keeps::default(), Memory::new());
    let batcher = keeping(&keeps, &journal).max_batch_items(1).build().unwrap();
    let tickets: Vec<_> = [1, 2].map(|item| batcher.submit(item).unwrap()).into();
    let gate = journal.append.hold(3);
    let late = thread::spawn(move || batcher.submit(3).unwrap_err().into_parts());
    journal.append.waits.pass();
    keeps.take().fail_all(Disposition::Fatal);
    gate.open();
    // The one on its way comes back, and so must not come again; nobody waits for ever.
    assert_eq!(late.join().unwrap(), (3, Refusal::Fatal { item: tickets[0].id() }));
    let [first, second] = <[_; 2]>::try_from(tickets).unwrap().map(Ticket::wait);
    assert!(matches!(first, Err(BatchError::Failed(_))));
    assert!(matches!(second, Err(BatchError::Closed)));
    assert_eq!((journal.acked(), journal.left()), (vec![1, 3], vec![2]));
}

/// Without a worker nothing would ever try it again.
#[test]
fn what_is_to_be_tried_again_after_the_close_is_handed_back() {
    let (keeps, journal) = (Keeps::default(), Memory::new());
    let batcher = keeping(&keeps, &journal).build().unwrap();
    let ticket = batcher.submit(1).unwrap();
    let batch = keeps.take();
    let report = batcher.close(Close::Drain, Duration::ZERO);
    assert_eq!(report.in_flight, [ticket.id()]);
    batch.fail_all(RETRY);
    drop(batch);
    assert!(matches!(ticket.wait(), Err(BatchError::Closed)));
    let report = batcher.close(Close::Drain, LONG);
    assert!(report.leftovers.iter().map(|(_, item)| *item).eq([1]));
    assert_eq!((journal.left(), report.stats.handed_back), (vec![1], 1));
}

/// The time-out is still being written down when the batch ends with an item to be tried again.
#[test]
fn a_batch_that_ends_while_one_of_its_items_times_out_is_tried_again() {
    let (keeps, journal, clock) = (Keeps::default(), Memory::new(), ManualClock::new());
    let batcher = keeping(&keeps, &journal).clock(clock.clone()).linger(LONG);
    let batcher = batcher.delivery_timeout(Some(LONG)).build().unwrap();
    let first = batcher.submit(1).unwrap();
    clock.advance(Duration::from_secs(1));
    let second = batcher.submit(2).unwrap();
    drop(batcher.flush());
    let batch = keeps.take();
    let gate = journal.ack.hold(1);
    let keeper = thread::spawn(move || clock.advance(LONG.saturating_sub(Duration::from_secs(1))));
    journal.ack.waits.pass();
    batch.slot(1).resolve(Err(Disposition::Split));
    drop(batch);
    gate.open();
    keeper.join().unwrap();
    assert!(matches!(first.wait(), Err(BatchError::TimedOut)));
    // Half of what was to be split, and so sent at once.
    loop {
        let next = keeps.batches.lock().unwrap().pop();
        if let Some(batch) = next {
            batch.slot(0).resolve(Ok(20));
            break;
        }
        thread::yield_now();
    }
    assert_eq!(second.wait().unwrap(), 20);
    assert_eq!(batcher.close(Close::Drain, LONG).stats.in_flight, 0);
}

/// Leaves items 1 to 4 in a journal of an earlier run.
fn earlier() -> Arc<Memory> {
    let (recorder, journal) = (Recorder::open(), Memory::new());
    let batcher = recording(&recorder, &journal).linger(LONG).build().unwrap();
    drop(batcher.submit_all(1..=4).unwrap());
    batcher.close(Close::Abort, LONG);
    journal.reopened()
}

#[test]
fn a_resume_queues_what_was_left_once_in_order_under_the_same_ids() {
    let (recorder, journal) = (Recorder::open(), earlier());
    let batcher = recording(&recorder, &journal).capacity(2).build().unwrap();
    let mine = batcher.submit(10).unwrap();
    let resumed = batcher.resume(|item| format!("item {item}")).unwrap();
    assert!(batcher.resume(|_| ()).unwrap().is_empty());
    let ids: Vec<_> = resumed.iter().map(|(_, ticket)| ticket.id()).collect();
    assert!(ids.is_sorted() && ids.iter().all(|id| id.epoch == 0) && mine.id().epoch == 1);
    assert_eq!(ids.iter().map(|id| id.seq).collect::<Vec<_>>(), [0, 1, 2, 3]);
    for ((label, ticket), item) in resumed.into_iter().zip(1..) {
        assert_eq!((label, ticket.wait().unwrap()), (format!("item {item}"), item + 1));
    }
    assert_eq!(mine.wait().unwrap(), 11);
    assert!(journal.left().is_empty());
    assert!(recorder.batches().concat().into_iter().filter(|item| *item < 10).eq(1..=4));
}

/// It was accepted when more was allowed, and is not lost for that.
#[test]
fn a_resumed_item_that_is_too_heavy_by_now_goes_alone() {
    let (recorder, journal) = (Recorder::open(), earlier());
    let batcher = recording(&recorder, &journal).max_batch_weight(3).build().unwrap();
    for ((), ticket) in batcher.resume(|_| ()).unwrap() {
        ticket.wait().unwrap();
    }
    assert_eq!(recorder.batches(), [vec![1, 2], vec![3], vec![4]]);
    assert!(batcher.submit(4).is_err(), "it would be new");
}

#[test]
fn a_resume_that_fails_queues_nothing_and_can_be_repeated() {
    let (recorder, journal) = (Recorder::open(), earlier());
    let batcher = recording(&recorder, &journal).build().unwrap();
    for mood in [Mood::Fails, Mood::Panics] {
        journal.read.set(mood);
        assert!(batcher.resume(|_| ()).unwrap_err().to_string().contains("no read"));
        assert_eq!(batcher.stats().accepted, 0);
    }
    journal.read.set(Mood::Well);
    let label = |_: &u64| panic!("a label of the user");
    let panicked = catch_unwind(AssertUnwindSafe(|| drop(batcher.resume(label))));
    assert!(panicked.is_err() && batcher.stats().accepted == 0);
    assert_eq!(batcher.resume(|_| ()).unwrap().len(), 4);
    assert!(batcher.close(Close::Drain, LONG).leftovers.is_empty());
    assert!(journal.acked().into_iter().eq(1..=4));
}

#[test]
fn a_resume_into_a_closed_batcher_leaves_nobody_waiting() {
    let (recorder, journal) = (Recorder::open(), earlier());
    let batcher = recording(&recorder, &journal).build().unwrap();
    batcher.close(Close::Drain, LONG);
    for ((), ticket) in batcher.resume(|_| ()).unwrap() {
        assert!(matches!(ticket.wait(), Err(BatchError::Closed)));
    }
    assert_eq!(batcher.close(Close::Drain, LONG).leftovers.len(), 4);
    assert!(journal.left().into_iter().eq(1..=4));
}
