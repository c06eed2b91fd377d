//! What became of operations that were queued one by one, for those that come after them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use crate::Report;

/// The ends of the last operations, by id; of two with one id the later one counts.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    succeeded: BTreeMap<String, bool>,
    order: VecDeque<String>,
}

/// How many are remembered.
const CAPACITY: usize = 10_000;

impl Earlier {
    /// Whether the operation succeeded; `None` if nothing is known of it.
    pub(crate) fn succeeded(&self, id: &str) -> Option<bool> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.succeeded.get(id).copied()
    }

    pub(crate) fn record(&self, report: &Report) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        for (id, outcome) in &report.outcomes {
            if inner.succeeded.insert(id.clone(), outcome.is_success()).is_none() {
                inner.order.push_back(id.clone());
            }
            if inner.order.len() > CAPACITY
                && let Some(oldest) = inner.order.pop_front()
            {
                inner.succeeded.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CAPACITY, Earlier};
    use crate::{Outcome, Report};

    #[test]
    fn the_oldest_are_forgotten() {
        let earlier = Earlier::default();
        let mut report = Report::default();
        for n in 0..=CAPACITY {
            let outcome = Outcome::Skipped { because: String::new() };
            report.outcomes.push((n.to_string(), outcome));
        }
        earlier.record(&report);
        assert_eq!(earlier.succeeded("0"), None);
        assert_eq!(earlier.succeeded("1"), Some(false));
        assert_eq!(earlier.succeeded(&CAPACITY.to_string()), Some(false));
    }
}
