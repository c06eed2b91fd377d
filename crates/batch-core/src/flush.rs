//! A barrier behind everything accepted so far.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::error::NotReady;
use crate::link::Link;
use crate::slot::Claim;
use crate::sync::deadline;

/// Resolves when every item accepted before the flush is final.
///
/// Items accepted later do not hold it up; items that are tried again do. Dropping it undoes
/// nothing. `flush.await` waits without blocking.
#[must_use = "a dropped flush still sends the batches, but nobody learns when they are done"]
pub struct Flush {
    /// `None` if there was nothing to wait for.
    claim: Option<Claim<(), Link>>,
}

/// Says that a flush was awaited inside the processor that would have to end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("waiting for a flush inside the processor of the same batcher would never end")]
pub struct FlushWouldDeadlock;

impl Flush {
    pub(crate) fn new(claim: Option<Claim<(), Link>>) -> Self {
        Self { claim }
    }

    /// Says whether everything accepted before the flush is final. Never blocks.
    pub fn is_done(&self) -> bool {
        self.claim.as_ref().is_none_or(Claim::is_done)
    }

    /// Blocks until everything accepted before the flush is final.
    ///
    /// # Errors
    /// Refuses at once, if there is anything to wait for, inside the processor of the same batcher.
    pub fn wait(self) -> Result<(), FlushWouldDeadlock> {
        if self.wait_until(None) { Ok(()) } else { Err(FlushWouldDeadlock) }
    }

    /// Blocks as [`wait`](Self::wait) does, for at most `timeout`.
    ///
    /// # Errors
    /// Gives the flush back if the time is over first; inside the processor of the same batcher
    /// it is over at once.
    pub fn wait_timeout(self, timeout: Duration) -> Result<(), NotReady<Self>> {
        if self.wait_until(deadline(timeout)) { Ok(()) } else { Err(NotReady::new(self)) }
    }

    fn wait_until(&self, until: Option<Instant>) -> bool {
        let Some(claim) = &self.claim else { return true };
        claim.is_done() || (!claim.header().is_own_processor() && Link::wait(claim, until))
    }
}

impl Future for Flush {
    type Output = Result<(), FlushWouldDeadlock>;

    /// # Errors
    /// As [`wait`](Self::wait).
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &self.claim {
            Some(claim) if claim.is_done() => Poll::Ready(Ok(())),
            Some(claim) if claim.header().is_own_processor() => {
                Poll::Ready(Err(FlushWouldDeadlock))
            }
            Some(claim) if !claim.poll(context) => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl fmt::Debug for Flush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flush").field("is_done", &self.is_done()).finish()
    }
}
