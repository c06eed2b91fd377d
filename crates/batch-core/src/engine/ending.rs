//! How an engine is emptied: flush, close, and the end of the last handle.

use std::time::Duration;

use super::{BlockOf, Engine, State, count};
use crate::block::Completion;
use crate::close::{Close, CloseReport};
use crate::current;
use crate::error::BatchError;
use crate::id::ItemId;
use crate::processor::BatchProcessor;
use crate::stats::DispatchReason;
use crate::sync::{Arc, MutexGuard, deadline, is_over, lock};

impl<P: BatchProcessor> Engine<P> {
    /// Seals what is open; returns the blocks of all items accepted so far that are not final.
    pub(crate) fn flush(&self) -> Vec<Arc<dyn Completion>> {
        let mut state = lock(&self.state);
        state.queue.seal_all(DispatchReason::Flush);
        let in_flight = state.in_flight.values().map(|entry| &entry.block);
        let blocks = in_flight.chain(state.queue.blocks());
        let blocks =
            blocks.map(|block| -> Arc<dyn Completion> { BlockOf::<P>::clone(block) }).collect();
        drop(state);
        self.work.notify_all();
        self.go_on();
        blocks
    }

    pub(crate) fn close(&self, mode: Close, timeout: Duration) -> CloseReport<P::Item> {
        let until = deadline(timeout);
        let mut state = lock(&self.state);
        state.closed = true;
        self.room.notify_all();
        let mut leftovers = Vec::new();
        match mode {
            Close::Abort => {
                leftovers = self.hand_back(state);
                state = lock(&self.state);
            }
            Close::Drain => state.queue.seal_all(DispatchReason::Close),
        }
        self.work.notify_all();
        let may_wait = !current::is_running(self.link.id);
        while may_wait && !state.is_idle() && !is_over(until) {
            state = self.wait_for_change(state, &self.idle, until);
        }
        state.stopping = true;
        let running: Vec<_> =
            state.in_flight.values().filter_map(|entry| entry.batch.upgrade()).collect();
        leftovers.extend(self.hand_back(state));
        let in_flight = running.iter().flat_map(|batch| batch.undelivered_ids()).collect();
        CloseReport { leftovers, in_flight, stats: self.stats() }
    }

    /// Takes out everything that waits, counts it, and tells its tickets.
    fn hand_back(&self, mut state: MutexGuard<'_, State<P>>) -> Vec<(ItemId, P::Item)> {
        let drained = state.queue.drain();
        let items = drained.iter().map(|open| open.items.len()).sum();
        state.stats.handed_back += count(items);
        drop(state);
        // The workers may end now, and another close may have waited for this.
        self.work.notify_all();
        self.idle.notify_all();
        let mut leftovers = Vec::with_capacity(items);
        for open in drained {
            open.block.publish((0..open.items.len()).map(|i| (i, Err(BatchError::Closed))));
            leftovers.extend(open.ids.into_iter().zip(open.items));
        }
        leftovers
    }

    /// Lets the workers finish what was accepted and end. Never blocks.
    pub(crate) fn stop(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.stopping = true;
        state.queue.seal_all(DispatchReason::Close);
        if self.settings.is_inline() && state.queue.len() > 0 {
            // No worker holds it; those who wait for what is left will run it.
            state.kept = self.itself.upgrade();
        }
        drop(state);
        self.room.notify_all();
        self.work.notify_all();
    }
}
