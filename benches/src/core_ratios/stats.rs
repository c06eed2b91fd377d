//! Whether reading the counters gets in the way of those who submit.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::clients::{self, LINGER};
use super::rounds::Case;
use super::{Fallible, ours, to_f64};
use crate::alloc;

pub(super) const BESIDE_STATS: &str = "ours, submit, a thread reads the stats without a pause";
pub(super) const BESIDE_OTHER_WORK: &str = "ours, submit, a thread reads a number without a pause";

pub(super) fn beside_stats() -> Fallible<Case> {
    let batcher = ours::builder().linger(LINGER).build()?;
    Ok(Case::new(BESIDE_STATS, move || {
        let read = || batcher.stats().accepted;
        beside(read, || clients::run(|| ours::submit_and_wait(&batcher)))
    }))
}

/// The reader takes its share of the processor here too, so that only what the stats add differs.
pub(super) fn beside_other_work() -> Fallible<Case> {
    let batcher = ours::builder().linger(LINGER).build()?;
    let number = AtomicU64::new(0);
    Ok(Case::new(BESIDE_OTHER_WORK, move || {
        let read = || number.load(Ordering::Relaxed);
        beside(read, || clients::run(|| ours::submit_and_wait(&batcher)))
    }))
}

fn beside(read: impl Fn() -> u64 + Sync, work: impl FnOnce() -> Fallible<f64>) -> Fallible<f64> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                black_box(read());
            }
        });
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

/// Reads while two clients submit; returns the share of reads that asked for no memory.
pub(super) fn reads_without_allocation() -> Fallible<f64> {
    const READS: u64 = 10_000;
    let batcher = ours::builder().linger(LINGER).build()?;
    let (allocations, work) = thread::scope(|scope| {
        let work = scope.spawn(|| {
            let run = clients::run(|| ours::submit_and_wait(&batcher));
            run.map_err(|error| error.to_string())
        });
        let (allocations, ()) = alloc::count(|| {
            for _ in 0..READS {
                black_box(batcher.stats());
            }
        });
        (allocations, work.join())
    });
    work.map_err(|_| "a client panicked")??;
    Ok(1.0 - to_f64(allocations.min(READS)) / to_f64(READS))
}
