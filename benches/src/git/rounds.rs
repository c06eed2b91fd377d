//! Sides that take turns, and how they compare.

use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

use super::Fallible;

/// How many times longer one side took than the other, round by round.
#[derive(Clone, Debug)]
pub struct Ratios {
    sorted: Vec<f64>,
    median_ms: [f64; 2],
}

impl Ratios {
    /// Compares what two sides took in the same rounds: `theirs` divided by `ours`. Each round by
    /// itself, because the machine may be another one in the next.
    pub(super) fn of(theirs: &[Duration], ours: &[Duration]) -> Ratios {
        let pairs = theirs.iter().zip(ours);
        let ratios = pairs.map(|(theirs, ours)| theirs.as_secs_f64() / ours.as_secs_f64());
        let median_ms = [theirs, ours]
            .map(|times| quantile(&sorted(times.iter().map(Duration::as_secs_f64)), 2) * 1000.0);
        Ratios { sorted: sorted(ratios), median_ms }
    }

    /// Returns the one in the middle.
    pub fn median(&self) -> f64 {
        quantile(&self.sorted, 2)
    }
}

/// The median, the quartiles, and the median times behind them.
impl fmt::Display for Ratios {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [low, high] = [1, 3].map(|quarter| quantile(&self.sorted, quarter));
        let [theirs, ours] = self.median_ms;
        let (median, rounds) = (self.median(), self.sorted.len());
        write!(f, "{median:.2}, quartiles {low:.2} and {high:.2} of {rounds} rounds; ")?;
        write!(f, "{theirs:.1} ms / {ours:.1} ms")
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn quantile(sorted: &[f64], quarters: usize) -> f64 {
    sorted.get(sorted.len() * quarters / 4).copied().unwrap_or(f64::NAN)
}

/// Times `work`, after the disk has finished what was written before: whoever makes something durable
/// would wait for what others have left.
pub(super) fn timed<T>(work: impl FnOnce() -> Fallible<T>) -> Fallible<(Duration, T)> {
    if !Command::new("sync").status()?.success() {
        return Err("the disk cannot be waited for".into());
    }
    let started = Instant::now();
    let value = work()?;
    Ok((started.elapsed(), value))
}
