//! The batches of one key that are sent again.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::Entry;
use super::parcel::Parcel;
use super::policy::{NEVER, Order, Time};
use super::run::Slot;
use crate::id::ItemId;
use crate::stats::DispatchReason;

/// A batch whose items were sent before; it is never topped up.
#[derive(Debug)]
pub(super) struct Rerun<I, S: Slot> {
    pub(super) parcel: Parcel<I, S>,
    pub(super) reason: DispatchReason,
    /// When it was put back.
    pub(super) since: Time,
    /// It does not go before.
    pub(super) due: Time,
}

/// The place of a rerun among those of its lane: a time, then a number that counts down.
type Rank = (Time, u64);

/// The reruns of one lane.
#[derive(Debug)]
pub(super) struct Reruns<I, S: Slot> {
    /// With FIFO order the one put back last is the first; without it they go in order of their
    /// due times.
    ranked: BTreeMap<Rank, Rerun<I, S>>,
    /// The first deadline of each that has one.
    deadlines: BTreeSet<(Time, Rank)>,
    /// The number in the next rank.
    next: u64,
}

impl<I, S: Slot> Reruns<I, S> {
    pub(super) fn new() -> Self {
        Self { ranked: BTreeMap::new(), deadlines: BTreeSet::new(), next: u64::MAX }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranked.is_empty()
    }

    /// Puts a batch back: before all others with FIFO order, else by its due time.
    pub(super) fn put_back(&mut self, order: Order, rerun: Rerun<I, S>) {
        let time = match order {
            Order::Fifo => 0,
            Order::Unordered => rerun.due,
        };
        self.list((time, self.next), rerun);
        self.next -= 1;
    }

    /// Returns the next to go.
    pub(super) fn first(&self) -> Option<&Rerun<I, S>> {
        self.ranked.first_key_value().map(|(_, rerun)| rerun)
    }

    /// Takes the next to go, if it is due.
    pub(super) fn take_due(&mut self, now: Time) -> Option<Rerun<I, S>> {
        let (rank, rerun) = self.ranked.first_key_value()?;
        (rerun.due <= now).then_some(*rank).map(|rank| self.unlist(rank))
    }

    /// Returns the first deadline of all.
    pub(super) fn deadline(&self) -> Time {
        self.deadlines.first().map_or(NEVER, |(deadline, _)| *deadline)
    }

    /// Takes out the items whose deadline has come.
    pub(super) fn expire(&mut self, now: Time, expired: &mut Vec<(I, Entry<S>)>) {
        while let Some((_, rank)) = self.deadlines.first().filter(|(first, _)| *first <= now) {
            let rank = *rank;
            let mut rerun = self.unlist(rank);
            rerun.parcel.expire(now, expired);
            self.list(rank, rerun);
        }
    }

    /// Takes out one item.
    pub(super) fn cancel(&mut self, id: ItemId) -> Option<(I, Entry<S>)> {
        let rank = *self.ranked.iter().find(|(_, rerun)| rerun.parcel.has(id))?.0;
        let mut rerun = self.unlist(rank);
        let cancelled = rerun.parcel.cancel(id);
        self.list(rank, rerun);
        cancelled
    }

    pub(super) fn parcels(&self) -> impl Iterator<Item = &Parcel<I, S>> {
        self.ranked.values().map(|rerun| &rerun.parcel)
    }

    /// Takes out everything.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Parcel<I, S>> {
        self.deadlines.clear();
        std::mem::take(&mut self.ranked).into_values().map(|rerun| rerun.parcel)
    }

    fn list(&mut self, rank: Rank, rerun: Rerun<I, S>) {
        if rerun.parcel.is_empty() {
            return;
        }
        if rerun.parcel.deadline() != NEVER {
            self.deadlines.insert((rerun.parcel.deadline(), rank));
        }
        self.ranked.insert(rank, rerun);
    }

    fn unlist(&mut self, rank: Rank) -> Rerun<I, S> {
        let rerun = self.ranked.remove(&rank).expect("a rank that was found is listed");
        self.deadlines.remove(&(rerun.parcel.deadline(), rank));
        rerun
    }
}
