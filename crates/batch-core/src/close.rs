//! How a batcher ends.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::batcher::Batcher;
use crate::engine::Ending;
use crate::id::ItemId;
use crate::processor::BatchProcessor;
use crate::stats::Stats;

/// What to do with items that wait when a batcher is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Close {
    /// Send them, as far as the time allows.
    Drain,
    /// Hand them back at once.
    Abort,
}

/// Tells what a closed batcher did not finish.
#[non_exhaustive]
pub struct CloseReport<I> {
    /// Items that were accepted and not sent, in order of acceptance; their tickets say `Closed`.
    /// A journal keeps them, and [`resume`](Batcher::resume) finds them after the next start.
    pub leftovers: Vec<(ItemId, I)>,
    /// Items that the processor still holds; their tickets resolve when it is done. One that is to
    /// be tried again then is among the leftovers of the next close.
    pub in_flight: Vec<ItemId>,
    /// The counters after closing.
    pub stats: Stats,
}

impl<I> fmt::Debug for CloseReport<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloseReport")
            .field("leftovers", &self.leftovers.len())
            .field("in_flight", &self.in_flight)
            .field("stats", &self.stats)
            .finish()
    }
}

/// Resolves to the report of a close once it is through.
#[must_use = "the batcher is closed, but nobody gets what was not sent"]
pub struct Closing<P: BatchProcessor> {
    batcher: Batcher<P>,
    ending: Option<Ending<P::Item>>,
}

impl<P: BatchProcessor> Closing<P> {
    pub(crate) fn new(batcher: Batcher<P>, mode: Close, timeout: Duration) -> Self {
        let ending = Some(batcher.engine().start_close(mode, timeout));
        Self { batcher, ending }
    }
}

// No field is ever pinned.
impl<P: BatchProcessor> Unpin for Closing<P> {}

impl<P: BatchProcessor> Future for Closing<P> {
    type Output = CloseReport<P::Item>;

    /// # Panics
    /// Panics if it is polled again after it was ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { batcher, ending } = self.get_mut();
        let waiting = ending.as_mut().expect("a ready future is not polled again");
        let polled = batcher.engine().poll_close(waiting, context);
        if polled.is_ready() {
            *ending = None;
        }
        polled
    }
}

impl<P: BatchProcessor> Drop for Closing<P> {
    fn drop(&mut self) {
        if let Some(ending) = &mut self.ending {
            self.batcher.engine().forget_close(ending);
        }
    }
}

impl<P: BatchProcessor> fmt::Debug for Closing<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closing").finish_non_exhaustive()
    }
}
