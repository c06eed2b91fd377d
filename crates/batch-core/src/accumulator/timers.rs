//! The moments at which something changes by itself.

use super::few::Few;
use super::lane::LaneId;
use super::policy::{NEVER, Time};
use crate::id::BatchId;

/// Whose moment it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alarm {
    Lane(LaneId),
    Batch(BatchId),
}

/// One alarm at most for each lane and each batch in flight; none of them is stale, as their
/// owners remember the time and move it.
#[derive(Debug, Default)]
pub(super) struct Timers(Few<(Time, Alarm), ()>);

impl Timers {
    /// Moves an alarm from `*at` to `to`; [`NEVER`] means that it is not set.
    pub(super) fn set(&mut self, alarm: Alarm, at: &mut Time, to: Time) {
        if *at == to {
            return;
        }
        if *at != NEVER {
            self.0.remove(&(*at, alarm));
        }
        if to != NEVER {
            self.0.insert((to, alarm), ());
        }
        *at = to;
    }

    /// Returns the alarm that is due first, if it is due by `now`.
    pub(super) fn due(&self, now: Time) -> Option<Alarm> {
        self.0.first().filter(|((at, _), ())| *at <= now).map(|((_, alarm), ())| *alarm)
    }

    /// Returns when the next alarm is due.
    pub(super) fn next(&self) -> Option<Time> {
        self.0.first().map(|((at, _), ())| *at)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
