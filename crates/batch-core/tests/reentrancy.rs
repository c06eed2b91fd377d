//! A processor that uses its own batcher gets an error, never a deadlock.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::convert::Infallible;
use std::sync::{Mutex, OnceLock};

use batch_core::{
    Batch, BatchError, BatchOf, BatchProcessor, Batcher, Close, FlushWouldDeadlock, Refusal,
};
use common::LONG;

type Run = dyn Fn(&Batcher<Selfish>, &Batch<u32, u32, Infallible>) + Send + Sync;

/// Is given its own batcher after it was made, and uses it in its first batch.
struct Selfish {
    itself: OnceLock<Mutex<Option<Batcher<Selfish>>>>,
    run: Box<Run>,
}

impl BatchProcessor for Selfish {
    type Key = ();
    type Item = u32;
    type Output = u32;
    type Error = Infallible;

    fn key(&self, _: &u32) {}

    fn process(&self, (): &(), batch: BatchOf<Self>) {
        if let Some(batcher) = self.itself.get().unwrap().lock().unwrap().take() {
            (self.run)(&batcher, &batch);
        }
        for slot in batch.slots() {
            slot.resolve(Ok(*slot.item()));
        }
    }
}

fn selfish(capacity: usize, inline: bool, run: Box<Run>) -> Batcher<Selfish> {
    let builder = Batcher::builder(Selfish { itself: OnceLock::new(), run });
    let builder = builder.capacity(capacity).max_block(None);
    let batcher = if inline { builder.inline() } else { builder }.build().unwrap();
    let own = Mutex::new(Some(batcher.clone()));
    assert!(batcher.processor().itself.set(own).is_ok());
    batcher
}

fn try_both(run: fn(&Batcher<Selfish>, &Batch<u32, u32, Infallible>)) {
    for inline in [false, true] {
        let batcher = selfish(1, inline, Box::new(run));
        assert_eq!(batcher.submit(1).unwrap().wait().unwrap(), 1);
    }
}

#[test]
fn a_submit_to_its_own_full_batcher_is_refused() {
    try_both(|batcher, _| {
        let (item, reason) = batcher.submit(2).unwrap_err().into_parts();
        assert_eq!((item, reason), (2, Refusal::WouldDeadlock));
    });
}

#[test]
fn a_flush_inside_the_processor_is_refused() {
    try_both(|batcher, _| assert_eq!(batcher.flush().wait(), Err(FlushWouldDeadlock)));
}

#[test]
fn a_close_inside_the_processor_does_not_wait() {
    try_both(|batcher, batch| {
        let report = batcher.close(Close::Drain, LONG);
        assert_eq!(report.in_flight, [batch.slot(0).id()]);
    });
}

#[test]
fn a_wait_inside_the_processor_is_refused() {
    let batcher = selfish(
        2,
        false,
        Box::new(|batcher, _| {
            let ticket = batcher.submit(2).unwrap();
            assert!(matches!(ticket.wait(), Err(BatchError::WouldDeadlock)));
        }),
    );
    assert_eq!(batcher.submit(1).unwrap().wait().unwrap(), 1);
    batcher.flush().wait().unwrap();
    assert_eq!(batcher.stats().completed, 2, "the refused wait lost no item");
}
