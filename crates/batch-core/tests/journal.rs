//! What a batcher owes to its journal, and what it keeps from it: how items are accepted.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use batch_core::{BatchError, Batcher, Close, JournalErrorKind, Refusal};
use common::memory::{Memory, Mood};
use common::{LONG, Recorder, block_on};

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn start(recorder: &Recorder, journal: &Arc<Memory>) -> Batcher<Recorder> {
    Batcher::builder(recorder.clone()).journal(Arc::clone(journal)).build().unwrap()
}

fn kind(refusal: &Refusal) -> JournalErrorKind {
    let Refusal::Journal(error) = refusal else { panic!("refused as {refusal}") };
    error.kind()
}

#[test]
fn an_item_is_accepted_once_its_append_has_returned() {
    let (recorder, journal) = (Recorder::open(), Memory::new());
    let batcher = start(&recorder, &journal);
    let gate = journal.append.hold(1);
    let caller = thread::spawn({
        let batcher = batcher.clone();
        move || batcher.submit(1).unwrap().wait()
    });
    journal.append.waits.pass();
    assert_eq!(batcher.stats().accepted, 0);
    assert!(recorder.batches().is_empty() && journal.left().is_empty());
    gate.open();
    assert_eq!(caller.join().unwrap().unwrap(), 2);
    assert_eq!(batcher.stats().accepted, 1);
    assert_eq!(journal.acked(), [1]);
}

#[test]
fn a_bulk_submit_is_one_append() {
    let (recorder, journal) = (Recorder::open(), Memory::new());
    let batcher = start(&recorder, &journal);
    let outputs = batcher.submit_all(1..=300).unwrap().wait();
    assert!(outputs.into_iter().map(Result::unwrap).eq(2..=301));
    assert_eq!(journal.groups().len(), 1);
    assert!(journal.acked().into_iter().eq(1..=300) && journal.left().is_empty());
}

/// A refusal gives back everything, frees the room and accepts nothing.
fn gives_back(mood: Mood, expected: JournalErrorKind) {
    let (recorder, journal) = (Recorder::open(), Memory::new());
    let batcher = Batcher::builder(recorder.clone()).capacity(2).journal(Arc::clone(&journal));
    let batcher = batcher.build().unwrap();
    journal.append.set(mood);
    let (item, refusal) = batcher.submit(1).unwrap_err().into_parts();
    assert_eq!((item, kind(&refusal)), (1, expected));
    let bulk = batcher.submit_all(1..=5).unwrap_err();
    assert_eq!(
        (bulk.accepted.len(), bulk.rest, kind(&bulk.reason)),
        (0, vec![1, 2, 3, 4, 5], expected)
    );
    let (item, refusal) = block_on(batcher.submit_async(7)).unwrap_err().into_parts();
    assert_eq!((item, kind(&refusal)), (7, expected));
    assert!(journal.left().is_empty() && recorder.batches().is_empty());
    assert_eq!((batcher.stats().accepted, batcher.stats().refused), (0, 3));

    journal.append.set(Mood::Well);
    assert_eq!(batcher.submit_all([1, 2]).unwrap().wait().len(), 2);
    assert_eq!(block_on(batcher.submit_async(3)).unwrap().wait().unwrap(), 4);
    assert!(batcher.close(Close::Drain, LONG).leftovers.is_empty());
}

#[test]
fn what_the_journal_does_not_take_comes_back() {
    gives_back(Mood::Fails, JournalErrorKind::Full);
}

#[test]
fn an_append_that_panics_loses_nothing() {
    gives_back(Mood::Panics, JournalErrorKind::Stopped);
}

#[test]
fn a_bulk_submit_that_fails_half_way_gives_the_rest_back() {
    let (recorder, journal) = (Recorder::default(), Memory::new());
    let batcher = Batcher::builder(recorder.clone()).capacity(2).journal(Arc::clone(&journal));
    let batcher = batcher.build().unwrap();
    let caller = thread::spawn(move || batcher.submit_all(1..=5).unwrap_err());
    // The first two are stored and with the processor.
    recorder.entered.pass();
    journal.append.set(Mood::Fails);
    recorder.gate.open();
    let bulk = caller.join().unwrap();
    assert_eq!(bulk.rest, [3, 4, 5]);
    assert_eq!(bulk.accepted.wait().into_iter().map(Result::unwrap).collect::<Vec<_>>(), [2, 3]);
    assert_eq!((journal.groups(), journal.acked()), (vec![vec![1, 2]], vec![1, 2]));
}

#[test]
fn one_who_waited_for_room_lets_the_next_in_while_its_item_is_stored() {
    let (recorder, journal) = (Recorder::default(), Memory::new());
    let batcher = Batcher::builder(recorder.clone()).capacity(2).max_block(None);
    let batcher = batcher.journal(Arc::clone(&journal)).build().unwrap();
    let running = batcher.submit_all([1, 2]).unwrap();
    recorder.entered.pass();
    let gate = journal.append.hold(3);
    let submit = |item| {
        let batcher = batcher.clone();
        thread::spawn(move || batcher.submit(item).unwrap().wait().unwrap())
    };
    let (slow, quick) = (submit(3), submit(4));
    recorder.gate.open();
    assert!(running.wait().into_iter().all(|outcome| outcome.is_ok()));
    journal.append.waits.pass();
    assert_eq!(quick.join().unwrap(), 5);
    gate.open();
    assert_eq!(slow.join().unwrap(), 4);
}

#[test]
fn an_async_submit_never_writes_on_the_thread_that_polls() {
    let (recorder, journal) = (Recorder::open(), Memory::new());
    let batcher = start(&recorder, &journal);
    let gate = journal.append.hold(1);
    let mut first = batcher.submit_async(1);
    // It would never return if it waited for the journal.
    assert!(poll_once(&mut first).is_pending());
    journal.append.waits.pass();
    let mut others: Vec<_> = (2..10).map(|item| batcher.submit_async(item)).collect();
    assert!(others.iter_mut().all(|other| poll_once(other).is_pending()));
    gate.open();
    for (submit, output) in std::iter::once(first).chain(others).zip(2..) {
        assert_eq!(block_on(async { submit.await.unwrap().await }).unwrap(), output);
    }
    // Those that came while the first was written shared a write.
    assert_eq!(journal.groups(), [vec![1], (2..10).collect()]);
    let threads = journal.append.threads.lock().unwrap().clone();
    assert!(!threads.contains(&thread::current().id()));
}

#[test]
fn an_async_submit_that_is_dropped_while_it_is_stored_is_processed() {
    let (recorder, journal) = (Recorder::open(), Memory::new());
    let batcher = start(&recorder, &journal);
    let (gate, acked) = (journal.append.hold(1), journal.ack.hold(1));
    let mut submit = batcher.submit_async(1);
    assert!(poll_once(&mut submit).is_pending());
    journal.append.waits.pass();
    drop(submit);
    // Not even the end of the last handle comes in between.
    drop(batcher);
    gate.open();
    journal.ack.waits.pass();
    acked.open();
    assert_eq!(recorder.batches(), [[1]]);
}

/// Starts a submit that is being written when the batcher is closed as told, and returns how it
/// ended.
fn close_during_append(mode: Close, timeout: Duration) -> (Result<u64, Refusal>, Arc<Memory>) {
    let (recorder, journal) = (Recorder::open(), Memory::new());
    let batcher = start(&recorder, &journal);
    let gate = journal.append.hold(1);
    let mut submit = batcher.submit_async(1);
    assert!(poll_once(&mut submit).is_pending());
    journal.append.waits.pass();
    let report = if timeout == Duration::ZERO {
        let report = batcher.close(mode, timeout);
        gate.open();
        report
    } else {
        let mut closing = batcher.close_async(mode, timeout);
        assert!(poll_once(&mut closing).is_pending(), "an item is on its way");
        gate.open();
        block_on(closing)
    };
    assert!(report.leftovers.is_empty() && report.in_flight.is_empty());
    let ended = match block_on(submit) {
        Ok(ticket) => Ok(ticket.wait().unwrap()),
        Err(refused) => {
            let (item, refusal) = refused.into_parts();
            assert_eq!(item, 1);
            Err(refusal)
        }
    };
    (ended, journal)
}

#[test]
fn a_close_that_drains_waits_for_what_is_being_stored() {
    let (ended, journal) = close_during_append(Close::Drain, LONG);
    assert_eq!((ended, journal.acked()), (Ok(2), vec![1]));
}

#[test]
fn a_close_that_aborts_refuses_what_is_being_stored() {
    let (ended, journal) = close_during_append(Close::Abort, LONG);
    // It came back to its caller, so it must not come again.
    assert_eq!((ended, journal.acked()), (Err(Refusal::Closed), vec![1]));
}

#[test]
fn a_close_out_of_time_refuses_what_is_being_stored() {
    let (ended, journal) = close_during_append(Close::Drain, Duration::ZERO);
    assert_eq!((ended, journal.acked()), (Err(Refusal::Closed), vec![1]));
}

#[test]
fn a_refused_item_that_cannot_be_taken_out_of_the_journal_says_so() {
    for mood in [Mood::Fails, Mood::Panics] {
        let (recorder, journal) = (Recorder::open(), Memory::new());
        let batcher = start(&recorder, &journal);
        let gate = journal.append.hold(1);
        let mut submit = batcher.submit_async(1);
        assert!(poll_once(&mut submit).is_pending());
        journal.append.waits.pass();
        journal.ack.set(mood);
        batcher.close(Close::Abort, Duration::ZERO);
        gate.open();
        let (item, refusal) = block_on(submit).unwrap_err().into_parts();
        assert_eq!(item, 1);
        assert!(matches!(refusal, Refusal::Journal(_)), "{refusal}");
    }
}

#[test]
fn items_stored_at_the_same_time_can_be_cancelled_whichever_came_first() {
    let (recorder, journal) = (Recorder::default(), Memory::new());
    let batcher = Batcher::builder(recorder.clone()).max_batch_items(2);
    let batcher = batcher.journal(Arc::clone(&journal)).build().unwrap();
    let running = batcher.submit(9).unwrap();
    recorder.entered.pass();
    let gate = journal.append.hold(1);
    let slow = thread::spawn({
        let batcher = batcher.clone();
        move || batcher.submit(1).unwrap()
    });
    journal.append.waits.pass();
    let quick: Vec<_> = [2, 3, 4].map(|item| batcher.submit(item).unwrap()).into();
    gate.open();
    let slow = slow.join().unwrap();
    assert!(slow.id() < quick[0].id(), "it was accepted last and has the first id");
    assert_eq!(batcher.cancel(slow.id()), Some(1));
    assert!(quick[2].cancel());
    assert!(matches!(slow.wait(), Err(BatchError::Cancelled)));
    assert_eq!((journal.acked(), journal.left()), (vec![1, 4], vec![9, 2, 3]));
    recorder.gate.open();
    assert_eq!(running.wait().unwrap(), 10);
}
