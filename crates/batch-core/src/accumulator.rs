//! The engine as a state machine: what waits, what goes next, what is counted.
//!
//! It holds no lock and starts no thread. Time is an argument, as a number or as a [`Moment`] that
//! is asked for it, and a clock that steps back stands still. Every order is one of ids, turns or keys
//! and the random numbers come from a seed, so the same calls give the same batches and the same
//! trace.
//!
//! One item goes this way: [`admit`](Accumulator::admit), [`push`](Accumulator::push); a
//! [`Ready`] batch from [`next_ready`](Accumulator::next_ready); [`settle`](Accumulator::settle) when its end
//! is known and before anybody is told; [`finish`](Accumulator::finish) when its batch is over,
//! which may put it back to be sent again.

use crate::id::{BatchId, ItemId};
use crate::stats::DispatchReason;

mod again;
mod books;
mod dispatch;
mod entry;
mod eras;
mod event;
mod fairness;
mod few;
mod lane;
mod lanes;
mod open;
mod packed;
mod parcel;
mod pass;
mod policy;
mod pool;
mod reruns;
mod retry;
mod run;
#[cfg(test)]
mod tests;
mod timers;
mod views;

use books::{Books, Ends, count};
pub(crate) use entry::{Again, End, Entry, Mark};
pub(crate) use eras::EraId;
use eras::Eras;
pub(crate) use event::Event;
use fairness::Turns;
use few::Few;
pub(crate) use lane::LaneId;
use lanes::Lanes;
pub(crate) use open::Open;
pub(crate) use packed::{Packed, Span};
pub(crate) use pass::Pass;
use policy::later;
pub(crate) use policy::{Dispatch, Moment, NEVER, Order, Policy, Refused, RetryPolicy, Time};
pub(crate) use pool::Buffers;
use pool::Pool;
use retry::Retries;
use run::Known;
pub(crate) use run::{Row, Slot};
use timers::{Alarm, Timers};

/// Groups items of type `I` by keys of type `K`; `S` is what the engine keeps with an item.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact that changes on its own")]
#[derive(Debug)]
pub(crate) struct Accumulator<K, I, S: Slot> {
    policy: Policy,
    /// The latest time that a caller told.
    now: Time,
    lanes: Lanes<K, I, S>,
    /// Holds exactly the lanes whose next batch may go.
    turns: Turns,
    /// Holds exactly the lanes whose next batch would go, did it not wait for more items.
    lingering: Few<LaneId, ()>,
    /// Holds for each lane when its next batch may go or its next item expires, and for each batch
    /// in flight its next deadline.
    timers: Timers,
    flights: Few<BatchId, Flight>,
    retries: Retries,
    eras: Eras,
    books: Books<K>,
    pool: Pool<I, S>,
    /// The number of batches sent, and so the id of the next.
    sent: u64,
    last_dispatch: Time,
    /// Somebody waits for room: nothing lingers.
    pressed: bool,
    closed: bool,
    /// A push began or filled a batch since it was asked for.
    changed: bool,
    /// The batch that the last item joined is with the caller.
    is_lent: bool,
    /// The item over which the processor ended everything: nothing is sent any more.
    halted: Option<ItemId>,
    #[cfg(test)]
    trace: Vec<Event>,
}

/// A batch that the processor has.
#[derive(Debug)]
struct Flight {
    lane: LaneId,
    /// The number of its items.
    items: usize,
    /// Items that are neither final nor put back.
    open: usize,
    /// Items that are final, but whose callers may not be told yet.
    untold: usize,
    /// Items that are final, by their ends.
    ends: Ends,
    /// Items that were put back.
    again: usize,
    /// The era of all its items: a flush seals what is open, so no batch has items of two.
    era: EraId,
    /// When its alarm is due.
    alarm: Time,
    reason: DispatchReason,
    /// When its oldest item was accepted, or it was put back.
    since: Time,
    sent: Time,
    /// The weight of all its items.
    weight: u64,
}

/// Items with what is known of each.
pub(crate) type Parted<I, S> = Vec<(I, Entry<S>)>;

/// What time has done.
#[derive(Debug)]
pub(crate) enum Due<I, S> {
    /// The deadline of these items came before they were sent; they are counted and to be told.
    Expired(Parted<I, S>),
    /// A deadline of this batch in flight has come: settle what is over as [`End::TimedOut`], and
    /// [`rearm`](Accumulator::rearm) the batch for the next.
    Overdue(BatchId),
}

/// How far the end of a batch is.
#[derive(Debug)]
pub(crate) enum Finished<I, S> {
    /// The batch is over, so many nanoseconds after it was sent.
    Over { took: Time },
    /// These items are not sent again and are counted as failed. So that nothing overtakes them
    /// the batch stays in flight: tell them, then finish it with nothing more to put back.
    Denied(Parted<I, S>),
}

/// A batch for the processor.
#[derive(Debug)]
pub(crate) struct Ready<K, I, S: Slot> {
    pub(crate) batch: BatchId,
    pub(crate) key: K,
    pub(crate) items: Vec<I>,
    /// What is known of the items, in the same order.
    pub(crate) known: Packed<S>,
    pub(crate) reason: DispatchReason,
    /// How long its oldest item waited, in nanoseconds; for a rerun since it was put back.
    pub(crate) queued: u64,
    /// The sum of the weights of its items.
    pub(crate) weight: u64,
}

impl<K: Ord + Clone, I, S: Slot> Accumulator<K, I, S> {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            now: 0,
            lanes: Lanes::new(),
            turns: Turns::default(),
            lingering: Few::default(),
            timers: Timers::default(),
            flights: Few::default(),
            retries: Retries::new(policy.retry, policy.seed),
            eras: Eras::default(),
            books: Books::new(policy.history),
            pool: Pool::new(),
            sent: 0,
            last_dispatch: 0,
            pressed: false,
            closed: false,
            changed: false,
            is_lent: false,
            halted: None,
            #[cfg(test)]
            trace: Vec::new(),
            policy,
        }
    }

    /// Says whether an item of this weight may be pushed, or room be reserved for it.
    #[inline]
    pub(crate) fn admit(&self, weight: u64) -> Result<(), Refused> {
        let max = self.policy.max_weight.min(self.policy.capacity_weight);
        match self.halted {
            Some(item) => Err(Refused::Fatal(item)),
            None if self.closed => Err(Refused::Closed),
            None if weight > max => Err(Refused::TooHeavy { max }),
            None if !self.has_room(weight) => Err(Refused::Full),
            None => Ok(()),
        }
    }

    /// Keeps room for an admitted item that is not pushed yet; it is not an accepted one.
    pub(crate) fn reserve(&mut self, weight: u64) {
        self.books.reserve(weight);
    }

    /// Gives back the room kept for an item, right before it is pushed or when it never will be.
    pub(crate) fn release(&mut self, weight: u64) {
        self.books.release(weight);
    }

    /// Accepts an item that was admitted. Ids ascend from push to push, or nearly so.
    ///
    /// Returns its lane, which makes [`cancel`](Self::cancel) quick. Into a batch that has room it
    /// costs two comparisons, and allocates only where the buffers of the batch grow. The time of
    /// such an item may be rough; that of the first of a batch, from which it lingers, is exact. Should
    /// the first be cancelled, the batch lingers from the time of the next.
    #[inline]
    pub(crate) fn push(
        &mut self,
        moment: &impl Moment,
        key: K,
        id: ItemId,
        weight: u64,
        item: I,
        slot: S,
    ) -> LaneId {
        let mark = Mark { era: self.eras.current(), weight };
        let (lane_id, lane) = self.lanes.of(key);
        let joins = lane.joins(mark, &self.policy);
        let now = later(self.now, if joins { moment.rough() } else { moment.exact() });
        // Keys and clocks are user code, which may panic: from here on there is none.
        self.now = now;
        self.books.accept(1, weight);
        self.eras.enter(1);
        if !joins {
            lane.begin(mark.era, &mut self.pool);
        }
        let deadline = self.policy.deadline(now);
        let known = Known { id, mark, accepted: now, deadline };
        if lane.add(item, known, slot, &self.policy) || !joins {
            self.place(lane_id);
            self.changed = true;
        }
        self.note(|| Event::Admitted { id, lane: lane_id });
        lane_id
    }

    /// Says whether a push since the last call began or filled a batch: without that it has changed
    /// neither what is ready nor a timer.
    #[inline]
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Lets time pass: returns one thing that it does, to be asked until there is none.
    pub(crate) fn tick(&mut self, now: Time) -> Option<Due<I, S>> {
        let now = self.at(now);
        while let Some(alarm) = self.timers.due(now) {
            match alarm {
                Alarm::Batch(batch) => {
                    self.rearm(batch, NEVER);
                    self.note(|| Event::Overdue { batch });
                    return Some(Due::Overdue(batch));
                }
                Alarm::Lane(lane) => {
                    let expired = self.expire(lane);
                    if !expired.is_empty() {
                        return Some(Due::Expired(expired));
                    }
                }
            }
        }
        None
    }

    /// Takes the next batch that may go by the time told last.
    ///
    /// There is none before [`tick`](Self::tick) has done all that is due: no item is sent whose
    /// deadline has come.
    pub(crate) fn next_ready(&mut self) -> Option<Ready<K, I, S>> {
        if self.timers.due(self.now).is_some() {
            return None;
        }
        self.next_lane().map(|lane| self.send(lane))
    }

    /// Counts items of a batch in flight that are final; to be called before anybody is told.
    pub(crate) fn settle(
        &mut self,
        now: Time,
        batch: BatchId,
        ends: impl IntoIterator<Item = (Mark, End)>,
    ) {
        self.at(now);
        let flight = self.flights.get_mut(&batch).expect("a batch is listed until it is finished");
        let had_completed = flight.ends.completed > 0;
        let mut finals = 0;
        for (mark, end) in ends {
            self.books.end(mark.weight, end);
            flight.ends.count(end);
            finals += 1;
        }
        flight.open -= finals;
        flight.untold += finals;
        if flight.ends.completed > 0 && !had_completed {
            self.retries.earn();
        }
        if flight.open == 0 && finals > 0 {
            self.remember(batch);
        }
        self.note(|| Event::Settled { batch, items: finals });
    }

    /// Counts all items of a batch in flight as completed, as [`settle`](Self::settle) would; none
    /// is final yet.
    pub(crate) fn complete(&mut self, now: Time, batch: BatchId) {
        self.at(now);
        let flight = self.flights.get_mut(&batch).expect("a batch is listed until it is finished");
        debug_assert_eq!(flight.open, flight.items, "items of batch {batch} are final");
        flight.complete(&mut self.books, &mut self.retries);
        let items = flight.items;
        self.remember(batch);
        self.note(|| Event::Settled { batch, items });
    }

    /// Notes that the callers of so many settled items of a batch are told.
    ///
    /// Only a batch that goes on needs it, so that a flush need not wait for the rest of it:
    /// [`finish`](Self::finish) means that all are told.
    pub(crate) fn delivered(&mut self, batch: BatchId, items: usize) {
        let flight = self.flights.get_mut(&batch).expect("a batch is listed until it is finished");
        let told = items.min(flight.untold);
        flight.untold -= told;
        self.eras.leave(flight.era, told);
    }

    /// Sets the next deadline of a batch in flight; [`NEVER`] for none.
    pub(crate) fn rearm(&mut self, batch: BatchId, deadline: Time) {
        let flight = self.flights.get_mut(&batch).expect("a batch is listed until it is finished");
        self.timers.set(Alarm::Batch(batch), &mut flight.alarm, deadline);
    }

    /// Ends a batch whose items are all settled and told, but for those in `again`, and lets the
    /// next one of its key go.
    pub(crate) fn finish(
        &mut self,
        now: Time,
        batch: BatchId,
        again: Vec<(I, Entry<S>, Again)>,
    ) -> Finished<I, S> {
        let now = self.at(now);
        if !again.is_empty() {
            self.delivered(batch, usize::MAX);
            let denied = self.send_again(batch, again);
            if !denied.is_empty() {
                let ends = denied.iter().map(|(_, entry)| (entry.mark, End::Failed));
                self.settle(now, batch, ends);
                return Finished::Denied(denied);
            }
        }
        let mut flight =
            self.flights.remove(&batch).expect("a batch is listed until it is finished");
        debug_assert_eq!(flight.open, 0, "items of batch {batch} are neither final nor put back");
        self.eras.leave(flight.era, flight.untold);
        self.timers.set(Alarm::Batch(batch), &mut flight.alarm, NEVER);
        let lane = self.lanes.get_mut(flight.lane).expect("a lane stays while it is in flight");
        lane.in_flight -= 1;
        self.place(flight.lane);
        self.note(|| Event::Finished { batch });
        Finished::Over { took: now.saturating_sub(flight.sent) }
    }

    /// Takes out an item that waits; `None` if it is in flight or final.
    ///
    /// Costs the logarithm of the number of waiting batches and the length of one, if `lane` is told
    /// and the item waits; else a look at every run of items, of that key or of all.
    pub(crate) fn cancel(
        &mut self,
        now: Time,
        id: ItemId,
        lane: Option<LaneId>,
    ) -> Option<(I, Entry<S>)> {
        self.at(now);
        let lanes = lane.map_or_else(|| self.lanes.ids(), |lane| vec![lane]);
        let cancel = |lane| Some((lane, self.lanes.get_mut(lane)?.cancel(id)?));
        let (lane, cancelled) = lanes.into_iter().find_map(cancel)?;
        self.books.stats.cancelled += 1;
        self.leave_queue(&cancelled.1);
        self.place(lane);
        self.note(|| Event::Cancelled { id });
        Some(cancelled)
    }

    /// Asks for everything accepted so far; returns the era that is done once all of it is final,
    /// or `None` if it is.
    pub(crate) fn flush(&mut self, now: Time) -> Option<EraId> {
        self.at(now);
        let era = self.eras.turn();
        self.end_lingers();
        self.note(|| Event::Flushed { era });
        era
    }

    /// Tells of the last era that is done, and so are all before it; each time of a later one.
    pub(crate) fn next_done_era(&mut self) -> Option<EraId> {
        let era = self.eras.next_done()?;
        self.note(|| Event::EraDone { era });
        Some(era)
    }

    /// While somebody waits for room nothing lingers, as no batch could take more. What went from
    /// lingering to waiting for its turn by that stays there.
    pub(crate) fn set_pressed(&mut self, pressed: bool) {
        self.pressed = pressed;
        if pressed {
            self.end_lingers();
        }
    }

    /// Admits nothing any more, and sends what waits without linger.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.end_lingers();
        self.note(|| Event::Closed);
    }

    /// Admits and sends nothing any more, over this item; only the first is remembered.
    pub(crate) fn halt(&mut self, over: ItemId) {
        self.halted.get_or_insert(over);
        self.note(|| Event::Halted { over });
    }

    /// Takes out everything that waits, the oldest id first; it is counted as handed back.
    pub(crate) fn drain(&mut self) -> Parted<I, S> {
        let mut drained = Vec::new();
        for id in self.lanes.ids() {
            let lane = self.lanes.get_mut(id).expect("the lane was just listed");
            lane.drain(&mut drained);
            self.place(id);
        }
        drained.sort_by_key(|(_, entry)| entry.id);
        for (_, entry) in &drained {
            self.leave_queue(entry);
        }
        self.books.stats.handed_back += count(drained.len());
        self.note(|| Event::Drained { ids: drained.iter().map(|(_, entry)| entry.id).collect() });
        drained
    }

    /// Keeps the empty buffers of a batch that is over.
    pub(crate) fn recycle(&mut self, buffers: Buffers<I, S>) {
        self.pool.keep(buffers);
    }

    /// Counts a submit that was refused.
    pub(crate) fn note_refused(&mut self) {
        self.books.stats.refused += 1;
    }

    /// Counts a result that came after its item was final.
    pub(crate) fn note_late(&mut self) {
        self.books.stats.late += 1;
    }
}
