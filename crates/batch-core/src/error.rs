//! What can go wrong with an item, and how a refused item comes back.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::id::ItemId;
use crate::journal::JournalError;
use crate::ticket_set::TicketSet;

/// What a ticket yields: the output of the item, or why there is none.
pub type Outcome<O, E> = Result<O, BatchError<E>>;

/// Says why an accepted item has no output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError<E> {
    /// The processor resolved the item with this error; items that failed together share it.
    #[error("{0}")]
    Failed(Arc<E>),
    /// The processor dropped its batch without resolving the item.
    #[error("the processor left the item unresolved{}", Panic(.panic.as_deref()))]
    Unresolved {
        /// The message of the panic that ended the processor, if one did.
        panic: Option<String>,
    },
    /// The processor answered with another number of results than the batch has items.
    #[error("the processor gave {got} results for {expected} items")]
    WrongCount {
        /// The number of items in the batch.
        expected: usize,
        /// The number of results that came.
        got: usize,
    },
    /// The item was withdrawn before it had a result.
    #[error("the item was cancelled")]
    Cancelled,
    /// The item waited for as long as the setting `delivery_timeout` allows, and was never sent.
    #[error("the item waited for longer than its delivery time-out and was not sent")]
    Expired,
    /// The item was sent, and had no result when its delivery time-out was over; the processor may
    /// still be working on it.
    #[error("the item had no result when its delivery time-out was over")]
    TimedOut,
    /// The batcher was closed before the item was sent; the close report holds the item.
    #[error("the batcher was closed before the item was sent")]
    Closed,
    /// The wait was refused: it stood inside the processor that would have to end it.
    #[error("waiting inside the processor of the same batcher would never end")]
    WouldDeadlock,
}

struct Panic<'a>(Option<&'a str>);

impl fmt::Display for Panic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |message| write!(f, ": it panicked with \"{message}\""))
    }
}

impl<E> Clone for BatchError<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Failed(error) => Self::Failed(Arc::clone(error)),
            Self::Unresolved { panic } => Self::Unresolved { panic: panic.clone() },
            Self::WrongCount { expected, got } => {
                Self::WrongCount { expected: *expected, got: *got }
            }
            Self::Cancelled => Self::Cancelled,
            Self::Expired => Self::Expired,
            Self::TimedOut => Self::TimedOut,
            Self::Closed => Self::Closed,
            Self::WouldDeadlock => Self::WouldDeadlock,
        }
    }
}

/// Says why an item was not accepted.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The bound over queued and running items is reached, and the time to wait is over.
    #[error("the batcher is full: {capacity} items are queued or running")]
    Full {
        /// The bound that is reached.
        capacity: usize,
    },
    /// The bound over the weight of queued and running items is reached, and the time to wait is
    /// over.
    #[error("the batcher is full: items that weigh {capacity} are queued or running")]
    FullWeight {
        /// The bound that is reached.
        capacity: u64,
    },
    /// The batcher was closed.
    #[error("the batcher is closed")]
    Closed,
    /// The item alone weighs more than a whole batch may.
    #[error("the item weighs {weight}, a whole batch may weigh {max}")]
    TooHeavy {
        /// The weight that the processor gave the item.
        weight: u64,
        /// The setting `max_batch_weight`.
        max: u64,
    },
    /// The processor called an error of this item fatal, which closed the batcher.
    #[error("the batcher is closed: the error of item {item} was fatal")]
    Fatal {
        /// The item whose error closed the batcher.
        item: ItemId,
    },
    /// The journal did not store the item.
    #[error("the journal did not store the item")]
    Journal(#[source] Arc<JournalError>),
    /// The batcher is full, and the caller is the processor that would have to make room.
    #[error("the batcher is full, and its own processor cannot wait for room")]
    WouldDeadlock,
}

impl PartialEq for Refusal {
    /// Compares kind and figures; errors of a journal are equal if they are the same one.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Full { capacity: a }, Self::Full { capacity: b }) => a == b,
            (Self::FullWeight { capacity: a }, Self::FullWeight { capacity: b }) => a == b,
            (Self::TooHeavy { weight: a, max: b }, Self::TooHeavy { weight: c, max: d }) => {
                (a, b) == (c, d)
            }
            (Self::Fatal { item: a }, Self::Fatal { item: b }) => a == b,
            (Self::Journal(a), Self::Journal(b)) => Arc::ptr_eq(a, b),
            (Self::Closed, Self::Closed) | (Self::WouldDeadlock, Self::WouldDeadlock) => true,
            _ => false,
        }
    }
}

impl Eq for Refusal {}

/// Carries a refused item back, with the reason.
///
/// It is an [`Error`] whatever the item is, so `?` works; [`into_parts`](Self::into_parts) gives
/// the item back.
pub struct SubmitError<I>(Box<Refused<I>>);

struct Refused<I> {
    // A mutex makes the error `Sync` for items that are only `Send`.
    item: Mutex<I>,
    reason: Refusal,
}

impl<I> SubmitError<I> {
    pub(crate) fn new(item: I, reason: Refusal) -> Self {
        Self(Box::new(Refused { item: Mutex::new(item), reason }))
    }

    /// Returns why the item was refused.
    pub fn reason(&self) -> &Refusal {
        &self.0.reason
    }

    /// Gives back the item and the reason.
    pub fn into_parts(self) -> (I, Refusal) {
        let Refused { item, reason } = *self.0;
        (item.into_inner().unwrap_or_else(PoisonError::into_inner), reason)
    }
}

impl<I> fmt::Debug for SubmitError<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmitError").field("reason", &self.0.reason).finish_non_exhaustive()
    }
}

impl<I> fmt::Display for SubmitError<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.reason.fmt(f)
    }
}

impl<I> Error for SubmitError<I> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.reason.source()
    }
}

/// Reports a bulk submit that was cut: what was accepted, what comes back, and why.
#[non_exhaustive]
pub struct PartialSubmit<I, O, E> {
    /// The tickets of the items accepted before the cut, in order.
    pub accepted: TicketSet<O, E>,
    /// The items that were not accepted, in order, the refused one first.
    pub rest: Vec<I>,
    /// Why the first of `rest` was refused.
    pub reason: Refusal,
}

impl<I, O, E> fmt::Debug for PartialSubmit<I, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartialSubmit")
            .field("accepted", &self.accepted.len())
            .field("rest", &self.rest.len())
            .field("reason", &self.reason)
            .finish()
    }
}

impl<I, O, E> fmt::Display for PartialSubmit<I, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (accepted, rest) = (self.accepted.len(), self.rest.len());
        write!(f, "{accepted} items accepted, {rest} refused: {}", self.reason)
    }
}

impl<I, O, E> Error for PartialSubmit<I, O, E> {}

/// Gives a ticket back whose result is not there yet.
pub struct NotReady<T>(T);

impl<T> NotReady<T> {
    pub(crate) fn new(ticket: T) -> Self {
        Self(ticket)
    }

    /// Gives the ticket back, to wait again.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> fmt::Debug for NotReady<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NotReady")
    }
}

impl<T> fmt::Display for NotReady<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the result is not there yet")
    }
}

impl<T> Error for NotReady<T> {}
