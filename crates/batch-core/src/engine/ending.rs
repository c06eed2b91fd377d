//! How an engine is emptied: flush, close, and the end of the last handle.

use std::task::{Context, Poll};
use std::time::Duration;

use super::{Engine, PlaceOf, State, Transaction};
use crate::accumulator::Time;
use crate::clock::nanos;
use crate::close::{Close, CloseReport};
use crate::current;
use crate::error::BatchError;
use crate::flush::Flush;
use crate::id::ItemId;
use crate::link::Link;
use crate::observer::Unsent;
use crate::park::Sleeper;
use crate::processor::BatchProcessor;
use crate::slot::{Filler, Round};
use crate::sync::{deadline, is_over, spawn};

/// Items that were not sent.
type Leftovers<P> = Vec<(ItemId, <P as BatchProcessor>::Item)>;

/// Where an async close stands.
pub(crate) struct Ending<I> {
    leftovers: Vec<(ItemId, I)>,
    until: Time,
    alarm: Option<u64>,
    closer: Option<u64>,
}

impl<P: BatchProcessor> Engine<P> {
    /// Seals what is open; the flush is done when all items accepted so far are final.
    pub(crate) fn flush(&self) -> Flush {
        let now = self.now();
        let mut state = self.lock();
        let mut unwanted = Vec::new();
        let claim = state.queue.flush(now).map(|era| {
            unwanted = state.take_unwanted_flushes();
            let (filler, claim) = state.flush_slots.pair();
            state.flushes.push((era.0, filler));
            claim
        });
        drop(state);
        drop(unwanted);
        self.go_on();
        Flush::new(claim)
    }

    pub(crate) fn close(&self, mode: Close, timeout: Duration) -> CloseReport<P::Item> {
        let until = deadline(timeout);
        let leftovers = self.begin_close(mode);
        if !current::is_running(self.id()) && !self.settings.is_stepped() {
            let sleeper = Sleeper::new();
            let waker = sleeper.waker();
            let mut closer = None;
            loop {
                let mut state = self.lock();
                if state.is_idle() || is_over(until) {
                    state.forget_closer(closer);
                    break;
                }
                if self.settings.is_inline() && !state.leading && state.queue.has_ready() {
                    drop(state);
                    self.lead_now();
                    continue;
                }
                closer = Some(state.add_closer(closer, waker.clone()));
                drop(state);
                sleeper.sleep(until);
            }
        }
        self.end_close(leftovers)
    }

    /// Closes without waiting; the result is polled for.
    pub(crate) fn start_close(&self, mode: Close, timeout: Duration) -> Ending<P::Item> {
        let until = self.now().saturating_add(nanos(timeout));
        let leftovers = self.begin_close(mode);
        self.go_on();
        Ending { leftovers, until, alarm: None, closer: None }
    }

    pub(crate) fn poll_close(
        &self,
        ending: &mut Ending<P::Item>,
        context: &Context<'_>,
    ) -> Poll<CloseReport<P::Item>> {
        // Cloned before the lock: a waker is user code.
        let (waker, other) = (context.waker().clone(), context.waker().clone());
        let mut state = self.lock();
        state.clear_alarm(ending.alarm.take());
        let is_over = state.is_idle() || self.now() >= ending.until;
        if is_over || current::is_running(self.id()) {
            state.forget_closer(ending.closer.take());
            drop(state);
            return Poll::Ready(self.end_close(std::mem::take(&mut ending.leftovers)));
        }
        ending.alarm = Some(state.set_alarm(ending.until, other));
        ending.closer = Some(state.add_closer(ending.closer, waker));
        Poll::Pending
    }

    /// Gives up waiting for a close, which goes on.
    pub(crate) fn forget_close(&self, ending: &mut Ending<P::Item>) {
        let mut state = self.lock();
        state.clear_alarm(ending.alarm.take());
        state.forget_closer(ending.closer.take());
        // Whoever closes next gets them.
        state.leftovers.append(&mut ending.leftovers);
    }

    fn begin_close(&self, mode: Close) -> Leftovers<P> {
        let mut state = self.lock();
        state.queue.close();
        match mode {
            Close::Abort => {
                state.ended = true;
                self.hand_back(state)
            }
            Close::Drain => Vec::new(),
        }
    }

    fn end_close(&self, mut leftovers: Leftovers<P>) -> CloseReport<P::Item> {
        let mut state = self.lock();
        state.stopping = true;
        state.ended = true;
        leftovers.append(&mut state.leftovers);
        let running: Vec<_> =
            state.in_flight.iter().filter_map(|(_, batch)| batch.upgrade()).collect();
        leftovers.extend(self.hand_back(state));
        // What was given up meanwhile may be older than what waits.
        leftovers.sort_by_key(|(id, _)| *id);
        self.acknowledge(Vec::new());
        let in_flight = running.iter().flat_map(|batch| batch.undelivered_ids()).collect();
        CloseReport { leftovers, in_flight, stats: self.stats() }
    }

    /// Takes out everything that waits, counts it, and tells its tickets.
    pub(super) fn hand_back(&self, mut state: Transaction<'_, P>) -> Leftovers<P> {
        let (items, entries) = state.take_out();
        drop(state);
        self.tell_closed(entries);
        items
    }

    /// As [`hand_back`](Self::hand_back), for the next close: a close that sees that nothing waits
    /// any more sees the items too.
    pub(super) fn leave_back(&self, mut state: Transaction<'_, P>) {
        let (items, entries) = state.take_out();
        state.leftovers.extend(items);
        drop(state);
        self.tell_closed(entries);
    }

    fn tell_closed(&self, entries: Vec<PlaceOf<P>>) {
        if entries.is_empty() {
            return;
        }
        self.report_unsent(Unsent::HandedBack, entries.iter().map(|entry| entry.id));
        let mut round = Round::new();
        for entry in entries {
            if let Some(filler) = entry.slot.into_filler() {
                round.fill(filler, Err(BatchError::Closed));
            }
        }
        round.finish();
    }

    /// Hands to the next close what came to wait after the end.
    pub(super) fn give_up_if_ended(&self, state: Transaction<'_, P>) {
        if state.ended {
            self.leave_back(state);
        }
    }

    /// Notes that a worker is gone, as it has ended or its executor dropped it. After the last one
    /// nothing can be sent: what waits is handed back to the next close.
    pub(crate) fn lose_worker(&self, worker: usize) {
        let mut state = self.lock();
        state.forget_worker(worker);
        // It may have been the one that was called.
        state.is_called = false;
        state.workers -= 1;
        if state.workers > 0 {
            return;
        }
        state.queue.close();
        state.stopping = true;
        state.ended = true;
        self.give_up_if_ended(state);
        self.acknowledge(Vec::new());
    }

    /// Lets the workers finish what was accepted and end. Never blocks.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.queue.close();
        state.stopping = true;
        if self.settings.is_inline() && !self.is_over(&state) {
            // No worker holds it; those who wait for what is left will run it.
            state.kept = self.itself.upgrade();
            if self.needs_leader(&state)
                && !state.hand_over()
                && let Some(engine) = self.itself.upgrade()
            {
                drop(state);
                // Nobody waits, or not as a thread. Without a thread it is left to who comes.
                let _ = spawn("batch-core-last", move || engine.lead_now());
            }
        }
    }
}

impl<P: BatchProcessor> State<P> {
    /// Takes out the flushes that nobody waits for any more, when the list would have to grow.
    fn take_unwanted_flushes(&mut self) -> Vec<(u64, Filler<(), Link>)> {
        if self.flushes.len() < self.flushes.capacity() {
            return Vec::new();
        }
        let unwanted = self.flushes.extract_if(.., |(_, filler)| filler.is_unwanted()).collect();
        // As many may come as there are, before the list is looked through again.
        self.flushes.reserve(self.flushes.len());
        unwanted
    }

    /// Takes out everything that waits and counts it as handed back.
    fn take_out(&mut self) -> (Leftovers<P>, Vec<PlaceOf<P>>) {
        let drained = self.queue.drain().into_iter();
        drained.map(|(item, entry)| ((entry.id, item), entry)).unzip()
    }
}
