//! How a batcher ends.

use std::fmt;

use crate::id::ItemId;
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
    /// Items that were accepted and not sent, oldest batch first; their tickets say `Closed`.
    pub leftovers: Vec<(ItemId, I)>,
    /// Items that the processor still holds; their tickets resolve when it is done.
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
