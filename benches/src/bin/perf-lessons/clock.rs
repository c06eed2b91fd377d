//! How long calls take of the processor and on the clock.

use std::hint::black_box;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Returns the processor time of this thread.
pub(crate) fn cpu() -> Duration {
    time_of(ClockId::ThreadCPUTime)
}

/// Returns the processor time of all threads, those that have ended included.
pub(crate) fn cpu_of_all() -> Duration {
    time_of(ClockId::ProcessCPUTime)
}

fn time_of(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// Is the least that some rounds of work took, of all threads and on the clock.
pub(crate) struct Best {
    pub(crate) cpu: Duration,
    pub(crate) wall: Duration,
}

impl std::fmt::Display for Best {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} (on the clock {:?})", self.cpu, self.wall)
    }
}

pub(crate) fn best_of<E>(
    rounds: usize,
    mut work: impl FnMut() -> std::result::Result<(), E>,
) -> std::result::Result<Best, E> {
    let mut best = Best { cpu: Duration::MAX, wall: Duration::MAX };
    for _ in 0..rounds {
        let (cpu, wall) = (cpu_of_all(), Instant::now());
        work()?;
        best.cpu = best.cpu.min(cpu_of_all().saturating_sub(cpu));
        best.wall = best.wall.min(wall.elapsed());
    }
    Ok(best)
}

/// Holds how long each of many calls took, in order of length.
pub(crate) struct Times(Vec<Duration>);

#[derive(Clone, Copy)]
pub(crate) struct Took(pub(crate) Duration);

impl std::fmt::Display for Took {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl Times {
    pub(crate) fn at(&self, part: f64) -> Took {
        let last = self.0.len() - 1;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a place in a list"
        )]
        let at = (number(last as u64) * part) as usize;
        Took(self.0[at.min(last)])
    }

    pub(crate) fn median(&self) -> Took {
        self.at(0.5)
    }

    pub(crate) fn ratio(&self, ours: &Self) -> f64 {
        over(self.median().0, ours.median().0)
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} median, {} p99, {} worst", self.median(), self.at(0.99), self.at(1.0))
    }
}

pub(crate) fn each<T, R>(items: &[T], mut work: impl FnMut(&T) -> R) -> Times {
    for item in &items[..items.len().min(50)] {
        black_box(work(item));
    }
    // What is measured of nothing is what asking for the time takes.
    let mut asking: Vec<Duration> = (0..1_001).map(|_| took(|| ())).collect();
    asking.sort_unstable();
    let asking = asking[asking.len() / 2];
    let mut times: Vec<Duration> =
        items.iter().map(|item| took(|| work(item)).saturating_sub(asking)).collect();
    times.sort_unstable();
    Times(times)
}

/// Returns how long a call takes on whichever clock was disturbed less: one counts other programs, one its
/// own cost.
fn took<R>(work: impl FnOnce() -> R) -> Duration {
    let (on_clock, start) = (Instant::now(), cpu());
    black_box(work());
    let cpu = cpu().saturating_sub(start);
    cpu.min(on_clock.elapsed())
}

/// Returns what one call takes of the processor, without the cost of asking for the time.
pub(crate) fn mean<T, R>(items: &[T], mut work: impl FnMut(&T) -> R) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let start = cpu();
        for item in items {
            black_box(work(item));
        }
        best = best.min(cpu().saturating_sub(start));
    }
    best / u32::try_from(items.len()).unwrap_or(u32::MAX)
}

pub(crate) fn over(theirs: Duration, ours: Duration) -> f64 {
    theirs.as_secs_f64() / ours.as_secs_f64().max(1e-9)
}

#[expect(clippy::cast_precision_loss, reason = "numbers to read")]
pub(crate) fn number(count: u64) -> f64 {
    count as f64
}
