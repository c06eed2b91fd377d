//! How an engine goes on: the callers that run its batches, and the books of what is final.

use std::time::Instant;

use super::{Engine, count};
use crate::batch::{Ledger, Settled};
use crate::block::Lead;
use crate::id::BatchId;
use crate::processor::BatchProcessor;
use crate::queue::Order;
use crate::sync::lock;

impl<P: BatchProcessor> Lead for Engine<P> {
    fn lead(&self) {
        let mut state = lock(&self.state);
        if state.leading {
            return;
        }
        state.leading = true;
        while let Some((key, batch)) = self.next(&mut state) {
            drop(state);
            self.run(&key, batch);
            drop(key);
            state = lock(&self.state);
            // Somebody who waits for the next batch runs it; this caller has its own work to do.
            if state.queue.head_block().is_some_and(|block| block.request_lead()) {
                break;
            }
        }
        state.leading = false;
    }
}

impl<P: BatchProcessor> Ledger for Engine<P> {
    fn settle(&self, id: BatchId, settled: Settled) {
        let now = Instant::now();
        let finals = settled.completed + settled.failed;
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        state.stats.completed += count(settled.completed);
        state.stats.failed += count(settled.failed);
        state.stats.in_flight -= count(finals);
        let entry = state.in_flight.get_mut(&id).expect("a batch is listed until it is final");
        entry.open -= finals;
        entry.past.completed += settled.completed;
        entry.past.failed += settled.failed;
        let mut forgotten = None;
        if entry.open == 0 {
            let mut entry = state.in_flight.remove(&id).expect("the entry was just there");
            if self.settings.order == Order::Fifo {
                state.queue.unmute(&entry.past.key);
            }
            entry.past.in_flight = now.saturating_duration_since(entry.sent);
            state.history.push_back(entry.past);
            if state.history.len() > self.settings.history {
                forgotten = state.history.pop_front();
            }
        }
        let (is_idle, is_ready) = (state.is_idle(), state.queue.has_ready(now));
        let has_linger = state.queue.next_linger_end().is_some();
        let is_over = state.stopping && state.queue.len() == 0;
        drop(guard);
        drop(forgotten);
        self.room.notify_all();
        if is_idle {
            self.idle.notify_all();
        }
        if is_over {
            self.work.notify_all();
        } else if is_ready || has_linger {
            self.work.notify_one();
        }
    }

    fn go_on(&self) {
        if !self.settings.is_inline() {
            return;
        }
        let mut state = lock(&self.state);
        if state.leading || !state.queue.has_ready(Instant::now()) {
            return;
        }
        if !state.queue.head_block().is_some_and(|block| block.request_lead()) {
            drop(state);
            self.lead();
        }
    }
}
