//! The batch that the next item likely joins, apart from everything else.
//!
//! Threads that submit take turns at the memory that a submit writes, and each line of it that was
//! written by another costs more than all else there is to do. An item that joins a batch that is
//! lent writes this, and the books are told of all that joined when it comes back.

use super::entry::Mark;
use super::eras::EraId;
use super::lane::LaneId;
use super::parcel::Parcel;
use super::policy::{Time, deadline, later};
use super::run::{Known, Row, Slot};
use super::{Accumulator, Event};
use crate::id::ItemId;

/// A batch that takes items, lent by its accumulator.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Open<I, S: Slot> {
    /// Items that were ever accepted, in this batch or another.
    accepted: u64,
    now: Time,
    /// How many items may join: fewer than would fill the batch.
    places: usize,
    /// The weight that may join.
    weight: u64,
    parcel: Parcel<I, S>,
    timeout: Option<u64>,
    era: EraId,
    lane: LaneId,
    /// The items and the weight of the batch when it was lent.
    before: usize,
    weight_before: u64,
}

impl<I, S: Slot> Open<I, S> {
    /// Says whether an item of this weight may join.
    #[inline]
    pub(crate) fn takes(&self, weight: u64) -> bool {
        self.places > 0 && weight <= self.weight
    }

    /// Returns the lane of the batch.
    #[inline]
    pub(crate) fn lane(&self) -> LaneId {
        self.lane
    }

    /// Adds an item that the batch takes; its time may be rough. Returns how many were ever accepted.
    #[inline]
    pub(crate) fn join(&mut self, now: Time, id: ItemId, weight: u64, item: I, slot: S) -> u64 {
        self.places -= 1;
        self.weight -= weight;
        self.now = later(self.now, now);
        self.accepted += 1;
        let accepted = self.now;
        self.parcel.weight += weight;
        self.parcel.items.push(item);
        // Mostly it differs in nothing from the one before: the era is one for the batch, and the
        // deadline follows from the time.
        if let Err(slot) = self.parcel.known.extend(id, weight, accepted, slot) {
            let deadline = deadline(accepted, self.timeout);
            let mark = Mark { era: self.era, weight };
            self.parcel.known.push(Known { id, mark, accepted, deadline }, slot);
        }
        self.accepted
    }

    /// Returns how many items of this weight may join at most.
    pub(crate) fn places(&self, weight: u64) -> usize {
        let heavy = self.weight.checked_div(weight).unwrap_or(u64::MAX);
        self.places.min(usize::try_from(heavy).unwrap_or(usize::MAX))
    }

    /// Adds items in a row, as [`join`](Self::join) does one: as many as the row has slots, which
    /// the batch takes. Returns how many were ever accepted.
    pub(crate) fn join_all(
        &mut self,
        now: Time,
        first: ItemId,
        weight: u64,
        items: impl Iterator<Item = I>,
        row: S::Row,
    ) -> u64 {
        let len = row.len() as u64;
        let sum = weight * len;
        self.places -= row.len();
        self.weight -= sum;
        self.now = later(self.now, now);
        self.accepted += len;
        self.parcel.weight += sum;
        self.parcel.items.extend(items);
        let (accepted, mark) = (self.now, Mark { era: self.era, weight });
        let deadline = deadline(accepted, self.timeout);
        self.parcel.known.append(Known { id: first, mark, accepted, deadline }, row);
        debug_assert_eq!(self.parcel.items.len(), self.parcel.known.len(), "a slot for each item");
        self.accepted
    }
}

impl<K: Ord + Clone, I, S: Slot> Accumulator<K, I, S> {
    /// Lends the batch that the last item joined, if it takes more without being full. Nothing else
    /// may be done before it is given back.
    pub(crate) fn lend(&mut self) -> Option<Open<I, S>> {
        if self.is_closed() || self.pressed {
            return None;
        }
        let policy = &self.policy;
        let taken = usize::try_from(self.books.items()).unwrap_or(usize::MAX);
        let left = policy.capacity_items.saturating_sub(taken);
        let weight = self.books.weight_left(policy);
        let (lane, fresh) = self.lanes.last_open(self.eras.current())?;
        let parcel = fresh.lend();
        let places = left.min(policy.max_items.saturating_sub(parcel.len() + 1));
        let weight = weight.min(policy.max_weight.saturating_sub(parcel.weight).saturating_sub(1));
        let open = Open {
            places,
            weight,
            now: self.now,
            timeout: policy.delivery_timeout,
            era: self.eras.current(),
            lane,
            accepted: self.books.stats.accepted,
            before: parcel.len(),
            weight_before: parcel.weight,
            parcel,
        };
        self.is_lent = true;
        Some(open)
    }

    /// Says whether the batch that is lent is one of this key.
    #[inline]
    pub(crate) fn is_lent_by(&self, key: &K) -> bool {
        self.lanes.is_last(key)
    }

    /// Takes a batch back, with the items that joined.
    pub(crate) fn take_back(&mut self, open: Open<I, S>) {
        self.is_lent = false;
        self.at(open.now);
        let joined = open.parcel.len() - open.before;
        self.books.accept(joined, open.parcel.weight - open.weight_before);
        self.eras.enter(joined);
        self.note(|| Event::Joined {
            lane: open.lane,
            ids: open.parcel.known.ids().skip(open.before).collect(),
        });
        let (_, fresh) =
            self.lanes.last_open(open.era).expect("nothing was done since it was lent");
        fresh.take_back(open.parcel);
    }
}
