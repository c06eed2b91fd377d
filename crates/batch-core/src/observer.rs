//! The hook that sees what a batcher does.

use std::time::Duration;

use crate::error::Refusal;
use crate::id::{BatchId, ItemId};
use crate::journal::JournalError;
use crate::stats::DispatchReason;
use crate::sync::Arc;

/// Sees what a batcher does, as it does it.
///
/// It is called on the thread that did it, outside all locks; a panic in it is caught. What it does
/// costs the time of that thread, so it should count and return. Threads run beside each other, so
/// that events of different threads can come in any order: an item can be settled before the one
/// who submitted it has told that it was admitted.
///
/// In an event its batcher is as it is inside the processor: what would have to wait is refused, as
/// the thread may be the one that is waited for, and a close hands back what waits at once.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use batch_core::{Batcher, Event, Observer, batch_fn};
///
/// /// Counts calls.
/// #[derive(Default)]
/// struct Calls(AtomicUsize);
///
/// impl<K> Observer<K> for Calls {
///     fn event(&self, event: &Event<'_, K>) {
///         if let Event::Dispatched(_) = event {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// let calls = Arc::new(Calls::default());
/// let double = batch_fn(|items: &[u32]| items.iter().map(|n| Ok::<_, String>(n * 2)).collect());
/// let batcher = Batcher::builder(double).observer(Arc::clone(&calls)).build()?;
/// assert_eq!(batcher.submit(21)?.wait()?, 42);
/// assert_eq!(calls.0.load(Ordering::Relaxed), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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

macro_rules! forward {
    ($pointer:ident) => {
        impl<K, O: Observer<K> + ?Sized> Observer<K> for $pointer<O> {
            fn event(&self, event: &Event<'_, K>) {
                (**self).event(event);
            }

            fn around(&self, batch: &Dispatched<'_, K>, call: &mut dyn FnMut()) {
                (**self).around(batch, call);
            }
        }
    };
}

forward!(Arc);
forward!(Box);

/// Two observers; the first one is told first, and its [`around`](Observer::around) is the outer.
impl<K, A: Observer<K>, B: Observer<K>> Observer<K> for (A, B) {
    fn event(&self, event: &Event<'_, K>) {
        self.0.event(event);
        self.1.event(event);
    }

    fn around(&self, batch: &Dispatched<'_, K>, call: &mut dyn FnMut()) {
        self.0.around(batch, &mut || self.1.around(batch, call));
    }
}

/// One thing that a batcher did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a, K> {
    /// The batcher was made.
    Started {
        /// The setting [`capacity`](crate::Builder::capacity).
        capacity: usize,
    },
    /// An item was accepted. It comes on the thread that submitted it; on the one that writes the
    /// journal, if it was submitted by [`submit_async`](crate::Batcher::submit_async).
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
    Settled(&'a Settled<'a>),
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
        /// The time since it was sent.
        took: Duration,
    },
    /// Items ended while they waited.
    Unsent {
        /// The items.
        items: &'a [ItemId],
        /// To which end they came.
        end: Unsent,
    },
    /// The journal did not take an acknowledgement. It is made again with the next; the items can
    /// come back after a restart.
    JournalFailed {
        /// What the journal says.
        error: &'a JournalError,
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
    /// Its items, never none.
    pub items: &'a [ItemId],
    /// The sum of their weights.
    pub weight: u64,
    /// How often its items were sent, this time included.
    pub attempt: u32,
    /// Why it goes now.
    pub reason: DispatchReason,
    /// How long its oldest item waited for it; for items that are sent again since they were put
    /// back.
    pub queued: Duration,
}

/// Items of one batch that are final, counted by their ends.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Settled<'a> {
    /// The batch.
    pub batch: BatchId,
    /// The items.
    pub items: &'a [ItemId],
    /// Those with an output.
    pub completed: usize,
    /// Those that ended in an error, `unresolved` and `wrong_count` included.
    pub failed: usize,
    /// Those that the processor left unresolved.
    pub unresolved: usize,
    /// Those whose processor answered with another number of results.
    pub wrong_count: usize,
    /// Those that were taken back from the processor.
    pub cancelled: usize,
    /// Those whose delivery time-out ended while the processor had them.
    pub timed_out: usize,
}

impl<'a> Settled<'a> {
    /// Counts none of them yet.
    pub(crate) fn none(batch: BatchId, items: &'a [ItemId]) -> Self {
        Self {
            batch,
            items,
            completed: 0,
            failed: 0,
            unresolved: 0,
            wrong_count: 0,
            cancelled: 0,
            timed_out: 0,
        }
    }
}

/// How an item ended that waited to be sent, for the first time or again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unsent {
    /// Its delivery time-out ended.
    Expired,
    /// It was cancelled.
    Cancelled,
    /// A close gave it back.
    HandedBack,
}
