//! The settings of a batcher.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::batcher::Batcher;
use crate::processor::BatchProcessor;
use crate::queue::{Dispatch, Limits, Order};

/// Collects the settings of a [`Batcher`].
///
/// | setting | default |
/// |---|---|
/// | [`max_batch_items`](Self::max_batch_items) | 100 |
/// | [`max_batch_weight`](Self::max_batch_weight) | no limit |
/// | [`capacity`](Self::capacity) | 10,000 items queued or in flight |
/// | [`max_block`](Self::max_block) | 60 s |
/// | dispatch | [`natural`](Self::natural) |
/// | [`workers`](Self::workers) | 1 thread |
/// | order | FIFO per key |
/// | [`history`](Self::history) | 256 batches |
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder<P> {
    processor: P,
    settings: Settings,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) dispatch: Dispatch,
    pub(crate) limits: Limits,
    pub(crate) order: Order,
    pub(crate) capacity: usize,
    pub(crate) max_block: Option<Duration>,
    /// 0 means inline: the callers run the batches.
    pub(crate) workers: usize,
    pub(crate) history: usize,
}

impl Settings {
    pub(crate) fn is_inline(&self) -> bool {
        self.workers == 0
    }
}

impl<P: BatchProcessor> Builder<P> {
    pub(crate) fn new(processor: P) -> Self {
        let settings = Settings {
            dispatch: Dispatch::Natural,
            limits: Limits { max_items: 100, max_weight: u64::MAX },
            order: Order::Fifo,
            capacity: 10_000,
            max_block: Some(Duration::from_mins(1)),
            workers: 1,
            history: 256,
        };
        Self { processor, settings }
    }

    /// Sets the most items of one batch, bulk submits included; at least 1.
    pub fn max_batch_items(mut self, items: usize) -> Self {
        self.settings.limits.max_items = items;
        self
    }

    /// Sets the most weight of one batch, at least 1; an item that alone weighs more is refused.
    pub fn max_batch_weight(mut self, weight: u64) -> Self {
        self.settings.limits.max_weight = weight;
        self
    }

    /// Sets the bound on items queued and in flight, over all keys; at least 1.
    pub fn capacity(mut self, items: usize) -> Self {
        self.settings.capacity = items;
        self
    }

    /// Sets how long a submit to a full batcher waits for room; `None` waits without end.
    pub fn max_block(mut self, max: Option<Duration>) -> Self {
        self.settings.max_block = max;
        self
    }

    /// Sends a batch at once when the processor is idle; while it is busy the next batch fills.
    pub fn natural(mut self) -> Self {
        self.settings.dispatch = Dispatch::Natural;
        self
    }

    /// Sends a batch when it is full or its oldest item has waited for `linger`.
    ///
    /// The time runs from the oldest item, so later items neither reset nor inherit it. While a
    /// submit waits for room nothing lingers: no batch could take more.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.settings.dispatch = Dispatch::Linger(linger);
        self
    }

    /// Sets the number of threads that run batches, and so how many run at the same time.
    ///
    /// With 0 it is as after [`inline`](Self::inline).
    pub fn workers(mut self, threads: usize) -> Self {
        self.settings.workers = threads;
        self
    }

    /// Uses no thread: the caller that finds the batcher idle runs the batch itself, in its
    /// `submit`; items that arrive meanwhile make the next batch, run by one who waits for it.
    ///
    /// A caller serves others only while none of them waits for the batch that is next; futures do
    /// not count as waiting, so under a steady load of those it may be kept.
    pub fn inline(self) -> Self {
        self.workers(0)
    }

    /// Lets several batches of one key be in flight, and overtake each other.
    pub fn unordered(mut self) -> Self {
        self.settings.order = Order::Unordered;
        self
    }

    /// Sets how many past batches [`Batcher::history`] remembers; 0 for none.
    pub fn history(mut self, batches: usize) -> Self {
        self.settings.history = batches;
        self
    }

    /// Makes the batcher and starts its threads.
    ///
    /// # Errors
    /// `InvalidInput` for a limit of 0 and for an inline batcher that is to linger (it has no
    /// thread to wait); else what the system says when a thread cannot be started.
    pub fn build(self) -> io::Result<Batcher<P>> {
        let Settings { limits, capacity, dispatch, .. } = &self.settings;
        let fault = if limits.max_items == 0 {
            "max_batch_items is 0; a batch holds at least 1 item"
        } else if limits.max_weight == 0 {
            "max_batch_weight is 0; a batch weighs at least 1"
        } else if *capacity == 0 {
            "capacity is 0; a batcher holds at least 1 item"
        } else if self.settings.is_inline() && *dispatch != Dispatch::Natural {
            "an inline batcher has no thread to linger; use natural dispatch or a worker"
        } else {
            return Batcher::start(self.processor, self.settings);
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, fault))
    }
}

impl<P> fmt::Debug for Builder<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
