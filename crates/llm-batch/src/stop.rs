//! A hand on the brake of a wait.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

/// Ends the waits of a run from another thread, for example one that receives signals.
///
/// Clones share one state. A stopped run keeps its state folder and returns
/// [`Error::Pending`](crate::Error::Pending); what was submitted goes on at the provider.
/// A create that is on its way is let finish, because breaking it off would leave it unknown
/// whether it was taken.
///
/// ```
/// let stop = llm_batch::Stop::new();
/// let for_signals = stop.clone();
/// for_signals.stop();
/// assert!(stop.is_stopped());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Returns a handle that nobody has stopped.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Ends every wait on this handle and its clones, now and later.
    ///
    /// Takes a lock, so call it from a thread that receives signals, not from a signal handler.
    pub fn stop(&self) {
        *self.shared.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.changed.notify_all();
    }

    /// Tells whether [`stop`](Stop::stop) was called.
    pub fn is_stopped(&self) -> bool {
        *self.shared.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `until` or until stopped; tells whether it was stopped.
    pub(crate) fn wait_until(&self, until: Instant) -> bool {
        let mut stopped = self.shared.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if *stopped || left.is_zero() {
                return *stopped;
            }
            stopped = self
                .shared
                .changed
                .wait_timeout(stopped, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}
