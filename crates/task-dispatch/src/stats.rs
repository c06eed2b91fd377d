use std::time::Duration;

use crate::{Outcome, Record};

/// The figures of a run. Durations are those of tasks that ran; `None` if none did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Tasks given to the run; the sum of the five counts below.
    pub tasks: usize,
    /// Tasks that returned a value.
    pub succeeded: usize,
    /// Tasks that returned an error.
    pub failed: usize,
    /// Tasks that panicked.
    pub panicked: usize,
    /// Tasks that never started because the token was cancelled.
    pub cancelled: usize,
    /// Tasks that never started because another had failed.
    pub skipped: usize,
    /// Threads that took part, the caller's included.
    pub workers: usize,
    /// Shortest task.
    pub min: Option<Duration>,
    /// Arithmetic mean.
    pub avg: Option<Duration>,
    /// Longest task.
    pub max: Option<Duration>,
    /// The duration that 95 % of the tasks did not exceed (nearest rank).
    pub p95: Option<Duration>,
    /// Sum over all tasks: the time that one worker would have needed.
    pub sum: Duration,
    /// Time from the start of the run to its end.
    pub wall: Duration,
}

impl Stats {
    pub(crate) fn of<T, E>(records: &[Record<T, E>], workers: usize, wall: Duration) -> Self {
        let mut stats = Self { tasks: records.len(), workers, wall, ..Self::default() };
        for record in records {
            let count = match record.outcome {
                Outcome::Ok(_) => &mut stats.succeeded,
                Outcome::Err(_) => &mut stats.failed,
                Outcome::Panicked(_) => &mut stats.panicked,
                Outcome::Cancelled => &mut stats.cancelled,
                Outcome::Skipped { .. } => &mut stats.skipped,
            };
            *count += 1;
        }
        let mut durations: Vec<_> = records.iter().filter_map(Record::duration).collect();
        durations.sort_unstable();
        stats.measure(&durations);
        stats
    }

    /// `durations` are sorted.
    fn measure(&mut self, durations: &[Duration]) {
        self.min = durations.first().copied();
        self.max = durations.last().copied();
        let rank = (durations.len() * 95).div_ceil(100);
        self.p95 = rank.checked_sub(1).map(|index| durations[index]);
        self.sum = durations.iter().fold(Duration::ZERO, |sum, &d| sum.saturating_add(d));
        self.avg = u32::try_from(durations.len()).ok().and_then(|n| self.sum.checked_div(n));
    }

    /// Returns the tasks that were started.
    pub fn completed(&self) -> usize {
        self.succeeded + self.failed + self.panicked
    }

    /// Returns the sum of all durations over the wall time: how many times faster than one by one.
    ///
    /// `None` if no time has passed. It never exceeds [`workers`](Self::workers).
    pub fn speed_up(&self) -> Option<f64> {
        ratio(self.sum, self.wall)
    }

    /// Returns the shortest wall time that this many workers could have reached with these tasks: the
    /// longest task, or the sum over the workers, whichever is more.
    pub fn lower_bound(&self) -> Duration {
        let workers = u32::try_from(self.workers.max(1)).unwrap_or(u32::MAX);
        (self.sum / workers).max(self.max.unwrap_or_default())
    }

    /// Returns the lower bound over the wall time: 1.0 is the best that any order could have reached.
    ///
    /// `None` if no time has passed.
    pub fn efficiency(&self) -> Option<f64> {
        ratio(self.lower_bound(), self.wall)
    }
}

fn ratio(part: Duration, whole: Duration) -> Option<f64> {
    (!whole.is_zero()).then(|| part.as_secs_f64() / whole.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Records of tasks that started at once and ran for so many milliseconds.
    fn ran(millis: &[u64]) -> Vec<Record<(), ()>> {
        let start = Instant::now();
        let record = |&ms| Record {
            id: String::new(),
            outcome: Outcome::Ok(()),
            span: Some((start, start + Duration::from_millis(ms))),
        };
        millis.iter().map(record).collect()
    }

    #[test]
    fn figures_follow_from_durations() {
        let stats = Stats::of(&ran(&[30, 10, 20]), 3, Duration::from_millis(40));
        assert_eq!(stats.min, Some(Duration::from_millis(10)));
        assert_eq!(stats.avg, Some(Duration::from_millis(20)));
        assert_eq!(stats.max, Some(Duration::from_millis(30)));
        assert_eq!(stats.p95, Some(Duration::from_millis(30)));
        assert_eq!(stats.sum, Duration::from_millis(60));
        assert_eq!(stats.lower_bound(), Duration::from_millis(30));
        assert_eq!(stats.speed_up(), Some(1.5));
        assert_eq!(stats.efficiency(), Some(0.75));
    }

    #[test]
    fn nine_equal_tasks_on_nine_workers_are_nine_times_faster() {
        let stats = Stats::of(&ran(&[50; 9]), 9, Duration::from_millis(50));
        assert_eq!(stats.speed_up(), Some(9.0));
        assert_eq!(stats.efficiency(), Some(1.0));
    }

    #[test]
    fn p95_leaves_the_slowest_twentieth_out() {
        let millis: Vec<u64> = (1..=100).collect();
        let stats = Stats::of(&ran(&millis), 1, Duration::from_secs(6));
        assert_eq!(stats.p95, Some(Duration::from_millis(95)));
    }

    #[test]
    fn nothing_ran_gives_no_durations_instead_of_zeros() {
        let stats = Stats::of::<(), ()>(&[], 0, Duration::ZERO);
        assert_eq!((stats.min, stats.avg, stats.max, stats.p95), (None, None, None, None));
        assert_eq!((stats.speed_up(), stats.efficiency()), (None, None));
    }
}
