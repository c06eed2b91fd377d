//! What a ticket knows of the engine that will resolve it.

use std::time::Instant;

use crate::accumulator::LaneId;
use crate::current;
use crate::id::ItemId;
use crate::park::comes_soon;
use crate::slot::Claim;
use crate::sync::{Arc, Weak};

/// The engine as its tickets and flushes see it.
pub(crate) trait Hub: Send + Sync {
    /// Runs batches until none is ready, another thread does, or a waiting thread takes over.
    fn lead(&self);
    /// Withdraws an item that waits; `lane` is where it was put.
    fn withdraw(&self, id: ItemId, lane: LaneId) -> bool;
}

/// Leads from a slot back to its engine, without keeping it.
#[derive(Clone)]
pub(crate) struct Link {
    /// The identity under which threads note that they run a batch of this engine.
    pub(crate) engine: usize,
    /// Threads that wait run its batches.
    pub(crate) is_led: bool,
    hub: Weak<dyn Hub>,
}

impl Link {
    pub(crate) fn new(engine: usize, is_led: bool, hub: Weak<dyn Hub>) -> Self {
        Self { engine, is_led, hub }
    }

    pub(crate) fn hub(&self) -> Option<Arc<dyn Hub>> {
        self.hub.upgrade()
    }

    /// Runs the engine on this thread, if there is one to run.
    pub(crate) fn lead(&self) {
        if let Some(hub) = self.hub() {
            hub.lead();
        }
    }

    /// Blocks until a cell is done or `until` has come; says whether it is done.
    ///
    /// Where threads that wait run the batches this one sleeps at once: who runs one hands over to
    /// threads that sleep only, and would run those of the others without end.
    pub(crate) fn wait<T>(claim: &Claim<T, Self>, until: Option<Instant>) -> bool {
        let link = claim.header();
        (!link.is_led && comes_soon(until, || claim.is_done())) || claim.wait(until, || link.lead())
    }

    /// Says whether the calling thread runs a batch of the engine.
    pub(crate) fn is_own_processor(&self) -> bool {
        current::is_running(self.engine)
    }
}
