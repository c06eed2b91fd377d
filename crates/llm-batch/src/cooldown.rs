//! How long nothing goes out that shares a limit of the provider's, once that limit is reached.

use std::time::{Duration, Instant};

use crate::backoff::{Backoff, FIRST, FURTHEST};

/// Keeps back all who share a limit: for longer each time in a row that it is reached. Then one of them
/// goes first, and as long as nothing is heard, twice as many after each further wait.
#[derive(Debug)]
pub(crate) struct Cooldown {
    interval: Option<Duration>,
    /// Whether it takes long until it is heard that something was too much.
    hears_late: bool,
    backoff: Backoff,
    phase: Phase,
    /// How often it began.
    round: u64,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Whoever comes may go.
    Open,
    /// The limit was reached: nobody goes before that moment.
    Closed(Instant),
    /// Some have gone since, `left` more may, and twice as many as those together at that moment.
    Trial { until: Instant, size: u32, left: u32 },
}

/// With so many gone and nothing heard, all go.
const ENOUGH: u32 = 1024;

impl Cooldown {
    /// Returns one that keeps nobody back. It begins with waits of `interval`.
    pub(crate) fn new(interval: Option<Duration>) -> Cooldown {
        let (backoff, phase) = (Backoff::new(interval), Phase::Open);
        Cooldown { interval, hears_late: false, backoff, phase, round: 0 }
    }

    /// Returns the same where the provider takes everything, and says later that it was too much: each
    /// trial takes as long as the wait before it, not as the first one.
    pub(crate) fn hearing_late(self) -> Cooldown {
        Cooldown { hears_late: true, ..self }
    }

    /// Returns until when nobody goes, while that is ahead.
    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        match self.phase {
            Phase::Open | Phase::Trial { left: 1.., .. } => None,
            Phase::Closed(until) | Phase::Trial { until, left: 0, .. } => {
                Some(until).filter(|until| *until > now)
            }
        }
    }

    /// Returns how often the limit was reached.
    pub(crate) fn round(&self) -> u64 {
        self.round
    }

    /// Notes that somebody goes.
    pub(crate) fn enter(&mut self, now: Instant) {
        let size = match &mut self.phase {
            Phase::Open => return,
            Phase::Trial { left: left @ 1.., .. } => {
                *left -= 1;
                return;
            }
            Phase::Trial { size, left: 0, .. } => *size * 2,
            Phase::Closed(_) => 1,
        };
        let wait = if self.hears_late {
            self.backoff.last()
        } else {
            // An answer takes no longer because polls are far apart.
            self.backoff.first().min(FIRST)
        };
        let until = now.checked_add(wait).filter(|_| size < ENOUGH);
        let trial = |until| Phase::Trial { until, size, left: size - 1 };
        self.phase = until.map_or(Phase::Open, trial);
    }

    /// Notes that somebody who was to go did not.
    pub(crate) fn leave(&mut self) {
        if let Phase::Trial { size, left, .. } = &mut self.phase {
            *left = (*left + 1).min(*size);
        }
    }

    /// Notes that the provider took something.
    pub(crate) fn went_well(&mut self) {
        self.backoff = Backoff::new(self.interval);
        // What it said since then holds all the same.
        if let Phase::Trial { .. } = self.phase {
            self.phase = Phase::Open;
        }
    }

    /// Notes that there is less to keep others back for: one more may go.
    pub(crate) fn ease(&mut self, now: Instant) {
        self.went_well();
        if let Phase::Closed(_) = self.phase {
            self.phase = Phase::Closed(now);
        }
    }

    /// Notes that the limit is reached. Returns the number of the round that this is told of: those that
    /// were on their way together are told of one.
    pub(crate) fn went_badly(&mut self, now: Instant, retry_after: Option<Duration>) -> u64 {
        let retry_after = retry_after.map(|wait| wait.min(FURTHEST));
        let asked = retry_after.and_then(|wait| now.checked_add(wait));
        if let Phase::Closed(until) = self.phase
            && until > now
        {
            self.phase = Phase::Closed(asked.map_or(until, |asked| asked.max(until)));
            return self.round;
        }
        self.round += 1;
        let until = now.checked_add(self.backoff.after_failure(retry_after));
        self.phase = until.map_or(Phase::Open, Phase::Closed);
        self.round
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn closed() -> (Cooldown, Instant) {
        let (mut cooldown, now) = (Cooldown::new(Some(SECOND)), Instant::now());
        assert_eq!(cooldown.until(now), None);
        assert_eq!(cooldown.went_badly(now, None), 1);
        (cooldown, now)
    }

    #[test]
    fn those_that_fail_together_fail_once_and_each_round_waits_longer() {
        let (mut cooldown, mut now) = closed();
        for (round, seconds) in [(2, 2.0), (3, 4.0), (4, 8.0)] {
            let until = cooldown.until(now).unwrap();
            assert_eq!(cooldown.went_badly(now, None), round - 1);
            assert_eq!(cooldown.until(now), Some(until));
            now = until;
            assert_eq!(cooldown.until(now), None);
            assert_eq!(cooldown.went_badly(now, None), round);
            let wait = (cooldown.until(now).unwrap() - now).as_secs_f64();
            assert!((0.75 * seconds..=1.25 * seconds).contains(&wait), "{wait}");
        }
    }

    #[test]
    fn after_a_wait_one_goes_first_and_all_others_when_it_got_through() {
        let (mut cooldown, now) = closed();
        let now = cooldown.until(now).unwrap();
        cooldown.enter(now);
        assert!(cooldown.until(now).is_some());
        cooldown.went_well();
        for _ in 0..9 {
            assert_eq!(cooldown.until(now), None);
            cooldown.enter(now);
        }
    }

    #[test]
    fn as_long_as_nothing_is_heard_twice_as_many_go_after_each_wait() {
        let (mut cooldown, now) = closed();
        let mut now = cooldown.until(now).unwrap();
        for size in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512] {
            for gone in 0..size {
                assert_eq!(cooldown.until(now), None, "{gone} of {size}");
                cooldown.enter(now);
            }
            now = cooldown.until(now).expect("that is all for now");
        }
        for _ in 0..=ENOUGH {
            assert_eq!(cooldown.until(now), None);
            cooldown.enter(now);
        }
    }

    #[test]
    fn whoever_does_not_go_leaves_the_trial_to_the_next() {
        let (mut cooldown, now) = closed();
        let now = cooldown.until(now).unwrap();
        cooldown.leave();
        cooldown.enter(now);
        assert!(cooldown.until(now).is_some());
        cooldown.leave();
        cooldown.leave();
        assert_eq!(cooldown.until(now), None);
        cooldown.enter(now);
        assert!(cooldown.until(now).is_some());
    }

    #[test]
    fn what_the_one_that_goes_first_is_told_begins_the_next_round() {
        let (mut cooldown, now) = closed();
        let now = cooldown.until(now).unwrap();
        cooldown.enter(now);
        assert_eq!(cooldown.went_badly(now, None), 2);
    }

    #[test]
    fn what_the_provider_asks_for_holds_whatever_else_gets_through() {
        let (mut cooldown, now) = closed();
        let asked = Duration::from_mins(1);
        cooldown.went_badly(now, Some(asked));
        cooldown.went_well();
        assert_eq!(cooldown.until(now), Some(now + asked));
        cooldown.ease(now);
        assert_eq!(cooldown.until(now), None, "one more may go");
        cooldown.enter(now);
        assert!(cooldown.until(now).is_some(), "and no more than that");
    }

    #[test]
    fn a_wait_beyond_the_clock_is_a_wait() {
        for interval in [None, Some(Duration::MAX)] {
            let (mut cooldown, now) = (Cooldown::new(interval), Instant::now());
            for retry_after in [Some(Duration::MAX), None, Some(Duration::MAX)] {
                cooldown.went_badly(now, retry_after);
                assert!(cooldown.until(now) > now.checked_add(Duration::from_hours(24)));
            }
        }
    }

    #[test]
    fn a_trial_is_as_long_as_it_takes_to_hear_of_it() {
        let trial = |mut cooldown: Cooldown| {
            let mut now = Instant::now();
            for _ in 0..5 {
                cooldown.went_badly(now, None);
                now = cooldown.until(now).unwrap();
            }
            cooldown.enter(now);
            (cooldown.until(now).unwrap() - now).as_secs_f64()
        };
        let cooldown = || Cooldown::new(Some(SECOND));
        assert!((0.75..=1.25).contains(&trial(cooldown())), "at once, so that all may go soon");
        assert!((12.0..=20.0).contains(&trial(cooldown().hearing_late())));
        let rare = || Cooldown::new(Some(Duration::from_mins(10)));
        assert!(trial(rare()) <= 2.0, "an answer takes no longer because polls are rare");
        assert!(trial(rare().hearing_late()) >= 450.0);
    }
}
