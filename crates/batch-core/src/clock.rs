//! The clock of an engine.

mod system;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use self::system::SystemClock;
use crate::accumulator::{Moment, Time};
use crate::sync::{Arc, Mutex, lock};

/// Tells the time to a batcher, and may be one that a test moves by hand.
///
/// `now` counts from any fixed moment and never goes back. It is called while the batcher holds its
/// lock, so it must neither block nor use the batcher. A panic of it reaches the caller of
/// what needs the time, such as a submit or a flush; to what the batcher does by itself, for one caller
/// or another, the time stands still then.
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

/// A clock that stands still until it is moved, for tests.
///
/// Clones are the same clock. It starts at zero. It keeps a little of each batcher that is built on
/// it, for as long as it lives.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use batch_core::{BatchError, Batcher, Close, ManualClock, batch_fn};
///
/// let clock = ManualClock::new();
/// let parse = batch_fn(|texts: &[&str]| texts.iter().map(|text| text.parse::<u8>()).collect());
/// let builder = Batcher::builder(parse).clock(clock.clone()).linger(Duration::from_hours(24));
/// let batcher = builder.delivery_timeout(Some(Duration::from_hours(1))).build()?;
/// let ticket = batcher.submit("7")?;
/// clock.advance(Duration::from_hours(1));
/// assert!(matches!(ticket.wait(), Err(BatchError::Expired)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct ManualClock(Arc<Hands>);

#[derive(Default)]
struct Hands {
    now: AtomicU64,
    watchers: Mutex<Vec<Arc<Watcher>>>,
}

/// Is called after each jump.
type Watcher = dyn Fn() + Send + Sync;

impl ManualClock {
    /// Makes a clock that shows zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock on, and lets every timer go off that is due then, on this thread.
    pub fn advance(&self, time: Duration) {
        let step = |now: u64| Some(now.saturating_add(nanos(time)));
        // The function never declines.
        let _ = self.0.now.fetch_update(Ordering::AcqRel, Ordering::Acquire, step);
        let watchers = lock(&self.0.watchers).clone();
        for changed in watchers {
            changed();
        }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        duration(self.0.now.load(Ordering::Acquire))
    }

    fn subscribe(&self, changed: Box<dyn Fn() + Send + Sync>) -> bool {
        lock(&self.0.watchers).push(Arc::from(changed));
        true
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}

/// The clock that an engine reads.
pub(crate) enum EngineClock {
    System(SystemClock),
    Custom(Arc<dyn Clock>),
}

impl EngineClock {
    pub(crate) fn new(custom: Option<Arc<dyn Clock>>) -> Self {
        custom.map_or_else(|| Self::System(SystemClock::new()), Self::Custom)
    }

    /// Returns the time in nanoseconds.
    pub(crate) fn now(&self) -> Time {
        match self {
            Self::System(clock) => clock.now(),
            Self::Custom(clock) => nanos(clock.now()),
        }
    }
}

/// The moment at which it is asked.
pub(crate) struct Lately<'e> {
    pub(crate) clock: &'e EngineClock,
    /// The last tick of the system is near enough where a rough time will do.
    pub(crate) is_rough: bool,
}

impl Moment for Lately<'_> {
    #[inline]
    fn rough(&self) -> Time {
        match self.clock {
            EngineClock::System(clock) if self.is_rough => clock.rough(),
            clock => clock.now(),
        }
    }

    fn exact(&self) -> Time {
        self.clock.now()
    }
}

/// Returns a duration in nanoseconds, or the most that can be told.
pub(crate) fn nanos(duration: Duration) -> Time {
    let seconds = duration.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(u64::from(duration.subsec_nanos()))
}

/// Returns nanoseconds as a duration.
pub(crate) fn duration(nanos: Time) -> Duration {
    Duration::from_nanos(nanos)
}
