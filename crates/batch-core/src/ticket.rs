//! The handle of one accepted item.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::block::SharedBlock;
use crate::error::{BatchError, NotReady, Outcome};
use crate::id::ItemId;
use crate::sync::deadline;

/// Waits for the result of one accepted item.
///
/// Dropping a ticket detaches it: the item is processed all the same. `ticket.await` waits without
/// blocking, on any executor.
///
/// # Examples
/// ```
/// use std::time::{Duration, Instant};
/// use batch_core::{Batcher, batch_fn};
///
/// let batcher = Batcher::new(batch_fn(|items: &[u8]| {
///     items.iter().map(|item| Ok::<u8, std::convert::Infallible>(item + 1)).collect()
/// }))?;
/// let ticket = batcher.submit(1)?;
/// assert_eq!(ticket.wait_timeout(Duration::from_secs(60))??, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a dropped ticket loses the result, not the work; call `detach` to say so"]
pub struct Ticket<O, E> {
    block: SharedBlock<O, E>,
    index: usize,
    id: ItemId,
}

impl<O, E> Ticket<O, E> {
    pub(crate) fn new(block: SharedBlock<O, E>, index: usize, id: ItemId) -> Self {
        Self { block, index, id }
    }

    /// Returns the id of the item.
    pub fn id(&self) -> ItemId {
        self.id
    }

    /// Says whether the result is there. Never blocks.
    pub fn is_done(&self) -> bool {
        self.block.is_ready(self.index)
    }

    /// Blocks until the result is there.
    ///
    /// With an inline batcher the calling thread may be the one that runs the batch.
    ///
    /// # Errors
    /// Says why the item has no output. [`BatchError::WouldDeadlock`] comes at once if the caller
    /// is inside the processor of the same batcher and the result is not there yet.
    pub fn wait(self) -> Outcome<O, E> {
        if self.block.is_own_processor() {
            return self.block.take(self.index).unwrap_or(Err(BatchError::WouldDeadlock));
        }
        loop {
            if let Some(outcome) = self.block.wait(self.index, None) {
                return outcome;
            }
        }
    }

    /// Blocks until the result is there, for at most `timeout`; with an inline batcher for longer
    /// where the calling thread is the one that runs a batch.
    ///
    /// # Errors
    /// Gives the ticket back if the time is over first. The item goes on.
    pub fn wait_timeout(self, timeout: Duration) -> Result<Outcome<O, E>, NotReady<Self>> {
        if self.block.is_own_processor() {
            return Ok(self.wait());
        }
        self.block.wait(self.index, deadline(timeout)).ok_or_else(|| NotReady::new(self))
    }

    /// Returns the result if it is there. Never blocks.
    ///
    /// # Errors
    /// Gives the ticket back if the result is not there yet.
    pub fn try_get(self) -> Result<Outcome<O, E>, NotReady<Self>> {
        self.block.take(self.index).ok_or_else(|| NotReady::new(self))
    }

    /// Waits until the result is there or `until` has come; says whether it is.
    pub(crate) fn wait_ready(&self, until: Option<Instant>) -> bool {
        self.is_done() || self.block.is_own_processor() || self.block.wait_ready(self.index, until)
    }

    /// Gives up the result; the item is processed all the same.
    pub fn detach(self) {}
}

impl<O, E> fmt::Debug for Ticket<O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("id", &self.id)
            .field("is_done", &self.is_done())
            .finish_non_exhaustive()
    }
}

impl<O, E> IntoFuture for Ticket<O, E> {
    type Output = Outcome<O, E>;
    type IntoFuture = TicketFuture<O, E>;

    fn into_future(self) -> TicketFuture<O, E> {
        TicketFuture(Some(self))
    }
}

/// Resolves to the result of one item.
///
/// Dropping it detaches the item, as with a [`Ticket`].
#[must_use = "futures do nothing unless polled"]
pub struct TicketFuture<O, E>(Option<Ticket<O, E>>);

impl<O, E> fmt::Debug for TicketFuture<O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TicketFuture").field(&self.0).finish()
    }
}

impl<O, E> Future for TicketFuture<O, E> {
    type Output = Outcome<O, E>;

    /// # Panics
    /// Panics if it is polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ticket = self.0.as_ref().expect("a ready future is not polled again");
        let polled = ticket.block.poll(ticket.index, context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}
