//! Those who wait for cells of a block.

use std::mem;
use std::task::Waker;

use crate::panics;
use crate::sync::raw::{Mutex, Thread, lock};

pub(super) enum Waiter {
    Thread(Thread),
    Task(Waker),
}

impl Waiter {
    fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            // The waker is not ours: one that panics must not keep the others from being woken.
            Self::Task(waker) => panics::swallow(|| waker.wake()),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Thread(one), Self::Thread(other)) => one.id() == other.id(),
            (Self::Task(one), Self::Task(other)) => one.will_wake(other),
            _ => false,
        }
    }
}

/// Wakes all, and those that stand there several times in a row once.
pub(super) fn wake(mut waiters: Vec<Waiter>) {
    // A duplicate is dropped here, which is user code as a wake is.
    panics::swallow(|| waiters.dedup_by(|later, earlier| later.is_same(earlier)));
    waiters.into_iter().for_each(Waiter::wake);
}

/// The list, with at most one entry a cell. Allocates with the first. No waker is cloned, woken or
/// dropped under its lock.
pub(super) struct Waiters(Mutex<Vec<(u32, Waiter)>>);

impl Waiters {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Puts a waiter on the list, in place of an earlier one of the cell, unless `is_late`, which
    /// is asked under the lock; returns what it said.
    pub(super) fn put(&self, cell: u32, waiter: Waiter, is_late: impl FnOnce() -> bool) -> bool {
        let mut list = lock(&self.0);
        let is_late = is_late();
        let unneeded = match list.iter_mut().find(|(index, _)| *index == cell) {
            _ if is_late => Some(waiter),
            Some((_, known)) => Some(mem::replace(known, waiter)),
            None => {
                list.push((cell, waiter));
                None
            }
        };
        drop(list);
        drop(unneeded);
        is_late
    }

    /// Takes the waiter of a cell off the list.
    pub(super) fn take(&self, cell: u32) -> Option<Waiter> {
        let mut list = lock(&self.0);
        let at = list.iter().position(|(index, _)| *index == cell)?;
        Some(list.swap_remove(at).1)
    }

    /// Takes the waiters of all cells with these bits off the list.
    pub(super) fn take_all(&self, cells: u128, taken: &mut Vec<Waiter>) {
        let mut list = lock(&self.0);
        let matching = list.extract_if(.., |(index, _)| cells & (1 << *index) != 0);
        taken.extend(matching.map(|(_, waiter)| waiter));
    }

    /// Wakes the thread that waits for a cell, if one does, after `announce`, which is called
    /// under the lock; it stays on the list.
    pub(super) fn call_thread(&self, cell: u32, announce: impl FnOnce()) -> bool {
        let list = lock(&self.0);
        let waiter = list.iter().find(|(index, _)| *index == cell);
        let Some((_, Waiter::Thread(thread))) = waiter else { return false };
        let thread = thread.clone();
        announce();
        drop(list);
        thread.unpark();
        true
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }
}
