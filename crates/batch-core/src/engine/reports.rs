//! What the observer is told; nothing of it is worked out where there is none.

use std::collections::BTreeSet;

use super::{Engine, PlaceOf, SeatOf};
use crate::accumulator::{End, Packed};
use crate::current::Running;
use crate::error::{BatchError, Refusal};
use crate::id::{BatchId, ItemId};
use crate::observer::{Event, Settled, Unsent};
use crate::panics;
use crate::processor::BatchProcessor;
use crate::rounds::Returned;
use crate::seat::{Seat, end_of};

/// Which items ask to be sent again, and whether in halves.
pub(super) type Wishes = Vec<(ItemId, bool)>;

impl<P: BatchProcessor> Engine<P> {
    pub(super) fn is_observed(&self) -> bool {
        self.hooks.observer.is_some()
    }

    /// Tells the observer of what `event` makes, if there is one. The caller holds no lock.
    pub(crate) fn observe<'a>(&self, event: impl FnOnce() -> Event<'a, P::Key>)
    where
        P: 'a,
    {
        if let Some(observer) = &self.hooks.observer {
            // This thread may be the one that would have to end what is waited for in there.
            let _observer = Running::enter(self.id(), None);
            panics::swallow(|| observer.event(&event()));
        }
    }

    /// Tells of items that were accepted.
    pub(super) fn report_admitted(&self, items: impl Iterator<Item = ItemId>) {
        if self.is_observed() {
            items.for_each(|id| self.observe(|| Event::Admitted { id }));
        }
    }

    /// Tells of submits that were refused.
    pub(super) fn report_refused<'a>(&self, reasons: impl Iterator<Item = &'a Refusal>)
    where
        P: 'a,
    {
        if self.is_observed() {
            reasons.for_each(|reason| self.observe(|| Event::Refused { reason }));
        }
    }

    /// Tells of a batch whose items were all completed.
    pub(super) fn report_completed(&self, batch: BatchId, known: &Packed<SeatOf<P>>) {
        if self.is_observed() {
            let items: Vec<_> = known.ids().collect();
            let settled = Settled { completed: items.len(), ..Settled::none(batch, &items) };
            self.observe(|| Event::Settled(&settled));
        }
    }

    /// Tells of items of a batch that are final.
    pub(super) fn report_settled(&self, batch: BatchId, round: &[PlaceOf<P>]) {
        if !self.is_observed() {
            return;
        }
        let items: Vec<_> = round.iter().map(|entry| entry.id).collect();
        let mut settled = Settled::none(batch, &items);
        for entry in round {
            match end_of(entry) {
                End::Completed => settled.completed += 1,
                End::Failed => settled.failed += 1,
                End::TimedOut => settled.timed_out += 1,
                End::Cancelled => settled.cancelled += 1,
            }
            match &entry.slot {
                Seat::Resolved(_, Err(BatchError::Unresolved { .. })) => settled.unresolved += 1,
                Seat::Resolved(_, Err(BatchError::WrongCount { .. })) => settled.wrong_count += 1,
                _ => {}
            }
        }
        self.observe(|| Event::Settled(&settled));
    }

    /// Notes what is asked for, before the items go.
    pub(super) fn wishes(&self, again: &Returned<P::Item, P::Output, P::Error>) -> Wishes {
        if self.is_observed() {
            again.iter().map(|(_, entry, why)| (entry.id, why.is_split())).collect()
        } else {
            Vec::new()
        }
    }

    /// Tells of items that are sent again, which those are that were not denied it.
    pub(super) fn report_again(
        &self,
        batch: BatchId,
        mut wishes: Wishes,
        denied: &[(P::Item, PlaceOf<P>)],
    ) {
        if wishes.is_empty() {
            return;
        }
        let denied: BTreeSet<_> = denied.iter().map(|(_, entry)| entry.id).collect();
        wishes.retain(|(id, _)| !denied.contains(id));
        if !wishes.is_empty() {
            let split = wishes.iter().filter(|(_, is_split)| *is_split).count();
            self.observe(|| Event::Again { batch, retried: wishes.len() - split, split });
        }
    }

    /// Tells of items that ended while they waited.
    pub(super) fn report_unsent(&self, end: Unsent, items: impl Iterator<Item = ItemId>) {
        if self.is_observed() {
            let items: Vec<_> = items.collect();
            self.observe(|| Event::Unsent { items: &items, end });
        }
    }
}
