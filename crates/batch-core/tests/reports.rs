//! What users of other batching engines reported, one test each, named for project and report.
//!
//! Two of the reports are about files: apalis 504 and vector 17644 have their tests where ours are, in
//! `batch-journal` (`tests/batcher.rs`, `tests/damage.rs`). One does not apply: dataloader 294 is about
//! equal keys that share a slot.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use batch_core::{
    Batch, BatchError, BatchOf, BatchProcessor, Batcher, Builder, Close, Disposition, ManualClock,
    Refusal, Retry, batch_fn, keyed_fn,
};
use common::{Gate, LONG, Recorder, block_on};

/// Fails items as the function says, with what is to become of them; `u32` is the attempt.
struct Flaky<F> {
    calls: Mutex<Vec<Vec<u64>>>,
    judge: F,
}

impl<F> BatchProcessor for Flaky<F>
where
    F: Fn(u64, u32) -> Result<u64, Disposition> + Send + Sync + 'static,
{
    type Key = u64;
    type Item = u64;
    type Output = u64;
    type Error = Disposition;

    fn key(&self, item: &u64) -> u64 {
        item / 1_000
    }

    fn process(&self, _: &u64, batch: BatchOf<Self>) {
        self.calls.lock().unwrap().push(batch.items().to_vec());
        for slot in batch.slots() {
            slot.resolve((self.judge)(*slot.item(), slot.attempt()));
        }
    }

    fn classify(&self, error: &Disposition) -> Disposition {
        *error
    }
}

const RETRY: Disposition = Disposition::Retry { after: None };

fn flaky<F>(judge: F) -> Builder<Flaky<F>>
where
    F: Fn(u64, u32) -> Result<u64, Disposition> + Send + Sync + 'static,
{
    let retry = Retry::default().base(Duration::ZERO);
    Batcher::builder(Flaky { calls: Mutex::default(), judge }).retry(retry)
}

/// A batcher whose first item is with the processor until the gate opens.
fn busy(build: impl Fn(Builder<Recorder>) -> Builder<Recorder>) -> (Recorder, Batcher<Recorder>) {
    let recorder = Recorder::default();
    let batcher = build(Batcher::builder(recorder.clone())).build().unwrap();
    batcher.submit(0).unwrap().detach();
    recorder.entered.pass();
    (recorder, batcher)
}

#[test]
fn otel_collector_12443_what_the_next_stage_rejects_is_tried_again_and_the_error_is_told() {
    let batcher = flaky(|item, attempt| match (item, attempt) {
        (1, 1) => Err(RETRY),
        (2, _) => Err(Disposition::Fail),
        _ => Ok(item),
    });
    let outcomes = batcher.build().unwrap().submit_all([1, 2]).unwrap().wait();
    assert!(matches!(&outcomes[..], [Ok(1), Err(BatchError::Failed(_))]));
}

#[test]
fn otel_php_459_closing_still_sends_every_open_batch() {
    let batcher = Batcher::builder(Recorder::open()).linger(LONG).build().unwrap();
    let tickets = batcher.submit_all([1, 1_001, 2_001]).unwrap();
    assert!(batcher.close(Close::Drain, LONG).leftovers.is_empty());
    assert!(tickets.wait().into_iter().all(|outcome| outcome.is_ok()));
}

#[test]
fn aztec_22341_stopping_does_not_drop_the_open_batch() {
    let batcher = Batcher::builder(Recorder::open()).linger(LONG).build().unwrap();
    let ticket = batcher.submit(7).unwrap();
    let report = batcher.close(Close::Abort, LONG);
    assert_eq!(report.leftovers[..], [(ticket.id(), 7)]);
    assert!(matches!(ticket.wait(), Err(BatchError::Closed)));
}

#[test]
fn vector_19600_a_shutdown_does_not_wait_for_the_linger() {
    let clock = ManualClock::new();
    let batcher = Batcher::builder(Recorder::open()).linger(LONG).clock(clock).build().unwrap();
    let ticket = batcher.submit(1).unwrap();
    // The clock stands still, so the linger never ends by itself.
    assert!(batcher.close(Close::Drain, LONG).leftovers.is_empty());
    assert_eq!(ticket.wait().unwrap(), 2);
}

#[test]
fn fluent_bit_11130_what_waits_for_a_retry_comes_back_at_shutdown() {
    let later = Disposition::Retry { after: Some(LONG) };
    let batcher = flaky(move |_, _| Err(later)).inline().delivery_timeout(None).build().unwrap();
    let ticket = batcher.submit(5).unwrap();
    assert_eq!(batcher.stats().queued, 1);
    let report = batcher.close(Close::Abort, LONG);
    assert_eq!(report.leftovers[..], [(ticket.id(), 5)]);
}

#[test]
fn kinesis_producer_315_a_flush_sends_all_keys() {
    let recorder = Recorder::open();
    let batcher = Batcher::builder(recorder.clone()).full_only().build().unwrap();
    let _tickets = batcher.submit_all((0..50).map(|key| key * 1_000)).unwrap();
    batcher.flush().wait().unwrap();
    assert_eq!(recorder.batches().len(), 50);
}

#[test]
fn librdkafka_990_unsent_items_come_back_with_their_ids() {
    let (recorder, batcher) = busy(|builder| builder.max_batch_items(1));
    let tickets = batcher.submit_all([1, 2, 3]).unwrap();
    let ids: Vec<_> = tickets.into_iter().map(|ticket| ticket.id()).collect();
    let report = batcher.close(Close::Drain, Duration::ZERO);
    let (left, items): (Vec<_>, Vec<_>) = report.leftovers.into_iter().unzip();
    assert_eq!((left, items), (ids, vec![1, 2, 3]));
    recorder.gate.open();
}

#[test]
fn otel_go_8213_the_counters_are_whole_after_a_shutdown() {
    let (recorder, batcher) = busy(|builder| builder.max_batch_items(1));
    let _tickets = batcher.submit_all([1, 2, 3]).unwrap();
    let stats = batcher.close(Close::Abort, Duration::ZERO).stats;
    assert_eq!((stats.accepted, stats.in_flight, stats.handed_back), (4, 1, 3));
    recorder.gate.open();
    assert_eq!(batcher.close(Close::Abort, LONG).stats.completed, 1);
}

#[test]
fn elasticsearch_47599_a_flush_waits_for_retries_without_holding_them_up() {
    let batcher = flaky(|item, attempt| if attempt < 5 { Err(RETRY) } else { Ok(item) });
    let batcher = batcher.linger(LONG).build().unwrap();
    let ticket = batcher.submit(1).unwrap();
    batcher.flush().wait().unwrap();
    assert_eq!(ticket.try_get().unwrap().unwrap(), 1);
}

/// Runs `inside` in the first call of a batcher that the processor has a handle of.
fn in_processor(inside: fn(&Batcher<Call>) -> bool) -> bool {
    let handle = Arc::new(Mutex::new(None));
    let told = Arc::new(Mutex::new(None));
    let call = Call { handle: Arc::clone(&handle), told: Arc::clone(&told), inside };
    let batcher = Batcher::builder(call).max_batch_items(1).build().unwrap();
    *handle.lock().unwrap() = Some(batcher.clone());
    batcher.submit(1).unwrap().wait().unwrap();
    batcher.close(Close::Drain, LONG);
    told.lock().unwrap().take().unwrap()
}

struct Call {
    handle: Arc<Mutex<Option<Batcher<Call>>>>,
    told: Arc<Mutex<Option<bool>>>,
    inside: fn(&Batcher<Call>) -> bool,
}

impl BatchProcessor for Call {
    type Key = ();
    type Item = u64;
    type Output = u64;
    type Error = String;

    fn key(&self, _: &u64) {}

    fn process(&self, (): &(), batch: BatchOf<Self>) {
        if let Some(batcher) = self.handle.lock().unwrap().take() {
            *self.told.lock().unwrap() = Some((self.inside)(&batcher));
        }
        batch.resolve_all(batch.items().iter().map(|item| Ok(*item)).collect());
    }
}

#[test]
fn kafka_10790_a_flush_in_a_callback_is_refused() {
    assert!(in_processor(|batcher| batcher.flush().wait().is_err()));
}

#[test]
fn kafka_10335_a_submit_in_a_callback_goes_through() {
    assert!(in_processor(|batcher| batcher.submit(2).is_ok()));
}

#[test]
fn payload_1887_batches_do_not_wait_for_each_other() {
    assert!(in_processor(|batcher| {
        let ticket = batcher.submit(2).unwrap();
        matches!(ticket.wait(), Err(BatchError::WouldDeadlock))
    }));
}

#[test]
fn payload_1887_a_ticket_awaited_in_its_own_processor_is_refused_too() {
    assert!(in_processor(|batcher| {
        let ticket = batcher.submit(2).unwrap();
        matches!(block_on(ticket), Err(BatchError::WouldDeadlock))
    }));
}

#[test]
fn otel_rust_2715_waiting_for_a_flush_or_close_never_blocks_the_executor() {
    let (recorder, batcher) = busy(|builder| builder.max_batch_items(1));
    let mut context = Context::from_waker(Waker::noop());
    let mut flush = std::pin::pin!(batcher.flush());
    let mut close = std::pin::pin!(batcher.close_async(Close::Drain, LONG));
    // The processor is held by a gate, so a blocking call would never come back.
    assert!(flush.as_mut().poll(&mut context).is_pending());
    assert!(close.as_mut().poll(&mut context).is_pending());
    recorder.gate.open();
    block_on(flush).unwrap();
    block_on(close);
}

#[test]
fn java_bigtable_2484_the_books_are_right_before_a_waiter_runs() {
    let batcher = Batcher::builder(Recorder::open()).build().unwrap();
    for round in 1..=500 {
        batcher.submit(1).unwrap().wait().unwrap();
        let stats = batcher.stats();
        assert_eq!((stats.completed, stats.in_flight), (round, 0));
    }
}

#[test]
fn google_cloud_cpp_7313_flow_control_at_its_limit_does_not_deadlock() {
    let batcher = Batcher::builder(Recorder::open()).capacity(1).max_block(None).build().unwrap();
    thread::scope(|scope| {
        for client in 0..4 {
            let batcher = &batcher;
            scope.spawn(move || {
                for item in 0..200 {
                    batcher.submit(client * 1_000 + item % 100).unwrap().wait().unwrap();
                }
            });
        }
    });
    assert_eq!(batcher.stats().completed, 800);
}

#[test]
fn sarama_1187_closing_ends_while_everything_is_retried() {
    let batcher = flaky(|_, _| Err(RETRY)).delivery_timeout(None);
    let retry = Retry::default().base(Duration::ZERO).max_attempts(u32::MAX).budget(u32::MAX);
    let batcher = batcher.retry(retry).build().unwrap();
    let ticket = batcher.submit(1).unwrap();
    let report = batcher.close(Close::Drain, Duration::ZERO);
    // It was waiting, and came back, or is with the processor, and ends with its error.
    assert_eq!(report.leftovers.len() + report.in_flight.len(), 1);
    assert!(ticket.wait().is_err());
}

#[test]
fn graph_gophers_18_a_panic_leaves_nobody_waiting() {
    let batcher = Batcher::new(batch_fn(|items: &[u64]| -> Vec<Result<u64, String>> {
        panic!("no luck with {}", items.len())
    }));
    let batcher = batcher.unwrap();
    let outcomes = batcher.submit_all([1, 2, 3]).unwrap().wait();
    for outcome in outcomes {
        let Err(BatchError::Unresolved { panic: Some(message) }) = outcome else { panic!() };
        assert!(message.starts_with("no luck with"));
    }
}

#[test]
fn vector_9004_each_key_lingers_for_itself() {
    let (recorder, clock) = (Recorder::open(), ManualClock::new());
    let builder = Batcher::builder(recorder.clone()).clock(clock.clone());
    let batcher = builder.linger(Duration::from_secs(10)).build().unwrap();
    let first = batcher.submit(1).unwrap();
    clock.advance(Duration::from_secs(6));
    let second = batcher.submit(1_001).unwrap();
    clock.advance(Duration::from_secs(4));
    first.wait().unwrap();
    assert!(!second.is_done());
    assert_eq!(recorder.batches(), [[1]]);
    clock.advance(Duration::from_secs(6));
    second.wait().unwrap();
}

#[test]
fn vector_11790_a_linger_may_be_shorter_than_a_second() {
    let (recorder, clock) = (Recorder::open(), ManualClock::new());
    let builder = Batcher::builder(recorder).clock(clock.clone());
    let batcher = builder.linger(Duration::from_nanos(1_500)).build().unwrap();
    let ticket = batcher.submit(1).unwrap();
    clock.advance(Duration::from_nanos(1_499));
    assert!(!ticket.is_done());
    clock.advance(Duration::from_nanos(1));
    ticket.wait().unwrap();
}

#[test]
fn dataloader_rs_36_a_result_that_is_missing_is_an_error_and_no_panic() {
    let batcher = Batcher::new(batch_fn(|_: &[u64]| -> Vec<Result<u64, String>> { Vec::new() }));
    let outcome = batcher.unwrap().submit(1).unwrap().wait();
    assert!(matches!(outcome, Err(BatchError::WrongCount { expected: 1, got: 0 })));
}

#[test]
fn async_graphql_555_a_request_that_is_dropped_wedges_nothing() {
    let (recorder, batcher) = busy(|builder| builder.max_batch_items(2));
    let dropped = batcher.submit(1).unwrap();
    let mut future = Box::pin(std::future::IntoFuture::into_future(dropped));
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(future);
    let kept = batcher.submit(2).unwrap();
    recorder.gate.open();
    assert_eq!(block_on(kept).unwrap(), 3);
}

#[test]
fn vector_19345_many_keys_do_not_get_around_the_bound() {
    let (recorder, batcher) = busy(|builder| builder.capacity(10));
    let _tickets: Vec<_> = (1..10).map(|key| batcher.try_submit(key * 1_000).unwrap()).collect();
    for key in 10..1_000 {
        let refused = batcher.try_submit(key * 1_000).unwrap_err();
        assert_eq!(refused.reason(), &Refusal::Full { capacity: 10 });
    }
    recorder.gate.open();
}

#[test]
fn google_cloud_rust_6723_a_key_without_work_is_forgotten() {
    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Key(Arc<u64>);
    let keys = Arc::new(Mutex::new(Vec::new()));
    let made = Arc::clone(&keys);
    let key = move |item: &u64| {
        let key = Arc::new(*item);
        made.lock().unwrap().push(Arc::downgrade(&key));
        Key(key)
    };
    let run = |_: &Key, batch: Batch<u64, u64, String>| {
        batch.resolve_all(batch.items().iter().map(|item| Ok(*item)).collect());
    };
    let batcher = Batcher::builder(keyed_fn(key, run)).inline().history(0).build().unwrap();
    for item in 0..1_000 {
        batcher.submit(item).unwrap().wait().unwrap();
    }
    assert!(keys.lock().unwrap().iter().all(|key| key.strong_count() == 0));
}

#[test]
fn gax_157_the_worker_outlives_every_panic() {
    let batcher = Batcher::new(batch_fn(|items: &[u64]| {
        assert!(items != [13], "bad luck");
        items.iter().map(|item| Ok::<_, String>(*item)).collect()
    }));
    let batcher = batcher.unwrap();
    for _ in 0..50 {
        assert!(batcher.submit(13).unwrap().wait().is_err());
    }
    assert_eq!(batcher.submit(1).unwrap().wait().unwrap(), 1);
}

#[test]
fn google_cloud_go_20078_a_refused_item_keeps_no_room() {
    let batcher = Batcher::builder(Recorder::open()).max_batch_weight(10).capacity_weight(10);
    let batcher = batcher.build().unwrap();
    for _ in 0..100 {
        let refused = batcher.submit(11).unwrap_err();
        assert!(matches!(refused.reason(), Refusal::TooHeavy { .. }));
    }
    assert_eq!(batcher.submit(10).unwrap().wait().unwrap(), 11);
}

#[test]
fn nats_1612_publishers_side_by_side_never_exceed_the_bound() {
    let batcher = Batcher::builder(Recorder::open()).capacity(8).max_block(None).build().unwrap();
    thread::scope(|scope| {
        for client in 0..4 {
            let batcher = &batcher;
            scope.spawn(move || {
                for _ in 0..500 {
                    batcher.submit(client * 1_000).unwrap().detach();
                    let stats = batcher.stats();
                    assert!(stats.queued + stats.in_flight <= 8, "{stats:?}");
                }
            });
        }
    });
}

#[test]
fn kinesis_producer_21_nothing_is_kept_of_items_that_are_final() {
    let batcher = Batcher::builder(batch_fn(|items: &[Arc<u64>]| {
        items.iter().map(|item| Ok::<_, String>(Arc::clone(item))).collect()
    }));
    let batcher = batcher.build().unwrap();
    let item = Arc::new(1);
    for _ in 0..100 {
        batcher.submit(Arc::clone(&item)).unwrap().wait().unwrap();
    }
    batcher.close(Close::Drain, LONG);
    drop(batcher);
    // The worker lets go of its last batch on its own time.
    while Arc::strong_count(&item) > 1 {
        thread::yield_now();
    }
}

#[test]
fn sarama_2619_order_is_kept_on_retry() {
    let batcher =
        flaky(|item, attempt| if item == 1 && attempt == 1 { Err(RETRY) } else { Ok(item) });
    let batcher = batcher.max_batch_items(1).build().unwrap();
    batcher.submit_all([1, 2, 3]).unwrap().wait();
    assert_eq!(batcher.processor().calls.lock().unwrap().concat(), [1, 1, 2, 3]);
}

#[test]
fn yoshidan_226_keys_are_never_mixed_in_one_request() {
    let recorder = Recorder::open();
    let batcher = Batcher::builder(recorder.clone()).full_only().build().unwrap();
    let _tickets = batcher.submit_all([1, 1_001, 2, 1_002]).unwrap();
    batcher.flush().wait().unwrap();
    assert!(
        recorder.batches().iter().all(|batch| batch.iter().all(|i| i / 1_000 == batch[0] / 1_000))
    );
}

#[test]
fn powertools_92_the_good_records_are_not_delivered_again() {
    let batcher = flaky(|item, attempt| match attempt {
        1 if item == 3 => Err(RETRY),
        _ => Ok(item),
    });
    let batcher = batcher.full_only().max_batch_items(5).build().unwrap();
    batcher.submit_all([1, 2, 3, 4, 5]).unwrap().wait();
    let calls = batcher.processor().calls.lock().unwrap().clone();
    assert_eq!(calls, [vec![1, 2, 3, 4, 5], vec![3]]);
}

#[test]
fn strawberry_3606_what_a_caller_cancelled_is_not_executed() {
    let (recorder, batcher) = busy(|builder| builder);
    let ticket = batcher.submit(1).unwrap();
    assert!(ticket.cancel());
    let kept = batcher.submit(2).unwrap();
    recorder.gate.open();
    kept.wait().unwrap();
    assert_eq!(recorder.batches(), [[0], [2]]);
}

#[test]
fn zebra_4738_a_panic_is_told_and_later_callers_are_served() {
    let gate = Gate::default();
    let pass = gate.clone();
    let batcher = Batcher::new(batch_fn(move |items: &[u64]| {
        pass.pass();
        assert!(items[0] != 0, "the first batch fails");
        items.iter().map(|item| Ok::<_, String>(*item)).collect()
    }));
    let batcher = batcher.unwrap();
    let first = batcher.submit(0).unwrap();
    gate.open();
    let Err(BatchError::Unresolved { panic: Some(message) }) = first.wait() else { panic!() };
    assert_eq!(message, "the first batch fails");
    assert_eq!(batcher.clone().submit(1).unwrap().wait().unwrap(), 1);
}

#[test]
fn zakura_728_a_finished_future_says_so_when_it_is_polled_again() {
    let batcher = Batcher::builder(Recorder::open()).inline().build().unwrap();
    let mut future = std::future::IntoFuture::into_future(batcher.submit(1).unwrap());
    let mut context = Context::from_waker(Waker::noop());
    let poll = std::pin::Pin::new(&mut future).poll(&mut context);
    assert!(matches!(poll, Poll::Ready(Ok(2))));
    // The fault stays with the one who made it: the batcher goes on.
    let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut context = Context::from_waker(Waker::noop());
        let _ = std::pin::Pin::new(&mut future).poll(&mut context);
    }));
    assert!(again.is_err());
    assert_eq!(batcher.submit(2).unwrap().wait().unwrap(), 3);
}

#[test]
fn kafka_1056_what_waits_in_the_queue_expires() {
    let clock = ManualClock::new();
    let batcher = Batcher::builder(Recorder::open()).clock(clock.clone()).full_only();
    let batcher = batcher.delivery_timeout(Some(Duration::from_secs(30))).build().unwrap();
    let ticket = batcher.submit(1).unwrap();
    clock.advance(Duration::from_secs(30));
    assert!(matches!(ticket.wait(), Err(BatchError::Expired)));
}
