//! A barrier behind everything accepted so far.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::block::Completion;
use crate::error::NotReady;
use crate::sync::{Arc, deadline};

/// Resolves when every item accepted before the flush is final.
///
/// Items accepted later do not hold it up. Dropping it undoes nothing. `flush.await` waits without
/// blocking.
#[must_use = "a dropped flush still sends the batches, but nobody learns when they are done"]
pub struct Flush {
    blocks: Vec<Arc<dyn Completion>>,
}

/// Says that a flush was awaited inside the processor that would have to end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("waiting for a flush inside the processor of the same batcher would never end")]
pub struct FlushWouldDeadlock;

impl Flush {
    pub(crate) fn new(blocks: Vec<Arc<dyn Completion>>) -> Self {
        Self { blocks }
    }

    /// Blocks until everything accepted before the flush is final.
    ///
    /// # Errors
    /// Refuses at once, if there is anything to wait for, inside the processor of the same batcher.
    pub fn wait(self) -> Result<(), FlushWouldDeadlock> {
        let is_own = self.blocks.iter().any(|block| block.is_own_processor());
        let until = is_own.then(Instant::now);
        if self.wait_until(until) { Ok(()) } else { Err(FlushWouldDeadlock) }
    }

    /// Blocks as [`wait`](Self::wait) does, for at most `timeout`.
    ///
    /// # Errors
    /// Gives the flush back if the time is over first; inside the processor of the same batcher
    /// it is over at once.
    pub fn wait_timeout(self, timeout: Duration) -> Result<(), NotReady<Self>> {
        let is_own = self.blocks.iter().any(|block| block.is_own_processor());
        let until = if is_own { Some(Instant::now()) } else { deadline(timeout) };
        if self.wait_until(until) { Ok(()) } else { Err(NotReady::new(self)) }
    }

    fn wait_until(&self, until: Option<Instant>) -> bool {
        self.blocks.iter().all(|block| block.wait_all(until))
    }
}

impl Future for Flush {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        while let Some(block) = self.blocks.last() {
            if !block.poll_all(context) {
                return Poll::Pending;
            }
            self.blocks.pop();
        }
        Poll::Ready(())
    }
}

impl fmt::Debug for Flush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flush").field("batches", &self.blocks.len()).finish()
    }
}
