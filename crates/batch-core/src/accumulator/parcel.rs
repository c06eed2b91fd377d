//! Items that are sent together.

use super::entry::Entry;
use super::policy::Time;
use super::pool::{Buffers, Pool};
use crate::id::ItemId;

/// Items that are sent together, with what is known of each.
#[derive(Debug)]
pub(super) struct Parcel<I, S> {
    pub(super) items: Vec<I>,
    /// One for each of `items`, at the same place. Ids, times of acceptance and deadlines ascend,
    /// so the first is the oldest and the next to expire. Empty only while it is being changed.
    pub(super) entries: Vec<Entry<S>>,
    /// The sum of the weights of the items.
    pub(super) weight: u64,
}

impl<I, S> Parcel<I, S> {
    pub(super) fn new(buffers: Buffers<I, S>) -> Self {
        Self { items: buffers.items, entries: buffers.entries, weight: 0 }
    }

    /// Returns a parcel without items, and without memory.
    pub(super) fn empty() -> Self {
        Self { items: Vec::new(), entries: Vec::new(), weight: 0 }
    }

    /// Returns a parcel of these items, which are in order of their ids.
    pub(super) fn of(
        items: impl IntoIterator<Item = (I, Entry<S>)>,
        pool: &mut Pool<I, S>,
    ) -> Self {
        let mut parcel = Self::new(pool.take());
        for (item, entry) in items {
            parcel.push(item, entry);
        }
        parcel
    }

    #[inline]
    pub(super) fn push(&mut self, item: I, entry: Entry<S>) {
        self.weight = self.weight.saturating_add(entry.mark.weight);
        self.items.push(item);
        self.entries.push(entry);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn ids(&self) -> Vec<ItemId> {
        self.entries.iter().map(|entry| entry.id).collect()
    }

    /// Returns when the oldest item was accepted.
    pub(super) fn oldest(&self) -> Time {
        self.entries[0].accepted
    }

    /// Returns the first deadline.
    pub(super) fn deadline(&self) -> Time {
        self.entries[0].deadline
    }

    pub(super) fn last_id(&self) -> ItemId {
        self.entries[self.entries.len() - 1].id
    }

    /// Finds an item. Its id is almost always where the order of ids puts it.
    pub(super) fn index(&self, id: ItemId) -> Option<usize> {
        let place = self.entries.binary_search_by_key(&id, |entry| entry.id).ok();
        place.or_else(|| self.entries.iter().position(|entry| entry.id == id))
    }

    /// Takes out the items whose deadline has come.
    pub(super) fn expire(&mut self, now: Time, expired: &mut Vec<(I, Entry<S>)>) {
        let count = self.entries.partition_point(|entry| entry.deadline <= now);
        for (item, entry) in self.items.drain(..count).zip(self.entries.drain(..count)) {
            self.weight -= entry.mark.weight;
            expired.push((item, entry));
        }
    }

    /// Takes out one item.
    pub(super) fn cancel(&mut self, id: ItemId) -> Option<(I, Entry<S>)> {
        let index = self.index(id)?;
        let entry = self.entries.remove(index);
        self.weight -= entry.mark.weight;
        Some((self.items.remove(index), entry))
    }
}
