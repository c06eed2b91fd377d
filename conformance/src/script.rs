//! The processor of every test: what it does, and what it saw.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use tokio::sync::Semaphore;

use crate::engine::{Engine, Reply};

/// What the processor does with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Answers every item.
    Answer,
    /// Panics over a batch that holds this item.
    PanicOver(u64),
    /// Fails a batch that holds this item.
    FailOver(u64),
    /// Leaves the answer to this item out.
    Forget(u64),
    /// Waits for [`Script::open`] before it answers.
    Hold,
    /// Submits to its own engine when it meets item 1, and waits for that answer.
    Reenter,
}

/// One batch that the processor was given.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) items: Vec<u64>,
    pub(crate) began: Instant,
}

/// A processor that plays one [`Act`] and keeps a record.
pub(crate) struct Script {
    act: Act,
    ran: Mutex<Vec<Ran>>,
    keeps_record: bool,
    running: AtomicUsize,
    peak: AtomicUsize,
    gate: Semaphore,
    engine: OnceLock<Arc<dyn Engine>>,
    inner: Mutex<Option<Reply>>,
}

/// The right answer to an item.
pub(crate) fn answer(item: u64) -> u64 {
    item + 1_000_000
}

impl Script {
    pub(crate) fn new(act: Act) -> Arc<Script> {
        Arc::new(Script::with_record(act, true))
    }

    /// For runs so long that a record of every batch would be the leak.
    pub(crate) fn without_record() -> Arc<Script> {
        Arc::new(Script::with_record(Act::Answer, false))
    }

    fn with_record(act: Act, keeps_record: bool) -> Script {
        Script {
            act,
            ran: Mutex::default(),
            keeps_record,
            running: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            gate: Semaphore::new(0),
            engine: OnceLock::new(),
            inner: Mutex::default(),
        }
    }

    /// Names the engine that [`Act::Reenter`] submits to.
    pub(crate) fn reenter_into(&self, engine: Arc<dyn Engine>) {
        let _ = self.engine.set(engine);
    }

    /// Processes a batch: the items that have an answer, with it, in their order.
    pub(crate) async fn run(&self, items: &[u64]) -> Result<Vec<(u64, u64)>, String> {
        if self.keeps_record {
            let ran = Ran { items: items.to_vec(), began: Instant::now() };
            self.ran.lock().unwrap_or_else(PoisonError::into_inner).push(ran);
        }
        let _running = Running::begin(self);
        match self.act {
            Act::PanicOver(item) if items.contains(&item) => panic!("scripted panic over {item}"),
            Act::FailOver(item) if items.contains(&item) => {
                return Err(format!("scripted error over {item}"));
            }
            Act::Hold => drop(self.gate.acquire().await),
            Act::Reenter if items.contains(&1) => {
                let engine = self.engine.get().map(Arc::clone);
                if let Some(engine) = engine {
                    let reply = engine.call_inside(2).await;
                    *self.inner.lock().unwrap_or_else(PoisonError::into_inner) = Some(reply);
                }
            }
            _ => {}
        }
        let forgotten = |item: u64| self.act == Act::Forget(item);
        let answered = items.iter().copied().filter(|&item| !forgotten(item));
        Ok(answered.map(|item| (item, answer(item))).collect())
    }

    /// Says whether a batch waits for something before it is answered.
    pub(crate) fn waits(&self) -> bool {
        self.act == Act::Hold
    }

    /// Processes a batch on this thread.
    pub(crate) fn run_blocking(&self, items: &[u64]) -> Result<Vec<(u64, u64)>, String> {
        block_on(self.run(items))
    }

    /// Lets all batches go on that [`Act::Hold`] holds, those to come included.
    pub(crate) fn open(&self) {
        self.gate.close();
    }

    pub(crate) fn ran(&self) -> Vec<Ran> {
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says whether the processor was given the item.
    pub(crate) fn saw(&self, item: u64) -> bool {
        self.ran().iter().any(|ran| ran.items.contains(&item))
    }

    /// Returns when the batch of the item began.
    pub(crate) fn began(&self, item: u64) -> Option<Instant> {
        self.ran().iter().find(|ran| ran.items.contains(&item)).map(|ran| ran.began)
    }

    /// Returns the most batches that ever ran at the same time.
    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Ordering::SeqCst)
    }

    /// Returns what [`Act::Reenter`] was told.
    pub(crate) fn inner(&self) -> Option<Reply> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Counts a batch for as long as it runs, panics included.
struct Running<'a>(&'a Script);

impl<'a> Running<'a> {
    fn begin(script: &'a Script) -> Self {
        let now = script.running.fetch_add(1, Ordering::SeqCst) + 1;
        script.peak.fetch_max(now, Ordering::SeqCst);
        Running(script)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread; tokio's own refuses that where a runtime is entered already.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}
