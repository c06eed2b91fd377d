//! A processor that uses its own batcher gets an error, never a deadlock; a thread that ends may use
//! any.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::cell::RefCell;
use std::convert::Infallible;
use std::process::Command;
use std::sync::{Mutex, OnceLock, mpsc};
use std::{env, thread};

use batch_core::{
    Batch, BatchError, BatchOf, BatchProcessor, Batcher, Close, FlushWouldDeadlock, Refusal,
};
use common::{LONG, Recorder};

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

/// Flushes itself through the batcher when its thread ends, as a buffer of log lines would.
struct Buffer(Batcher<Recorder>, mpsc::Sender<u64>);

impl Drop for Buffer {
    fn drop(&mut self) {
        let outcome = self.0.submit(7).unwrap().wait();
        self.1.send(outcome.unwrap()).unwrap();
    }
}

/// What the engine notes of a thread was used after its end, which aborted the process: in a child,
/// so that it is told apart from the other tests.
#[test]
fn a_local_of_a_thread_may_use_a_batcher_when_the_thread_ends() {
    thread_local! {
        static BUFFER: RefCell<Option<Buffer>> = const { RefCell::new(None) };
    }
    const NAME: &str = "a_local_of_a_thread_may_use_a_batcher_when_the_thread_ends";
    const CHILD: &str = "BATCH_CORE_TEST_ENDS_A_THREAD";

    if env::var_os(CHILD).is_none() {
        let mut child = Command::new(env::current_exe().unwrap());
        let output = child.args([NAME, "--exact"]).env(CHILD, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    for inline in [false, true] {
        let builder = Batcher::builder(Recorder::open());
        let batcher = if inline { builder.inline() } else { builder }.build().unwrap();
        let (sender, receiver) = mpsc::channel();
        let ending = thread::spawn(move || {
            // Made before the engine's own, and so it ends after that.
            let buffer = Buffer(batcher.clone(), sender);
            BUFFER.with(|place| *place.borrow_mut() = Some(buffer));
            assert_eq!(batcher.submit(1).unwrap().wait().unwrap(), 2);
        });
        assert_eq!(receiver.recv().unwrap(), 8);
        ending.join().unwrap();
    }
}
