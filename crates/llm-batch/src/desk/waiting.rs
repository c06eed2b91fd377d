//! Which passes wait, and which of them is due first.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Passes that wait, by number. Whatever is done with one takes no longer for all the others.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// When each is due; never where only mail can wake it.
    passes: BTreeMap<u64, Option<Instant>>,
    by_due: BTreeSet<(Instant, u64)>,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.passes.is_empty()
    }

    /// Takes a pass in.
    pub(super) fn insert(&mut self, number: u64, due: Option<Instant>) {
        self.remove(number);
        self.passes.insert(number, due);
        self.by_due.extend(due.map(|due| (due, number)));
    }

    /// Takes a pass out; tells whether it was there.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let Some(due) = self.passes.remove(&number) else { return false };
        if let Some(due) = due {
            self.by_due.remove(&(due, number));
        }
        true
    }

    /// Has a pass due now; tells whether it was there.
    pub(super) fn wake(&mut self, number: u64, now: Instant) -> bool {
        let is_there = self.remove(number);
        if is_there {
            self.insert(number, Some(now));
        }
        is_there
    }

    /// Has all passes due now.
    pub(super) fn wake_all(&mut self, now: Instant) {
        for due in self.passes.values_mut() {
            *due = Some(now);
        }
        self.by_due = self.passes.keys().map(|number| (now, *number)).collect();
    }

    /// Returns the pass that is due first, and when.
    pub(super) fn first(&self) -> Option<(Instant, u64)> {
        self.by_due.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a list that is looked through.
        #[test]
        fn the_first_is_always_the_one_that_is_due_first(
            changes in proptest::collection::vec((0_u8..5, 0_u64..6, 0_u64..9), 0..60),
        ) {
            let (start, mut waiting) = (Instant::now(), Waiting::default());
            let mut model: BTreeMap<u64, Option<Instant>> = BTreeMap::new();
            for (change, number, seconds) in changes {
                let at = start + Duration::from_secs(seconds);
                match change {
                    0 => {
                        waiting.insert(number, Some(at));
                        model.insert(number, Some(at));
                    }
                    1 => {
                        waiting.insert(number, None);
                        model.insert(number, None);
                    }
                    2 => prop_assert_eq!(waiting.remove(number), model.remove(&number).is_some()),
                    3 => {
                        let there = model.get_mut(&number).map(|due| *due = Some(at));
                        prop_assert_eq!(waiting.wake(number, at), there.is_some());
                    }
                    _ => {
                        waiting.wake_all(at);
                        for due in model.values_mut() {
                            *due = Some(at);
                        }
                    }
                }
                let timed = model.iter().filter_map(|(number, due)| Some(((*due)?, *number)));
                prop_assert_eq!(waiting.first(), timed.min());
                prop_assert_eq!(waiting.is_empty(), model.is_empty());
            }
        }
    }
}
