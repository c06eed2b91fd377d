//! The rules of an accumulator, as data.

use crate::id::ItemId;

/// Nanoseconds since the origin of the engine's clock.
pub(crate) type Time = u64;

/// The moment that never comes: an end that lies beyond what the clock can tell.
pub(crate) const NEVER: Time = Time::MAX;

/// Returns the later of two times: time never goes back, and never is [`NEVER`].
#[inline]
pub(super) fn later(known: Time, now: Time) -> Time {
    known.max(now.min(NEVER - 1))
}

/// The time at which something happens, as exact as is asked for.
pub(crate) trait Moment {
    /// Returns a time that may lie a little before the exact one.
    fn rough(&self) -> Time;
    /// Returns the time.
    fn exact(&self) -> Time;
}

impl Moment for Time {
    fn rough(&self) -> Time {
        *self
    }

    fn exact(&self) -> Time {
        *self
    }
}

impl Policy {
    /// Returns the deadline of an item that is accepted at `now`.
    #[inline]
    pub(crate) fn deadline(&self, now: Time) -> Time {
        deadline(now, self.delivery_timeout)
    }
}

/// Returns when the time of an item accepted at `now` is over.
#[inline]
pub(super) fn deadline(now: Time, timeout: Option<u64>) -> Time {
    timeout.map_or(NEVER, |timeout| now.saturating_add(timeout))
}

/// When a batch that could take more items may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dispatch {
    /// Whenever somebody polls, which an idle processor does.
    Natural,
    /// Once its oldest item has waited for so many nanoseconds.
    Linger(u64),
    /// Never by itself: only a full batch goes, and what a flush or close asks for.
    Full,
}

/// Whether batches of one key may overtake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// At most one batch of a key is in flight; one that is retried holds its key.
    Fifo,
    /// Many batches of a key are in flight.
    Unordered,
}

/// The rules of one accumulator.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) dispatch: Dispatch,
    /// The most items of a batch; at least 1.
    pub(crate) max_items: usize,
    /// The most weight of a batch.
    pub(crate) max_weight: u64,
    pub(crate) order: Order,
    /// The bound on items accepted and not final, with those that room is reserved for.
    pub(crate) capacity_items: usize,
    /// The same bound on their weight.
    pub(crate) capacity_weight: u64,
    /// The most batches in flight, over all keys.
    pub(crate) max_in_flight: usize,
    /// How long after its acceptance an item may still be sent or waited for.
    pub(crate) delivery_timeout: Option<u64>,
    pub(crate) retry: RetryPolicy,
    /// How many past batches are remembered.
    pub(crate) history: usize,
    /// Where the jitter of retries begins.
    pub(crate) seed: u64,
}

/// How often, how soon and how many calls are made again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryPolicy {
    /// The longest first delay, in nanoseconds; it doubles with each retry of the item.
    pub(crate) base: u64,
    /// The longest delay that the doubling leads to.
    pub(crate) cap: u64,
    /// How often an item is sent at most, calls after a split left aside.
    pub(crate) max_attempts: u32,
    /// Calls that may be made again while nothing succeeds; five calls with a completed item give
    /// one back.
    pub(crate) budget: u32,
}

/// Why an item cannot be accepted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The bound is reached: there may be room later.
    Full,
    /// No item is accepted any more.
    Closed,
    /// The item would fit into no batch, or never within the bound.
    TooHeavy { max: u64 },
    /// The processor ended everything over this item.
    Fatal(ItemId),
}
