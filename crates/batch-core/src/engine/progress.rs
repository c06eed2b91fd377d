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
        let kept = if state.queue.len() == 0 { state.kept.take() } else { None };
        drop(state);
        drop(kept);
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
        entry.rounds += 1;
        entry.past.completed += settled.completed;
        entry.past.failed += settled.failed;
        let mut forgotten = None;
        if entry.open == 0 && self.settings.history > 0 {
            entry.past.in_flight = now.saturating_duration_since(entry.sent);
            let past = entry.past.clone();
            if state.history.len() == self.settings.history {
                forgotten = state.history.pop_front();
            }
            state.history.push_back(past);
        }
        drop(guard);
        drop(forgotten);
        self.room.notify_all();
    }

    fn delivered(&self, id: BatchId) {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        let entry = state.in_flight.get_mut(&id).expect("a batch is listed until it is delivered");
        entry.rounds -= 1;
        if entry.open > 0 || entry.rounds > 0 {
            return;
        }
        // Only now: who sees a later batch of the key done, or the batcher idle, sees this one done.
        let entry = state.in_flight.remove(&id).expect("the entry was just there");
        if self.settings.order == Order::Fifo {
            state.queue.unmute(&entry.past.key);
        }
        let (is_idle, is_ready) = (state.is_idle(), state.queue.has_ready(Instant::now()));
        let has_linger = state.queue.next_linger_end().is_some();
        let is_over = state.stopping && state.queue.len() == 0;
        drop(guard);
        drop(entry);
        if is_idle {
            self.idle.notify_all();
        }
        if is_over {
            self.work.notify_all();
        } else if is_ready || has_linger {
            self.work.notify_one();
        }
        self.go_on();
    }
}

impl<P: BatchProcessor> Engine<P> {
    /// Sees to it that an inline engine runs what is ready.
    pub(super) fn go_on(&self) {
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use super::*;
    use crate::close::Close;
    use crate::{Batch, Batcher, keyed_fn};

    /// Between its books and its tickets a batch was in no list: a flush or close that came just
    /// then ended before the results were out, and the next batch of the key overtook this one.
    #[test]
    fn a_batch_is_in_flight_until_its_results_are_delivered() {
        let kept = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let store = std::sync::Arc::clone(&kept);
        let keep = move |(): &(), batch: Batch<u8, u8, Infallible>| {
            store.lock().unwrap().push(batch);
        };
        let batcher = Batcher::builder(keyed_fn(|_| (), keep)).inline().build().unwrap();
        let engine = batcher.engine();
        let first = batcher.submit(1).unwrap();
        let _second = batcher.submit(2).unwrap();
        let batch = kept.lock().unwrap().remove(0);
        engine.settle(batch.id(), Settled { completed: 1, failed: 0 });
        assert_eq!((batcher.stats().completed, batcher.history().len()), (1, 1));
        assert_eq!(engine.flush().len(), 2);
        assert!(kept.lock().unwrap().is_empty(), "the second has overtaken the first");
        assert!(!lock(&engine.state).is_idle());
        engine.delivered(batch.id());
        assert_eq!(engine.flush().len(), 1);
        assert_eq!(kept.lock().unwrap().len(), 1);
        drop(first);
        std::mem::forget(batch);
        kept.lock().unwrap().clear();
        assert!(batcher.close(Close::Drain, Duration::MAX).in_flight.is_empty());
    }
}
