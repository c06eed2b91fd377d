//! What a worker sees of the queue without its lock.

use std::sync::atomic::{AtomicBool, Ordering};

/// Shows whether a batch is ready, to workers that have just run one.
///
/// To be woken costs a thread and whoever wakes it several microseconds each, and more where the
/// processor has gone to sleep meanwhile, while the next batch is often there sooner. So a worker
/// looks out for it for a moment before it rests, in the rhythm of crossbeam's `Backoff::snooze`.
///
/// Only a hint: what it does is found out under the lock. It has lines of memory of its own, which
/// are written once or twice a batch.
#[repr(align(128))]
pub(super) struct Outlook(AtomicBool);

impl Outlook {
    pub(super) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Shows whether a batch is ready. The caller holds the lock.
    pub(super) fn show(&self, is_ready: bool) {
        if self.is_ready() != is_ready {
            self.0.store(is_ready, Ordering::Relaxed);
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns as soon as a batch is ready, or after some microseconds.
    #[cfg(not(all(test, any(loom, shuttle))))]
    pub(super) fn look_out(&self) {
        const SPINS: u32 = 7;
        const YIELDS: u32 = 4;
        for step in 0..SPINS + YIELDS {
            if self.is_ready() {
                return;
            }
            if step < SPINS {
                (0..1 << step).for_each(|_| std::hint::spin_loop());
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Returns at once: a model tries every order of the steps anyway.
    #[cfg(all(test, any(loom, shuttle)))]
    pub(super) fn look_out(&self) {}
}

#[cfg(all(test, not(shuttle), not(loom)))]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use super::Outlook;
    use crate::batcher::Batcher;
    use crate::processor::batch_fn;

    #[test]
    fn nobody_looks_out_for_ever() {
        let outlook = Outlook::new();
        outlook.look_out();
        assert!(!outlook.is_ready());
        outlook.show(true);
        outlook.look_out();
        assert!(outlook.is_ready());
    }

    #[test]
    fn what_is_ready_is_shown_until_it_is_taken() {
        let (begun, has_begun) = channel();
        let (end, may_end) = channel::<()>();
        let may_end = Mutex::new(may_end);
        let batcher = Batcher::builder(batch_fn(move |items: &[u8]| {
            begun.send(()).unwrap();
            may_end.lock().unwrap().recv().unwrap();
            items.iter().map(|item| Ok::<u8, Infallible>(*item)).collect()
        }))
        .max_batch_items(1)
        .unordered()
        .build()
        .unwrap();
        let is_ready = || batcher.engine().core.outlook.is_ready();
        let first = batcher.submit(1).unwrap();
        has_begun.recv().unwrap();
        assert!(!is_ready(), "the only batch is at the processor");
        let second = batcher.submit(2).unwrap();
        assert!(is_ready(), "a batch waits for the worker");
        end.send(()).unwrap();
        has_begun.recv().unwrap();
        assert!(!is_ready(), "the worker has taken it");
        end.send(()).unwrap();
        assert_eq!((first.wait().unwrap(), second.wait().unwrap()), (1, 2));
    }
}
