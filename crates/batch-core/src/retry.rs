//! When items are tried again.

use std::time::Duration;

use crate::accumulator::RetryPolicy;
use crate::clock::nanos;

/// Sets how often, how soon and how many calls are made again.
///
/// It holds for items whose error the processor
/// [classifies](crate::BatchProcessor::classify) as [`Retry`](crate::Disposition::Retry). The delay
/// is drawn from zero to a limit that starts at `base` and doubles with each retry of the item up
/// to `max` ("full jitter"), and is never shorter than what the processor asks for. Retries end with
/// `max_attempts`, where the next would come after the item's delivery time-out, and when the
/// budget is used up: each call made again takes one out of it, five calls with a completed item
/// give one back, so that a service that is down is not called as often as one that works.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use batch_core::{BatchOf, BatchProcessor, Batcher, Disposition, Retry};
///
/// /// Says no at the first attempt.
/// struct Shy;
///
/// impl BatchProcessor for Shy {
///     type Key = ();
///     type Item = u32;
///     type Output = u32;
///     type Error = &'static str;
///
///     fn key(&self, _: &u32) {}
///
///     fn process(&self, (): &(), batch: BatchOf<Self>) {
///         for slot in batch.slots() {
///             slot.resolve(if slot.attempt() > 1 { Ok(slot.attempt()) } else { Err("busy") });
///         }
///     }
///
///     fn classify(&self, _: &&'static str) -> Disposition {
///         Disposition::Retry { after: None }
///     }
/// }
///
/// let retry = Retry::default().base(Duration::from_millis(1));
/// let batcher = Batcher::builder(Shy).retry(retry).build()?;
/// assert_eq!(batcher.submit(7)?.wait()?, 2);
/// assert_eq!(batcher.stats().retries, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it does nothing until it is given to a builder"]
pub struct Retry {
    base: Duration,
    max: Duration,
    max_attempts: u32,
    budget: u32,
}

impl Default for Retry {
    /// 100 ms at first, 30 s at most, 10 attempts, a budget of 100 calls.
    fn default() -> Self {
        Self {
            base: Duration::from_millis(100),
            max: Duration::from_secs(30),
            max_attempts: 10,
            budget: 100,
        }
    }
}

impl Retry {
    /// Sets the longest delay of the first retry.
    pub fn base(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// Sets the longest delay of any retry, what the processor asks for left aside.
    pub fn max(mut self, max: Duration) -> Self {
        self.max = max;
        self
    }

    /// Sets how often an item is given to the processor at most; calls after a split do not count.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// Sets the calls that may be made again while nothing succeeds.
    pub fn budget(mut self, calls: u32) -> Self {
        self.budget = calls;
        self
    }

    pub(crate) fn policy(self) -> RetryPolicy {
        RetryPolicy {
            base: nanos(self.base),
            cap: nanos(self.max),
            max_attempts: self.max_attempts,
            budget: self.budget,
        }
    }
}
