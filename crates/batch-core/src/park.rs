//! Threads that sleep until they are called.

use std::task::{Wake, Waker};
use std::time::Instant;

use crate::sync::raw::{AtomicU32, Ordering, Thread, current, park_until};
use crate::sync::{Arc, is_over};

/// A thread that can be called.
///
/// The call is noted here: the token of a parked thread may be taken by any other code that parks
/// on it before the thread sleeps, such as that of an observer.
pub(crate) struct Sleeper(Arc<Called>);

struct Called {
    thread: Thread,
    /// 1 once it was called, until it has noticed.
    is_called: AtomicU32,
}

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_called.store(1, Ordering::Release);
        self.thread.unpark();
    }
}

impl Sleeper {
    /// Makes one of the calling thread, which alone may [sleep](Self::sleep).
    pub(crate) fn new() -> Self {
        Self(Arc::new(Called { thread: current(), is_called: AtomicU32::new(0) }))
    }

    /// Returns a waker that calls it.
    pub(crate) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.0))
    }

    /// Sleeps until it is called, or was since it last slept, or until `until` has come.
    pub(crate) fn sleep(&self, until: Option<Instant>) {
        while self.0.is_called.swap(0, Ordering::Acquire) == 0 && !is_over(until) {
            park_until(until);
        }
    }
}
