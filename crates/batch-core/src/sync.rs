//! The locks and threads of the engine, in one place: of the standard library, or loom's or
//! shuttle's own under their tests.
//!
//! A poisoned lock is taken over: no user code runs under any lock of this crate except `Eq`, `Ord`,
//! `Clone` and `Drop` of a key and a clock of the user's, and every critical section leaves its state
//! whole before it calls them.

#[cfg(not(all(test, any(loom, shuttle))))]
pub(crate) use std::{
    sync::{Mutex, MutexGuard},
    thread_local,
};

pub(crate) use std::sync::{Arc, Weak};

#[cfg(all(test, shuttle))]
pub(crate) use shuttle::{
    sync::{Mutex, MutexGuard},
    thread_local,
};

#[cfg(all(test, loom))]
pub(crate) use loom::sync::{Mutex, MutexGuard};

/// That of loom does not know constants.
#[cfg(all(test, loom))]
macro_rules! local_of_loom {
    (static $name:ident: $type:ty = const $value:block;) => {
        loom::thread_local! { static $name: $type = $value; }
    };
}
#[cfg(all(test, loom))]
pub(crate) use local_of_loom as thread_local;

pub(crate) mod raw;

use std::io;
use std::sync::PoisonError;
#[cfg(not(all(test, any(loom, shuttle))))]
use std::thread;
use std::time::{Duration, Instant};

#[cfg(all(test, loom))]
use loom::thread;
#[cfg(all(test, shuttle))]
use shuttle::thread;

/// Locks `mutex`, poisoned or not.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread that nobody joins.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}

/// Returns the moment `timeout` from now, or `None` if it lies beyond what the clock can tell.
pub(crate) fn deadline(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

/// Says whether `until` has come.
pub(crate) fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}
