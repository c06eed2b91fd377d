//! How a batcher ends: nothing that was accepted disappears.

mod common;

use std::thread;
use std::time::Duration;

use batch_core::{BatchError, Batcher, Close};
use common::{LONG, Recorder};

#[test]
fn drain_finishes_what_lingers() {
    let batcher = Batcher::builder(Recorder::open()).linger(LONG).build().unwrap();
    let set = batcher.submit_all(0..10).unwrap();
    let report = batcher.close(Close::Drain, LONG);
    assert!(report.leftovers.is_empty());
    assert!(report.in_flight.is_empty());
    assert_eq!(report.stats.completed, 10);
    assert!(set.wait().into_iter().all(|outcome| outcome.is_ok()));
}

#[test]
fn abort_hands_back_what_was_not_sent() {
    let recorder = Recorder::default();
    let batcher = Batcher::builder(recorder.clone()).build().unwrap();
    let running = batcher.submit(1).unwrap();
    recorder.entered.pass();
    let waiting = batcher.submit_all([2, 1_003, 4]).unwrap();
    let report = batcher.close(Close::Abort, Duration::ZERO);
    let items: Vec<_> = report.leftovers.iter().map(|(_, item)| *item).collect();
    assert_eq!(items, [2, 1_003, 4], "in order of acceptance");
    assert_eq!(report.in_flight, [running.id()]);
    assert!(waiting.wait().into_iter().all(|o| matches!(o, Err(BatchError::Closed))));
    recorder.gate.open();
    assert_eq!(running.wait().unwrap(), 2);
    let stats = batcher.close(Close::Drain, LONG).stats;
    assert_eq!((stats.accepted, stats.completed, stats.handed_back), (4, 1, 3));
}

#[test]
fn a_drain_that_runs_out_of_time_hands_the_rest_back() {
    let recorder = Recorder::default();
    let batcher = Batcher::builder(recorder.clone()).max_batch_items(1).build().unwrap();
    let set = batcher.submit_all([1, 2, 3]).unwrap();
    recorder.entered.pass();
    let report = batcher.close(Close::Drain, Duration::from_millis(1));
    assert_eq!(report.leftovers.iter().map(|(_, item)| *item).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(report.in_flight.len(), 1);
    recorder.gate.open();
    let ends: Vec<_> = set.wait().into_iter().map(Result::ok).collect();
    assert_eq!(ends, [Some(2), None, None]);
}

#[test]
fn a_waiting_submit_learns_of_the_close() {
    let recorder = Recorder::default();
    let batcher = Batcher::builder(recorder.clone()).capacity(1).max_block(None).build().unwrap();
    let first = batcher.submit(1).unwrap();
    recorder.entered.pass();
    thread::scope(|scope| {
        let blocked = scope.spawn(|| batcher.submit(2).unwrap_err().into_parts().0);
        batcher.close(Close::Abort, Duration::ZERO);
        assert_eq!(blocked.join().unwrap(), 2);
    });
    recorder.gate.open();
    first.wait().unwrap();
}

#[test]
fn dropping_the_last_handle_still_sends_everything() {
    let batcher = Batcher::builder(Recorder::open()).linger(LONG).build().unwrap();
    let set = batcher.submit_all(0..5).unwrap();
    drop(batcher);
    assert!(set.wait().into_iter().all(|outcome| outcome.is_ok()));
}

#[test]
fn an_inline_batcher_closes_too() {
    let batcher = Batcher::builder(Recorder::open()).inline().build().unwrap();
    batcher.submit_all(0..5).unwrap().wait();
    let report = batcher.close(Close::Drain, LONG);
    assert_eq!(report.stats.completed, 5);
    assert!(report.leftovers.is_empty());
}
