//! How lanes are listed, and how batches leave them.

use super::books::{Books, Ends, between, count};
use super::entry::Mark;
use super::eras::EraId;
use super::lane::{Gate, Head, LaneId, Taken};
use super::parcel::Parcel;
use super::policy::{NEVER, Time, later};
use super::retry::Retries;
use super::run::{Known, Slot};
use super::timers::Alarm;
use super::{Accumulator, Entry, Event, Flight, Parted, Ready};
use crate::id::BatchId;
use crate::stats::{DispatchReason, PastBatch};

impl<K: Ord + Clone, I, S: Slot> Accumulator<K, I, S> {
    /// Takes in what time it is.
    pub(super) fn at(&mut self, now: Time) -> Time {
        debug_assert!(!self.is_lent, "the batch that is lent was not given back");
        self.now = later(self.now, now);
        self.now
    }

    /// Adds a step to the trace, which only tests look at.
    #[cfg(test)]
    pub(super) fn note(&mut self, event: impl FnOnce() -> Event) {
        self.trace.push(event());
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "there is no trace to add to")]
    pub(super) fn note(&mut self, _event: impl FnOnce() -> Event) {}

    /// Returns what is known of a batch in flight.
    pub(super) fn flight(&self, batch: BatchId) -> &Flight {
        self.flights.get(&batch).expect("a batch is listed until it is finished")
    }

    pub(super) fn gate(&self) -> Gate {
        Gate {
            now: self.now,
            dispatch: self.policy.dispatch,
            order: self.policy.order,
            era: self.eras.current(),
            closed: self.closed,
        }
    }

    pub(super) fn next_lane(&self) -> Option<LaneId> {
        let may_send = self.halted.is_none() && self.flights.len() < self.policy.max_in_flight;
        self.turns.first().filter(|_| may_send)
    }

    /// Takes the next batch of a lane and enters it in the books.
    pub(super) fn send(&mut self, id: LaneId) -> Ready<K, I, S> {
        let (now, gate) = (self.now, self.gate());
        let lane = self.lanes.get_mut(id).expect("a lane that is ready is listed");
        let Taken { parcel, reason, since } = lane.take(&gate);
        self.turns.charge(id, &mut lane.share, parcel.weight);
        lane.in_flight += 1;
        let batch = BatchId(self.sent);
        self.sent += 1;
        self.last_dispatch = now;
        self.books.send(parcel.len(), reason);
        let (key, weight) = (lane.key.clone(), parcel.weight);
        let Known { deadline, mark: Mark { era, .. }, .. } = parcel.first();
        let Parcel { items, known, .. } = parcel;
        let mut flight = Flight::new(id, items.len(), era, reason, since, now, weight);
        // The lane's alarm goes before that of the batch comes.
        self.place(id);
        self.timers.set(Alarm::Batch(batch), &mut flight.alarm, deadline);
        self.flights.insert(batch, flight);
        let ids = || known.ids().collect();
        self.note(|| Event::Dispatched { batch, lane: id, reason, ids: ids() });
        Ready { batch, key, items, known, reason, queued: now - since, weight }
    }

    /// Enters a batch in the history that has no open items left.
    pub(super) fn remember(&mut self, batch: BatchId) {
        let flight = self.flights.get(&batch).expect("a batch is listed until it is finished");
        if let Some(lane) = self.lanes.get(flight.lane) {
            self.books.remember(|| flight.past(batch, lane.key.clone(), self.now));
        }
    }

    /// Takes the items of a lane out whose deadline has come.
    pub(super) fn expire(&mut self, id: LaneId) -> Parted<I, S> {
        let lane = self.lanes.get_mut(id).expect("a lane with an alarm is listed");
        let expired = lane.expire(self.now);
        for (_, entry) in &expired {
            self.leave_queue(entry);
        }
        self.books.stats.expired += count(expired.len());
        self.place(id);
        if !expired.is_empty() {
            let ids = || expired.iter().map(|(_, entry)| entry.id).collect();
            self.note(|| Event::Expired { lane: id, ids: ids() });
        }
        expired
    }

    /// Counts a waiting item that is final; the caller says how.
    pub(super) fn leave_queue(&mut self, entry: &Entry<S>) {
        self.books.leave_queue(entry.mark.weight);
        self.eras.leave(entry.mark.era, 1);
    }

    /// Lets go what waits only for more items.
    pub(super) fn end_lingers(&mut self) {
        let mut lingering = std::mem::take(&mut self.lingering);
        while let Some((id, ())) = lingering.pop_first() {
            let lane = self.lanes.get_mut(id).expect("a lane that lingers is listed");
            lane.lingers = false;
            self.place(id);
        }
    }

    /// Lists a lane where it belongs after a change, and forgets one without work.
    pub(super) fn place(&mut self, id: LaneId) {
        let gate = self.gate();
        let Some(lane) = self.lanes.get_mut(id) else { return };
        let mut head = lane.head(&gate);
        if self.pressed && matches!(head, Head::Waits { lingers: true, .. }) {
            lane.hurry();
            head = lane.head(&gate);
        }
        let (until, lingers) = match head {
            Head::Goes => {
                let next = lane.peek(gate.now).map_or(0, |parcel| parcel.weight);
                self.turns.join(id, &mut lane.share, next);
                (NEVER, false)
            }
            Head::Waits { until, lingers } => {
                self.turns.leave(id, &mut lane.share);
                (until, lingers)
            }
        };
        if lane.lingers != lingers {
            lane.lingers = lingers;
            if lingers {
                self.lingering.insert(id, ());
            } else {
                self.lingering.remove(&id);
            }
        }
        let until = until.min(lane.deadline());
        self.timers.set(Alarm::Lane(id), &mut lane.alarm, until);
        lane.give_back_room();
        if lane.is_empty() && lane.in_flight == 0 {
            self.lanes.remove(id);
        }
    }
}

impl Flight {
    pub(super) fn new(
        lane: LaneId,
        items: usize,
        era: EraId,
        reason: DispatchReason,
        since: Time,
        sent: Time,
        weight: u64,
    ) -> Self {
        let ends = Ends::default();
        let (untold, again, alarm) = (0, 0, NEVER);
        let open = items;
        Self { lane, items, open, untold, ends, again, era, alarm, reason, since, sent, weight }
    }

    /// Counts all items as completed; none is final yet.
    pub(super) fn complete<K>(&mut self, books: &mut Books<K>, retries: &mut Retries) {
        self.untold = std::mem::take(&mut self.open);
        self.ends.completed = self.untold;
        books.complete(self.untold, self.weight);
        retries.earn();
    }

    /// Returns what is remembered of a batch without open items.
    pub(super) fn past<K>(&self, id: BatchId, key: K, now: Time) -> PastBatch<K> {
        PastBatch {
            id,
            key,
            items: self.items,
            completed: self.ends.completed,
            failed: self.ends.failed,
            expired: self.ends.timed_out,
            cancelled: self.ends.cancelled,
            again: self.again,
            reason: self.reason,
            queued: between(self.since, self.sent),
            in_flight: between(self.sent, now),
        }
    }
}
