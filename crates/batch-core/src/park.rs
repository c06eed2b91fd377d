//! Threads that wait: for a moment awake, then asleep until they are called.

use std::task::{Wake, Waker};
#[cfg(not(all(test, any(loom, shuttle))))]
use std::time::Duration;
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
        // What was there does not matter; a store would do, but loom takes it for one that the
        // next swap need not see.
        self.is_called.swap(1, Ordering::Release);
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

/// How long a thread stays awake for what it waits for.
///
/// To fall asleep and to be woken costs two threads some microseconds each, and tens of them where
/// the processor falls asleep too. Most batches of a quick processor are over sooner.
#[cfg(not(all(test, any(loom, shuttle))))]
const AWAKE: Duration = Duration::from_micros(20);

/// Says whether `is_there` soon: looks again and again until `until` has come, or for some
/// microseconds, and lets other threads run between two looks.
///
/// Nothing spins: on a busy processor one look is a turn of everybody else.
#[cfg(not(all(test, any(loom, shuttle))))]
pub(crate) fn comes_soon(until: Option<Instant>, is_there: impl Fn() -> bool) -> bool {
    if is_there() {
        return true;
    }
    let now = Instant::now();
    let soon = now + AWAKE;
    let until = until.map_or(soon, |until| until.min(soon));
    let mut is_late = now >= until;
    while !is_late {
        std::thread::yield_now();
        if is_there() {
            return true;
        }
        is_late = Instant::now() >= until;
    }
    false
}

/// Looks once: a model tries every order of the steps anyway.
#[cfg(all(test, any(loom, shuttle)))]
pub(crate) fn comes_soon(_: Option<Instant>, is_there: impl Fn() -> bool) -> bool {
    is_there()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::cell::Cell;
    use std::time::{Duration, Instant};

    use super::comes_soon;

    #[test]
    fn what_is_there_is_seen_and_what_never_comes_is_given_up() {
        assert!(comes_soon(None, || true));
        assert!(!comes_soon(None, || false));
        let looks = Cell::new(0);
        assert!(comes_soon(None, || looks.replace(looks.get() + 1) == 1), "it looks again");
    }

    #[test]
    fn a_time_that_is_over_is_not_waited_for() {
        let looks = Cell::new(0);
        let look = || {
            looks.set(looks.get() + 1);
            false
        };
        assert!(!comes_soon(Some(Instant::now()), look));
        assert_eq!(looks.get(), 1);
        assert!(!comes_soon(Some(Instant::now() + Duration::from_hours(1)), || false));
    }
}
