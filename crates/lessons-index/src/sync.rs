//! What threads share, so that a model checker can take its place.

#[cfg(not(shuttle))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use std::sync::{Arc, PoisonError};

/// Points to what readers see.
#[cfg(not(shuttle))]
#[derive(Debug, Default)]
pub(crate) struct Swap<T>(arc_swap::ArcSwap<T>);

#[cfg(not(shuttle))]
impl<T> Swap<T> {
    pub(crate) fn load(&self) -> Arc<T> {
        self.0.load_full()
    }

    pub(crate) fn store(&self, value: Arc<T>) {
        self.0.store(value);
    }
}

#[cfg(shuttle)]
#[derive(Debug, Default)]
pub(crate) struct Swap<T>(Mutex<Arc<T>>);

#[cfg(shuttle)]
impl<T> Swap<T> {
    pub(crate) fn load(&self) -> Arc<T> {
        Arc::clone(&lock(&self.0))
    }

    pub(crate) fn store(&self, value: Arc<T>) {
        *lock(&self.0) = value;
    }
}

/// Locks what no panic can leave half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
