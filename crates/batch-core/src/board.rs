//! The counters as readers see them: whole, without a lock.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread;

use crate::stats::{COUNTERS, Stats};

/// Shows a consistent copy of the counters to any number of readers.
///
/// One writer at a time, which holds the engine's lock, and readers that never make it wait: a
/// reader that met a write reads again (a sequence lock, after H.-J. Boehm, "Can seqlocks get along
/// with programming language memory models?", 2012). An accepted item changes one counter only:
/// how many are queued follows from the others.
///
/// The counter that each item changes comes last, next to the lock that is taken for it.
#[repr(C)]
pub(crate) struct Board {
    /// Odd while a write goes on.
    sequence: AtomicU64,
    counters: [AtomicU64; COUNTERS],
    accepted: AtomicU64,
}

impl Board {
    pub(crate) fn new() -> Self {
        let counters = [const { AtomicU64::new(0) }; COUNTERS];
        Self { sequence: AtomicU64::new(0), counters, accepted: AtomicU64::new(0) }
    }

    /// Shows `stats`. The caller holds the lock that makes it the only writer.
    pub(crate) fn write(&self, stats: &Stats) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (counter, value) in self.counters.iter().zip(stats.to_array()) {
            counter.store(value, Ordering::Relaxed);
        }
        self.accepted.store(stats.accepted, Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    /// Shows how many items were accepted, where nothing else has changed. The caller holds the
    /// lock.
    #[inline]
    pub(crate) fn write_accepted(&self, accepted: u64) {
        // Release: a reader that sees this sees the writes before, and so does not take it for a
        // part of an earlier one.
        self.accepted.store(accepted, Ordering::Release);
    }

    pub(crate) fn read(&self) -> Stats {
        let mut tries = 0_u32;
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let values = std::array::from_fn(|i| self.counters[i].load(Ordering::Relaxed));
                let accepted = self.accepted.load(Ordering::Acquire);
                fence(Ordering::Acquire);
                if self.sequence.load(Ordering::Relaxed) == before {
                    return Stats::from_array(accepted, values);
                }
            }
            tries += 1;
            // The writer may have lost its processor in the middle of a write.
            if tries.is_multiple_of(64) { thread::yield_now() } else { hint::spin_loop() }
        }
    }
}
