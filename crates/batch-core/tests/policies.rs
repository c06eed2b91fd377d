//! Retries, splits, time-outs and cancelled items.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use batch_core::{
    Batch, BatchError, BatchOf, BatchProcessor, Batcher, Builder, Close, Disposition, ManualClock,
    Refusal, Retry,
};
use common::{Gate, LONG, Recorder};

/// Refuses batches as its function says, and asks for what its errors stand for.
struct Judge<F> {
    calls: Mutex<Vec<Vec<u32>>>,
    run: F,
}

type Verdict = Result<u32, Disposition>;

impl<F: Fn(&Batch<u32, u32, Disposition>) -> Vec<Verdict> + Send + Sync + 'static> BatchProcessor
    for Judge<F>
{
    type Key = ();
    type Item = u32;
    type Output = u32;
    type Error = Disposition;

    fn key(&self, _: &u32) {}

    fn process(&self, (): &(), batch: BatchOf<Self>) {
        self.calls.lock().unwrap().push(batch.items().to_vec());
        batch.resolve_all((self.run)(&batch));
    }

    fn classify(&self, error: &Disposition) -> Disposition {
        *error
    }
}

fn judge<F>(run: F) -> Builder<Judge<F>>
where
    F: Fn(&Batch<u32, u32, Disposition>) -> Vec<Verdict> + Send + Sync + 'static,
{
    let quick = Retry::default().base(Duration::ZERO).budget(1_000);
    Batcher::builder(Judge { calls: Mutex::default(), run }).retry(quick)
}

fn each(
    batch: &Batch<u32, u32, Disposition>,
    verdict: impl Fn(u32, u32) -> Verdict,
) -> Vec<Verdict> {
    batch.slots().map(|slot| verdict(*slot.item(), slot.attempt())).collect()
}

const RETRY: Disposition = Disposition::Retry { after: None };

#[test]
fn what_is_retried_comes_again_and_the_rest_does_not_wait_for_it() {
    let batcher = judge(|batch| {
        each(
            batch,
            |item, attempt| if item % 2 == 0 && attempt < 3 { Err(RETRY) } else { Ok(item) },
        )
    });
    let batcher = batcher.full_only().max_batch_items(4).build().unwrap();
    let outcomes = batcher.submit_all([1, 2, 3, 4]).unwrap().wait();
    let outputs: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(outputs, [1, 2, 3, 4]);
    let calls = batcher.processor().calls.lock().unwrap().clone();
    assert_eq!(calls, [vec![1, 2, 3, 4], vec![2, 4], vec![2, 4]]);
    let stats = batcher.stats();
    assert_eq!((stats.calls, stats.retries, stats.completed), (3, 2, 4));
    assert_eq!(stats.calls_saved(), 1);
}

#[test]
fn retries_end_with_the_attempts_and_with_the_error_of_the_last() {
    let batcher = judge(|batch| each(batch, |_, _| Err(RETRY)));
    let retry = Retry::default().base(Duration::ZERO).max_attempts(3);
    let batcher = batcher.retry(retry).build().unwrap();
    let outcome = batcher.submit(1).unwrap().wait();
    assert!(matches!(outcome, Err(BatchError::Failed(error)) if *error == RETRY));
    assert_eq!(batcher.processor().calls.lock().unwrap().len(), 3);
}

#[test]
fn a_budget_bounds_the_calls_to_a_service_that_is_down() {
    let batcher = judge(|batch| each(batch, |_, _| Err(RETRY)));
    let retry = Retry::default().base(Duration::ZERO).max_attempts(1_000).budget(7);
    let batcher = batcher.retry(retry).build().unwrap();
    for item in 0..20 {
        assert!(batcher.submit(item).unwrap().wait().is_err());
    }
    assert_eq!(batcher.stats().calls, 20 + 7);
}

#[test]
fn no_later_item_of_a_key_overtakes_one_that_is_retried() {
    let batcher = judge(|batch| {
        each(batch, |item, attempt| if item == 0 && attempt < 5 { Err(RETRY) } else { Ok(item) })
    });
    let batcher = batcher.max_batch_items(1).build().unwrap();
    batcher.submit_all(0..5).unwrap().wait();
    let calls = batcher.processor().calls.lock().unwrap().concat();
    assert_eq!(calls, [0, 0, 0, 0, 0, 1, 2, 3, 4]);
}

#[test]
fn a_retry_waits_as_long_as_the_processor_asks_and_holds_no_worker() {
    let clock = ManualClock::new();
    let after = Disposition::Retry { after: Some(Duration::from_mins(5)) };
    let builder = judge(move |batch| {
        each(batch, |item, attempt| if item == 0 && attempt == 1 { Err(after) } else { Ok(item) })
    });
    let builder = builder.unordered().delivery_timeout(None).max_batch_items(1);
    let batcher = builder.clock(clock.clone()).build().unwrap();
    let first = batcher.submit(0).unwrap();
    assert_eq!(batcher.submit(1).unwrap().wait().unwrap(), 1);
    clock.advance(Duration::from_mins(5) - Duration::from_nanos(1));
    batcher.submit(2).unwrap().wait().unwrap();
    assert!(!first.is_done());
    assert_eq!(batcher.stats().queued, 1);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(first.wait().unwrap(), 0);
}

#[test]
fn one_bad_item_in_a_hundred_costs_fifteen_calls_and_nobody_else_a_result() {
    for bad in [0, 1, 37, 63, 64, 98, 99] {
        let batcher = judge(move |batch| {
            let spoiled = batch.items().contains(&bad);
            each(batch, |item, _| if spoiled { Err(Disposition::Split) } else { Ok(item) })
        });
        let batcher = batcher.full_only().max_batch_items(100).build().unwrap();
        let outcomes = batcher.submit_all(0..100).unwrap().wait();
        for (item, outcome) in (0..).zip(outcomes) {
            match outcome {
                Ok(output) => assert!(output == item && item != bad),
                Err(BatchError::Failed(_)) => assert_eq!(item, bad),
                Err(other) => panic!("{other:?}"),
            }
        }
        let calls = batcher.stats().calls;
        assert!(calls <= 15, "{calls} calls for item {bad}");
    }
}

#[test]
fn a_fatal_error_closes_the_batcher_and_names_its_item() {
    let recorder = Arc::new(Mutex::new(()));
    let hold = recorder.lock().unwrap();
    let gate = Arc::clone(&recorder);
    let batcher = judge(move |batch| {
        drop(gate.lock());
        each(batch, |item, _| if item == 1 { Err(Disposition::Fatal) } else { Ok(item) })
    });
    let batcher = batcher.max_batch_items(1).build().unwrap();
    let tickets = batcher.submit_all([1, 2, 3]).unwrap();
    drop(hold);
    let outcomes = tickets.wait();
    assert!(
        matches!(&outcomes[0], Err(BatchError::Failed(error)) if **error == Disposition::Fatal)
    );
    assert!(outcomes[1..].iter().all(|outcome| matches!(outcome, Err(BatchError::Closed))));
    let (item, reason) = batcher.submit(4).unwrap_err().into_parts();
    let Refusal::Fatal { item: culprit } = reason else { panic!("{reason:?}") };
    assert_eq!((item, culprit.seq), (4, 0));
    assert_eq!(*batcher.fatal_error().unwrap(), Disposition::Fatal);
    let report = batcher.close(Close::Drain, LONG);
    let items: Vec<_> = report.leftovers.into_iter().map(|(_, item)| item).collect();
    assert_eq!(items, [2, 3], "what was not sent comes back");
}

#[test]
fn an_item_that_waited_too_long_is_never_sent_and_comes_back() {
    let (entered, gate, done) = (Gate::default(), Gate::default(), Gate::default());
    let clock = ManualClock::new();
    let dropped = Arc::new(Mutex::new(Vec::new()));
    let sent = Arc::new(Mutex::new(Vec::new()));
    let process = {
        let (entered, gate, done, sent) =
            (entered.clone(), gate.clone(), done.clone(), Arc::clone(&sent));
        move |(): &(), batch: Batch<u64, u64, String>| {
            sent.lock().unwrap().extend_from_slice(batch.items());
            entered.open();
            gate.pass();
            assert!(!batch.slot(0).resolve(Ok(0)), "its time is over");
            drop(batch);
            done.open();
        }
    };
    let list = Arc::clone(&dropped);
    let batcher = Batcher::builder(batch_core::keyed_fn(|_| (), process))
        .clock(clock.clone())
        .max_batch_items(1)
        .delivery_timeout(Some(Duration::from_mins(1)))
        .on_dropped(move |_, item, reason| list.lock().unwrap().push((item, reason.to_string())));
    let batcher = batcher.build().unwrap();
    let running = batcher.submit(1).unwrap();
    entered.pass();
    let waiting = batcher.submit(2).unwrap();
    clock.advance(Duration::from_mins(1));
    assert!(matches!(waiting.wait(), Err(BatchError::Expired)));
    assert!(matches!(running.wait(), Err(BatchError::TimedOut)), "with the processor");
    let expired = (2, BatchError::<String>::Expired.to_string());
    assert_eq!(*dropped.lock().unwrap(), std::slice::from_ref(&expired));
    gate.open();
    done.pass();
    let timed_out = (1, BatchError::<String>::TimedOut.to_string());
    assert_eq!(dropped.lock().unwrap()[..], [expired, timed_out]);
    assert_eq!(*sent.lock().unwrap(), [1]);
    let stats = batcher.stats();
    assert_eq!((stats.expired, stats.late, stats.in_flight, stats.queued), (2, 1, 0, 0));
}

#[test]
fn a_retry_past_the_delivery_timeout_is_not_made() {
    let clock = ManualClock::new();
    let after = Disposition::Retry { after: Some(Duration::from_mins(2)) };
    let builder = judge(move |batch| each(batch, |_, _| Err(after)));
    let batcher = builder.clock(clock).delivery_timeout(Some(Duration::from_mins(2)));
    let batcher = batcher.build().unwrap();
    assert!(matches!(batcher.submit(1).unwrap().wait(), Err(BatchError::Failed(_))));
    assert_eq!(batcher.stats().calls, 1);
}

#[test]
fn a_cancelled_item_is_not_sent_and_its_room_is_free_again() {
    let recorder = Recorder::default();
    let batcher = Batcher::builder(recorder.clone()).max_batch_items(1).capacity(3);
    let batcher = batcher.build().unwrap();
    let running = batcher.submit(1).unwrap();
    recorder.entered.pass();
    let (second, third) = (batcher.submit(2).unwrap(), batcher.submit(3).unwrap());
    assert!(batcher.try_submit(4).is_err());
    assert!(second.cancel());
    assert!(!second.cancel(), "once");
    assert_eq!(batcher.cancel(third.id()), Some(3));
    assert_eq!(batcher.cancel(third.id()), None);
    assert!(!running.cancel(), "it is with the processor");
    assert!(matches!(second.wait(), Err(BatchError::Cancelled)));
    assert!(matches!(third.wait(), Err(BatchError::Cancelled)));
    let fourth = batcher.try_submit(4).unwrap();
    recorder.gate.open();
    assert_eq!((running.wait().unwrap(), fourth.wait().unwrap()), (2, 5));
    assert_eq!(recorder.batches(), [[1], [4]]);
    assert_eq!(batcher.stats().cancelled, 2);
}

#[test]
fn the_bound_holds_for_the_weight_too() {
    let recorder = Recorder::default();
    let batcher = Batcher::builder(recorder.clone()).capacity_weight(10).build().unwrap();
    let running = batcher.submit(4).unwrap();
    recorder.entered.pass();
    let waiting = batcher.submit(6).unwrap();
    let (item, reason) = batcher.try_submit(1).unwrap_err().into_parts();
    assert_eq!((item, reason), (1, Refusal::FullWeight { capacity: 10 }));
    let (_, reason) = batcher.submit(11).unwrap_err().into_parts();
    assert!(matches!(reason, Refusal::TooHeavy { weight: 11, max: 10 }));
    recorder.gate.open();
    assert_eq!((running.wait().unwrap(), waiting.wait().unwrap()), (5, 7));
}

#[test]
fn no_more_batches_are_with_the_processor_than_allowed() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let store = Arc::clone(&kept);
    let keep = move |_: &u64, batch: Batch<u64, u64, String>| store.lock().unwrap().push(batch);
    let processor = batch_core::keyed_fn(|item: &u64| *item, keep);
    let builder = Batcher::builder(processor).max_in_flight(2).inline();
    let batcher = builder.build().unwrap();
    let tickets = batcher.submit_all(0..5).unwrap();
    for round in 0..5 {
        assert_eq!(batcher.stats().in_flight, 2.min(5 - round));
        let batch = kept.lock().unwrap().remove(0);
        batch.resolve_all(batch.items().iter().map(|item| Ok(*item)).collect());
    }
    assert_eq!(tickets.wait().len(), 5);
}

#[test]
fn a_batch_taken_back_gives_its_items_and_tells_its_tickets() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let store = Arc::clone(&kept);
    let keep = move |(): &(), batch: Batch<u64, u64, String>| store.lock().unwrap().push(batch);
    let batcher = Batcher::builder(batch_core::keyed_fn(|_| (), keep)).inline();
    let batcher = batcher.full_only().max_batch_items(3).build().unwrap();
    let tickets = batcher.submit_all([1, 2, 3]).unwrap();
    let batch = kept.lock().unwrap().remove(0);
    assert!(batch.slot(1).resolve(Ok(20)));
    let back: Vec<_> = batch.withdraw().into_iter().map(|(id, item)| (id.seq, item)).collect();
    assert_eq!(back, [(0, 1), (2, 3)]);
    let outcomes = tickets.wait();
    assert!(matches!(
        outcomes[..],
        [Err(BatchError::Cancelled), Ok(20), Err(BatchError::Cancelled)]
    ));
    assert_eq!((batcher.stats().cancelled, batcher.stats().completed), (2, 1));
}
