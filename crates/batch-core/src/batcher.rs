//! The handle through which items go in.

use std::fmt;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::builder::{Builder, Settings};
use crate::close::{Close, CloseReport};
use crate::engine::{Engine, TicketOf};
use crate::error::{PartialSubmit, SubmitError};
use crate::flush::Flush;
use crate::processor::BatchProcessor;
use crate::stats::{PastBatch, Stats};
use crate::sync::Arc;
use crate::ticket_set::TicketSet;

/// Collects items from any thread and hands them to a processor in batches.
///
/// Clones share one batcher. When the last clone is dropped, what was accepted is still processed,
/// in the background; use [`close`](Self::close) to wait for it or to get unsent items back.
pub struct Batcher<P: BatchProcessor> {
    handle: Arc<Handle<P>>,
}

/// Stops the engine with the last clone of the batcher; workers and batches hold the engine only.
struct Handle<P: BatchProcessor>(Arc<Engine<P>>);

impl<P: BatchProcessor> Drop for Handle<P> {
    fn drop(&mut self) {
        self.0.stop();
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

    pub(crate) fn start(processor: P, settings: Settings) -> io::Result<Self> {
        let workers = settings.workers;
        let engine = Engine::new(processor, settings);
        let handle = Arc::new(Handle(Arc::clone(&engine)));
        for _ in 0..workers {
            let engine = Arc::clone(&engine);
            // After an error the handle is dropped, which ends the threads started so far.
            thread::Builder::new().name("batch-core".into()).spawn(move || engine.work())?;
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
    pub fn submit(&self, item: P::Item) -> Result<TicketOf<P>, SubmitError<P::Item>> {
        self.submit_until(item, self.engine().max_block_end())
    }

    /// Accepts one item if there is room. Never waits for room.
    ///
    /// # Errors
    /// Gives the item back, with the reason.
    pub fn try_submit(&self, item: P::Item) -> Result<TicketOf<P>, SubmitError<P::Item>> {
        self.submit_until(item, Some(Instant::now()))
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
        self.submit_until(item, crate::sync::deadline(timeout))
    }

    fn submit_until(
        &self,
        item: P::Item,
        until: Option<Instant>,
    ) -> Result<TicketOf<P>, SubmitError<P::Item>> {
        let engine = self.engine();
        let mut ticket = None;
        engine
            .submit([engine.weigh(item)], until, |accepted| ticket = Some(accepted))
            .map_err(|(item, reason)| SubmitError::new(item, reason))?;
        Ok(ticket.expect("an accepted item has a ticket"))
    }

    /// Accepts many items under one lock, in order. Blocks while the batcher is full, for at most
    /// the setting `max_block` in all.
    ///
    /// # Errors
    /// If one is refused, gives back that item and all after it, and the tickets of those before.
    pub fn submit_all(
        &self,
        items: impl IntoIterator<Item = P::Item>,
    ) -> Result<TicketSetOf<P>, BulkError<P>> {
        let engine = self.engine();
        let weighed: Vec<_> = items.into_iter().map(|item| engine.weigh(item)).collect();
        let mut tickets = Vec::with_capacity(weighed.len());
        let mut weighed = weighed.into_iter();
        let until = engine.max_block_end();
        match engine.submit(weighed.by_ref(), until, |ticket| tickets.push(ticket)) {
            Ok(()) => Ok(tickets.into_iter().collect()),
            Err((refused, reason)) => Err(PartialSubmit {
                accepted: tickets.into_iter().collect(),
                rest: std::iter::once(refused).chain(weighed.map(|item| item.item)).collect(),
                reason,
            }),
        }
    }

    /// Sends all that waits without linger. Never blocks on it: the returned [`Flush`] does.
    pub fn flush(&self) -> Flush {
        Flush::new(self.engine().flush())
    }

    /// Says whether an item has waited for at least `max_age`. Takes time in the number of keys.
    pub fn should_flush(&self, max_age: Duration) -> bool {
        self.engine().oldest().is_some_and(|oldest| oldest.elapsed() >= max_age)
    }

    /// Returns the time since a batch was last sent, or since the batcher was made.
    pub fn time_since_last_flush(&self) -> Duration {
        self.engine().last_dispatch().elapsed()
    }

    /// Closes the batcher for every clone, and says what it did not finish.
    ///
    /// Blocks until the processor is done with what was sent (with [`Close::Drain`]: with
    /// everything), for at most `timeout`; what is not sent by then is handed back. Inside the
    /// processor it does not wait. Closing again reports what is left.
    pub fn close(&self, mode: Close, timeout: Duration) -> CloseReport<P::Item> {
        self.engine().close(mode, timeout)
    }

    /// Returns the counters, as one consistent snapshot.
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// Returns the batches whose items are all final, oldest first; as many as the setting
    /// `history` allows.
    pub fn history(&self) -> Vec<PastBatch<P::Key>> {
        self.engine().history()
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
