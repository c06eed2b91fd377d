//! How an inline engine goes on: by the threads that submit to it and wait for it.

use super::{Engine, SeatOf, State, Transaction};
use crate::accumulator::LaneId;
use crate::id::ItemId;
use crate::link::Hub;
use crate::panics;
use crate::processor::BatchProcessor;
use crate::seat::{Seat, Seats};

impl<P: BatchProcessor> Hub for Engine<P> {
    fn lead(&self) {
        self.lead_now();
    }

    fn withdraw(&self, id: ItemId, lane: LaneId) -> bool {
        let Some(item) = self.cancel(id, Some(lane)) else { return false };
        // Dropping the item is user code.
        panics::swallow(|| drop(item));
        true
    }
}

impl<P: BatchProcessor> Engine<P> {
    /// Runs batches on this thread, until none is ready or another thread does.
    pub(super) fn lead_now(&self) {
        self.lead_with(self.lock());
    }

    /// Says whether an inline engine has work that nobody does.
    pub(super) fn needs_leader(&self, state: &State<P>) -> bool {
        self.settings.is_inline() && !state.leading && state.queue.has_ready()
    }

    /// Ends a transaction, and runs batches as [`lead_now`](Self::lead_now) does.
    pub(super) fn lead_with<'e>(&'e self, mut state: Transaction<'e, P>) {
        if !self.needs_leader(&state) {
            return;
        }
        state.leading = true;
        self.lead_on(state);
    }

    /// Goes on to run batches, as the one who does.
    pub(super) fn lead_on<'e>(&'e self, mut state: Transaction<'e, P>) {
        state.widen();
        while let Some(job) = self.next_job(&mut state) {
            drop(state);
            self.run(job);
            state = self.lock();
            // Somebody who waits for the next batch runs it; this caller has its own work to do.
            if state.hand_over() {
                break;
            }
        }
        state.leading = false;
    }

    /// Sees to it that an inline engine runs what is ready.
    pub(super) fn go_on(&self) {
        if self.settings.is_inline() {
            let state = self.lock();
            if self.needs_leader(&state) && !state.hand_over() {
                self.lead_with(state);
            }
        }
    }
}

impl<P: BatchProcessor> State<P> {
    /// Asks a thread that waits for the next batch to run it; false if there is none.
    pub(super) fn hand_over(&self) -> bool {
        let Some(known) = self.queue.upcoming() else { return false };
        let is_handed = |seat: &SeatOf<P>| match seat {
            Seat::Open { filler, .. } => filler.hand_lead(),
            _ => false,
        };
        known.entries().iter().any(|entry| is_handed(&entry.slot))
            || known.rows().any(Seats::hand_lead)
    }
}
