//! The caps of a batch are hard, keys keep apart, and outputs may be large.

mod common;

use std::thread;

use batch_core::{Batcher, DispatchReason, batch_fn};
use common::{Gate, LONG, Recorder};

#[test]
fn a_bulk_submit_is_cut_by_items() {
    let recorder = Recorder::open();
    let builder = Batcher::builder(recorder.clone()).max_batch_items(10).linger(LONG);
    let batcher = builder.build().unwrap();
    let tickets = batcher.submit_all(0..53).unwrap();
    batcher.flush().wait().unwrap();
    assert!(tickets.wait().into_iter().all(|outcome| outcome.is_ok()));
    let sizes: Vec<_> = recorder.batches().iter().map(Vec::len).collect();
    assert_eq!(sizes, [10, 10, 10, 10, 10, 3]);
}

#[test]
fn a_batch_is_cut_by_weight() {
    let recorder = Recorder::open();
    let builder = Batcher::builder(recorder.clone()).max_batch_weight(10).linger(LONG);
    let batcher = builder.build().unwrap();
    let tickets = batcher.submit_all([6, 4, 7, 7, 3]).unwrap();
    batcher.flush().wait().unwrap();
    assert!(tickets.wait().into_iter().all(|outcome| outcome.is_ok()));
    assert_eq!(recorder.batches(), [vec![6, 4], vec![7], vec![7, 3]]);
}

#[test]
fn keys_never_share_a_batch() {
    let recorder = Recorder::open();
    let batcher = Batcher::builder(recorder.clone()).linger(LONG).build().unwrap();
    let tickets = batcher.submit_all([1, 1_001, 2, 2_001, 1_002]).unwrap();
    batcher.flush().wait().unwrap();
    assert!(tickets.wait().into_iter().all(|outcome| outcome.is_ok()));
    assert_eq!(recorder.batches(), [vec![1, 2], vec![1_001, 1_002], vec![2_001]]);
}

#[test]
fn batches_of_a_key_run_one_after_the_other() {
    let recorder = Recorder::default();
    let batcher = Batcher::builder(recorder.clone()).max_batch_items(1).workers(4).build().unwrap();
    let tickets = batcher.submit_all([1, 2, 3]).unwrap();
    recorder.entered.pass();
    assert_eq!(batcher.stats().in_flight, 1, "the others wait though workers are idle");
    recorder.gate.open();
    assert!(tickets.wait().into_iter().all(|outcome| outcome.is_ok()));
    assert_eq!(recorder.batches(), [[1], [2], [3]]);
}

#[test]
fn unordered_batches_of_a_key_run_together() {
    let doors: [Gate; 2] = Default::default();
    let batcher = Batcher::builder(batch_core::keyed_fn(
        |_: &usize| (),
        move |(), batch: batch_core::Batch<usize, (), ()>| {
            let me = batch.items()[0];
            doors[me].open();
            // Passes only while the other batch is in its processor too.
            doors[1 - me].pass();
            batch.resolve_all(vec![Ok(())]);
        },
    ))
    .max_batch_items(1)
    .workers(2)
    .unordered()
    .build()
    .unwrap();
    let tickets = batcher.submit_all([0, 1]).unwrap();
    assert!(tickets.wait().into_iter().all(|outcome| outcome.is_ok()));
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let zero = Batcher::builder(Recorder::open()).max_batch_items(0).build().unwrap_err();
    assert_eq!(zero.to_string(), "max_batch_items is 0; a batch holds at least 1 item");
    assert!(Batcher::builder(Recorder::open()).capacity(0).build().is_err());
    assert!(Batcher::builder(Recorder::open()).capacity_weight(0).build().is_err());
    let flight = Batcher::builder(Recorder::open()).max_in_flight(0).build().unwrap_err();
    assert_eq!(flight.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn past_batches_are_recorded_and_bounded() {
    let batcher = Batcher::builder(Recorder::open()).max_batch_items(2).history(3).build().unwrap();
    for item in 0..10 {
        batcher.submit_all([item, item + 100]).unwrap().wait();
    }
    let past = batcher.history();
    assert_eq!(past.len(), 3);
    assert!(past.windows(2).all(|pair| pair[0].id < pair[1].id));
    let last = &past[2];
    assert_eq!((last.items, last.completed, last.failed), (2, 2, 0));
    assert_eq!(last.reason, DispatchReason::Full);
}

/// Room for 128 outcomes was made on the stack of the submit, which overflowed: an abort.
#[test]
fn an_output_may_be_as_large_as_a_stack_bears_a_few_times() {
    type Page = [u8; 16 << 10];
    let run = || {
        let fill = |items: &[u8]| items.iter().map(|&item| Ok::<Page, String>([item; _])).collect();
        let batcher = Batcher::builder(batch_fn(fill)).build().expect("the settings are right");
        let tickets = batcher.submit_all([3; 5]).expect("there is room");
        tickets.wait().into_iter().all(|page| page.is_ok_and(|page| page == [3; _]))
    };
    // The stack of a worker, and of any thread that is not told otherwise.
    let small = thread::Builder::new().stack_size(2 << 20).spawn(run);
    assert!(small.expect("a thread").join().expect("no panic"));
}
