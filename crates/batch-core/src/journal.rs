//! The journal: keeps accepted items until each has come to its end.

use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::ItemId;
use crate::panics;

/// Keeps accepted items on durable storage until they are acknowledged.
///
/// A batcher with a journal takes ids from [`reserve`](Self::reserve), calls
/// [`append`](Self::append), and counts the items as accepted once that returned. When an item has
/// come to its end it calls [`ack`](Self::ack). What was accepted and not acknowledged before the
/// process died comes back from [`unacked`](Self::unacked) under the same ids. So work is done *at
/// least once*: an item can come back although its work was done when the process died between the
/// two, and its [`ItemId`] is the key by which a processor can notice that. What is dropped
/// without a result when the batcher is closed, or its last handle is gone, is not acknowledged.
///
/// One batcher at a time uses a journal. All methods may be called from many threads at once and
/// are never called under a lock of the batcher, so that calls of `append` can share one write.
pub trait Journal<I>: Send + Sync + 'static {
    /// Reserves `count` ids that follow each other and returns the first.
    ///
    /// An id is given out once in the life of the journal, over all restarts: a new run has a larger
    /// [`epoch`](ItemId::epoch), which is durable before its first id is given out. Ids that are
    /// reserved and not used are lost, which harms nothing. With a `count` of zero this is the id
    /// that comes next. It does not block.
    fn reserve(&self, count: u64) -> ItemId;

    /// Stores the items; they are durable when it returns.
    ///
    /// All of `items` or none of them: after an error none comes back from
    /// [`unacked`](Self::unacked). It blocks for about the time of one synchronous write, whatever
    /// the number of items and of threads that call it at the same time.
    ///
    /// # Errors
    /// The items are not accepted: there is no room, an item cannot be stored, or the storage
    /// failed, after which the journal may refuse to store more
    /// ([`JournalErrorKind::Stopped`]).
    fn append(&self, items: &[(ItemId, &I)]) -> Result<(), JournalError>;

    /// Forgets items that came to their end; ids that it does not know are passed over.
    ///
    /// When it returns, the items stay forgotten even if the process is killed. After a loss of
    /// power the last acknowledged ones may come back.
    ///
    /// # Errors
    /// The storage failed. The batcher names the items again in its next call, and when it closes;
    /// those that are never acknowledged come back after the next start.
    fn ack(&self, ids: &[ItemId]) -> Result<(), JournalError>;

    /// Returns what was stored with an id below `before` and is not acknowledged, ordered by id.
    ///
    /// Items of earlier runs and of this one are treated alike. A batcher that starts asks for all
    /// below [`reserve(0)`](Self::reserve), which is what others left and nothing of its own.
    ///
    /// # Errors
    /// The storage failed, or what it holds is not what was stored.
    fn unacked(&self, before: ItemId) -> Result<Vec<(ItemId, I)>, JournalError>;
}

/// Runs a call of a journal. It is not ours: a panic in it is an error, and loses no item.
pub(crate) fn guard<T>(call: impl FnOnce() -> Result<T, JournalError>) -> Result<T, JournalError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|payload| {
        let message = format!("the journal panicked: {}", panics::message(&*payload));
        // Dropping the payload could panic again.
        std::mem::forget(payload);
        Err(JournalError::new(JournalErrorKind::Stopped, message))
    })
}

macro_rules! forward {
    ($pointer:ident) => {
        impl<I, J: Journal<I> + ?Sized> Journal<I> for $pointer<J> {
            fn reserve(&self, count: u64) -> ItemId {
                (**self).reserve(count)
            }

            fn append(&self, items: &[(ItemId, &I)]) -> Result<(), JournalError> {
                (**self).append(items)
            }

            fn ack(&self, ids: &[ItemId]) -> Result<(), JournalError> {
                (**self).ack(ids)
            }

            fn unacked(&self, before: ItemId) -> Result<Vec<(ItemId, I)>, JournalError> {
                (**self).unacked(before)
            }
        }
    };
}

forward!(Box);
forward!(Arc);

/// What stopped a [`Journal`], as far as a caller can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JournalErrorKind {
    /// There is no room on the storage; the same call can succeed once there is.
    Full,
    /// An item has an id that is stored already; each id from `reserve` is used once.
    Duplicate,
    /// An item is larger than the journal takes.
    TooLarge,
    /// An item could not be turned into bytes, or bytes into an item.
    Codec,
    /// What the storage holds is not what was stored.
    Corrupt,
    /// An earlier write failed in a way that leaves the storage in doubt; open the journal anew.
    Stopped,
    /// The storage failed.
    Io,
}

/// Why a [`Journal`] did not do what it was asked.
///
/// ```
/// use batch_core::{JournalError, JournalErrorKind};
///
/// let cause = std::io::Error::other("no route to the disk");
/// let error = JournalError::new(JournalErrorKind::Io, "cannot write \"j.db\"").with_source(cause);
/// assert_eq!(error.kind(), JournalErrorKind::Io);
/// assert_eq!(error.to_string(), "cannot write \"j.db\"");
/// ```
pub struct JournalError {
    inner: Box<Inner>,
}

struct Inner {
    kind: JournalErrorKind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl JournalError {
    /// Makes an error of a kind; `message` says what failed, with the value at fault.
    pub fn new(kind: JournalErrorKind, message: impl Into<String>) -> Self {
        Self { inner: Box::new(Inner { kind, message: message.into(), source: None }) }
    }

    /// Adds what caused the error; its text should not be part of the message.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.inner.source = Some(source.into());
        self
    }

    /// Returns the kind.
    pub fn kind(&self) -> JournalErrorKind {
        self.inner.kind
    }
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)
    }
}

impl fmt::Debug for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalError")
            .field("kind", &self.inner.kind)
            .field("message", &self.inner.message)
            .field("source", &self.inner.source)
            .finish()
    }
}

impl Error for JournalError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.inner.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
