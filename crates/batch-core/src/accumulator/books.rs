//! What became of every item, and the room that is taken.

use std::collections::VecDeque;
use std::time::Duration;

use super::entry::End;
use super::policy::{Policy, Time};
use crate::stats::{DispatchReason, PastBatch, Stats};

/// The counters, the bound and the past batches.
#[derive(Debug)]
pub(super) struct Books<K> {
    /// Fulfils the law of [`Stats`] between any two calls of the accumulator.
    pub(super) stats: Stats,
    /// Items that room is reserved for.
    reserved: usize,
    /// Weight of all items accepted and not final, or reserved for. Exact: even the heaviest
    /// items do not overflow it.
    weight: u128,
    /// The past batches, the oldest first.
    pub(super) history: VecDeque<PastBatch<K>>,
    /// How many past batches are remembered.
    keep: usize,
}

impl<K> Books<K> {
    pub(super) fn new(keep: usize) -> Self {
        Self { stats: Stats::default(), reserved: 0, weight: 0, history: VecDeque::new(), keep }
    }

    /// Returns how many items take room.
    #[inline]
    pub(super) fn items(&self) -> u64 {
        self.stats.queued + self.stats.in_flight + count(self.reserved)
    }

    /// Returns the weight that the bound leaves room for.
    pub(super) fn weight_left(&self, policy: &Policy) -> u64 {
        let left = u128::from(policy.capacity_weight).saturating_sub(self.weight);
        u64::try_from(left).unwrap_or(u64::MAX)
    }

    /// Says whether the bound leaves room for one more item.
    #[inline]
    pub(super) fn has_room(&self, weight: u64, policy: &Policy) -> bool {
        self.items() < count(policy.capacity_items)
            && self.weight + u128::from(weight) <= u128::from(policy.capacity_weight)
    }

    pub(super) fn reserve(&mut self, weight: u64) {
        self.reserved += 1;
        self.weight += u128::from(weight);
    }

    pub(super) fn release(&mut self, weight: u64) {
        self.reserved -= 1;
        self.weight -= u128::from(weight);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.stats.queued == 0 && self.reserved == 0
    }

    /// Counts items that were accepted, of so much weight together.
    #[inline]
    pub(super) fn accept(&mut self, items: usize, weight: u64) {
        self.stats.accepted += count(items);
        self.stats.queued += count(items);
        self.weight += u128::from(weight);
    }

    /// Counts a call with so many items.
    pub(super) fn send(&mut self, items: usize, reason: DispatchReason) {
        self.stats.calls += 1;
        self.stats.retries += u64::from(reason == DispatchReason::Retry);
        self.stats.splits += u64::from(reason == DispatchReason::Split);
        self.stats.queued -= count(items);
        self.stats.in_flight += count(items);
    }

    /// Counts items that go from the processor back to the waiting ones.
    pub(super) fn put_back(&mut self, items: usize) {
        self.stats.in_flight -= count(items);
        self.stats.queued += count(items);
    }

    /// Frees the room of a waiting item that is final; the caller counts its end.
    pub(super) fn leave_queue(&mut self, weight: u64) {
        self.stats.queued -= 1;
        self.weight -= u128::from(weight);
    }

    /// Counts an item of a batch in flight that is final, and frees its room.
    pub(super) fn end(&mut self, weight: u64, end: End) {
        self.stats.in_flight -= 1;
        self.weight -= u128::from(weight);
        match end {
            End::Completed => self.stats.completed += 1,
            End::Failed => self.stats.failed += 1,
            End::TimedOut => self.stats.expired += 1,
            End::Cancelled => self.stats.cancelled += 1,
        }
    }

    /// Counts the items of a batch in flight, of so much weight together, as completed.
    pub(super) fn complete(&mut self, items: usize, weight: u64) {
        self.stats.in_flight -= count(items);
        self.stats.completed += count(items);
        self.weight -= u128::from(weight);
    }

    /// Remembers a batch, in place of the oldest if there are enough.
    pub(super) fn remember(&mut self, past: impl FnOnce() -> PastBatch<K>) {
        if self.keep == 0 {
            return;
        }
        if self.history.len() >= self.keep {
            self.history.pop_front();
        }
        self.history.push_back(past());
    }
}

/// Counts the items of one batch by their ends.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub(super) completed: usize,
    pub(super) failed: usize,
    pub(super) timed_out: usize,
    pub(super) cancelled: usize,
}

impl Ends {
    pub(super) fn count(&mut self, end: End) {
        match end {
            End::Completed => self.completed += 1,
            End::Failed => self.failed += 1,
            End::TimedOut => self.timed_out += 1,
            End::Cancelled => self.cancelled += 1,
        }
    }
}

/// Returns the time between two moments.
pub(super) fn between(from: Time, to: Time) -> Duration {
    Duration::from_nanos(to.saturating_sub(from))
}

pub(super) fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
