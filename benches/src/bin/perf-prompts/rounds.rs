//! Cases that take turns, timed by the processor time of the thread.

use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};

/// How often each case has its turn.
const ROUNDS: usize = 25;

/// Returns the processor time that this thread has used, in nanoseconds.
pub(crate) fn thread_nanos() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of minutes, within 52 bits")]
    let nanos = now.tv_sec as f64 * 1e9 + now.tv_nsec as f64;
    nanos
}

/// Runs the cases in turns, each `times` times a turn; returns the nanoseconds of one run of each: the
/// lower quartile of the turns, since what else the machine does can only add.
pub(crate) fn interleaved<const N: usize>(
    times: u32,
    mut cases: [&mut dyn FnMut(); N],
) -> [f64; N] {
    let mut turns: [Vec<f64>; N] = std::array::from_fn(|_| Vec::with_capacity(ROUNDS));
    for _ in 0..=ROUNDS {
        for (case, turns) in cases.iter_mut().zip(&mut turns) {
            // What ran before has left its own data in the caches; that is not a cost of this case.
            for _ in 0..times.div_ceil(10) {
                black_box(&mut *case)();
            }
            let start = thread_nanos();
            for _ in 0..times {
                black_box(&mut *case)();
            }
            turns.push((thread_nanos() - start) / f64::from(times));
        }
    }
    turns.map(|mut turns| {
        // The first turn fills the caches.
        turns.remove(0);
        turns.sort_by(f64::total_cmp);
        turns[ROUNDS / 4]
    })
}
