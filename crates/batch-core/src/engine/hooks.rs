//! What a user hangs on an engine.

use crate::clock::Clock;
use crate::error::BatchError;
use crate::id::ItemId;
use crate::journal::Journal;
use crate::observer::Observer;
use crate::processor::BatchProcessor;
use crate::sync::Arc;

/// Takes an item that was dropped, with the reason.
pub(crate) type OnDropped<I, E> = dyn Fn(ItemId, I, BatchError<E>) + Send + Sync;

/// The journal, the observer and the heir of dropped items.
pub(crate) struct Hooks<P: BatchProcessor> {
    pub(crate) journal: Option<Arc<dyn Journal<P::Item>>>,
    pub(crate) observer: Option<Arc<dyn Observer<P::Key>>>,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) on_dropped: Option<Box<OnDropped<P::Item, P::Error>>>,
}

impl<P: BatchProcessor> Hooks<P> {
    /// Says whether nobody has to hear of an item that is accepted.
    pub(crate) fn is_plain(&self) -> bool {
        self.journal.is_none() && self.observer.is_none()
    }

    pub(crate) fn none() -> Self {
        Self { journal: None, observer: None, clock: None, on_dropped: None }
    }
}
