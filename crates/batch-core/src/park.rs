//! Wakers of threads.

use std::task::{Wake, Waker};

use crate::sync::Arc;
use crate::sync::raw::{Thread, current};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns a waker that unparks the calling thread.
pub(crate) fn waker() -> Waker {
    Waker::from(Arc::new(Unpark(current())))
}
