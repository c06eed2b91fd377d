//! The hook that sees what a batcher does.

use std::fmt::Debug;
use std::time::Duration;

use crate::error::Refusal;
use crate::id::{BatchId, ItemId};
use crate::stats::DispatchReason;

/// Sees what a batcher does, as it does it.
///
/// It is called on the thread that did it, outside all locks; a panic in it is caught. What it does
/// costs the time of that thread, so it should count and return.
pub trait Observer<K>: Send + Sync + 'static {
    /// Takes note of one event.
    fn event(&self, event: &Event<'_, K>);

    /// Runs the call to the processor, for instance inside a span of its own.
    ///
    /// `call` is to be called once, on this thread; if it is not, the batch is processed after
    /// this returned.
    fn around(&self, _batch: &Dispatched<'_, K>, call: &mut dyn FnMut()) {
        call();
    }
}

/// One thing that a batcher did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a, K> {
    /// An item was accepted.
    Admitted {
        /// The item.
        id: ItemId,
    },
    /// A submit was refused.
    Refused {
        /// Why.
        reason: &'a Refusal,
    },
    /// A batch goes to the processor.
    Dispatched(&'a Dispatched<'a, K>),
    /// Items of a batch are final; a batch can settle in several rounds.
    Settled {
        /// The batch.
        batch: BatchId,
        /// Items with an output.
        completed: usize,
        /// Items that ended in an error.
        failed: usize,
        /// Items whose time was over while the processor had them.
        timed_out: usize,
    },
    /// Items of a batch wait to be sent again.
    Again {
        /// The batch.
        batch: BatchId,
        /// Items that are retried after a delay.
        retried: usize,
        /// Items that are sent again in halves.
        split: usize,
    },
    /// Nothing more comes of a batch.
    Finished {
        /// The batch.
        batch: BatchId,
    },
    /// Items ended before they were sent.
    Unsent {
        /// Items whose time was over.
        expired: usize,
        /// Items that were cancelled.
        cancelled: usize,
        /// Items that a close gave back.
        handed_back: usize,
    },
    /// The journal did not take an acknowledgement; the items can come back after a restart.
    JournalFailed {
        /// What the journal says.
        error: &'a crate::journal::JournalError,
    },
}

/// A batch on its way to the processor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Dispatched<'a, K> {
    /// The batch.
    pub batch: BatchId,
    /// Its partition key.
    pub key: &'a K,
    /// Its items.
    pub items: &'a [ItemId],
    /// How often its items were sent, this time included.
    pub attempt: u32,
    /// Why it goes now.
    pub reason: DispatchReason,
    /// How long its oldest item waited for it.
    pub queued: Duration,
}

impl<K: Debug> Dispatched<'_, K> {
    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Says whether there is no item, which is never so.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}
