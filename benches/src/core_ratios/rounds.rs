//! Cases that take turns.

use super::{Fallible, to_f64};

/// One way to move the items.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// Runs it once and returns the nanoseconds an item.
    pub(super) run: Box<dyn FnMut() -> Fallible<f64>>,
}

impl Case {
    pub(super) fn new(name: &'static str, run: impl FnMut() -> Fallible<f64> + 'static) -> Case {
        Case { name, run: Box::new(run) }
    }
}

/// What the runs of every case came to.
pub(super) struct Summary(Vec<Runs>);

/// The nanoseconds an item of all runs of a case.
#[derive(Clone, Copy)]
pub(super) struct Runs {
    pub(super) name: &'static str,
    /// A quarter of the runs took less. What goes into a ratio: what disturbs a run makes it
    /// longer, never shorter.
    pub(super) lower_quartile: f64,
    pub(super) median: f64,
}

impl Summary {
    /// Returns the lower quartile of a case; not a number for one that was not run.
    pub(super) fn of(&self, name: &str) -> f64 {
        self.0.iter().find(|runs| runs.name == name).map_or(f64::NAN, |runs| runs.lower_quartile)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Runs> {
        self.0.iter().copied()
    }
}

/// Runs every case once unmeasured, then round by round.
pub(super) fn take_turns(cases: &mut [Case], rounds: usize) -> Fallible<Summary> {
    let mut runs = vec![Vec::with_capacity(rounds); cases.len()];
    for case in cases.iter_mut() {
        (case.run)().map_err(|error| format!("{}: {error}", case.name))?;
    }
    for _ in 0..rounds {
        for (case, runs) in cases.iter_mut().zip(&mut runs) {
            runs.push((case.run)()?);
        }
    }
    let summary = |(case, mut runs): (&mut Case, Vec<f64>)| {
        runs.sort_by(f64::total_cmp);
        Runs { name: case.name, lower_quartile: runs[runs.len() / 4], median: runs[runs.len() / 2] }
    };
    Ok(Summary(cases.iter_mut().zip(runs).map(summary).collect()))
}

/// Returns the nanoseconds an item, if the answers add up.
pub(super) fn per_item(
    took: std::time::Duration,
    items: u32,
    sum: u64,
    expected: u64,
) -> Fallible<f64> {
    if sum != expected {
        return Err(format!("the answers add up to {sum}, not to {expected}").into());
    }
    let nanoseconds = u64::try_from(took.as_nanos())?;
    Ok(to_f64(nanoseconds) / f64::from(items))
}
