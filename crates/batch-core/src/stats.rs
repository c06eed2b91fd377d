//! Counters and records of what a batcher did.

use std::time::Duration;

use crate::id::BatchId;

/// Counts what became of every accepted item, as one consistent snapshot.
///
/// At every snapshot
/// `accepted = completed + failed + cancelled + expired + handed_back + queued + in_flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Items that were ever accepted.
    pub accepted: u64,
    /// Items that the processor resolved with an output.
    pub completed: u64,
    /// Items that ended in an error, those left unresolved included.
    pub failed: u64,
    /// Items that were cancelled before they had a result.
    pub cancelled: u64,
    /// Items whose delivery time-out ended first, waiting or in flight.
    pub expired: u64,
    /// Items that `close` gave back.
    pub handed_back: u64,
    /// Items that wait to be sent, for the first time or again.
    pub queued: u64,
    /// Items that were given to the processor and are not final yet.
    pub in_flight: u64,
    /// Batches that were given to the processor: one call each.
    pub calls: u64,
    /// Those of the calls that sent items again for a [`Retry`](crate::Disposition::Retry).
    pub retries: u64,
    /// Those of the calls that sent half of a [`Split`](crate::Disposition::Split).
    pub splits: u64,
    /// Results that came after their item had ended otherwise, and were dropped.
    pub late: u64,
    /// Submits that were refused; their items are not accepted ones.
    pub refused: u64,
}

impl Stats {
    /// Returns the calls that batching saved: completed items less the calls made, retries and
    /// splits included.
    ///
    /// It is negative where calls failed, or carried a single item and failed.
    pub fn calls_saved(&self) -> i64 {
        signed(self.completed) - signed(self.calls)
    }

    /// Returns the number of items per call so far, `None` before the first call.
    #[expect(clippy::cast_precision_loss, reason = "a mean of counts is no exact figure")]
    pub fn items_per_call(&self) -> Option<f64> {
        let sent = self.completed + self.failed + self.in_flight;
        (self.calls > 0).then(|| sent as f64 / self.calls as f64)
    }
}

/// The number of counters in [`Stats`] but those that change with each accepted item.
pub(crate) const COUNTERS: usize = 11;

impl Stats {
    /// Returns all counters but `accepted` and `queued`.
    pub(crate) fn to_array(self) -> [u64; COUNTERS] {
        let Self { completed, failed, cancelled, expired, handed_back, in_flight, .. } = self;
        let Self { calls, retries, splits, late, refused, .. } = self;
        [
            completed,
            failed,
            cancelled,
            expired,
            handed_back,
            in_flight,
            calls,
            retries,
            splits,
            late,
            refused,
        ]
    }

    /// Returns the counters that [`to_array`](Self::to_array) was called on when so many items were
    /// accepted: those that are in none of the other states are queued.
    pub(crate) fn from_array(accepted: u64, values: [u64; COUNTERS]) -> Self {
        let [completed, failed, cancelled, expired, handed_back, in_flight, ..] = values;
        let [.., calls, retries, splits, late, refused] = values;
        let known = completed + failed + cancelled + expired + handed_back + in_flight;
        let queued = accepted - known;
        Self {
            accepted,
            completed,
            failed,
            cancelled,
            expired,
            handed_back,
            queued,
            in_flight,
            calls,
            retries,
            splits,
            late,
            refused,
        }
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Says why a batch was sent when it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DispatchReason {
    /// Another item would not have fitted.
    Full,
    /// The processor was idle.
    Natural,
    /// The oldest item had waited for the linger time.
    Linger,
    /// A flush asked for it.
    Flush,
    /// The batcher was being closed.
    Close,
    /// Items of a batch were to be sent again, and their delay was over.
    Retry,
    /// Half of the items that a batch could not be processed with.
    Split,
}

impl DispatchReason {
    /// Returns the reason as one lowercase word, as observers name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Natural => "natural",
            Self::Linger => "linger",
            Self::Flush => "flush",
            Self::Close => "close",
            Self::Retry => "retry",
            Self::Split => "split",
        }
    }
}

/// Records one batch whose items are all final, or were put back to be sent in another.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PastBatch<K> {
    /// The id of the batch.
    pub id: BatchId,
    /// Its partition key.
    pub key: K,
    /// The number of its items.
    pub items: usize,
    /// Those that were resolved with an output.
    pub completed: usize,
    /// Those that ended in an error.
    pub failed: usize,
    /// Those whose delivery time-out ended first.
    pub expired: usize,
    /// Those that the processor gave back.
    pub cancelled: usize,
    /// Those that were put back, to be retried or split.
    pub again: usize,
    /// Why it was sent when it was.
    pub reason: DispatchReason,
    /// From its first item, or from when its items were put back, to its dispatch.
    pub queued: Duration,
    /// From its dispatch to its last result.
    pub in_flight: Duration,
}
