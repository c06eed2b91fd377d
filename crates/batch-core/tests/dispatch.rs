//! When a batch goes, and on which thread.

mod common;

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use batch_core::{Batch, BatchError, Batcher, DispatchReason, batch_fn, keyed_fn};
use common::{Gate, LONG, Recorder, block_on};

#[test]
fn natural_sends_at_once_and_fills_while_busy() {
    let recorder = Recorder::default();
    let batcher = Batcher::new(recorder.clone()).unwrap();
    let first = batcher.submit(1).unwrap();
    recorder.entered.pass();
    let rest = batcher.submit_all(2..50).unwrap();
    recorder.gate.open();
    first.wait().unwrap();
    assert!(rest.wait().into_iter().all(|outcome| outcome.is_ok()));
    assert_eq!(recorder.batches(), [vec![1], (2..50).collect()]);
    assert_eq!(batcher.stats().calls_saved(), 47);
}

#[test]
fn linger_ends_by_itself() {
    let recorder = Recorder::open();
    let batcher = Batcher::builder(recorder).linger(Duration::from_millis(5)).build().unwrap();
    assert_eq!(batcher.submit(1).unwrap().wait().unwrap(), 2);
    assert_eq!(batcher.history()[0].reason, DispatchReason::Linger);
    assert!(batcher.history()[0].queued >= Duration::from_millis(5));
}

/// The worker that waited for the end of a linger may be woken for a full batch of another key;
/// an idle one has to take its watch over.
#[test]
fn linger_ends_while_the_watching_worker_is_busy() {
    for _ in 0..20 {
        let gate = Gate::default();
        let door = gate.clone();
        let run = move |key: &u8, batch: Batch<u8, (), ()>| {
            if *key == 1 {
                door.pass();
            }
            batch.resolve_all(batch.items().iter().map(|_| Ok(())).collect());
        };
        let batcher = Batcher::builder(keyed_fn(|item: &u8| *item, run))
            .workers(2)
            .max_batch_items(2)
            .linger(Duration::from_millis(1))
            .build()
            .unwrap();
        let lingering = batcher.submit(0).unwrap();
        let full = batcher.submit_all([1, 1]).unwrap();
        lingering.wait_timeout(LONG).unwrap().unwrap();
        gate.open();
        assert!(full.wait().into_iter().all(|outcome| outcome.is_ok()));
    }
}

#[test]
fn a_full_batch_does_not_linger() {
    let batcher =
        Batcher::builder(Recorder::open()).max_batch_items(2).linger(LONG).build().unwrap();
    assert!(batcher.submit_all([1, 2]).unwrap().wait().into_iter().all(|o| o.is_ok()));
}

#[test]
fn flush_sends_what_lingers_and_is_a_barrier() {
    let recorder = Recorder::open();
    let batcher = Batcher::builder(recorder).linger(LONG).build().unwrap();
    let ticket = batcher.submit(1).unwrap();
    assert!(batcher.should_flush(Duration::ZERO));
    assert!(!batcher.should_flush(LONG));
    batcher.flush().wait().unwrap();
    assert!(ticket.is_done());
    block_on(batcher.flush()).unwrap();
    assert!(!batcher.should_flush(Duration::ZERO), "nothing waits");
    assert!(batcher.time_since_last_flush() < LONG);
}

#[test]
fn flush_does_not_wait_for_later_items() {
    let recorder = Recorder::open();
    let batcher = Batcher::builder(recorder).linger(LONG).build().unwrap();
    batcher.submit(1).unwrap().detach();
    let flush = batcher.flush();
    batcher.submit(2).unwrap().detach();
    flush.wait().unwrap();
    assert_eq!(batcher.stats().queued, 1);
}

#[test]
fn a_flush_that_is_not_done_comes_back() {
    let recorder = Recorder::default();
    let batcher = Batcher::new(recorder.clone()).unwrap();
    batcher.submit(1).unwrap().detach();
    let flush = batcher.flush().wait_timeout(Duration::from_millis(1)).unwrap_err().into_inner();
    recorder.gate.open();
    flush.wait_timeout(LONG).unwrap();
}

#[test]
fn inline_runs_on_the_caller() {
    let caller = thread::current().id();
    let batcher = Batcher::builder(batch_fn(move |items: &[()]| {
        items.iter().map(|()| Ok::<_, ()>(thread::current().id() == caller)).collect()
    }))
    .inline()
    .build()
    .unwrap();
    let ticket = batcher.submit(()).unwrap();
    assert!(ticket.is_done());
    assert!(ticket.wait().unwrap());
}

#[test]
fn inline_callers_join_the_next_batch() {
    let recorder = Recorder::default();
    let batcher = Batcher::builder(recorder.clone()).inline().build().unwrap();
    thread::scope(|scope| {
        let leader = scope.spawn(|| batcher.submit(1).unwrap().wait().unwrap());
        recorder.entered.pass();
        let tickets: Vec<_> = (2..40).map(|item| batcher.submit(item).unwrap()).collect();
        assert!(tickets.iter().all(|ticket| !ticket.is_done()), "nobody runs while one leads");
        recorder.gate.open();
        assert_eq!(leader.join().unwrap(), 2);
        for (item, ticket) in (2..).zip(tickets) {
            assert_eq!(ticket.wait().unwrap(), item + 1);
        }
    });
    assert_eq!(recorder.batches(), [vec![1], (2..40).collect()]);
}

#[test]
fn inline_under_contention_loses_nothing() {
    let batcher =
        Batcher::builder(Recorder::open()).inline().max_batch_items(3).capacity(5).build().unwrap();
    thread::scope(|scope| {
        for client in 0..8 {
            let batcher = &batcher;
            scope.spawn(move || {
                for item in (client * 100)..(client * 100 + 100) {
                    assert_eq!(batcher.submit(item).unwrap().wait().unwrap(), item + 1);
                }
                let set = batcher.submit_all((client * 100)..(client * 100 + 20)).unwrap();
                assert!(set.wait().into_iter().all(|outcome| outcome.is_ok()));
            });
        }
    });
    let stats = batcher.stats();
    assert_eq!((stats.completed, stats.queued, stats.in_flight), (960, 0, 0));
}

#[test]
fn a_batch_may_be_kept_and_resolved_later() {
    let parked: Arc<Mutex<Vec<Batch<u64, u64, ()>>>> = Arc::default();
    let shelf = Arc::clone(&parked);
    let batcher = Batcher::builder(keyed_fn(
        |_: &u64| (),
        move |(), batch| {
            shelf.lock().unwrap().push(batch);
        },
    ))
    .inline()
    .build()
    .unwrap();
    let first = batcher.submit(1).unwrap();
    let second = batcher.submit(2).unwrap();
    assert_eq!(batcher.stats().in_flight, 1, "the key is muted while its batch is kept");
    let batch = parked.lock().unwrap().pop().unwrap();
    thread::spawn(move || batch.slot(0).resolve(Ok(10))).join().unwrap();
    assert_eq!(first.wait().unwrap(), 10);
    let batch = parked.lock().unwrap().pop().expect("resolving let the next batch go");
    drop(batch);
    assert!(matches!(second.wait(), Err(BatchError::Unresolved { panic: None })));
}

#[test]
fn publish_delivers_before_the_batch_is_done() {
    let (send, receive) = std::sync::mpsc::channel::<Batch<u64, u64, ()>>();
    let send = Mutex::new(send);
    let run = move |(): &(), batch| send.lock().unwrap().send(batch).unwrap();
    let batcher = Batcher::new(keyed_fn(|_: &u64| (), run)).unwrap();
    let set = batcher.submit_all([1, 2]).unwrap();
    let batch = receive.recv().unwrap();
    let mut tickets = set.into_iter();
    let (first, second) = (tickets.next().unwrap(), tickets.next().unwrap());
    assert!(batch.slot(0).resolve(Ok(10)));
    assert!(!first.is_done());
    batch.publish();
    assert_eq!(first.wait().unwrap(), 10);
    assert!(!second.is_done());
    assert!(!batch.slot(0).resolve(Ok(99)), "the first result counts");
    assert!(batch.slot(1).resolve(Err(())));
    assert!(matches!(second.wait(), Err(BatchError::Failed(_))));
}
