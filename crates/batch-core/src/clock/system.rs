//! The clock of the system.

use crate::accumulator::Time;

/// Counts from when it was made.
pub(crate) struct SystemClock(Origin);

#[cfg(target_os = "linux")]
type Origin = Time;
#[cfg(not(target_os = "linux"))]
type Origin = std::time::Instant;

#[cfg(target_os = "linux")]
impl SystemClock {
    pub(super) fn new() -> Self {
        Self(read(rustix::time::ClockId::Monotonic))
    }

    /// Returns the time in nanoseconds.
    pub(super) fn now(&self) -> Time {
        read(rustix::time::ClockId::Monotonic).saturating_sub(self.0)
    }

    /// Returns the time in nanoseconds as it was at the last tick, mostly 10 ms ago at most: more
    /// where the machine was held up. It costs about a tenth of [`now`](Self::now).
    #[inline]
    pub(super) fn rough(&self) -> Time {
        read(rustix::time::ClockId::MonotonicCoarse).saturating_sub(self.0)
    }
}

/// The two clocks count from the same moment.
#[cfg(target_os = "linux")]
#[inline]
fn read(clock: rustix::time::ClockId) -> Time {
    let time = rustix::time::clock_gettime(clock);
    // Neither is ever negative.
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(not(target_os = "linux"))]
impl SystemClock {
    pub(super) fn new() -> Self {
        Self(std::time::Instant::now())
    }

    /// Returns the time in nanoseconds.
    pub(super) fn now(&self) -> Time {
        super::nanos(self.0.elapsed())
    }

    /// Returns the time in nanoseconds; there is no cheaper way to learn it.
    pub(super) fn rough(&self) -> Time {
        self.now()
    }
}
