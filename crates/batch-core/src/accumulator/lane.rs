//! The waiting items of one key.

use std::collections::VecDeque;

use super::Parted;
use super::entry::{Entry, Mark};
use super::eras::EraId;
use super::fairness::Share;
use super::parcel::Parcel;
use super::policy::{Dispatch, NEVER, Order, Policy, Time};
use super::pool::Pool;
use super::reruns::Reruns;
use super::run::{Known, Slot};
use crate::id::ItemId;
use crate::stats::DispatchReason;

/// Places for batches that a queue keeps whatever it holds.
const PLACES: usize = 16;

/// Names a lane for as long as its key has work; never given out twice.
pub(crate) type LaneId = u64;

/// What decides, besides a lane itself, whether it may send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gate {
    pub(super) now: Time,
    pub(super) dispatch: Dispatch,
    pub(super) order: Order,
    pub(super) era: EraId,
    pub(super) closed: bool,
}

/// What a lane can do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// Its next batch may go.
    Goes,
    /// Nothing goes before `until`; `lingers` says that a flush would change that.
    Waits { until: Time, lingers: bool },
}

/// A batch taken from a lane.
#[derive(Debug)]
pub(super) struct Taken<I, S: Slot> {
    pub(super) parcel: Parcel<I, S>,
    pub(super) reason: DispatchReason,
    /// When its oldest item was accepted, or it was put back.
    pub(super) since: Time,
}

/// A batch that was never sent.
#[derive(Debug)]
pub(super) struct Fresh<I, S: Slot> {
    parcel: Parcel<I, S>,
    /// The era in which it was opened: a flush since then has sealed it.
    era: EraId,
    /// Another item would not fit, or did not.
    full: bool,
    /// It lingered while somebody waited for room: it goes at once, and takes more until then.
    hurried: bool,
}

/// The waiting items of one key and how many batches of it are in flight.
#[derive(Debug)]
pub(super) struct Lane<K, I, S: Slot> {
    pub(super) key: K,
    /// Batches never sent, in order of acceptance; only the last may take more.
    pub(super) fresh: VecDeque<Fresh<I, S>>,
    /// Batches to be sent again, before any of `fresh`.
    pub(super) reruns: Reruns<I, S>,
    pub(super) in_flight: usize,
    pub(super) share: Share,
    /// The lane is listed as one that a flush would let go.
    pub(super) lingers: bool,
    /// When its alarm is due.
    pub(super) alarm: Time,
}

impl<K, I, S: Slot> Lane<K, I, S> {
    /// Returns a lane without work; `fresh` is an empty queue for it.
    pub(super) fn new(key: K, fresh: VecDeque<Fresh<I, S>>) -> Self {
        Self {
            key,
            fresh,
            reruns: Reruns::new(),
            in_flight: 0,
            share: Share::default(),
            lingers: false,
            alarm: NEVER,
        }
    }

    /// Says whether nothing waits; a lane of which nothing is in flight either can be forgotten.
    pub(super) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.reruns.is_empty()
    }

    /// Gives the room of a queue back that was long once.
    pub(super) fn give_back_room(&mut self) {
        let (len, places) = (self.fresh.len(), self.fresh.capacity());
        // Far enough apart that a queue of about the same length is moved once.
        if places > PLACES && len <= places / 8 {
            self.fresh.shrink_to(PLACES.max(2 * len));
        }
    }

    /// Says whether the last batch takes such an item.
    #[inline]
    pub(super) fn joins(&self, mark: Mark, policy: &Policy) -> bool {
        self.fresh.back().is_some_and(|last| {
            last.is_open(mark.era)
                && mark.weight <= policy.max_weight.saturating_sub(last.parcel.weight)
        })
    }

    /// Begins a batch, which is to be given an item.
    pub(super) fn begin(&mut self, era: EraId, pool: &mut Pool<I, S>) {
        if let Some(last) = self.fresh.back_mut() {
            last.full |= last.era == era;
        }
        let parcel = Parcel::new(pool);
        self.fresh.push_back(Fresh { parcel, era, full: false, hurried: false });
    }

    /// Adds an item to the last batch. Says whether that filled it: otherwise what the lane can do
    /// is as before.
    #[inline]
    pub(super) fn add(&mut self, item: I, known: Known, slot: S, policy: &Policy) -> bool {
        let last = self.fresh.back_mut().expect("an item joins a batch, or one is begun for it");
        last.parcel.push(item, known, slot);
        last.full |=
            last.parcel.len() >= policy.max_items || last.parcel.weight >= policy.max_weight;
        last.full
    }

    /// Lets the first batch that was never sent go without linger.
    pub(super) fn hurry(&mut self) {
        if let Some(fresh) = self.fresh.front_mut() {
            fresh.hurried = true;
        }
    }

    /// Returns what the lane can do.
    pub(super) fn head(&self, gate: &Gate) -> Head {
        if gate.order == Order::Fifo && self.in_flight > 0 {
            return Head::Waits { until: NEVER, lingers: false };
        }
        let mut until = NEVER;
        if let Some(rerun) = self.reruns.first() {
            if rerun.due <= gate.now {
                return Head::Goes;
            }
            until = rerun.due;
            if gate.order == Order::Fifo {
                return Head::Waits { until, lingers: false };
            }
        }
        let Some(fresh) = self.fresh.front() else {
            return Head::Waits { until, lingers: false };
        };
        let end = fresh.goes_at(gate);
        if end <= gate.now {
            Head::Goes
        } else {
            Head::Waits { until: until.min(end), lingers: true }
        }
    }

    /// Takes the batch that may go.
    pub(super) fn take(&mut self, gate: &Gate) -> Taken<I, S> {
        if let Some(rerun) = self.reruns.take_due(gate.now) {
            return Taken { parcel: rerun.parcel, reason: rerun.reason, since: rerun.since };
        }
        let fresh = self.fresh.pop_front().expect("a lane that may go has a batch");
        let (reason, since) = (fresh.reason(gate), fresh.parcel.oldest());
        Taken { parcel: fresh.parcel, reason, since }
    }

    /// Returns the batch that [`take`](Self::take) would.
    pub(super) fn peek(&self, now: Time) -> Option<&Parcel<I, S>> {
        let rerun = self.reruns.first().filter(|rerun| rerun.due <= now);
        let fresh = || self.fresh.front().map(|fresh| &fresh.parcel);
        rerun.map(|rerun| &rerun.parcel).or_else(fresh)
    }

    /// Returns the first deadline of all waiting items.
    pub(super) fn deadline(&self) -> Time {
        let first = self.fresh.front().map_or(NEVER, |fresh| fresh.parcel.deadline());
        first.min(self.reruns.deadline())
    }

    /// Returns when the oldest waiting item was accepted.
    pub(super) fn oldest(&self) -> Option<Time> {
        let fresh = self.fresh.front().map(|fresh| &fresh.parcel);
        self.reruns.parcels().chain(fresh).map(Parcel::oldest).min()
    }

    /// Takes out the items whose deadline has come.
    pub(super) fn expire(&mut self, now: Time) -> Vec<(I, Entry<S>)> {
        let mut expired = Vec::new();
        self.reruns.expire(now, &mut expired);
        while let Some(fresh) = self.fresh.front_mut() {
            fresh.parcel.expire(now, &mut expired);
            if !fresh.parcel.is_empty() {
                break;
            }
            self.fresh.pop_front();
        }
        expired
    }

    /// Takes out one item.
    pub(super) fn cancel(&mut self, id: ItemId) -> Option<(I, Entry<S>)> {
        let mut index = self.fresh.partition_point(|fresh| fresh.parcel.last_id() < id);
        let mut found = self.fresh.get_mut(index).and_then(|fresh| fresh.parcel.cancel(id));
        if found.is_none() {
            // Items that went through a journal side by side may stand in another order.
            let has = |fresh: &Fresh<I, S>| fresh.parcel.has(id);
            let Some(other) = self.fresh.iter().position(has) else {
                return self.reruns.cancel(id);
            };
            index = other;
            found = self.fresh[index].parcel.cancel(id);
        }
        if self.fresh[index].parcel.is_empty() {
            self.fresh.remove(index);
        }
        found
    }

    /// Takes out all items.
    pub(super) fn drain(&mut self, into: &mut Parted<I, S>) {
        let fresh = self.fresh.drain(..).map(|fresh| fresh.parcel);
        for parcel in self.reruns.drain().chain(fresh) {
            let Parcel { items, mut known, .. } = parcel;
            into.extend(items.into_iter().zip(known.spread().drain(..)));
        }
    }
}

impl<I, S: Slot> Fresh<I, S> {
    /// Says whether it takes items of this era.
    pub(super) fn is_open(&self, era: EraId) -> bool {
        !self.full && self.era == era
    }

    /// Takes out what it holds, until it is given back.
    pub(super) fn lend(&mut self) -> Parcel<I, S> {
        std::mem::replace(&mut self.parcel, Parcel::empty())
    }

    /// Puts back what it holds.
    pub(super) fn take_back(&mut self, parcel: Parcel<I, S>) {
        self.parcel = parcel;
    }

    /// Returns from when on the batch may go.
    fn goes_at(&self, gate: &Gate) -> Time {
        if self.full || self.hurried || self.era < gate.era || gate.closed {
            return 0;
        }
        match gate.dispatch {
            Dispatch::Natural => 0,
            Dispatch::Linger(linger) => self.parcel.oldest().saturating_add(linger),
            Dispatch::Full => NEVER,
        }
    }

    /// Returns why the batch goes now.
    fn reason(&self, gate: &Gate) -> DispatchReason {
        let has_lingered = |linger| self.parcel.oldest().saturating_add(linger) <= gate.now;
        match gate.dispatch {
            _ if self.full => DispatchReason::Full,
            _ if self.era < gate.era => DispatchReason::Flush,
            _ if gate.closed => DispatchReason::Close,
            Dispatch::Natural => DispatchReason::Natural,
            Dispatch::Linger(linger) if has_lingered(linger) => DispatchReason::Linger,
            // Somebody waited for room, so no more could come.
            Dispatch::Linger(_) | Dispatch::Full => DispatchReason::Full,
        }
    }
}
