//! The handle through which items go in.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::builder::{Builder, Settings};
use crate::clock::{duration, nanos};
use crate::close::{Close, CloseReport, Closing};
use crate::driver::{self, Driver};
use crate::engine::{Engine, Hooks, Patience, TicketOf};
use crate::error::{PartialSubmit, SubmitError};
use crate::flush::Flush;
use crate::id::ItemId;
use crate::journal::JournalError;
use crate::observer::Event;
use crate::panics;
use crate::processor::BatchProcessor;
use crate::stats::{PastBatch, Stats};
use crate::submit::Submit;
use crate::sync::Arc;
use crate::ticket_set::TicketSet;

/// Collects items from any thread and hands them to a processor in batches.
///
/// Clones share one batcher. When the last clone is dropped, what was accepted is still processed,
/// in the background; use [`close`](Self::close) to wait for it or to get unsent items back. Without
/// a [`delivery_timeout`](Builder::delivery_timeout) a batch that the processor still keeps
/// then is not tried again: its items end with their error, and a journal keeps them.
pub struct Batcher<P: BatchProcessor> {
    handle: Arc<Handle<P>>,
}

/// Stops the engine with the last clone of the batcher; workers and batches hold the engine only.
struct Handle<P: BatchProcessor>(Arc<Engine<P>>);

impl<P: BatchProcessor> Drop for Handle<P> {
    fn drop(&mut self) {
        self.0.stop();
        panics::swallow(|| self.0.processor.orphaned());
    }
}

type BulkError<P> = PartialSubmit<
    <P as BatchProcessor>::Item,
    <P as BatchProcessor>::Output,
    <P as BatchProcessor>::Error,
>;
type TicketSetOf<P> = TicketSet<<P as BatchProcessor>::Output, <P as BatchProcessor>::Error>;

impl<P: BatchProcessor> Batcher<P> {
    /// Makes a batcher with the default settings, and starts its thread.
    ///
    /// # Errors
    /// What the system says when the thread cannot be started.
    pub fn new(processor: P) -> io::Result<Self> {
        Self::builder(processor).build()
    }

    /// Starts with the default settings.
    pub fn builder(processor: P) -> Builder<P> {
        Builder::new(processor)
    }

    pub(crate) fn start(processor: P, settings: Settings, hooks: Hooks<P>) -> io::Result<Self> {
        let driver = settings.driver.clone();
        let engine = Engine::new(processor, settings, hooks);
        let capacity = engine.settings.policy.capacity_items;
        engine.observe(|| Event::Started { capacity });
        // After an error the handle is dropped, which ends the threads started so far.
        let handle = Arc::new(Handle(Arc::clone(&engine)));
        match &driver {
            Driver::Threads(threads) => driver::start_threads(&engine, *threads)?,
            Driver::Tasks(tasks) => driver::start_tasks(&engine, tasks),
            Driver::Inline | Driver::Stepped => {}
        }
        Ok(Self { handle })
    }

    /// Lends the processor.
    pub fn processor(&self) -> &P {
        &self.engine().processor
    }

    /// Accepts one item. Blocks while the batcher is full, for at most the setting `max_block`.
    ///
    /// An inline batcher that is idle processes the item before this returns.
    ///
    /// # Errors
    /// Gives the item back, with the reason.
    #[inline]
    pub fn submit(&self, item: P::Item) -> Result<TicketOf<P>, SubmitError<P::Item>> {
        self.submit_with(item, Patience::Setting)
    }

    /// Accepts one item if there is room. Never waits for room.
    ///
    /// # Errors
    /// Gives the item back, with the reason.
    pub fn try_submit(&self, item: P::Item) -> Result<TicketOf<P>, SubmitError<P::Item>> {
        self.submit_with(item, Patience::Never)
    }

    /// Accepts one item. Blocks while the batcher is full, for at most `timeout`.
    ///
    /// # Errors
    /// Gives the item back, with the reason.
    pub fn submit_timeout(
        &self,
        item: P::Item,
        timeout: Duration,
    ) -> Result<TicketOf<P>, SubmitError<P::Item>> {
        self.submit_with(item, Patience::For(timeout))
    }

    /// Accepts one item without blocking: the future waits while the batcher is full, for at most
    /// the setting `max_block`, and resolves to the ticket or gives the item back with the reason.
    ///
    /// With a journal the item is written by a thread of the batcher.
    pub fn submit_async(&self, item: P::Item) -> Submit<P> {
        Submit::new(self.clone(), item)
    }

    #[inline]
    fn submit_with(
        &self,
        item: P::Item,
        patience: Patience,
    ) -> Result<TicketOf<P>, SubmitError<P::Item>> {
        let submitted = self.engine().submit_one(item, patience);
        submitted.map_err(|(item, reason)| SubmitError::new(item, reason))
    }

    /// Accepts many items under one lock, in order. Blocks while the batcher is full, for at most
    /// the setting `max_block` in all. All items are collected before the first is accepted.
    ///
    /// # Errors
    /// If one is refused, gives back that item and all after it, and the tickets of those before.
    pub fn submit_all(
        &self,
        items: impl IntoIterator<Item = P::Item>,
    ) -> Result<TicketSetOf<P>, BulkError<P>> {
        let engine = self.engine();
        let weighed: Vec<_> = items.into_iter().map(|item| engine.weigh(item)).collect();
        let mut tickets = TicketSet::new();
        let mut weighed = weighed.into_iter();
        let accept = |row| tickets.append(row);
        match engine.submit(&mut weighed, Patience::Setting, accept) {
            Ok(()) => Ok(tickets),
            Err((mut rest, reason)) => {
                rest.extend(weighed.map(|weighed| weighed.item));
                Err(PartialSubmit { accepted: tickets, rest, reason })
            }
        }
    }

    /// Withdraws an item that waits, and gives it back; `None` if it is with the processor or has
    /// come to its end. Its ticket then yields [`Cancelled`](crate::BatchError::Cancelled).
    ///
    /// Takes time in the number of keys and of items that wait; [`Ticket::cancel`](crate::Ticket::cancel)
    /// knows the key. Blocks for nothing but the journal's acknowledgement, and with an
    /// [`inline`](Builder::inline) batcher for what the item held back, which is run here: whoever
    /// cancels several of a key begins with the last.
    pub fn cancel(&self, id: ItemId) -> Option<P::Item> {
        self.engine().cancel(id, None)
    }

    /// Queues what earlier runs left in the journal, in order and under the same ids, and returns the
    /// tickets, each with what `label` makes of its item. The bounds on items and weight do not hold
    /// for them; one that alone is too heavy for a batch goes alone. A second call, or one without a
    /// journal, returns nothing.
    ///
    /// Blocks while the journal is read.
    ///
    /// # Errors
    /// What the journal says; nothing is queued then.
    pub fn resume<L>(
        &self,
        label: impl Fn(&P::Item) -> L,
    ) -> Result<Vec<(L, TicketOf<P>)>, JournalError> {
        self.engine().resume(label)
    }

    /// Sends all that waits without linger. Does not wait for it, as the returned [`Flush`] does; an
    /// [`inline`](Builder::inline) batcher runs here what is ready.
    pub fn flush(&self) -> Flush {
        self.engine().flush()
    }

    /// Says whether an item has waited for at least `max_age`. Takes time in the number of keys.
    pub fn should_flush(&self, max_age: Duration) -> bool {
        self.engine().oldest_age().is_some_and(|age| age >= nanos(max_age))
    }

    /// Returns the time since a batch was last sent, or since the batcher was made.
    pub fn time_since_last_flush(&self) -> Duration {
        duration(self.engine().since_last_dispatch())
    }

    /// Returns the error that the processor called fatal, which closed the batcher.
    pub fn fatal_error(&self) -> Option<Arc<P::Error>> {
        self.engine().fatal()
    }

    /// Closes the batcher for every clone, and says what it did not finish.
    ///
    /// Blocks until the processor is done with what was sent (with [`Close::Drain`]: with
    /// everything), for at most `timeout`; what is not sent by then is handed back. Inside the
    /// processor it does not wait. Closing again reports what is left.
    pub fn close(&self, mode: Close, timeout: Duration) -> CloseReport<P::Item> {
        self.engine().close(mode, timeout)
    }

    /// Closes the batcher as [`close`](Self::close) does, without waiting: the future resolves to
    /// the report. An [`inline`](Builder::inline) batcher runs here what is ready. Dropped before
    /// that, the batcher is closed all the same, and what was to be handed back is in the report of
    /// the next close.
    pub fn close_async(&self, mode: Close, timeout: Duration) -> Closing<P> {
        Closing::new(self.clone(), mode, timeout)
    }

    /// Returns the counters, as one consistent snapshot. Takes no lock and allocates nothing.
    ///
    /// An item that an inline batcher runs alone may count as in flight until its call is over: nobody
    /// has its ticket before that.
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// Returns the batches whose items are all final, oldest first; as many as the setting
    /// `history` allows.
    pub fn history(&self) -> Vec<PastBatch<P::Key>> {
        self.engine().history()
    }

    pub(crate) fn share_engine(&self) -> Arc<Engine<P>> {
        Arc::clone(&self.handle.0)
    }

    pub(crate) fn engine(&self) -> &Engine<P> {
        &self.handle.0
    }
}

impl<P: BatchProcessor> Clone for Batcher<P> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle) }
    }
}

impl<P: BatchProcessor> fmt::Debug for Batcher<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
