//! What the slots are built on: of the standard library, or loom's or shuttle's own under their
//! tests.

#[cfg(not(all(test, any(loom, shuttle))))]
pub(crate) use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    thread::{Thread, current},
};

#[cfg(all(test, shuttle))]
pub(crate) use shuttle::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    thread::{Thread, current},
};

#[cfg(all(test, loom))]
pub(crate) use self::parker::{Thread, current};
#[cfg(all(test, loom))]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
};

use std::sync::PoisonError;
use std::time::Instant;

/// Locks `mutex`, poisoned or not.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parks the thread until it is unparked or `until` has come, or for no reason.
#[cfg(not(all(test, any(loom, shuttle))))]
pub(crate) fn park_until(until: Option<Instant>) {
    match until {
        None => std::thread::park(),
        Some(until) => {
            std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
        }
    }
}

/// Parks the thread until it is unparked, or for no reason; shuttle has no clock.
#[cfg(all(test, shuttle))]
pub(crate) fn park_until(_until: Option<Instant>) {
    shuttle::thread::park();
}

/// Parks the thread until it is unparked, or for no reason; loom has no clock.
#[cfg(all(test, loom))]
pub(crate) fn park_until(until: Option<Instant>) {
    match until {
        None => parker::park(),
        Some(_) => loom::thread::yield_now(),
    }
}

/// Lends its content by raw pointer, as loom's does.
#[cfg(not(all(test, loom)))]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(all(test, loom)))]
impl<T> UnsafeCell<T> {
    pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}

/// Threads that can be parked. Those of loom end any wait when they are unparked, one for a lock
/// included, and so cannot be told of a cell that is done already; these have a token.
#[cfg(all(test, loom))]
mod parker {
    use std::sync::Arc;

    use loom::sync::Notify;

    loom::thread_local! {
        static TOKEN: Arc<Notify> = Arc::new(Notify::new());
    }

    #[derive(Clone)]
    pub(crate) struct Thread(Arc<Notify>);

    impl Thread {
        pub(crate) fn unpark(&self) {
            self.0.notify();
        }

        pub(crate) fn id(&self) -> *const Notify {
            Arc::as_ptr(&self.0)
        }
    }

    pub(crate) fn current() -> Thread {
        TOKEN.with(|token| Thread(Arc::clone(token)))
    }

    pub(super) fn park() {
        TOKEN.with(|token| token.wait());
    }
}
