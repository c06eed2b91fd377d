//! Barriers: which of the items accepted before a flush are not final.

use std::collections::VecDeque;

/// Names the items accepted between two flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EraId(pub(crate) u64);

/// Counts the unfinished items of each era.
#[derive(Debug)]
pub(super) struct Eras {
    /// Unfinished items by era, from the first era that is not done to the current one.
    /// Never empty. No era but the first and the current one is without an item for long: there
    /// are at most as many eras as items, and one.
    open: VecDeque<usize>,
    /// The era that stands first in `open`.
    first: u64,
    /// The next done era to be told of.
    untold: u64,
}

impl Eras {
    pub(super) fn new() -> Self {
        Self { open: VecDeque::from([0]), first: 0, untold: 0 }
    }

    /// Returns the era of items accepted now.
    pub(super) fn current(&self) -> EraId {
        EraId(self.first + self.open.len() as u64 - 1)
    }

    /// Counts an accepted item.
    pub(super) fn enter(&mut self) -> EraId {
        *self.open.back_mut().expect("the current era is always listed") += 1;
        self.current()
    }

    /// Counts items of an era that are final, and told of it.
    pub(super) fn leave(&mut self, era: EraId, items: usize) {
        if items == 0 {
            return;
        }
        let index = usize::try_from(era.0 - self.first).expect("an era listed has an index");
        self.open[index] -= items;
        while self.open.len() > 1 && self.open[0] == 0 {
            self.open.pop_front();
            self.first += 1;
        }
    }

    /// Ends the current era; returns the one that is done when all items accepted so far are
    /// final, or `None` if they are.
    pub(super) fn turn(&mut self) -> Option<EraId> {
        let current = self.current();
        if self.open.back() != Some(&0) {
            self.open.push_back(0);
            Some(current)
        } else if self.open.len() > 1 {
            // Nothing came since the last flush: its era ends this one too.
            Some(EraId(current.0 - 1))
        } else {
            None
        }
    }

    /// Tells of the next era whose items, and those of all before it, are final; each once.
    pub(super) fn next_done(&mut self) -> Option<EraId> {
        let era = EraId(self.untold);
        (era.0 < self.first).then(|| {
            self.untold += 1;
            era
        })
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}
