//! A processor that panics or answers wrongly harms its own batch only.

mod common;

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use batch_core::{Batch, BatchError, Batcher, Clock, batch_fn, keyed_fn};
use common::memory::Memory;
use common::{Recorder, block_on};

fn unresolved(outcome: Result<u32, BatchError<Infallible>>) -> Option<String> {
    match outcome {
        Err(BatchError::Unresolved { panic }) => panic,
        other => panic!("not unresolved: {other:?}"),
    }
}

#[test]
fn a_panic_reaches_its_batch_with_its_message_and_no_other() {
    let batcher = Batcher::builder(keyed_fn(
        |_: &u32| (),
        |(), batch: Batch<u32, u32, Infallible>| {
            assert_ne!(batch.items()[0], 13, "unlucky");
            batch.resolve_all(batch.items().iter().map(|item| Ok(*item)).collect());
        },
    ))
    .max_batch_items(1)
    .build()
    .unwrap();
    let mut outcomes = batcher.submit_all([1, 13, 2]).unwrap().wait();
    assert_eq!(outcomes.pop().unwrap().unwrap(), 2);
    assert!(unresolved(outcomes.pop().unwrap()).unwrap().contains("unlucky"));
    assert_eq!(outcomes.pop().unwrap().unwrap(), 1);
    assert_eq!(batcher.stats().failed, 1);
}

#[test]
fn what_was_resolved_before_a_panic_is_delivered() {
    for inline in [false, true] {
        let builder = Batcher::builder(keyed_fn(
            |_: &u32| (),
            |(), batch: Batch<u32, u32, Infallible>| {
                batch.slot(0).resolve(Ok(7));
                panic!("half way");
            },
        ));
        let builder = if inline { builder.inline() } else { builder };
        let mut outcomes = builder.build().unwrap().submit_all([1, 2]).unwrap().wait();
        assert_eq!(unresolved(outcomes.pop().unwrap()).as_deref(), Some("half way"));
        assert_eq!(outcomes.pop().unwrap().unwrap(), 7);
    }
}

#[test]
fn a_panic_without_text_is_caught_too() {
    struct Evil;
    impl Drop for Evil {
        fn drop(&mut self) {
            panic!("again");
        }
    }
    let run = |_: &[u32]| -> Vec<Result<u32, Infallible>> { panic_any(Evil) };
    let batcher = Batcher::new(batch_fn(run)).unwrap();
    for _ in 0..2 {
        let message = unresolved(batcher.submit(1).unwrap().wait());
        assert_eq!(message.as_deref(), Some("a panic without a message"));
    }
}

#[test]
fn a_kept_batch_survives_the_panic_of_its_call() {
    let (send, receive) = std::sync::mpsc::sync_channel(1);
    let run = move |(): &(), batch: Batch<u32, u32, Infallible>| {
        send.send(batch).unwrap();
        panic!("after parking");
    };
    let batcher = Batcher::new(keyed_fn(|_: &u32| (), run)).unwrap();
    let ticket = batcher.submit(1).unwrap();
    let batch = receive.recv().unwrap();
    assert!(batch.slot(0).resolve(Ok(5)));
    assert_eq!(ticket.wait().unwrap(), 5);
}

#[test]
fn a_wrong_count_fails_all_and_shifts_none() {
    for count in [0, 2, 4] {
        let run = move |_: &[u32]| (0..count).map(Ok::<u32, Infallible>).collect();
        let batcher = Batcher::new(batch_fn(run)).unwrap();
        let outcomes = batcher.submit_all([1, 2, 3]).unwrap().wait();
        let got = usize::try_from(count).unwrap();
        assert!(
            outcomes.into_iter().all(
                |o| matches!(o, Err(BatchError::WrongCount { expected: 3, got: g }) if g == got)
            )
        );
    }
}

#[test]
fn fail_all_shares_one_error_and_keeps_results() {
    let run = |(): &(), batch: Batch<u32, u32, String>| {
        batch.slot(1).resolve(Ok(1));
        batch.fail_all("down".into());
    };
    let batcher = Batcher::new(keyed_fn(|_: &u32| (), run)).unwrap();
    let outcomes = batcher.submit_all([1, 2, 3]).unwrap().wait();
    let [Err(BatchError::Failed(a)), Ok(1), Err(BatchError::Failed(b))] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert!(Arc::ptr_eq(a, b));
    assert_eq!(**a, "down");
}

#[test]
fn an_item_whose_drop_panics_does_not_stop_the_worker() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("drop");
        }
    }
    let run = |(): &(), batch: Batch<Option<Bomb>, (), Infallible>| {
        batch.resolve_all(batch.items().iter().map(|_| Ok(())).collect());
    };
    let batcher = Batcher::new(keyed_fn(|_: &Option<Bomb>| (), run)).unwrap();
    batcher.submit(Some(Bomb)).unwrap().wait().unwrap();
    batcher.submit(None).unwrap().wait().unwrap();
}

/// Tells no time at all when it is told to.
#[derive(Default)]
struct FaultyClock(AtomicBool);

impl Clock for FaultyClock {
    fn now(&self) -> Duration {
        assert!(!self.0.load(Relaxed), "no time");
        Duration::ZERO
    }
}

#[test]
fn a_clock_that_panics_in_a_submit_leaves_the_books_right() {
    let clock = Arc::new(FaultyClock::default());
    let double =
        batch_fn(|items: &[u32]| items.iter().map(|n| Ok::<_, Infallible>(n * 2)).collect());
    let builder = Batcher::builder(double).inline().full_only().max_batch_items(2);
    let batcher = builder.clock(Shared(Arc::clone(&clock))).build().unwrap();
    // To a batch that begins, and to one that goes on.
    let mut tickets = Vec::new();
    for before in 0..2 {
        clock.0.store(true, Relaxed);
        let submitted = catch_unwind(AssertUnwindSafe(|| batcher.submit(1)));
        assert!(submitted.is_err());
        clock.0.store(false, Relaxed);
        assert_eq!((batcher.stats().accepted, batcher.stats().queued), (before, before));
        tickets.push(batcher.submit(1).unwrap());
    }
    for ticket in tickets {
        assert_eq!(ticket.wait().unwrap(), 2);
    }
    batcher.flush().wait().unwrap();
    assert_eq!(batcher.stats().in_flight, 0);
}

/// A worker, or the thread that leads, goes on; what it runs is told and counted.
#[test]
fn a_clock_that_panics_in_the_engine_stands_still() {
    for inline in [false, true] {
        let clock = Arc::new(FaultyClock::default());
        let fault = Arc::clone(&clock);
        let run = move |items: &[u32]| {
            fault.0.store(items[0] == 1, Relaxed);
            items.iter().map(|n| Ok::<_, Infallible>(n * 2)).collect()
        };
        let builder = Batcher::builder(batch_fn(run)).clock(Shared(Arc::clone(&clock)));
        let builder = if inline { builder.inline() } else { builder };
        let batcher = builder.build().unwrap();
        for items in [[1, 2], [3, 4], [1, 3]] {
            let outcomes = batcher.submit_all(items).unwrap().wait();
            assert!(outcomes.into_iter().all(|outcome| outcome.is_ok()));
            clock.0.store(false, Relaxed);
        }
        batcher.flush().wait().unwrap();
        assert_eq!((batcher.stats().completed, batcher.stats().in_flight), (6, 0));
    }
}

/// The thread that writes to the journal for callers that may not block has no clock to lose.
#[test]
fn a_clock_that_panics_after_the_journal_took_an_item_loses_none() {
    let (clock, journal) = (Arc::new(FaultyClock::default()), Memory::new());
    let builder = Batcher::builder(Recorder::open()).clock(Shared(Arc::clone(&clock)));
    let batcher = builder.journal(Arc::clone(&journal)).build().unwrap();
    for item in [1, 2] {
        let gate = journal.append.hold(item);
        let submit = batcher.submit_async(item);
        let submitted = thread::spawn(move || block_on(submit));
        journal.append.waits.pass();
        clock.0.store(item == 1, Relaxed);
        gate.open();
        let ticket = submitted.join().unwrap().unwrap();
        clock.0.store(false, Relaxed);
        assert_eq!(ticket.wait().unwrap(), item + 1);
    }
    assert_eq!(journal.left(), [0; 0]);
}

/// A clock that the test keeps too.
struct Shared(Arc<FaultyClock>);

impl Clock for Shared {
    fn now(&self) -> Duration {
        self.0.now()
    }
}
