use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A request to stop, shared by whoever may ask and whoever should listen.
///
/// Clones are the same token. A token is cancelled once and for ever, by [`cancel`](Self::cancel), by
/// the cancellation of its [parent](Self::child), or when its [deadline](Self::with_deadline) has
/// passed. Asking is one atomic load, plus a clock read if there is a deadline.
///
/// ```
/// use std::time::Duration;
/// use task_dispatch::CancelToken;
///
/// let token = CancelToken::new();
/// let child = token.child();
/// assert!(!child.wait_timeout(Duration::from_millis(1)));
/// token.cancel();
/// assert!(child.wait_timeout(Duration::MAX));
/// ```
#[derive(Clone, Debug, Default)]
pub struct CancelToken {
    shared: Arc<Shared>,
    /// Belongs to the handle, not to the shared part: a time-out for each task costs no allocation.
    deadline: Option<Instant>,
}

#[derive(Debug, Default)]
struct Shared {
    cancelled: AtomicBool,
    /// Guards the passage to cancelled: a child is either listed before it or born cancelled.
    children: Mutex<Vec<Weak<Shared>>>,
    changed: Condvar,
}

impl CancelToken {
    /// Returns a token that nothing has cancelled yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a token that is cancelled together with this one, and can be cancelled alone.
    #[must_use]
    pub fn child(&self) -> Self {
        let child = Arc::new(Shared::default());
        let mut children = self.shared.lock();
        if self.shared.is_cancelled() {
            child.cancelled.store(true, Ordering::Release);
        } else {
            // Amortised: after a walk there is room for as many more as live, so the next one is as
            // far away, and the list never holds much more than twice the living children.
            if children.len() == children.capacity() {
                children.retain(|other| other.strong_count() > 0);
                let living = children.len();
                children.reserve(living + 1);
            }
            children.push(Arc::downgrade(&child));
        }
        drop(children);
        Self { shared: child, deadline: self.deadline }
    }

    /// Returns this token with a deadline: from `at` on, the returned handle and its clones count as
    /// cancelled. A deadline can only come closer; a later one than the present changes nothing.
    #[must_use]
    pub fn with_deadline(&self, at: Instant) -> Self {
        let deadline = Some(self.deadline.map_or(at, |present| present.min(at)));
        Self { shared: Arc::clone(&self.shared), deadline }
    }

    /// Returns this token with a deadline `timeout` from now; no deadline if that is out of range.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        match Instant::now().checked_add(timeout) {
            Some(at) => self.with_deadline(at),
            None => self.clone(),
        }
    }

    /// Cancels this token and its children, and wakes everyone who waits for it.
    ///
    /// Once it has returned, no dispatcher takes another task from its queue under this token.
    pub fn cancel(&self) {
        self.shared.cancel();
    }

    /// Returns whether the work should stop.
    pub fn is_cancelled(&self) -> bool {
        self.shared.is_cancelled() || self.deadline.is_some_and(|at| Instant::now() >= at)
    }

    /// Returns the time at which this handle counts as cancelled in any case.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Blocks until the token is cancelled or `timeout` is over, and returns whether it is cancelled.
    ///
    /// This is the pause for tasks that poll: it ends at once when the work is to stop.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        let end = Instant::now().checked_add(timeout);
        let end = [end, self.deadline].into_iter().flatten().min();
        let mut guard = self.shared.lock();
        loop {
            if self.is_cancelled() {
                return true;
            }
            let changed = &self.shared.changed;
            guard = match end {
                None => changed.wait(guard).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return self.is_cancelled();
                    }
                    changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl Shared {
    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// A panic cannot leave the list half changed, so a poisoned lock is as good as a clean one.
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Self>>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cancel(&self) {
        // Iterative, so that a long chain of children cannot exhaust the stack.
        let mut pending = self.cancel_one();
        while let Some(child) = pending.pop() {
            if let Some(child) = child.upgrade() {
                pending.append(&mut child.cancel_one());
            }
        }
    }

    fn cancel_one(&self) -> Vec<Weak<Self>> {
        let mut children = self.lock();
        self.cancelled.store(true, Ordering::Release);
        self.changed.notify_all();
        std::mem::take(&mut *children)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With room for one more only, each child that comes and goes would walk the whole list.
    #[test]
    fn a_list_full_of_living_children_is_not_walked_for_each_new_one() {
        let parent = CancelToken::new();
        let mut living: Vec<_> = (0..1000).map(|_| parent.child()).collect();
        let full = parent.shared.lock().capacity();
        while living.len() + 1 < full {
            living.push(parent.child());
        }
        let mut walks = 0;
        for _ in 0..full {
            let before = parent.shared.lock().len();
            drop(parent.child());
            walks += usize::from(parent.shared.lock().len() <= before);
        }
        assert!(walks <= 1, "{walks} walks over {full} children");
        assert!(parent.shared.lock().capacity() <= 4 * full, "and the dead do not pile up");
    }
}
