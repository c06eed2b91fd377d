//! The clock of an engine.

use std::time::{Duration, Instant};

use crate::accumulator::Time;
use crate::sync::Arc;

/// Tells the time to a batcher, and may be one that a test moves by hand.
///
/// `now` counts from any fixed moment and never goes back. It is called while the batcher holds its
/// lock, so it must neither block nor use the batcher.
pub trait Clock: Send + Sync + 'static {
    /// Returns the time since a moment of the clock's choice.
    fn now(&self) -> Duration;

    /// Keeps `changed`, to be called after each jump of the clock; says whether it will be.
    ///
    /// A clock that returns true is never waited for: the batcher looks at its timers when it is
    /// told to. The default returns false, for clocks that run with the system's.
    fn subscribe(&self, changed: Box<dyn Fn() + Send + Sync>) -> bool {
        drop(changed);
        false
    }
}

/// The clock that an engine reads.
pub(crate) enum EngineClock {
    System(Instant),
    Custom(Arc<dyn Clock>),
}

impl EngineClock {
    pub(crate) fn new(custom: Option<Arc<dyn Clock>>) -> Self {
        custom.map_or_else(|| Self::System(Instant::now()), Self::Custom)
    }

    /// Returns the time in nanoseconds.
    pub(crate) fn now(&self) -> Time {
        let now = match self {
            Self::System(origin) => origin.elapsed(),
            Self::Custom(clock) => clock.now(),
        };
        nanos(now)
    }
}

/// Returns a duration in nanoseconds, or the most that can be told.
pub(crate) fn nanos(duration: Duration) -> Time {
    Time::try_from(duration.as_nanos()).unwrap_or(Time::MAX)
}

/// Returns nanoseconds as a duration.
pub(crate) fn duration(nanos: Time) -> Duration {
    Duration::from_nanos(nanos)
}
