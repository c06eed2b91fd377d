//! What becomes of items: results, time-outs, cancelled and expired ones.

use super::{Engine, OutcomeOf, PlaceOf, SeatOf};
use crate::accumulator::{Buffers, Finished, LaneId, Packed, Parted, Time};
use crate::clock::duration;
use crate::current::Running;
use crate::error::BatchError;
use crate::id::{BatchId, ItemId};
use crate::observer::{Event, Unsent};
use crate::panics;
use crate::processor::{BatchProcessor, Disposition};
use crate::rounds::{Ledger, Returned, ended, fail};
use crate::seat::end_of;
use crate::slot::Round;
use crate::sync::Arc;

impl<P: BatchProcessor> Ledger<P::Item, P::Output, P::Error> for Engine<P> {
    fn classify(&self, error: &P::Error) -> Disposition {
        self.processor.classify(error)
    }

    fn halt(&self, item: ItemId, error: &Arc<P::Error>) {
        let mut state = self.lock();
        if state.fatal.is_some() {
            return;
        }
        state.fatal = Some(Arc::clone(error));
        state.queue.halt(item);
        self.leave_back(state);
    }

    fn has_journal(&self) -> bool {
        self.hooks.journal.is_some()
    }

    fn is_observed(&self) -> bool {
        Engine::is_observed(self)
    }

    fn complete(&self, batch: BatchId, known: Option<&Packed<SeatOf<P>>>) {
        let now = self.steady_now();
        self.lock().queue.complete(now, batch);
        if let Some(known) = known {
            self.report_completed(batch, known);
        }
    }

    fn settle(&self, batch: BatchId, round: &[PlaceOf<P>]) {
        // Acknowledged before anybody sees a result, so that no result that was seen comes again.
        if self.receipts.is_some() {
            let is_stopping = self.lock().stopping;
            self.acknowledge(ended(round, is_stopping).collect());
        }
        let ends = round.iter().map(|entry| (entry.mark, end_of(entry)));
        let now = self.steady_now();
        self.lock().queue.settle(now, batch, ends);
        self.report_settled(batch, round);
    }

    fn delivered(&self, batch: BatchId, items: usize) {
        let mut state = self.lock();
        // Another thread may have delivered the last round since, and so ended the batch.
        if state.is_in_flight(batch) {
            state.queue.delivered(batch, items);
        }
    }

    fn late(&self) {
        self.lock().queue.note_late();
    }

    fn rearm(&self, batch: BatchId, deadline: Time) {
        let mut state = self.lock();
        // Its processor may have ended it since.
        if state.is_in_flight(batch) {
            state.queue.rearm(batch, deadline);
        }
    }

    fn finish(&self, batch: BatchId, again: Returned<P::Item, P::Output, P::Error>) -> bool {
        let wishes = self.wishes(&again);
        let (mut denied, mut goes_on, mut took) = self.put_back(batch, again);
        self.report_again(batch, wishes, &denied);
        if !denied.is_empty() {
            self.end_denied(batch, std::mem::take(&mut denied));
            // Only now that their callers know may the next batch of the key go.
            (_, goes_on, took) = self.put_back(batch, Vec::new());
        }
        self.observe(|| Event::Finished { batch, took: duration(took) });
        goes_on
    }

    fn go_on(&self) {
        Engine::go_on(self);
    }

    fn drop_timed_out(&self, id: ItemId, item: P::Item) {
        self.drop_item(id, item, BatchError::TimedOut);
    }

    fn recycle(&self, buffers: Buffers<P::Item, SeatOf<P>>) {
        // Concerns nobody, whatever else is going on.
        self.core.lock().queue.recycle(buffers);
    }
}

impl<P: BatchProcessor> Engine<P> {
    /// Tells the journal that items came to their end, and of those that it did not take before.
    pub(super) fn acknowledge(&self, ended: Vec<ItemId>) {
        let Some(receipts) = &self.receipts else { return };
        if let Err(error) = receipts.acknowledge(ended) {
            self.observe(|| Event::JournalFailed { error: &error });
        }
    }

    /// Hands out an item that ended without a result, or drops it.
    fn drop_item(&self, id: ItemId, item: P::Item, reason: BatchError<P::Error>) {
        // This thread may be the one that would have to end what is waited for in there.
        let _heir = Running::enter(self.id(), None);
        panics::swallow(|| match &self.hooks.on_dropped {
            Some(on_dropped) => on_dropped(id, item, reason),
            None => drop(item),
        });
    }

    /// Ends items whose time was over while they waited.
    pub(super) fn end_expired(&self, expired: Vec<(P::Item, PlaceOf<P>)>) {
        self.acknowledge(expired.iter().map(|(_, entry)| entry.id).collect());
        let mut round = Round::new();
        let mut dropped = Vec::with_capacity(expired.len());
        for (item, entry) in expired {
            // An item that was sent before and waited to be tried again.
            let reason =
                || if entry.attempt > 1 { BatchError::TimedOut } else { BatchError::Expired };
            dropped.push((entry.id, item, reason()));
            if let Some(filler) = entry.slot.into_filler() {
                round.fill(filler, Err(reason()));
            }
        }
        round.finish();
        self.report_unsent(Unsent::Expired, dropped.iter().map(|(id, ..)| *id));
        for (id, item, reason) in dropped {
            self.drop_item(id, item, reason);
        }
    }

    /// Ends a batch in the books; returns the items that may not be tried again, whether an inline
    /// engine has work that nobody does, and how long the batch took.
    fn put_back(
        &self,
        batch: BatchId,
        again: Returned<P::Item, P::Output, P::Error>,
    ) -> (Parted<P::Item, SeatOf<P>>, bool, Time) {
        let now = self.steady_now();
        let mut state = self.lock();
        match state.queue.finish(now, batch, again) {
            Finished::Denied(denied) => (denied, false, 0),
            Finished::Over { took } => {
                if let Ok(place) = state.in_flight.binary_search_by_key(&batch, |(id, _)| *id) {
                    state.in_flight.remove(place);
                }
                let goes_on = self.needs_leader(&state);
                self.give_up_if_ended(state);
                (Vec::new(), goes_on, took)
            }
        }
    }

    /// Ends items that may not be tried again with the error of their last attempt.
    fn end_denied(&self, batch: BatchId, denied: Vec<(P::Item, PlaceOf<P>)>) {
        let (items, entries): (Vec<_>, Vec<_>) = denied.into_iter().unzip();
        self.acknowledge(entries.iter().map(|entry| entry.id).collect());
        self.report_settled(batch, &entries);
        fail(entries.into_iter());
        panics::drop_each(items.into_iter());
    }

    /// Withdraws an item that waits, and gives it back.
    pub(crate) fn cancel(&self, id: ItemId, lane: Option<LaneId>) -> Option<P::Item> {
        let now = self.now();
        let (item, entry) = self.lock().queue.cancel(now, id, lane)?;
        self.acknowledge(vec![id]);
        self.report_unsent(Unsent::Cancelled, std::iter::once(id));
        resolve::<P>(entry, BatchError::Cancelled);
        // It may have held back others of its key.
        self.go_on();
        Some(item)
    }
}

/// Delivers an error to an item that was never sent.
fn resolve<P: BatchProcessor>(entry: PlaceOf<P>, error: BatchError<P::Error>) {
    let outcome: OutcomeOf<P> = Err(error);
    if let Some(filler) = entry.slot.into_filler() {
        let mut round = Round::new();
        round.fill(filler, outcome);
        round.finish();
    }
}
