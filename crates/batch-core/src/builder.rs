//! The settings of a batcher.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::accumulator::{Dispatch, Order, Policy};
use crate::batcher::Batcher;
use crate::clock::{Clock, nanos};
use crate::driver::{Driver, Tasks};
use crate::engine::Hooks;
use crate::error::BatchError;
use crate::id::ItemId;
use crate::journal::Journal;
use crate::observer::Observer;
use crate::processor::BatchProcessor;
use crate::retry::Retry;
use crate::sync::Arc;

/// Collects the settings of a [`Batcher`].
///
/// | setting | default |
/// |---|---|
/// | [`max_batch_items`](Self::max_batch_items) | 100 |
/// | [`max_batch_weight`](Self::max_batch_weight) | no limit |
/// | [`capacity`](Self::capacity) | 10,000 items queued or in flight |
/// | [`capacity_weight`](Self::capacity_weight) | no limit |
/// | [`max_block`](Self::max_block) | 60 s |
/// | dispatch | [`natural`](Self::natural) |
/// | driver | [`workers`](Self::workers): 1 thread |
/// | [`max_in_flight`](Self::max_in_flight) | no limit of its own |
/// | order | FIFO per key |
/// | [`delivery_timeout`](Self::delivery_timeout) | 120 s |
/// | [`retry`](Self::retry) | see [`Retry`] |
/// | [`history`](Self::history) | 256 batches |
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder<P: BatchProcessor> {
    processor: P,
    settings: Settings,
    hooks: Hooks<P>,
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) policy: Policy,
    pub(crate) max_block: Option<Duration>,
    pub(crate) driver: Driver,
}

impl Settings {
    pub(crate) fn is_inline(&self) -> bool {
        matches!(self.driver, Driver::Inline)
    }

    /// Says whether a thread or task of the engine's own looks after timers.
    pub(crate) fn has_keeper(&self) -> bool {
        !self.is_stepped()
    }

    pub(crate) fn is_stepped(&self) -> bool {
        matches!(self.driver, Driver::Stepped)
    }
}

impl<P: BatchProcessor> Builder<P> {
    pub(crate) fn new(processor: P) -> Self {
        let policy = Policy {
            dispatch: Dispatch::Natural,
            max_items: 100,
            max_weight: u64::MAX,
            order: Order::Fifo,
            capacity_items: 10_000,
            capacity_weight: u64::MAX,
            max_in_flight: usize::MAX,
            delivery_timeout: Some(nanos(Duration::from_mins(2))),
            retry: Retry::default().policy(),
            history: 256,
            seed: 0,
        };
        let settings = Settings {
            policy,
            max_block: Some(Duration::from_mins(1)),
            driver: Driver::Threads(1),
        };
        Self { processor, settings, hooks: Hooks::none() }
    }

    /// Sets the most items of one batch, bulk submits included; at least 1.
    ///
    /// The room for the items of four batches, as large as they became, is kept for later ones.
    pub fn max_batch_items(mut self, items: usize) -> Self {
        self.settings.policy.max_items = items;
        self
    }

    /// Sets the most weight of one batch, at least 1; an item that alone weighs more is refused.
    ///
    /// What a [resume](Batcher::resume) finds was accepted under other settings: it goes in the
    /// order in which it was, and what weighs more than this goes alone.
    pub fn max_batch_weight(mut self, weight: u64) -> Self {
        self.settings.policy.max_weight = weight;
        self
    }

    /// Sets the bound on items that are queued, in flight or waiting to be tried again, over all
    /// keys; at least 1.
    pub fn capacity(mut self, items: usize) -> Self {
        self.settings.policy.capacity_items = items;
        self
    }

    /// Sets the bound on the weight of those items; at least 1. An item that alone weighs more is
    /// refused.
    pub fn capacity_weight(mut self, weight: u64) -> Self {
        self.settings.policy.capacity_weight = weight;
        self
    }

    /// Sets how long a submit to a full batcher waits for room; `None` waits without end.
    pub fn max_block(mut self, max: Option<Duration>) -> Self {
        self.settings.max_block = max;
        self
    }

    /// Sends a batch at once when the processor is idle; while it is busy the next batch fills.
    pub fn natural(mut self) -> Self {
        self.settings.policy.dispatch = Dispatch::Natural;
        self
    }

    /// Sends a batch when it is full or its oldest item has waited for `linger`.
    ///
    /// The time runs from the oldest item, so later items neither reset nor inherit it. While a
    /// submit waits for room nothing lingers: no batch could take more.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.settings.policy.dispatch = Dispatch::Linger(nanos(linger));
        self
    }

    /// Sends only full batches; the rest goes with a flush, a close, or while a submit waits for
    /// room.
    pub fn full_only(mut self) -> Self {
        self.settings.policy.dispatch = Dispatch::Full;
        self
    }

    /// Sets the number of threads that run batches, and so how many run at the same time.
    ///
    /// With 0 it is as after [`inline`](Self::inline). One more thread, mostly asleep, is started
    /// with the first timer.
    pub fn workers(mut self, threads: usize) -> Self {
        self.settings.driver = if threads == 0 { Driver::Inline } else { Driver::Threads(threads) };
        self
    }

    /// Uses no thread: the caller that finds the batcher idle runs the batch itself, in its
    /// `submit`; items that arrive meanwhile make the next batch, run by one who waits for it.
    ///
    /// A caller serves others only while none of them waits for the batch that is next; futures do
    /// not count as waiting, so under a steady load of those it may be kept. A timer that nobody
    /// is there to look after (linger, retry, a batch that the processor keeps) starts a thread, and
    /// so does the drop of the last handle, if it leaves work behind for which nobody waits.
    ///
    /// Any call that makes a batch ready can run it, and so block for as long: besides `submit`, and
    /// the polls of its future, `flush`, `close_async` and `cancel` too. On an executor use
    /// [`tasks`](Self::tasks), or threads.
    ///
    /// To resolve or drop a batch that the processor has kept may run the next one before it
    /// returns, so no lock may be held there that `process` takes.
    pub fn inline(self) -> Self {
        self.workers(0)
    }

    /// Runs the batches in tasks of an executor.
    pub fn tasks(mut self, tasks: Tasks) -> Self {
        self.settings.driver = Driver::Tasks(Arc::new(tasks));
        self
    }

    /// Sets how many batches may be with the processor at the same time, over all keys; at least 1.
    ///
    /// It matters where the processor keeps batches and answers later.
    pub fn max_in_flight(mut self, batches: usize) -> Self {
        self.settings.policy.max_in_flight = batches;
        self
    }

    /// Lets several batches of one key be in flight, and overtake each other.
    pub fn unordered(mut self) -> Self {
        self.settings.policy.order = Order::Unordered;
        self
    }

    /// Sets how long after its acceptance an item is sent, tried again or waited for; `None` for
    /// ever.
    ///
    /// What was not sent by then ends as [`Expired`](BatchError::Expired), what was sent as
    /// [`TimedOut`](BatchError::TimedOut): its result is dropped when it comes. A time-out of a second
    /// or more may end about a tick of the system, mostly 10 ms at most, too early: a rough clock is
    /// what makes a submit cheap.
    pub fn delivery_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.settings.policy.delivery_timeout = timeout.map(nanos);
        self
    }

    /// Sets when items are tried again whose error the processor calls passing.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.settings.policy.retry = retry.policy();
        self
    }

    /// Sets where the random delays of retries begin, for runs that are to be the same.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.policy.seed = seed;
        self
    }

    /// Sets how many past batches [`Batcher::history`] remembers, each with a clone of its key; 0
    /// for none.
    pub fn history(mut self, batches: usize) -> Self {
        self.settings.policy.history = batches;
        self
    }

    /// Takes items that ended as `Expired` or `TimedOut`, with the reason; without it they are
    /// dropped.
    ///
    /// It is called under no lock, on the thread that finds the time to be over; an item that timed
    /// out comes when the processor lets go of its batch. A panic in it is caught. That thread may be
    /// the one that runs the batches, so in there it is as inside the processor: what would wait for
    /// the same batcher, or for room in it, is refused.
    pub fn on_dropped(
        mut self,
        take: impl Fn(ItemId, P::Item, BatchError<P::Error>) + Send + Sync + 'static,
    ) -> Self {
        self.hooks.on_dropped = Some(Box::new(take));
        self
    }

    /// Keeps what is accepted in a journal until it has come to its end.
    ///
    /// A submit returns once its item is in the journal, and blocks until then;
    /// [`Batcher::resume`] takes up what an earlier run left.
    pub fn journal(mut self, journal: impl Journal<P::Item>) -> Self {
        self.hooks.journal = Some(Arc::new(journal));
        self
    }

    /// Has an observer told of all that happens.
    pub fn observer(mut self, observer: impl Observer<P::Key>) -> Self {
        self.hooks.observer = Some(Arc::new(observer));
        self
    }

    /// Takes the time from `clock` in place of the system's. The patience of blocking calls always
    /// runs on the system's.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.hooks.clock = Some(Arc::new(clock));
        self
    }

    pub(crate) fn driver(mut self, driver: Driver) -> Self {
        self.settings.driver = driver;
        self
    }

    /// Makes the batcher and starts its threads or tasks.
    ///
    /// # Errors
    /// `InvalidInput` for a limit of 0; else what the system says when a thread cannot be started.
    pub fn build(self) -> io::Result<Batcher<P>> {
        let Policy {
            max_items, max_weight, capacity_items, capacity_weight, max_in_flight, ..
        } = self.settings.policy;
        let fault = if max_items == 0 {
            "max_batch_items is 0; a batch holds at least 1 item"
        } else if max_weight == 0 {
            "max_batch_weight is 0; a batch weighs at least 1"
        } else if capacity_items == 0 {
            "capacity is 0; a batcher holds at least 1 item"
        } else if capacity_weight == 0 {
            "capacity_weight is 0; a batcher holds at least a weight of 1"
        } else if max_in_flight == 0 {
            "max_in_flight is 0; at least 1 batch is in flight"
        } else {
            return Batcher::start(self.processor, self.settings, self.hooks);
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, fault))
    }
}

impl<P: BatchProcessor> fmt::Debug for Builder<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
