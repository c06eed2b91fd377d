//! What an accumulator tells of itself.

use super::policy::Time;
use super::run::Slot;
use super::{Accumulator, Packed};
use crate::stats::{PastBatch, Stats};

impl<K: Ord + Clone, I, S: Slot> Accumulator<K, I, S> {
    /// Says whether the bound leaves room for one more item of this weight.
    pub(crate) fn has_room(&self, weight: u64) -> bool {
        self.books.has_room(weight, &self.policy)
    }

    /// Returns the latest time that was told.
    pub(crate) fn time(&self) -> Time {
        self.now
    }

    /// Says whether a batch may go, as far as time was told.
    pub(crate) fn has_ready(&self) -> bool {
        self.next_lane().is_some()
    }

    /// Lends what is known of the items of the batch that goes next.
    pub(crate) fn upcoming(&self) -> Option<&Packed<S>> {
        Some(&self.lanes.get(self.next_lane()?)?.peek(self.now)?.known)
    }

    /// Returns when time does something next.
    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Says whether nothing waits, for the first time or again, or has room reserved.
    pub(crate) fn is_drained(&self) -> bool {
        self.books.is_idle()
    }

    /// Says whether items are admitted no more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed || self.halted.is_some()
    }

    /// Says whether nothing waits, is in flight or has room reserved.
    pub(crate) fn is_idle(&self) -> bool {
        self.flights.is_empty() && self.books.is_idle()
    }

    pub(crate) fn stats(&self) -> &Stats {
        &self.books.stats
    }

    /// Returns when the oldest of the waiting items was accepted; looks at every key.
    pub(crate) fn oldest(&self) -> Option<Time> {
        self.lanes.iter().filter_map(|(_, lane)| lane.oldest()).min()
    }

    /// Returns when a batch was sent last; 0 if none was.
    pub(crate) fn last_dispatch(&self) -> Time {
        self.last_dispatch
    }

    /// Lends the past batches, the oldest first.
    pub(crate) fn history(&self) -> impl ExactSizeIterator<Item = &PastBatch<K>> {
        self.books.history.iter()
    }
}
