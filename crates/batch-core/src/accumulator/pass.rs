//! An item that goes through an idle accumulator alone.
//!
//! With nothing that waits and nothing in flight there is no order to keep, so an item that may go at
//! once need not stand in the lists that keep it. The books know of it at every step; the lists learn
//! of it only if something else comes while it is under way.

use super::entry::Mark;
use super::lane::LaneId;
use super::packed::Packed;
use super::policy::{Dispatch, Moment, Time, later};
use super::run::{Known, Slot};
use super::timers::Alarm;
use super::{Accumulator, Event, Flight};
use crate::id::{BatchId, ItemId};
use crate::stats::DispatchReason;

/// The batch of such an item, which no list of its accumulator names.
#[derive(Debug)]
pub(crate) struct Pass<K> {
    batch: BatchId,
    lane: LaneId,
    key: K,
    reason: DispatchReason,
    known: Known,
}

impl<K> Pass<K> {
    /// Returns the id of the batch.
    pub(crate) fn batch(&self) -> BatchId {
        self.batch
    }

    /// Returns why the batch goes.
    pub(crate) fn reason(&self) -> DispatchReason {
        self.reason
    }

    /// Returns the lane that the item goes by.
    pub(crate) fn lane(&self) -> LaneId {
        self.lane
    }

    fn flight(&self) -> Flight {
        let Known { mark: Mark { era, weight }, accepted, .. } = self.known;
        Flight::new(self.lane, 1, era, self.reason, accepted, accepted, weight)
    }
}

impl<K: Ord + Clone, I, S: Slot> Accumulator<K, I, S> {
    /// Says whether an item that is admitted would be sent at once, alone, and before any other.
    pub(crate) fn can_pass(&self) -> bool {
        self.lanes.is_empty()
            && self.flights.is_empty()
            && matches!(self.policy.dispatch, Dispatch::Natural)
            && self.policy.delivery_timeout != Some(0)
    }

    /// Accepts an item that [can pass](Self::can_pass) and sends it, as [`push`](Self::push) and
    /// [`next_ready`](Self::next_ready) would. The item itself stays with the caller. Nothing else may be done before the batch
    /// is [over](Self::end_pass) or [taken in](Self::take_in).
    pub(crate) fn pass(
        &mut self,
        moment: &impl Moment,
        key: K,
        id: ItemId,
        weight: u64,
        slot: S,
    ) -> (Pass<K>, Packed<S>) {
        // The clock is user code, which may panic: after it there is none.
        let now = later(self.now, moment.exact());
        self.now = now;
        let (batch, lane) = (BatchId(self.sent), self.lanes.upcoming());
        self.sent += 1;
        self.last_dispatch = now;
        let full = self.policy.max_items == 1 || weight >= self.policy.max_weight;
        let reason = if full { DispatchReason::Full } else { DispatchReason::Natural };
        self.books.accept(1, weight);
        self.books.send(1, reason);
        let mark = Mark { era: self.eras.current(), weight };
        let deadline = self.policy.deadline(now);
        let known = Known { id, mark, accepted: now, deadline };
        self.note(|| Event::Admitted { id, lane });
        self.note(|| Event::Dispatched { batch, lane, reason, ids: vec![id] });
        (Pass { batch, lane, key, reason, known }, Packed::of(known, slot))
    }

    /// Ends the batch with its item completed, as [`complete`](Self::complete) and
    /// [`finish`](Self::finish) would.
    pub(crate) fn end_pass(&mut self, now: Time, pass: Pass<K>) {
        let (batch, mut flight) = (pass.batch, pass.flight());
        self.now = later(self.now, now);
        flight.complete(&mut self.books, &mut self.retries);
        self.books.remember(|| flight.past(batch, pass.key, self.now));
        self.lanes.skip();
        self.note(|| Event::Settled { batch, items: 1 });
        self.note(|| Event::Finished { batch });
    }

    /// Enters a batch in the lists, where it is from now on as any other in flight.
    pub(crate) fn take_in(&mut self, pass: Pass<K>) {
        let (batch, mut flight) = (pass.batch, pass.flight());
        self.eras.enter(1);
        let (id, lane) = self.lanes.of(pass.key);
        debug_assert_eq!(id, flight.lane, "nothing was done since it was sent");
        lane.in_flight += 1;
        self.turns.join(id, &mut lane.share, flight.weight);
        self.turns.charge(id, &mut lane.share, flight.weight);
        self.timers.set(Alarm::Batch(batch), &mut flight.alarm, pass.known.deadline);
        self.flights.insert(batch, flight);
    }
}
