//! What goes in comes out once, at the caller that sent it.

mod common;

use std::thread;
use std::time::Duration;

use batch_core::{BatchError, Batcher, Close, Refusal};
use common::{LONG, Recorder, block_on};

#[test]
fn every_item_gets_its_own_result() {
    let batcher = Batcher::new(Recorder::open()).unwrap();
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let batcher = batcher.clone();
            thread::spawn(move || {
                for item in (client * 100)..(client * 100 + 100) {
                    assert_eq!(batcher.submit(item).unwrap().wait().unwrap(), item + 1);
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!(batcher.stats().completed, 800);
}

#[test]
fn submit_all_keeps_the_order() {
    let batcher = Batcher::builder(Recorder::open()).max_batch_items(7).build().unwrap();
    let tickets = batcher.submit_all(0..100).unwrap();
    assert_eq!(tickets.len(), 100);
    let results: Vec<_> = tickets.wait().into_iter().map(Result::unwrap).collect();
    assert_eq!(results, (1..=100).collect::<Vec<_>>());
}

#[test]
fn ids_are_unique_and_in_order() {
    let batcher = Batcher::new(Recorder::open()).unwrap();
    let ids: Vec<_> = (0..1_000).map(|i| batcher.submit(i).unwrap().id()).collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn a_ticket_that_is_not_ready_comes_back() {
    let recorder = Recorder::default();
    let batcher = Batcher::new(recorder.clone()).unwrap();
    let ticket = batcher.submit(5).unwrap();
    let ticket = ticket.try_get().unwrap_err().into_inner();
    let ticket = ticket.wait_timeout(Duration::from_millis(1)).unwrap_err().into_inner();
    recorder.gate.open();
    assert_eq!(ticket.wait_timeout(LONG).unwrap().unwrap(), 6);
}

#[test]
fn a_set_that_is_not_ready_comes_back_whole() {
    let recorder = Recorder::default();
    let batcher = Batcher::new(recorder.clone()).unwrap();
    let set = batcher.submit_all(0..3).unwrap();
    let set = set.wait_timeout(Duration::from_millis(1)).unwrap_err().into_inner();
    assert_eq!(set.len(), 3);
    recorder.gate.open();
    let results: Vec<_> = set.wait_timeout(LONG).unwrap().into_iter().map(Result::unwrap).collect();
    assert_eq!(results, [1, 2, 3]);
}

#[test]
fn a_time_out_beyond_the_clock_waits_without_end() {
    let batcher = Batcher::new(Recorder::open()).unwrap();
    let ticket = batcher.submit_timeout(1, Duration::MAX).unwrap();
    assert_eq!(ticket.wait_timeout(Duration::MAX).unwrap().unwrap(), 2);
}

#[test]
fn tickets_and_sets_are_futures() {
    let batcher = Batcher::new(Recorder::open()).unwrap();
    assert_eq!(block_on(batcher.submit(1).unwrap()).unwrap(), 2);
    let results = block_on(batcher.submit_all(10..13).unwrap());
    let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
    assert_eq!(results, [11, 12, 13]);
}

#[test]
fn a_future_is_woken_from_another_thread() {
    let recorder = Recorder::default();
    let batcher = Batcher::new(recorder.clone()).unwrap();
    let ticket = batcher.submit(1).unwrap();
    let opener = thread::spawn(move || {
        recorder.entered.pass();
        recorder.gate.open();
    });
    assert_eq!(block_on(ticket).unwrap(), 2);
    opener.join().unwrap();
}

#[test]
fn a_detached_item_is_processed() {
    let recorder = Recorder::open();
    let batcher = Batcher::new(recorder.clone()).unwrap();
    batcher.submit(1).unwrap().detach();
    batcher.flush().wait().unwrap();
    assert_eq!(recorder.batches(), [[1]]);
}

#[test]
fn a_full_batcher_gives_the_item_back() {
    let recorder = Recorder::default();
    let batcher = Batcher::builder(recorder.clone()).capacity(2).build().unwrap();
    let first = batcher.submit_all([1, 2]).unwrap();
    let error = batcher.try_submit(3).unwrap_err();
    assert_eq!(error.into_parts(), (3, Refusal::Full { capacity: 2 }));
    let error = batcher.submit_timeout(4, Duration::from_millis(1)).unwrap_err();
    assert_eq!(error.into_parts(), (4, Refusal::Full { capacity: 2 }));
    recorder.gate.open();
    assert!(first.wait().into_iter().all(|outcome| outcome.is_ok()));
    assert_eq!(batcher.submit(5).unwrap().wait().unwrap(), 6);
    assert_eq!(batcher.stats().refused, 2);
}

#[test]
fn a_submit_waits_for_room() {
    let recorder = Recorder::default();
    let batcher = Batcher::builder(recorder.clone()).capacity(1).max_block(None).build().unwrap();
    let first = batcher.submit(1).unwrap();
    recorder.entered.pass();
    let second = thread::spawn(move || batcher.submit(2).unwrap().wait().unwrap());
    recorder.gate.open();
    assert_eq!(first.wait().unwrap(), 2);
    assert_eq!(second.join().unwrap(), 3);
}

#[test]
fn a_cut_bulk_submit_gives_the_rest_back() {
    let recorder = Recorder::default();
    let builder = Batcher::builder(recorder.clone()).capacity(3);
    let batcher = builder.max_block(Some(Duration::from_millis(1))).build().unwrap();
    let cut = batcher.submit_all(0..5).unwrap_err();
    assert_eq!(cut.reason, Refusal::Full { capacity: 3 });
    assert_eq!(cut.rest, [3, 4]);
    recorder.gate.open();
    let results: Vec<_> = cut.accepted.wait().into_iter().map(Result::unwrap).collect();
    assert_eq!(results, [1, 2, 3]);
}

#[test]
fn an_item_heavier_than_a_batch_is_refused() {
    let batcher = Batcher::builder(Recorder::open()).max_batch_weight(10).build().unwrap();
    let (item, reason) = batcher.submit(11).unwrap_err().into_parts();
    assert_eq!((item, reason), (11, Refusal::TooHeavy { weight: 11, max: 10 }));
    assert_eq!(batcher.submit(10).unwrap().wait().unwrap(), 11);
}

#[test]
fn a_closed_batcher_refuses() {
    let batcher = Batcher::new(Recorder::open()).unwrap();
    batcher.close(Close::Drain, LONG);
    assert_eq!(batcher.submit(1).unwrap_err().into_parts(), (1, Refusal::Closed));
    let cut = batcher.submit_all([1, 2]).unwrap_err();
    assert_eq!((cut.accepted.len(), cut.rest), (0, vec![1, 2]));
}

#[test]
fn refusals_and_errors_read_well() {
    let batcher = Batcher::builder(Recorder::open()).max_batch_weight(3).build().unwrap();
    let refused = batcher.submit(4).unwrap_err();
    assert_eq!(refused.to_string(), "the item weighs 4, a whole batch may weigh 3");
    let panic = BatchError::<String>::Unresolved { panic: Some("no".into()) };
    assert_eq!(
        panic.to_string(),
        "the processor left the item unresolved: it panicked with \"no\""
    );
}
