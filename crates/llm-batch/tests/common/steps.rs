//! The order in which things happen in a test.

use std::sync::{Condvar, Mutex};

/// How far a test has come: a call waits for a step, and says when it is reached.
#[derive(Debug, Default)]
pub struct Steps {
    reached: Mutex<Vec<&'static str>>,
    changed: Condvar,
}

impl Steps {
    pub fn reach(&self, step: &'static str) {
        self.reached.lock().unwrap().push(step);
        self.changed.notify_all();
    }

    pub fn wait_for(&self, step: &'static str) {
        let reached = self.reached.lock().unwrap();
        drop(self.changed.wait_while(reached, |reached| !reached.contains(&step)).unwrap());
    }
}
