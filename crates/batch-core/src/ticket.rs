//! The handle of one accepted item.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::accumulator::LaneId;
use crate::error::{BatchError, NotReady, Outcome};
use crate::id::ItemId;
use crate::link::Link;
use crate::slot::{Claim, Claims, Fate};
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
    claim: Claim<Outcome<O, E>, Link>,
    id: ItemId,
    /// Where the item was put, as the engine numbers its keys.
    lane: LaneId,
}

impl<O, E> Ticket<O, E> {
    #[inline]
    pub(crate) fn new(claim: Claim<Outcome<O, E>, Link>, id: ItemId, lane: LaneId) -> Self {
        Self { claim, id, lane }
    }

    /// Returns the id of the item.
    pub fn id(&self) -> ItemId {
        self.id
    }

    /// Says whether the result is there. Never blocks.
    pub fn is_done(&self) -> bool {
        self.claim.is_done()
    }

    /// Blocks until the result is there.
    ///
    /// The thread stays awake for the first 20 microseconds, and lets others run meanwhile; then it
    /// sleeps. With an inline batcher it sleeps at once, or is the one that runs the batch.
    ///
    /// # Errors
    /// Says why the item has no output. [`BatchError::WouldDeadlock`] comes at once if the caller
    /// is inside the processor of the same batcher and the result is not there yet.
    pub fn wait(self) -> Outcome<O, E> {
        let Self { claim, id, lane } = self;
        match claim.try_take() {
            Ok(fate) => outcome(fate),
            Err(claim) => Self { claim, id, lane }.wait_longer(),
        }
    }

    #[cold]
    fn wait_longer(self) -> Outcome<O, E> {
        self.wait_ready(None);
        self.claim.try_take().map_or(Err(BatchError::WouldDeadlock), outcome)
    }

    /// Blocks until the result is there, for at most `timeout`; with an inline batcher for longer
    /// where the calling thread is the one that runs a batch.
    ///
    /// # Errors
    /// Gives the ticket back if the time is over first. The item goes on.
    pub fn wait_timeout(self, timeout: Duration) -> Result<Outcome<O, E>, NotReady<Self>> {
        if self.wait_ready(deadline(timeout)) { Ok(self.wait()) } else { Err(NotReady::new(self)) }
    }

    /// Returns the result if it is there. Never blocks.
    ///
    /// # Errors
    /// Gives the ticket back if the result is not there yet.
    pub fn try_get(self) -> Result<Outcome<O, E>, NotReady<Self>> {
        let Self { claim, id, lane } = self;
        match claim.try_take() {
            Ok(fate) => Ok(outcome(fate)),
            Err(claim) => Err(NotReady::new(Self { claim, id, lane })),
        }
    }

    /// Waits until the result is there or `until` has come; says whether it is, or will never be
    /// while this thread waits.
    pub(crate) fn wait_ready(&self, until: Option<Instant>) -> bool {
        let is_own = self.claim.header().is_own_processor();
        self.claim.is_done() || is_own || Link::wait(&self.claim, until)
    }

    /// Says whether a thread that waits for it may have to run its batch.
    pub(crate) fn is_led(&self) -> bool {
        self.claim.header().is_led
    }

    /// Withdraws the item if it is not with the processor; says whether it was.
    ///
    /// The ticket then yields [`BatchError::Cancelled`], and the item is dropped;
    /// [`Batcher::cancel`](crate::Batcher::cancel) gives it back, and says what can block. An item that
    /// waits to be tried again can be withdrawn too. Takes time in the number of items of its key
    /// that wait.
    pub fn cancel(&self) -> bool {
        let hub = if self.is_done() { None } else { self.claim.header().hub() };
        hub.is_some_and(|hub| hub.withdraw(self.id, self.lane))
    }

    /// Gives up the result; the item is processed all the same.
    pub fn detach(self) {}
}

/// Tickets that follow each other.
pub(crate) struct TicketRow<O, E> {
    claims: Claims<Outcome<O, E>, Link>,
    first: ItemId,
    lane: LaneId,
}

impl<O, E> TicketRow<O, E> {
    pub(crate) fn of(ticket: Ticket<O, E>) -> Self {
        let Ticket { claim, id, lane } = ticket;
        Self { claims: Claims::of(claim), first: id, lane }
    }

    /// Adds the ticket of the item accepted next, of the same key.
    ///
    /// # Errors
    /// The ticket, if it is another.
    #[inline]
    pub(crate) fn push(&mut self, ticket: Ticket<O, E>) -> Result<(), Ticket<O, E>> {
        let Ticket { claim, id, lane } = ticket;
        let follows = lane == self.lane && id == self.first.plus(self.claims.len() as u64);
        let refused = if follows { self.claims.push(claim).err() } else { Some(claim) };
        refused.map_or(Ok(()), |claim| Err(Ticket { claim, id, lane }))
    }

    pub(crate) fn new(claims: Claims<Outcome<O, E>, Link>, first: ItemId, lane: LaneId) -> Self {
        Self { claims, first, lane }
    }

    /// Adds the tickets of the items accepted next, of the same key.
    ///
    /// # Errors
    /// The tickets, if they are others.
    pub(crate) fn append(&mut self, next: Self) -> Result<(), Self> {
        let Self { claims, first, lane } = next;
        let follows = lane == self.lane && first == self.first.plus(self.claims.len() as u64);
        let refused = if follows { self.claims.append(claims).err() } else { Some(claims) };
        refused.map_or(Ok(()), |claims| Err(Self { claims, first, lane }))
    }

    /// Takes the ticket of the last item out.
    pub(crate) fn pop(&mut self) -> Option<Ticket<O, E>> {
        let claim = self.claims.pop()?;
        let id = self.first.plus(self.claims.len() as u64);
        Some(Ticket { claim, id, lane: self.lane })
    }

    pub(crate) fn len(&self) -> usize {
        self.claims.len()
    }

    /// Takes the results that are there, up to the first that is not.
    pub(crate) fn take_done(&mut self, mut taken: impl FnMut(Outcome<O, E>)) {
        let before = self.claims.len();
        self.claims.take_done(|fate| taken(outcome(fate)));
        self.first = self.first.plus((before - self.claims.len()) as u64);
    }
}

impl<O, E> Iterator for TicketRow<O, E> {
    type Item = Ticket<O, E>;

    fn next(&mut self) -> Option<Ticket<O, E>> {
        let claim = self.claims.next()?;
        let id = self.first;
        self.first = id.plus(1);
        Some(Ticket { claim, id, lane: self.lane })
    }
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

    /// Inside the processor of the same batcher a result that is not there is
    /// [`BatchError::WouldDeadlock`].
    ///
    /// # Panics
    /// Panics if it is polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ticket = self.0.take().expect("a ready future is not polled again");
        if ticket.is_done()
            || ticket.claim.header().is_own_processor()
            || ticket.claim.poll(context)
        {
            return Poll::Ready(ticket.wait());
        }
        self.0 = Some(ticket);
        Poll::Pending
    }
}

fn outcome<O, E>(fate: Fate<Outcome<O, E>>) -> Outcome<O, E> {
    match fate {
        Fate::Value(outcome) => outcome,
        // The engine ended without a word on this item.
        Fate::Abandoned => Err(BatchError::Unresolved { panic: None }),
    }
}
