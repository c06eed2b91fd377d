//! The locks of the engine, in one place.
//!
//! A poisoned lock is taken over: no user code runs under any lock of this crate except `Ord`,
//! `Clone` and `Drop` of a key, and every critical section leaves its state whole at each step.

pub(crate) use std::sync::{Arc, Mutex, MutexGuard, Weak};

pub(crate) mod raw;

use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Locks `mutex`, poisoned or not.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the moment `timeout` from now, or `None` if it lies beyond what the clock can tell.
pub(crate) fn deadline(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

/// Says whether `until` has come.
pub(crate) fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}
