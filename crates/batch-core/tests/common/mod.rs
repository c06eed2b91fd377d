//! Processors that a test can hold and watch, and a small executor.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub(crate) mod memory;

use std::convert::Infallible;
use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use batch_core::{BatchOf, BatchProcessor, Dispatched, Event, Observer};

/// Runs `cases` random cases, or as many as `PROPTEST_CASES` says.
pub(crate) fn cases(cases: u32) -> proptest::prelude::ProptestConfig {
    let config = proptest::prelude::ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_some() {
        config
    } else {
        proptest::prelude::ProptestConfig { cases, ..config }
    }
}

/// Long enough never to come in a test that passes.
pub(crate) const LONG: Duration = Duration::from_mins(10);

/// A door that is shut until it is opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    pub(crate) fn shut(&self) {
        *self.0.0.lock().unwrap() = false;
    }

    pub(crate) fn pass(&self) {
        drop(self.0.1.wait_while(self.0.0.lock().unwrap(), |open| !*open).unwrap());
    }
}

/// Adds 1 to each item, notes each batch, and waits at the gate inside `process`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) gate: Gate,
    pub(crate) entered: Gate,
    pub(crate) batches: Arc<Mutex<Vec<Vec<u64>>>>,
}

impl Recorder {
    pub(crate) fn open() -> Self {
        let recorder = Self::default();
        recorder.gate.open();
        recorder
    }

    pub(crate) fn batches(&self) -> Vec<Vec<u64>> {
        self.batches.lock().unwrap().clone()
    }
}

impl BatchProcessor for Recorder {
    type Key = u64;
    type Item = u64;
    type Output = u64;
    type Error = Infallible;

    /// Items below 1,000 share key 0, those below 2,000 key 1, and so on.
    fn key(&self, item: &u64) -> u64 {
        item / 1_000
    }

    fn weight(&self, item: &u64) -> u64 {
        item % 1_000
    }

    fn process(&self, _: &u64, batch: BatchOf<Self>) {
        self.batches.lock().unwrap().push(batch.items().to_vec());
        self.entered.open();
        self.gate.pass();
        for slot in batch.slots() {
            assert!(slot.resolve(Ok(slot.item() + 1)));
        }
    }
}

/// An observer with a gate that opens when its batcher is gone, with all its threads.
pub(crate) struct Watched<O>(pub(crate) O, pub(crate) Gate);

impl<O> Drop for Watched<O> {
    fn drop(&mut self) {
        self.1.open();
    }
}

impl<K, O: Observer<K>> Observer<K> for Watched<O> {
    fn event(&self, event: &Event<'_, K>) {
        self.0.event(event);
    }

    fn around(&self, batch: &Dispatched<'_, K>, call: &mut dyn FnMut()) {
        self.0.around(batch, call);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
pub(crate) fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let mut future = pin!(future.into_future());
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
