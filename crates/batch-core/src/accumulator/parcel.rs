//! Items that wait to be sent together.

use super::Parted;
use super::entry::Entry;
use super::packed::Packed;
use super::policy::Time;
use super::pool::Pool;
use super::run::{Known, Slot};
use crate::id::ItemId;

/// Items that wait to be sent together, with what is known of each.
///
/// Ids, times of acceptance and deadlines ascend, so the first is the oldest and the next to expire.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Parcel<I, S: Slot> {
    /// The sum of the weights of the items.
    pub(super) weight: u64,
    pub(super) items: Vec<I>,
    pub(super) known: Packed<S>,
}

impl<I, S: Slot> Parcel<I, S> {
    pub(super) fn new(pool: &mut Pool<I, S>) -> Self {
        let (items, known) = pool.take();
        Self { weight: 0, items, known }
    }

    /// Returns a parcel without items, and without memory.
    pub(super) fn empty() -> Self {
        Self { weight: 0, items: Vec::new(), known: Packed::default() }
    }

    /// Returns a parcel of these items, which are in order of their ids.
    pub(super) fn of(parts: Parted<I, S>, pool: &mut Pool<I, S>) -> Self {
        let mut parcel = Self::new(pool);
        for (item, entry) in parts {
            parcel.weight = parcel.weight.saturating_add(entry.mark.weight);
            parcel.items.push(item);
            parcel.known.spread().push(entry);
        }
        parcel
    }

    /// Adds an item that was never sent.
    #[inline]
    pub(super) fn push(&mut self, item: I, known: Known, slot: S) {
        self.weight = self.weight.saturating_add(known.mark.weight);
        self.items.push(item);
        self.known.push(known, slot);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns what is known of the first item.
    pub(super) fn first(&self) -> Known {
        self.known.first().expect(NOT_EMPTY)
    }

    /// Returns when the oldest item was accepted.
    pub(super) fn oldest(&self) -> Time {
        self.first().accepted
    }

    /// Returns the first deadline.
    pub(super) fn deadline(&self) -> Time {
        self.first().deadline
    }

    pub(super) fn last_id(&self) -> ItemId {
        self.known.last_id().expect(NOT_EMPTY)
    }

    /// Says whether the item is here.
    pub(super) fn has(&self, id: ItemId) -> bool {
        self.known.spans().any(|span| span.has(id))
    }

    /// Takes out the items whose deadline has come.
    pub(super) fn expire(&mut self, now: Time, expired: &mut Vec<(I, Entry<S>)>) {
        if self.deadline() > now {
            return;
        }
        let entries = self.known.spread();
        let count = entries.partition_point(|entry| entry.deadline <= now);
        for (item, entry) in self.items.drain(..count).zip(entries.drain(..count)) {
            self.weight -= entry.mark.weight;
            expired.push((item, entry));
        }
    }

    /// Takes out one item. Its id is almost always where the order of ids puts it.
    pub(super) fn cancel(&mut self, id: ItemId) -> Option<(I, Entry<S>)> {
        if !self.has(id) {
            return None;
        }
        let entries = self.known.spread();
        let place = entries.binary_search_by_key(&id, |entry| entry.id).ok();
        let index = place.or_else(|| entries.iter().position(|entry| entry.id == id))?;
        let entry = entries.remove(index);
        self.weight -= entry.mark.weight;
        Some((self.items.remove(index), entry))
    }
}

/// Why there is a first and a last item.
const NOT_EMPTY: &str = "a parcel is empty only while it is changed";
