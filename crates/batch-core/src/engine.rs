//! The engine behind a batcher: admission, dispatch, books.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::batch::{Batch, Ledger, Shared};
use crate::block::{EngineLink, Lead, SharedBlock};
use crate::builder::Settings;
use crate::current::{self, Running};
use crate::error::Refusal;
use crate::id::{BatchId, ItemId};
use crate::panics;
use crate::processor::{BatchOf, BatchProcessor};
use crate::queue::{Dispatch, Queue};
use crate::stats::{DispatchReason, PastBatch, Stats};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, Weak, deadline, is_over, lock, wait_until};
use crate::ticket::Ticket;

mod ending;
mod progress;

/// The shared part of all handles of one batcher.
pub(crate) struct Engine<P: BatchProcessor> {
    pub(crate) processor: P,
    settings: Settings,
    link: EngineLink,
    itself: Weak<Self>,
    state: Mutex<State<P>>,
    /// A batch may have become ready, or the engine stops. Workers wait on it.
    work: Condvar,
    /// There is room again, or the engine was closed. Submits wait on it.
    room: Condvar,
    /// Nothing is queued or in flight. `close` waits on it.
    idle: Condvar,
}

type QueueOf<P> = Queue<
    <P as BatchProcessor>::Key,
    <P as BatchProcessor>::Item,
    <P as BatchProcessor>::Output,
    <P as BatchProcessor>::Error,
>;
type SharedOf<P> = Shared<<P as BatchProcessor>::Output, <P as BatchProcessor>::Error>;
type BlockOf<P> = SharedBlock<<P as BatchProcessor>::Output, <P as BatchProcessor>::Error>;
/// The ticket of a batcher over `P`.
pub(crate) type TicketOf<P> = Ticket<<P as BatchProcessor>::Output, <P as BatchProcessor>::Error>;

struct State<P: BatchProcessor> {
    queue: QueueOf<P>,
    in_flight: BTreeMap<BatchId, InFlight<P>>,
    next_seq: u64,
    stats: Stats,
    history: VecDeque<PastBatch<P::Key>>,
    last_dispatch: Instant,
    closed: bool,
    /// Workers end once the queue is empty.
    stopping: bool,
    /// A thread runs the batches of an inline engine.
    leading: bool,
    /// Holds an inline engine whose last handle is gone until its queue is empty.
    kept: Option<Arc<Engine<P>>>,
}

struct InFlight<P: BatchProcessor> {
    block: BlockOf<P>,
    batch: Weak<SharedOf<P>>,
    /// Items that are not final.
    open: usize,
    /// Rounds that are counted and not yet with their tickets.
    rounds: usize,
    past: PastBatch<P::Key>,
    sent: Instant,
}

/// An item with what its processor says of it, asked before any lock is taken.
pub(crate) struct Weighed<P: BatchProcessor> {
    key: P::Key,
    weight: u64,
    pub(crate) item: P::Item,
}

impl<P: BatchProcessor> State<P> {
    fn is_idle(&self) -> bool {
        self.queue.len() == 0 && self.in_flight.is_empty()
    }
}

impl<P: BatchProcessor> Engine<P> {
    pub(crate) fn new(processor: P, settings: Settings) -> Arc<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new_cyclic(|itself: &Weak<Self>| {
            let leader = || -> Weak<dyn Lead> { Weak::<Self>::clone(itself) };
            Self {
                processor,
                link: EngineLink { id, lead: settings.is_inline().then(leader) },
                itself: Weak::clone(itself),
                state: Mutex::new(State {
                    queue: Queue::new(settings.dispatch, settings.limits, settings.order),
                    in_flight: BTreeMap::new(),
                    next_seq: 0,
                    stats: Stats::default(),
                    history: VecDeque::new(),
                    last_dispatch: Instant::now(),
                    closed: false,
                    stopping: false,
                    leading: false,
                    kept: None,
                }),
                work: Condvar::new(),
                room: Condvar::new(),
                idle: Condvar::new(),
                settings,
            }
        })
    }

    pub(crate) fn weigh(&self, item: P::Item) -> Weighed<P> {
        Weighed { key: self.processor.key(&item), weight: self.processor.weight(&item), item }
    }

    /// Accepts items in order, each waiting for room until `until` (`None`: without end), and
    /// hands out their tickets; gives back the first that is refused.
    pub(crate) fn submit(
        &self,
        items: impl IntoIterator<Item = Weighed<P>>,
        until: Option<Instant>,
        mut accepted: impl FnMut(TicketOf<P>),
    ) -> Result<(), (P::Item, Refusal)> {
        let mut state = lock(&self.state);
        for item in items {
            let refusal;
            (state, refusal) = self.wait_for_room(state, item.weight, until);
            if let Some(refusal) = refusal {
                state.stats.refused += 1;
                drop(state);
                self.start();
                return Err((item.item, refusal));
            }
            let id = ItemId { epoch: 0, seq: state.next_seq };
            state.next_seq += 1;
            state.stats.accepted += 1;
            let Weighed { key, weight, item } = item;
            let now = Instant::now();
            let (block, index) = state.queue.push(&key, id, item, weight, now, &self.link);
            accepted(Ticket::new(block, index, id));
        }
        drop(state);
        self.start();
        Ok(())
    }

    /// Returns `max_block` from now as a moment.
    pub(crate) fn max_block_end(&self) -> Option<Instant> {
        self.settings.max_block.and_then(deadline)
    }

    fn wait_for_room<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<P>>,
        weight: u64,
        until: Option<Instant>,
    ) -> (MutexGuard<'a, State<P>>, Option<Refusal>) {
        let (capacity, max) = (self.settings.capacity, self.settings.limits.max_weight);
        loop {
            let used = state.queue.len() + in_flight_items(&state.stats);
            let refusal = if state.closed {
                Some(Refusal::Closed)
            } else if weight > max {
                Some(Refusal::TooHeavy { weight, max })
            } else if used < capacity {
                None
            } else if is_over(until) {
                Some(Refusal::Full { capacity })
            } else if current::is_running(self.link.id) {
                Some(Refusal::WouldDeadlock)
            } else {
                if self.settings.dispatch != Dispatch::Natural {
                    // What lingers cannot grow any more, and only its end makes room.
                    state.queue.seal_all(DispatchReason::Full);
                }
                state = self.wait_for_change(state, &self.room, until);
                continue;
            };
            return (state, refusal);
        }
    }

    /// Waits on `condvar`, but first lends the thread to an inline engine that has work.
    fn wait_for_change<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<P>>,
        condvar: &Condvar,
        until: Option<Instant>,
    ) -> MutexGuard<'a, State<P>> {
        if !self.settings.is_inline() {
            self.work.notify_all();
        } else if !state.leading && state.queue.has_ready(Instant::now()) {
            drop(state);
            self.lead();
            return lock(&self.state);
        }
        wait_until(condvar, state, until)
    }

    /// Sees to it that new items are looked at.
    fn start(&self) {
        if self.settings.is_inline() {
            self.lead();
        } else {
            self.work.notify_one();
        }
    }

    /// The life of a worker thread.
    pub(crate) fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some((key, batch)) = self.next(&mut state) {
                drop(state);
                self.run(&key, batch);
                drop(key);
                state = lock(&self.state);
            } else if state.stopping && state.queue.len() == 0 {
                return;
            } else {
                let until = state.queue.next_linger_end();
                state = wait_until(&self.work, state, until);
            }
        }
    }

    /// Takes the next batch that may go and enters it in the books.
    fn next(&self, state: &mut State<P>) -> Option<(P::Key, BatchOf<P>)> {
        let now = Instant::now();
        let ready = state.queue.pop(now)?;
        let (open, key) = (ready.batch, ready.key);
        let items = open.items.len();
        state.stats.in_flight += count(items);
        state.stats.calls += 1;
        state.last_dispatch = now;
        let past = PastBatch {
            id: open.id,
            key: key.clone(),
            items,
            completed: 0,
            failed: 0,
            reason: ready.reason,
            queued: now.saturating_duration_since(open.opened),
            in_flight: Duration::ZERO,
        };
        let ledger: Weak<dyn Ledger> = Weak::<Self>::clone(&self.itself);
        let block = Arc::clone(&open.block);
        let batch = Batch::new(open.id, open.items, open.ids, open.block, ledger, self.link.id);
        let entry = InFlight {
            block,
            batch: Arc::downgrade(&batch.shared()),
            open: items,
            rounds: 0,
            past,
            sent: now,
        };
        state.in_flight.insert(open.id, entry);
        // This worker is busy now: another sees to what is ready, and to the next linger end.
        if state.queue.has_ready(now) || state.queue.next_linger_end().is_some() {
            self.work.notify_one();
        }
        Some((key, batch))
    }

    /// Runs one batch. No panic of user code gets past it.
    fn run(&self, key: &P::Key, batch: BatchOf<P>) {
        let shared = batch.shared();
        let running = Running::enter(self.link.id, batch.id());
        let run = AssertUnwindSafe(|| self.processor.process(key, batch));
        let ended = catch_unwind(run);
        shared.end_abandoned(ended.as_ref().err().map(|payload| panics::message(&**payload)));
        // The last owner drops the results, which is user code too, as a payload may be.
        panics::swallow(|| drop(ended));
        panics::swallow(|| drop(shared));
        drop(running);
    }

    pub(crate) fn stats(&self) -> Stats {
        let state = lock(&self.state);
        Stats { queued: count(state.queue.len()), ..state.stats }
    }

    pub(crate) fn history(&self) -> Vec<PastBatch<P::Key>> {
        lock(&self.state).history.iter().cloned().collect()
    }

    pub(crate) fn last_dispatch(&self) -> Instant {
        lock(&self.state).last_dispatch
    }

    pub(crate) fn oldest(&self) -> Option<Instant> {
        lock(&self.state).queue.oldest()
    }
}

fn in_flight_items(stats: &Stats) -> usize {
    usize::try_from(stats.in_flight).unwrap_or(usize::MAX)
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
