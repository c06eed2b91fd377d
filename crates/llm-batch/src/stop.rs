//! A hand on the brake of a wait.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Ends the waits of a run from another thread, for example one that receives signals.
///
/// Clones share one state. A stopped run keeps its state folder and returns
/// [`Error::Pending`](crate::Error::Pending); what was submitted goes on at the provider.
/// A poll or download is broken off; a create that is on its way is let finish, because breaking it off would leave it unknown
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
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    stopped: bool,
    hooks: Vec<(u64, Hook)>,
    next: u64,
}

type Hook = Box<dyn FnOnce() + Send>;

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("stopped", &self.stopped).finish_non_exhaustive()
    }
}

/// Keeps a hook in place; dropping it takes the hook away.
#[derive(Debug)]
pub(crate) struct Hooked {
    stop: Stop,
    id: u64,
}

impl Drop for Hooked {
    fn drop(&mut self) {
        let mut state = self.stop.state();
        state.hooks.retain(|(id, _)| *id != self.id);
    }
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
        let hooks = {
            let mut state = self.state();
            state.stopped = true;
            mem::take(&mut state.hooks)
        };
        for (_, hook) in hooks {
            hook();
        }
    }

    /// Tells whether [`stop`](Stop::stop) was called.
    pub fn is_stopped(&self) -> bool {
        self.state().stopped
    }

    /// Has `hook` run when somebody stops, for waits that are in other hands.
    pub(crate) fn on_stop(&self, hook: impl FnOnce() + Send + 'static) -> Hooked {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        if state.stopped {
            drop(state);
            hook();
        } else {
            state.hooks.push((id, Box::new(hook)));
        }
        Hooked { stop: self.clone(), id }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
