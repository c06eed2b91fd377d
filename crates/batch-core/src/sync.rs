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
use std::time::{Duration, Instant};
#[cfg(not(all(test, any(loom, shuttle))))]
use std::{sync::TryLockError, thread};

#[cfg(all(test, loom))]
use loom::thread;
#[cfg(all(test, shuttle))]
use shuttle::thread;

/// Locks `mutex`, poisoned or not.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks `mutex` as [`lock`] does; who finds it taken lets other threads run before it looks again.
///
/// For a lock that is held for some nanoseconds, again and again. A thread that spins for it takes
/// the memory from whoever holds it, and the processor from whoever has work: two clients that submit
/// without a pause are slower than one. After a few turns of the others it sleeps until it is called.
#[cfg(not(all(test, any(loom, shuttle))))]
pub(crate) fn lock_in_turn<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    const TURNS: u32 = 10;
    for _ in 0..TURNS {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(error)) => return error.into_inner(),
            Err(TryLockError::WouldBlock) => thread::yield_now(),
        }
    }
    lock(mutex)
}

/// Waits at once: a model tries every order of the steps anyway.
#[cfg(all(test, any(loom, shuttle)))]
pub(crate) fn lock_in_turn<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    lock(mutex)
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
