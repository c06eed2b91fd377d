//! The design of the batcher that the project began with, in Rust: a lock around everything, an id
//! as text for every item and batch, results in a map by id, and a channel for every item.
//!
//! The Go program left it to its user to poll for batches; here a thread is woken for each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};

struct Request {
    id: String,
    group: String,
    item: u64,
    result: Sender<u64>,
    _enqueued: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Pending,
    Executing,
}

struct Batch {
    id: String,
    requests: Vec<Request>,
}

#[derive(Default)]
struct State {
    queue: Vec<Request>,
    pending: Vec<(Arc<Batch>, Status)>,
    total_requests: u64,
    total_batches: u64,
    saved: u64,
}

/// A batcher of one group with a thread that executes its batches.
pub(crate) struct SeedBatcher {
    state: Arc<RwLock<State>>,
    max_batch_size: usize,
    next_id: AtomicU64,
    wake: Sender<()>,
}

impl SeedBatcher {
    /// Starts the thread; it ends with the batcher.
    pub(crate) fn start(max_batch_size: usize, answer: fn(u64) -> u64) -> SeedBatcher {
        let state = Arc::new(RwLock::new(State::default()));
        let (wake, woken) = bounded(1);
        let executed = Arc::clone(&state);
        thread::spawn(move || execute(&executed, &woken, answer));
        SeedBatcher { state, max_batch_size, next_id: AtomicU64::new(0), wake }
    }

    /// Queues an item; what is queued becomes a batch when it is enough for one.
    pub(crate) fn enqueue(&self, item: u64) -> Receiver<u64> {
        let (result, receiver) = bounded(1);
        let id = format!("req-{}", self.next_id.fetch_add(1, Ordering::Relaxed));
        let group = format!("{}:{}", "implementer", "model");
        let request = Request { id, group, item, result, _enqueued: Instant::now() };
        let mut state = write(&self.state);
        state.queue.push(request);
        state.total_requests += 1;
        if state.queue.len() >= self.max_batch_size {
            state.flush();
            drop(state);
            // A wake that is on its way serves for this one too.
            let _ = self.wake.try_send(());
        }
        receiver
    }
}

impl State {
    /// Makes a batch of each group of what is queued.
    fn flush(&mut self) {
        let mut groups: HashMap<String, Vec<Request>> = HashMap::new();
        for request in std::mem::take(&mut self.queue) {
            groups.entry(request.group.clone()).or_default().push(request);
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        for requests in groups.drain(..) {
            let id = format!("batch-{}", self.total_batches);
            self.total_batches += 1;
            self.pending.push((Arc::new(Batch { id, requests }), Status::Pending));
        }
    }
}

/// What the user of the Go program did: take the first batch, mark it, call, deliver.
fn execute(state: &RwLock<State>, woken: &Receiver<()>, answer: fn(u64) -> u64) {
    while woken.recv().is_ok() {
        while let Some(batch) = first_pending(state) {
            mark_executing(state, &batch.id);
            let results: HashMap<String, u64> = batch
                .requests
                .iter()
                .map(|request| (request.id.clone(), answer(request.item)))
                .collect();
            mark_completed(state, &batch.id, &results);
        }
    }
}

fn first_pending(state: &RwLock<State>) -> Option<Arc<Batch>> {
    let state = read(state);
    let (batch, _) = state.pending.iter().find(|(_, status)| *status == Status::Pending)?;
    Some(Arc::clone(batch))
}

fn mark_executing(state: &RwLock<State>, id: &str) {
    if let Some((_, status)) = write(state).pending.iter_mut().find(|(batch, _)| batch.id == id) {
        *status = Status::Executing;
    }
}

fn mark_completed(state: &RwLock<State>, id: &str, results: &HashMap<String, u64>) {
    let mut state = write(state);
    let Some(index) = state.pending.iter().position(|(batch, _)| batch.id == id) else { return };
    let (batch, _) = state.pending.remove(index);
    for request in &batch.requests {
        if let Some(result) = results.get(&request.id) {
            // Nobody may wait for it any more.
            let _ = request.result.try_send(*result);
        }
    }
    state.saved += results.len().saturating_sub(1) as u64;
}

fn read(state: &RwLock<State>) -> RwLockReadGuard<'_, State> {
    state.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(state: &RwLock<State>) -> RwLockWriteGuard<'_, State> {
    state.write().unwrap_or_else(PoisonError::into_inner)
}
