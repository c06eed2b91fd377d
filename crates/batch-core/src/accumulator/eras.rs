//! Barriers: which of the items accepted before a flush are not final.

use std::collections::BTreeMap;

/// Names the items accepted between two flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EraId(pub(crate) u64);

/// Counts the unfinished items of each era.
#[derive(Debug, Default)]
pub(super) struct Eras {
    /// Unfinished items of the eras that a flush has ended; none is listed with 0.
    ended: BTreeMap<EraId, usize>,
    /// The era of items accepted now.
    current: u64,
    /// Its unfinished items.
    open: usize,
    /// Eras before this one were told of as done.
    told: u64,
}

impl Eras {
    /// Returns the era of items accepted now.
    pub(super) fn current(&self) -> EraId {
        EraId(self.current)
    }

    /// Counts so many accepted items.
    #[inline]
    pub(super) fn enter(&mut self, items: usize) {
        self.open += items;
    }

    /// Counts items of an era that are final, and told of it.
    pub(super) fn leave(&mut self, era: EraId, items: usize) {
        if items == 0 {
            return;
        }
        if era == self.current() {
            self.open -= items;
            return;
        }
        let open = self.ended.get_mut(&era).expect("an era with items is listed");
        *open -= items;
        if *open == 0 {
            self.ended.remove(&era);
        }
    }

    /// Ends the current era; returns the one that is done when all items accepted so far are
    /// final, or `None` if they are.
    pub(super) fn turn(&mut self) -> Option<EraId> {
        if self.open > 0 {
            self.ended.insert(self.current(), std::mem::take(&mut self.open));
            self.current += 1;
        }
        self.ended.last_key_value().map(|(era, _)| *era)
    }

    /// Returns the last era that is done, with all before it, if it was not told of before.
    pub(super) fn next_done(&mut self) -> Option<EraId> {
        let first_open = self.ended.first_key_value().map_or(self.current, |(era, _)| era.0);
        let is_news = first_open > self.told;
        self.told = first_open;
        is_news.then(|| EraId(first_open - 1))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ended.len()
    }
}
