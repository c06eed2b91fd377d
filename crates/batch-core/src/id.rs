//! Identities of items and batches.

use std::fmt;

/// Names one accepted item for as long as the work exists.
///
/// `seq` counts items from zero inside one `epoch`; the epoch of a batcher without a journal is
/// always 0. Ids are ordered as the items were accepted, and none is ever given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId {
    /// The run of the process that accepted the item.
    pub epoch: u64,
    /// The position of the item among those accepted in that run.
    pub seq: u64,
}

impl ItemId {
    /// Returns the id of an item accepted so many items later in the same run. A journal that is not
    /// ours may give out the last ids that there are.
    pub(crate) fn plus(self, items: u64) -> Self {
        Self { seq: self.seq.saturating_add(items), ..self }
    }
}

/// Counts the ids of items that no journal names.
#[derive(Debug, Default)]
pub(crate) struct NextIds(u64);

impl NextIds {
    /// Takes the next ids, so many, and returns the first.
    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> ItemId {
        let first = ItemId { epoch: 0, seq: self.0 };
        self.0 += count as u64;
        first
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.seq)
    }
}

/// Names one batch of a batcher, in the order in which batches were opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
