//! How an engine is emptied: flush, close, and the end of the last handle.

use std::time::Duration;

use super::{BlockOf, Engine, count};
use crate::batch::Ledger;
use crate::block::Completion;
use crate::close::{Close, CloseReport};
use crate::current;
use crate::error::BatchError;
use crate::processor::BatchProcessor;
use crate::stats::DispatchReason;
use crate::sync::{Arc, deadline, is_over, lock};

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
        let mut drained = Vec::new();
        match mode {
            Close::Abort => drained = state.queue.drain(),
            Close::Drain => state.queue.seal_all(DispatchReason::Close),
        }
        self.room.notify_all();
        self.work.notify_all();
        let may_wait = !current::is_running(self.link.id);
        while may_wait && !state.is_idle() && !is_over(until) {
            state = self.wait_for_change(state, &self.idle, until);
        }
        drained.extend(state.queue.drain());
        let handed_back: usize = drained.iter().map(|open| open.items.len()).sum();
        state.stats.handed_back += count(handed_back);
        state.stopping = true;
        let running: Vec<_> =
            state.in_flight.values().filter_map(|entry| entry.batch.upgrade()).collect();
        drop(state);
        self.work.notify_all();

        let in_flight = running.iter().flat_map(|batch| batch.open_ids()).collect();
        let mut leftovers = Vec::with_capacity(handed_back);
        for open in drained {
            open.block.publish((0..open.items.len()).map(|i| (i, Err(BatchError::Closed))));
            leftovers.extend(open.ids.into_iter().zip(open.items));
        }
        CloseReport { leftovers, in_flight, stats: self.stats() }
    }

    /// Lets the workers finish what was accepted and end. Never blocks.
    pub(crate) fn stop(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.stopping = true;
        state.queue.seal_all(DispatchReason::Close);
        drop(state);
        self.room.notify_all();
        self.work.notify_all();
    }
}
