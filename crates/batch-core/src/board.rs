//! The counters as readers see them: whole, without a lock.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread;

use crate::stats::{COUNTERS, Stats};

/// Shows a consistent copy of the counters to any number of readers.
///
/// One writer at a time, which holds the engine's lock, and readers that never make it wait: a
/// reader that met a write reads again (a sequence lock, after H.-J. Boehm, "Can seqlocks get along
/// with programming language memory models?", 2012).
pub(crate) struct Board {
    /// Odd while a write goes on.
    sequence: AtomicU64,
    counters: [AtomicU64; COUNTERS],
}

impl Board {
    pub(crate) fn new() -> Self {
        Self { sequence: AtomicU64::new(0), counters: [const { AtomicU64::new(0) }; COUNTERS] }
    }

    /// Shows `stats`. The caller holds the lock that makes it the only writer.
    pub(crate) fn write(&self, stats: &Stats) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (counter, value) in self.counters.iter().zip(stats.to_array()) {
            counter.store(value, Ordering::Relaxed);
        }
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    /// Shows what a submit changes: the items accepted, queued and refused. The caller holds the
    /// lock.
    pub(crate) fn write_accepted(&self, stats: &Stats) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (place, value) in stats.accepted_places() {
            self.counters[place].store(value, Ordering::Relaxed);
        }
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    pub(crate) fn read(&self) -> Stats {
        let mut tries = 0_u32;
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let values = std::array::from_fn(|i| self.counters[i].load(Ordering::Relaxed));
                fence(Ordering::Acquire);
                if self.sequence.load(Ordering::Relaxed) == before {
                    return Stats::from_array(values);
                }
            }
            tries += 1;
            // The writer may have lost its processor in the middle of a write.
            if tries.is_multiple_of(64) { thread::yield_now() } else { hint::spin_loop() }
        }
    }
}
