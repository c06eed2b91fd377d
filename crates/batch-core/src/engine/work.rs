//! How batches are taken from the queue and run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use std::thread;

use super::{Engine, SeatOf, SharedOf, Transaction};
use crate::accumulator::{Packed, Ready, Time};
use crate::batch::Batch;
use crate::clock::duration;
use crate::current::Running;
use crate::id::BatchId;
use crate::items::Items;
use crate::observer::{Dispatched, Event};
use crate::panics;
use crate::park::Sleeper;
use crate::processor::{BatchOf, BatchProcessor};
use crate::rounds::Ledger;
use crate::stats::DispatchReason;
use crate::sync::{Arc, Weak};

/// A batch that is to be run.
pub(crate) struct Job<P: BatchProcessor> {
    pub(super) key: P::Key,
    pub(super) batch: BatchOf<P>,
    pub(super) reason: DispatchReason,
    pub(super) queued: Time,
    pub(super) attempt: u32,
    pub(super) weight: u64,
}

/// What a worker does next.
pub(crate) enum Turn<P: BatchProcessor> {
    Run(Job<P>),
    Rest,
    /// The engine has stopped and its queue is empty.
    End,
}

/// Tells the engine when a worker thread ends, for whatever reason.
struct Life<'e, P: BatchProcessor> {
    engine: &'e Engine<P>,
    worker: usize,
}

impl<P: BatchProcessor> Drop for Life<'_, P> {
    fn drop(&mut self) {
        self.engine.lose_worker(self.worker);
    }
}

impl<P: BatchProcessor> Engine<P> {
    /// The life of a worker thread.
    pub(crate) fn work(&self, worker: usize) {
        let _life = Life { engine: self, worker };
        let sleeper = Sleeper::new();
        let waker = sleeper.waker();
        loop {
            match self.turn(worker, &waker) {
                Turn::Run(job) => {
                    self.run(job);
                    self.core.outlook.look_out();
                }
                Turn::Rest => sleeper.sleep(None),
                Turn::End => return,
            }
        }
    }

    /// Takes the next batch for a worker, or notes that it rests until `waker` is called.
    pub(crate) fn turn(&self, worker: usize, waker: &Waker) -> Turn<P> {
        // Cloned before the lock: a waker is user code.
        let waker = waker.clone();
        let mut state = self.lock();
        state.is_called = false;
        // It may be here although nobody called it.
        state.forget_worker(worker);
        if let Some(job) = self.next_job(&mut state) {
            return Turn::Run(job);
        }
        if self.is_over(&state) {
            return Turn::End;
        }
        state.resting.push((worker, waker));
        Turn::Rest
    }

    /// Runs the next batch on this thread, if there is one.
    pub(crate) fn run_next(&self) {
        let mut state = self.lock();
        let job = self.next_job(&mut state);
        drop(state);
        if let Some(job) = job {
            self.run(job);
        }
    }

    /// Takes the next batch that may go and enters it in the books.
    pub(super) fn next_job(&self, state: &mut Transaction<'_, P>) -> Option<Job<P>> {
        state.tick();
        let ready = state.queue.next_ready()?;
        let Ready { batch: id, key, items, known, reason, queued, weight } = ready;
        let attempt = known.spans().next().map_or(1, |span| span.attempt);
        let batch = self.batch(id, Items::Many(items), known);
        let place = state.in_flight.partition_point(|(other, _)| *other < id);
        state.in_flight.insert(place, (id, Arc::downgrade(&batch.shared())));
        Some(Job { key, batch, reason, queued, attempt, weight })
    }

    /// Makes a batch for the processor.
    pub(super) fn batch(
        &self,
        id: BatchId,
        items: Items<P::Item>,
        known: Packed<SeatOf<P>>,
    ) -> BatchOf<P> {
        let itself: Weak<dyn Ledger<P::Item, P::Output, P::Error>> =
            Weak::<Self>::clone(&self.itself);
        Batch::new(id, items, known, itself, self.receipts.clone(), self.id())
    }

    /// Runs one batch. No panic of user code gets past it.
    pub(crate) fn run(&self, job: Job<P>) {
        let running = Running::enter(self.id(), Some(job.batch.id()));
        let shared = job.batch.shared();
        self.call(job).settle(shared);
        drop(running);
    }

    /// Calls the processor with a batch. The caller notes that this thread does.
    pub(super) fn call(&self, job: Job<P>) -> Called<P> {
        let Job { key, batch, reason, queued, attempt, weight } = job;
        let id = batch.id();
        let ended = match &self.hooks.observer {
            None => catch_unwind(AssertUnwindSafe(|| self.processor.process(&key, batch))),
            Some(observer) => {
                let ids = batch.slots().map(crate::batch::Slot::id).collect::<Vec<_>>();
                let queued = duration(queued);
                let dispatched = Dispatched {
                    batch: id,
                    key: &key,
                    items: &ids,
                    weight,
                    attempt,
                    reason,
                    queued,
                };
                panics::swallow(|| observer.event(&Event::Dispatched(&dispatched)));
                let mut batch = Some(batch);
                let mut ended = None;
                // The observer may open a span around the call; it cannot keep the call from
                // being made.
                panics::swallow(|| {
                    observer.around(&dispatched, &mut || {
                        if let Some(batch) = batch.take() {
                            let run = AssertUnwindSafe(|| self.processor.process(&key, batch));
                            ended = Some(catch_unwind(run));
                        }
                    });
                });
                if let Some(batch) = batch.take() {
                    let run = AssertUnwindSafe(|| self.processor.process(&key, batch));
                    ended = Some(catch_unwind(run));
                }
                ended.unwrap_or(Ok(()))
            }
        };
        Called { key, ended }
    }
}

/// A call of the processor that is over.
pub(super) struct Called<P: BatchProcessor> {
    key: P::Key,
    ended: thread::Result<()>,
}

impl<P: BatchProcessor> Called<P> {
    /// Says whether it came to its end.
    pub(super) fn is_whole(&self) -> bool {
        self.ended.is_ok()
    }

    /// Ends the batch of the call if it was dropped by a panic.
    pub(super) fn settle(self, batch: Arc<SharedOf<P>>) {
        let Self { key, ended } = self;
        batch.end_abandoned(ended.as_ref().err().map(|payload| panics::message(&**payload)));
        // The last owner drops the results, which is user code too, as a payload may be.
        panics::swallow(|| drop(ended));
        panics::swallow(|| drop(batch));
        // User code as well.
        panics::swallow(|| drop(key));
    }
}
