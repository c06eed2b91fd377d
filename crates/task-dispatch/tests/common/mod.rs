//! Waiting without sleeping: for other tasks, with an end for the case that they never come.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Long enough for any machine; only a broken dispatcher waits that long.
const PATIENCE: Duration = Duration::from_mins(1);

/// A place where a number of tasks wait until all of them are there.
#[derive(Debug)]
pub(crate) struct Meeting {
    expected: usize,
    arrived: Mutex<usize>,
    complete: Condvar,
}

impl Meeting {
    pub(crate) fn of(expected: usize) -> Self {
        Self { expected, arrived: Mutex::new(0), complete: Condvar::new() }
    }

    /// Returns whether all came.
    pub(crate) fn join(&self) -> bool {
        let mut arrived = self.arrived.lock().expect("no task panics while it holds this");
        *arrived += 1;
        self.complete.notify_all();
        let missing = |arrived: &mut usize| *arrived < self.expected;
        let (_arrived, wait) = self
            .complete
            .wait_timeout_while(arrived, PATIENCE, missing)
            .expect("no task panics while it holds this");
        !wait.timed_out()
    }
}
