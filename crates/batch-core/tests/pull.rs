//! The pull side: batches wait until somebody asks for them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use batch_core::{
    BatchError, BatchId, BatchState, Batcher, Builder, Close, ItemId, Outcome, PendingBatch, Pull,
};

use common::LONG;

type Pulled = Pull<u32, u32, u32, String>;
type Handle = PendingBatch<u32, u32, u32, String>;

/// Items are grouped by their tens, and wait for a full batch of two or a flush.
fn builder() -> Builder<Pulled> {
    Pull::by(|item| item / 10).max_batch_items(2).full_only()
}

fn batcher() -> Batcher<Pulled> {
    builder().build().unwrap()
}

/// The results that add 100 to each item.
fn results(batch: &Handle) -> Vec<(ItemId, Result<u32, String>)> {
    batch.slots().map(|slot| (slot.id(), Ok(slot.item() + 100))).collect()
}

fn output(outcome: Outcome<u32, String>) -> u32 {
    outcome.unwrap()
}

#[test]
fn a_batch_waits_to_be_pulled_and_looking_does_not_take_it() {
    let batcher = batcher();
    let ticket = batcher.submit(1).unwrap();
    assert!(batcher.next_pending().is_none());
    drop(batcher.flush());
    let batch = batcher.next_pending().unwrap();
    assert_eq!((batch.items(), *batch.key()), (&[1][..], 0));
    assert_eq!(batcher.next_pending().unwrap().id(), batch.id());
    assert_eq!((batcher.pending(), batcher.stats().in_flight), (1, 1));
    assert!(!ticket.is_done());
    assert_eq!(batcher.mark_completed(batch.id(), results(&batch)), Ok(()));
    assert_eq!(output(ticket.wait()), 101);
    assert_eq!(batcher.pending(), 0);
}

#[test]
fn batches_are_lent_in_the_order_in_which_they_were_parked() {
    let batcher = batcher();
    let _tickets = batcher.submit_all([30, 31, 10, 11, 20, 21]).unwrap();
    let mut seen = Vec::new();
    while let Some(batch) = batcher.next_pending() {
        assert!(batcher.mark_executing(batch.id()));
        seen.push(*batch.key());
    }
    assert_eq!(seen, [3, 1, 2]);
}

#[test]
fn a_claimed_batch_is_executing_and_out_of_the_way() {
    let batcher = batcher();
    let _tickets = batcher.submit_all([1, 2, 11, 12]).unwrap();
    let first = batcher.next_pending().unwrap().id();
    assert_eq!(batcher.batch(first).unwrap().state, BatchState::Pending);
    assert!(batcher.mark_executing(first));
    let info = batcher.batch(first).unwrap();
    assert_eq!((info.id, info.key, info.items), (first, 0, 2));
    assert_eq!((info.state, info.attempts, info.error), (BatchState::Executing, 1, None));
    assert!(!batcher.mark_executing(first), "claimed twice");
    assert_ne!(batcher.next_pending().unwrap().id(), first);
    assert_eq!(batcher.pending(), 1);
}

#[test]
fn a_batch_is_found_by_its_id_while_it_is_parked() {
    let batcher = batcher();
    let _tickets = batcher.submit_all([1, 2]).unwrap();
    let batch = batcher.next_pending().unwrap();
    assert_eq!(batcher.batch(batch.id()).unwrap().id, batch.id());
    let unknown = BatchId(u64::MAX);
    assert!(batcher.batch(unknown).is_none());
    assert!(!batcher.mark_executing(unknown) && !batcher.retry(unknown));
    assert!(!batcher.mark_failed(unknown, String::new()));
    assert_eq!(batcher.mark_completed(unknown, []), Err(Vec::new()));
    batcher.mark_completed(batch.id(), results(&batch)).unwrap();
    assert!(batcher.batch(batch.id()).is_none());
    assert_eq!(batcher.executed()[0].id, batch.id());
}

#[test]
fn results_come_in_any_order_and_strays_come_back() {
    let batcher = batcher();
    let tickets = batcher.submit_all([1, 2]).unwrap();
    let batch = batcher.next_pending().unwrap();
    let stray = ItemId { epoch: 9, seq: 9 };
    let mut results = results(&batch);
    let repeated = (results[0].0, Err("came twice".into()));
    results.reverse();
    results.extend([(stray, Ok(0)), repeated.clone()]);
    assert_eq!(batcher.mark_completed(batch.id(), results), Err(vec![stray, repeated.0]));
    let outputs: Vec<_> = tickets.wait().into_iter().map(output).collect();
    assert_eq!(outputs, [101, 102]);
    assert_eq!(batcher.mark_completed(batch.id(), [repeated.clone()]), Err(vec![repeated.0]));
}

/// Also while somebody still looks at the batch.
#[test]
fn an_item_whose_result_is_missing_is_told_at_once() {
    let batcher = batcher();
    let tickets = batcher.submit_all([1, 2]).unwrap();
    let batch = batcher.next_pending().unwrap();
    assert_eq!(batcher.mark_completed(batch.id(), results(&batch).split_off(1)), Ok(()));
    let outcomes = tickets.wait();
    assert!(matches!(outcomes[0], Err(BatchError::Unresolved { panic: None })));
    assert!(matches!(outcomes[1], Ok(102)));
    drop(batch);
    let stats = batcher.stats();
    assert_eq!((stats.completed, stats.failed, stats.in_flight), (1, 1, 0));
}

#[test]
fn a_failed_batch_is_kept_and_its_tickets_wait_until_it_is_retried() {
    let batcher = batcher();
    let tickets = batcher.submit_all([1, 2, 11, 12]).unwrap();
    let failed = batcher.next_pending().unwrap().id();
    assert!(batcher.mark_executing(failed));
    assert!(!batcher.retry(failed), "it has not failed");
    assert!(batcher.mark_failed(failed, "no network".into()));
    let info = batcher.batch(failed).unwrap();
    assert_eq!((info.state, info.attempts), (BatchState::Failed, 1));
    assert_eq!(**info.error.as_ref().unwrap(), *"no network");
    assert!(!batcher.mark_executing(failed));
    let tickets = tickets.wait_timeout(Duration::ZERO).unwrap_err().into_inner();

    // It does not stand in the way of the next.
    let other = batcher.next_pending().unwrap();
    assert_ne!(other.id(), failed);
    batcher.mark_completed(other.id(), results(&other)).unwrap();
    assert!(batcher.next_pending().is_none());
    assert_eq!(batcher.stats().in_flight, 2);

    assert!(batcher.retry(failed));
    let again = batcher.next_pending().unwrap();
    assert!(again.id() == failed && batcher.mark_executing(failed));
    let info = batcher.batch(failed).unwrap();
    assert_eq!((info.attempts, info.error.is_some()), (2, true));
    batcher.mark_completed(failed, results(&again)).unwrap();
    let outputs: Vec<_> = tickets.wait().into_iter().map(output).collect();
    assert_eq!(outputs, [101, 102, 111, 112]);
}

#[test]
fn a_failed_batch_may_be_ended_with_errors() {
    let batcher = batcher();
    let ticket = batcher.submit_all([1, 2]).unwrap();
    let batch = batcher.next_pending().unwrap();
    assert!(batcher.mark_failed(batch.id(), "once".into()));
    let errors = batch.slots().map(|slot| (slot.id(), Err("for good".to_owned())));
    assert_eq!(batcher.mark_completed(batch.id(), errors), Ok(()));
    for outcome in ticket.wait() {
        assert!(matches!(outcome, Err(BatchError::Failed(error)) if *error == "for good"));
    }
}

#[test]
fn the_next_batch_of_a_key_comes_after_the_one_before() {
    let fifo = batcher();
    let _tickets = fifo.submit_all([1, 2, 3, 4]).unwrap();
    let first = fifo.next_pending().unwrap();
    assert_eq!((fifo.pending(), fifo.stats().queued), (1, 2));
    fifo.mark_completed(first.id(), results(&first)).unwrap();
    assert_eq!(fifo.next_pending().unwrap().items(), [3, 4]);
    let unordered = builder().unordered().build().unwrap();
    let _tickets = unordered.submit_all([1, 2, 3, 4]).unwrap();
    assert_eq!(unordered.pending(), 2);
}

#[test]
fn past_batches_are_bounded() {
    let batcher = builder().history(2).build().unwrap();
    for tens in 0..4 {
        let _tickets = batcher.submit_all([tens * 10, tens * 10 + 1]).unwrap();
        let batch = batcher.next_pending().unwrap();
        batcher.mark_completed(batch.id(), results(&batch)).unwrap();
    }
    let executed = batcher.executed();
    let seen: Vec<_> = executed.iter().map(|past| (past.key, past.completed)).collect();
    assert_eq!(seen, [(2, 2), (3, 2)]);
}

#[test]
fn a_batch_that_is_resolved_by_its_slots_leaves_with_its_handle() {
    let batcher = batcher();
    let tickets = batcher.submit_all([1, 2]).unwrap();
    let batch = batcher.next_pending().unwrap();
    assert!(batch.slot(0).resolve(Ok(1)));
    drop(batch);
    assert_eq!(batcher.pending(), 1);
    let batch = batcher.next_pending().unwrap();
    assert!(batch.slot(1).resolve(Ok(2)));
    drop(batch);
    assert_eq!((batcher.pending(), batcher.stats().completed), (0, 2));
    assert!(tickets.wait().iter().all(Result::is_ok));
}

#[test]
fn clear_gives_back_what_is_queued_or_parked() {
    let batcher = batcher();
    // Of the first key a full batch is parked and an item waits behind it.
    let tickets = batcher.submit_all([1, 2, 3, 11]).unwrap();
    let failed = batcher.next_pending().unwrap().id();
    assert!(batcher.mark_failed(failed, "kept".into()));
    let cleared = batcher.clear();
    let items: Vec<_> = cleared.iter().map(|(_, item)| *item).collect();
    assert_eq!(items, [1, 2, 3, 11]);
    assert!(cleared.is_sorted_by_key(|(id, _)| *id));
    for outcome in tickets.wait() {
        assert!(matches!(outcome, Err(BatchError::Cancelled)));
    }
    let stats = batcher.stats();
    assert_eq!((stats.cancelled, stats.queued, stats.in_flight), (4, 0, 0));
    assert_eq!((batcher.pending(), batcher.clear().len()), (0, 0));
    // It goes on as before.
    let ticket = batcher.submit_all([4, 5]).unwrap();
    let batch = batcher.next_pending().unwrap();
    batcher.mark_completed(batch.id(), results(&batch)).unwrap();
    assert!(ticket.wait().iter().all(Result::is_ok));
}

#[test]
fn clear_leaves_what_is_claimed_or_looked_at() {
    let batcher = batcher();
    let _tickets = batcher.submit_all([1, 2, 11, 12, 21, 22]).unwrap();
    let claimed = batcher.next_pending().unwrap().id();
    assert!(batcher.mark_executing(claimed));
    let looked_at = batcher.next_pending().unwrap();
    let items: Vec<_> = batcher.clear().into_iter().map(|(_, item)| item).collect();
    assert_eq!(items, [21, 22]);
    assert_eq!(looked_at.items(), [11, 12]);
    drop(looked_at);
    assert_eq!(batcher.clear().len(), 2);
    assert_eq!(batcher.batch(claimed).unwrap().state, BatchState::Executing);
}

#[test]
fn many_pullers_claim_each_batch_once() {
    const ITEMS: u32 = 2_000;
    let batcher = builder().unordered().max_batch_items(7).build().unwrap();
    let left = AtomicUsize::new(ITEMS as usize);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while left.load(SeqCst) > 0 {
                    let Some(batch) = batcher.next_pending() else {
                        thread::yield_now();
                        continue;
                    };
                    if !batcher.mark_executing(batch.id()) {
                        continue;
                    }
                    // Every third batch fails once.
                    let attempts = batcher.batch(batch.id()).unwrap().attempts;
                    if batch.id().0 % 3 == 0 && attempts == 1 {
                        assert!(batcher.mark_failed(batch.id(), "once".into()));
                        assert!(batcher.retry(batch.id()));
                        continue;
                    }
                    left.fetch_sub(batch.len(), SeqCst);
                    batcher.mark_completed(batch.id(), results(&batch)).unwrap();
                }
            });
        }
        let tickets = batcher.submit_all(0..ITEMS).unwrap();
        drop(batcher.flush());
        let outputs: Vec<_> = tickets.wait().into_iter().map(output).collect();
        assert!(outputs.into_iter().eq(100..ITEMS + 100));
    });
    assert_eq!((batcher.pending(), batcher.stats().in_flight), (0, 0));
}

#[test]
fn items_out_of_time_are_not_handed_out() {
    let batcher = builder().delivery_timeout(Some(Duration::from_millis(1))).build().unwrap();
    for outcome in batcher.submit_all([1, 2]).unwrap().wait() {
        assert!(matches!(outcome, Err(BatchError::TimedOut | BatchError::Expired)));
    }
    assert!(batcher.next_pending().is_none());
    assert_eq!((batcher.pending(), batcher.stats().expired), (0, 2));
}

#[test]
fn a_close_names_what_is_parked_and_hands_back_what_is_not() {
    let batcher = batcher();
    let tickets = batcher.submit_all([1, 2, 3]).unwrap();
    let report = batcher.close(Close::Abort, Duration::ZERO);
    assert_eq!((report.in_flight.len(), report.leftovers.len()), (2, 1));
    // What is parked can still be pulled.
    let batch = batcher.next_pending().unwrap();
    batcher.mark_completed(batch.id(), results(&batch)).unwrap();
    let outcomes = tickets.wait();
    assert!(outcomes[0].is_ok() && outcomes[1].is_ok());
    assert!(matches!(outcomes[2], Err(BatchError::Closed)));
}

#[test]
fn what_is_parked_is_unresolved_once_nobody_can_pull_it() {
    let batcher = batcher();
    let tickets = batcher.submit_all([1, 2]).unwrap();
    drop(batcher);
    for outcome in tickets.wait_timeout(LONG).unwrap() {
        assert!(matches!(outcome, Err(BatchError::Unresolved { panic: None })));
    }
}

#[test]
fn what_waits_behind_a_parked_batch_ends_too_once_nobody_can_pull() {
    for workers in [0, 1] {
        let batcher = builder().workers(workers).build().unwrap();
        let tickets = batcher.submit_all([1, 2, 3, 4, 5, 6]).unwrap();
        drop(batcher);
        let outcomes = tickets.wait();
        assert!(outcomes.iter().all(|o| matches!(o, Err(BatchError::Unresolved { panic: None }))));
    }
}
