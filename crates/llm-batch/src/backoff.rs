//! How long to wait before asking again.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// The first wait, where no interval was set.
pub(crate) const FIRST: Duration = Duration::from_secs(2);
/// So that a provider is not asked without a pause, whatever was set.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_mins(1);
/// Later than any time-out that is meant, and soon enough for every clock.
pub(crate) const FURTHEST: Duration = Duration::from_hours(365 * 24);

/// The waits of one batch: growing from 2 s to 60 s, or even where the caller set an interval;
/// growing faster while calls fail. Each is spread by a quarter either way.
#[derive(Debug)]
pub(crate) struct Backoff {
    interval: Option<Duration>,
    polls: u32,
    failures: u32,
    random: u64,
}

impl Backoff {
    pub(crate) fn new(interval: Option<Duration>) -> Backoff {
        let random = RandomState::new().build_hasher().finish() | 1;
        let interval = interval.map(|interval| interval.clamp(SHORTEST, FURTHEST));
        Backoff { interval, polls: 0, failures: 0, random }
    }

    /// Returns the wait after a call that went well.
    pub(crate) fn after_success(&mut self) -> Duration {
        self.failures = 0;
        let wait = match self.interval {
            Some(interval) => interval,
            None => FIRST.mul_f64(1.5_f64.powi(i32::from(self.polls.min(20) as u8))).min(LONGEST),
        };
        self.polls = self.polls.saturating_add(1);
        self.spread(wait)
    }

    /// Returns the wait after a call that failed; never less than the provider asked for.
    pub(crate) fn after_failure(&mut self, retry_after: Option<Duration>) -> Duration {
        let wait = self.after(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.spread(wait).max(retry_after.unwrap_or_default())
    }

    /// Returns a wait as long as that after the first failure.
    pub(crate) fn first(&mut self) -> Duration {
        self.spread(self.after(0))
    }

    /// Returns a wait as long as that after the last failure.
    pub(crate) fn last(&mut self) -> Duration {
        let wait = self.after(self.failures.saturating_sub(1));
        self.spread(wait)
    }

    /// Returns the wait after one failure more than that.
    fn after(&self, failures: u32) -> Duration {
        let base = self.interval.unwrap_or(FIRST);
        base.saturating_mul(1 << failures.min(16)).min(LONGEST.max(base))
    }

    fn spread(&mut self, wait: Duration) -> Duration {
        // xorshift64: evenly spread is all that is asked of it.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let share = f64::from((self.random >> 33) as u32) / f64::from(1_u32 << 31);
        wait.mul_f64(0.75 + share / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(wait: Duration, centre: f64) -> bool {
        (0.75 * centre..=1.25 * centre).contains(&wait.as_secs_f64())
    }

    #[test]
    fn waits_grow_from_two_seconds_to_a_minute() {
        let mut backoff = Backoff::new(None);
        let waits: Vec<Duration> = (0..40).map(|_| backoff.after_success()).collect();
        assert!(within(waits[0], 2.0));
        assert!(within(waits[1], 3.0));
        assert!(waits[10..].iter().all(|w| within(*w, 60.0)));
        let differ = waits[10..].windows(2).filter(|w| w[0] != w[1]).count();
        assert!(differ > 20, "jitter is missing");
    }

    #[test]
    fn a_set_interval_stays_and_failures_still_back_off() {
        let mut backoff = Backoff::new(Some(Duration::from_secs(1)));
        assert!(within(backoff.after_success(), 1.0));
        assert!(within(backoff.after_success(), 1.0));
        assert!(within(backoff.after_failure(None), 1.0));
        assert!(within(backoff.after_failure(None), 2.0));
        assert!(within(backoff.after_failure(None), 4.0));
        for _ in 0..100 {
            backoff.after_failure(None);
        }
        assert!(within(backoff.after_failure(None), 60.0));
        assert!(within(backoff.after_success(), 1.0));
        assert!(within(backoff.after_failure(None), 1.0));
    }

    #[test]
    fn the_provider_is_never_asked_earlier_than_it_said() {
        let mut backoff = Backoff::new(Some(Duration::from_millis(1)));
        let asked = Duration::from_secs(30);
        assert_eq!(backoff.after_failure(Some(asked)), asked);
    }

    #[test]
    fn an_interval_beyond_the_clock_is_no_panic() {
        let mut backoff = Backoff::new(Some(Duration::MAX));
        for _ in 0..20 {
            let waits = [backoff.after_failure(None), backoff.after_success()];
            for wait in waits {
                assert!(std::time::Instant::now().checked_add(wait).is_some());
            }
        }
    }
}
