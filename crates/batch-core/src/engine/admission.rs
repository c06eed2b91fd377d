//! How items come in: under one bound, in order, and in the journal before they count.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{iter, vec};

use super::{Engine, ReplyClaim, RowOf, State, TicketOf, Transaction};
use crate::accumulator::{self, Moment, Time};
use crate::clock::nanos;
use crate::current;
use crate::error::Refusal;
use crate::id::ItemId;
use crate::journal::{self, Journal, JournalError};
use crate::observer::Event;
use crate::panics;
use crate::park::Sleeper;
use crate::processor::BatchProcessor;
use crate::seat::{Seat, Seats};
use crate::sync::{Arc, deadline, is_over};
use crate::ticket::{Ticket, TicketRow};

/// An item with what its processor says of it, asked before any lock is taken.
pub(crate) struct Weighed<P: BatchProcessor> {
    pub(crate) key: P::Key,
    pub(crate) weight: u64,
    pub(crate) item: P::Item,
}

/// Items to be submitted, one after the other.
pub(crate) trait Supply<P: BatchProcessor>: Iterator<Item = Weighed<P>> {
    /// Lends those that come next, as far as they are at hand.
    fn upcoming(&self) -> &[Weighed<P>];
}

impl<P: BatchProcessor> Supply<P> for iter::Once<Weighed<P>> {
    fn upcoming(&self) -> &[Weighed<P>] {
        &[]
    }
}

impl<P: BatchProcessor> Supply<P> for vec::IntoIter<Weighed<P>> {
    fn upcoming(&self) -> &[Weighed<P>] {
        self.as_slice()
    }
}

/// Items that were refused, and why.
pub(crate) type Refused<P> = (Vec<<P as BatchProcessor>::Item>, Refusal);

/// How long a submit waits for room.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// As the settings say.
    Setting,
    Never,
    For(Duration),
}

/// One who may have to wait for room.
pub(crate) struct Visitor {
    patience: Patience,
    /// When it gives up; not worked out before it has to wait. `Some(None)` waits without end.
    #[expect(clippy::option_option, reason = "not asked yet and without end are two things")]
    until: Option<Option<Instant>>,
    place: Option<u64>,
    /// The alarm of one who does not block, and when it goes off.
    alarm: Option<(u64, Time)>,
    /// Items of its that were accepted, and that the observer was not told of.
    unreported: Vec<ItemId>,
}

impl Visitor {
    pub(crate) fn new(patience: Patience) -> Self {
        Self { patience, until: None, place: None, alarm: None, unreported: Vec::new() }
    }
}

/// Why an item is not accepted right now.
pub(super) enum Obstacle {
    /// There may be room later.
    Full(Refusal),
    Final(Refusal),
}

/// How far an async submit has come.
pub(crate) enum Entered<P: BatchProcessor> {
    Accepted(TicketOf<P>),
    Storing(ReplyClaim<P>),
}

impl<P: BatchProcessor> Engine<P> {
    pub(crate) fn weigh(&self, item: P::Item) -> Weighed<P> {
        Weighed { key: self.processor.key(&item), weight: self.processor.weight(&item), item }
    }

    /// Accepts one item, waiting for room, and returns its ticket.
    #[inline]
    pub(crate) fn submit_one(
        &self,
        item: P::Item,
        patience: Patience,
    ) -> Result<TicketOf<P>, (P::Item, Refusal)> {
        let mut weighed = self.weigh(item);
        if self.hooks.is_plain() {
            let mut state = self.core.lock();
            if self.settings.is_inline() {
                (state, weighed) = match self.pass(state, weighed) {
                    Ok(ticket) => return Ok(ticket),
                    Err(other) => other,
                };
            }
            match state.join(&self.lately(), weighed) {
                Ok((ticket, accepted)) => {
                    // Whoever has to know of this batch was told when it began.
                    self.core.board.write_accepted(accepted);
                    return Ok(ticket);
                }
                Err(other) => weighed = other,
            }
            self.gather(&mut state);
            if !state.room.is_waiting() && state.queue.admit(weighed.weight).is_ok() {
                let ticket = state.accept_next(&self.lately(), weighed);
                if state.queue.take_changed() {
                    self.lead_with(self.go_on_to_accept(state));
                } else {
                    self.core.board.write_accepted(state.queue.stats().accepted);
                    state.lend();
                }
                return Ok(ticket);
            }
        }
        let mut ticket = None;
        let submitted =
            self.submit(&mut iter::once(weighed), patience, |mut row| ticket = row.next());
        match submitted {
            Ok(()) => Ok(ticket.expect("an accepted item has a ticket")),
            Err((mut items, reason)) => {
                Err((items.pop().expect("a refused item comes back"), reason))
            }
        }
    }

    /// Accepts items in order, each waiting for room, and hands out their tickets; gives back what
    /// was taken from `items` and refused, never nothing, with the reason.
    pub(crate) fn submit(
        &self,
        items: &mut impl Supply<P>,
        patience: Patience,
        mut accepted: impl FnMut(RowOf<P>),
    ) -> Result<(), Refused<P>> {
        let mut visitor = Visitor::new(patience);
        let outcome = match &self.hooks.journal {
            None => self.submit_plain(items, &mut visitor, &mut accepted),
            Some(journal) => self.submit_stored(&**journal, items, &mut visitor, &mut accepted),
        };
        if let Err((_, reason)) = &outcome {
            self.observe(|| Event::Refused { reason });
        }
        outcome
    }

    fn submit_plain(
        &self,
        items: &mut impl Supply<P>,
        visitor: &mut Visitor,
        accepted: &mut impl FnMut(RowOf<P>),
    ) -> Result<(), Refused<P>> {
        let mut now = self.now();
        let mut state = self.lock_to_accept();
        let mut outcome = Ok(());
        loop {
            if !self.is_observed()
                && let Some(row) = state.join_all(now, items)
            {
                accepted(row);
                continue;
            }
            let Some(weighed) = items.next() else { break };
            state.gather();
            if state.try_enter(self, weighed.weight, visitor).is_err() {
                let entered;
                (state, entered) = self.enter(state, weighed.weight, visitor, &mut now);
                if let Err(refusal) = entered {
                    state.queue.note_refused();
                    state.widen();
                    outcome = Err((vec![weighed.item], refusal));
                    break;
                }
            }
            let ticket = state.accept_next(&now, weighed);
            if self.is_observed() {
                visitor.unreported.push(ticket.id());
            } else {
                state.lend();
            }
            accepted(TicketRow::of(ticket));
        }
        state.gather();
        if visitor.place.is_some() {
            state.see_off(visitor);
            state.widen();
        }
        if visitor.unreported.is_empty() {
            self.lead_with(state);
        } else {
            drop(state);
            self.report_admitted(visitor.unreported.drain(..));
            self.go_on();
        }
        outcome
    }

    /// Accepts items, each group of those for which there is room in the journal first.
    fn submit_stored(
        &self,
        journal: &dyn Journal<P::Item>,
        items: &mut impl Iterator<Item = Weighed<P>>,
        visitor: &mut Visitor,
        accepted: &mut impl FnMut(RowOf<P>),
    ) -> Result<(), Refused<P>> {
        let mut items = items.peekable();
        while let Some(first) = items.next() {
            let (mut state, entered) = self.enter(self.lock(), first.weight, visitor, &mut 0);
            if let Err(refusal) = entered {
                state.queue.note_refused();
                state.see_off(visitor);
                return Err((vec![first.item], refusal));
            }
            state.queue.reserve(first.weight);
            let mut group = vec![first];
            while let Some(weight) = items.peek().map(|next| next.weight)
                && state.try_enter(self, weight, visitor).is_ok()
            {
                state.queue.reserve(weight);
                group.extend(items.next());
            }
            // Others need not wait for the journal too.
            state.see_off(visitor);
            drop(state);
            let stored = match store(journal, &group) {
                Ok(first) => self.accept_stored(journal, first, group),
                Err(error) => Err(self.give_up(group, error)),
            };
            match stored {
                Ok(tickets) => {
                    tickets.into_iter().map(TicketRow::of).for_each(&mut *accepted);
                }
                Err((mut rest, refusal)) => {
                    self.lock().queue.note_refused();
                    // The one that was looked at came from `items` too.
                    rest.extend(items.next_if(|_| true).map(|weighed| weighed.item));
                    return Err((rest, refusal));
                }
            }
            self.go_on();
        }
        Ok(())
    }

    /// Frees the room of a group that the journal did not take.
    pub(super) fn give_up(&self, group: Vec<Weighed<P>>, error: JournalError) -> Refused<P> {
        let mut state = self.lock();
        for weighed in &group {
            state.queue.release(weighed.weight);
        }
        drop(state);
        let items = group.into_iter().map(|weighed| weighed.item).collect();
        (items, Refusal::Journal(Arc::new(error)))
    }

    /// Waits until an item of this weight may come in, or may not for good.
    fn enter<'e>(
        &'e self,
        mut state: Transaction<'e, P>,
        weight: u64,
        visitor: &mut Visitor,
        now: &mut Time,
    ) -> (Transaction<'e, P>, Result<(), Refusal>) {
        let mut sleeper = None;
        loop {
            let refusal = match state.try_enter(self, weight, visitor) {
                Ok(()) => return (state, Ok(())),
                Err(Obstacle::Final(refusal)) => return (state, Err(refusal)),
                Err(Obstacle::Full(refusal)) => refusal,
            };
            if matches!(visitor.patience, Patience::Never) || self.settings.is_stepped() {
                return (state, Err(refusal));
            }
            let until = *visitor.until.get_or_insert_with(|| match visitor.patience {
                Patience::Setting => self.settings.max_block.and_then(deadline),
                Patience::For(timeout) => deadline(timeout),
                Patience::Never => None,
            });
            if is_over(until) {
                return (state, Err(refusal));
            }
            if current::is_running(self.id()) {
                return (state, Err(Refusal::WouldDeadlock));
            }
            // What lingers is ready from now on.
            state.widen();
            let sleeper = sleeper.get_or_insert_with(Sleeper::new);
            let (place, _) = state.room.wait(visitor.place, weight, sleeper.waker());
            visitor.place = Some(place);
            state.queue.set_pressed(true);
            let may_lead = self.settings.is_inline() && !state.leading && state.queue.has_ready();
            drop(state);
            self.report_admitted(visitor.unreported.drain(..));
            if may_lead {
                self.lead_now();
            } else {
                sleeper.sleep(until);
            }
            state = self.lock();
            *now = self.steady_now();
        }
    }

    /// Lets the item of an async submit in as soon as there is room, and has the task woken until
    /// then. The item stays in its place while it is not accepted.
    pub(crate) fn poll_submit(
        &self,
        item: &mut Option<Weighed<P>>,
        visitor: &mut Visitor,
        context: &Context<'_>,
    ) -> Poll<Result<Entered<P>, Refusal>> {
        let weight = item.as_ref().map_or(0, |weighed| weighed.weight);
        // Cloned before the lock: a waker is user code.
        let waker = context.waker().clone();
        let other = self.settings.max_block.map(|_| waker.clone());
        let now = self.now();
        let mut state = self.lock();
        let refusal = match state.try_enter(self, weight, visitor) {
            Ok(()) => {
                let weighed = item.take().expect("a ready future is not polled again");
                state.see_off(visitor);
                if self.hooks.journal.is_none() {
                    let ticket = state.accept_next(&now, weighed);
                    drop(state);
                    self.report_admitted(std::iter::once(ticket.id()));
                    self.go_on();
                    return Poll::Ready(Ok(Entered::Accepted(ticket)));
                }
                state.queue.reserve(weight);
                drop(state);
                return Poll::Ready(Ok(Entered::Storing(self.append_later(weighed))));
            }
            Err(Obstacle::Final(refusal)) => refusal,
            Err(Obstacle::Full(_)) if current::is_running(self.id()) => Refusal::WouldDeadlock,
            Err(Obstacle::Full(refusal)) => {
                let patience = self.settings.max_block.map(nanos);
                let until = visitor.alarm.take().map_or_else(
                    || patience.map(|patience| now.saturating_add(patience)),
                    |(id, until)| {
                        state.clear_alarm(Some(id));
                        Some(until)
                    },
                );
                if until.is_none_or(|until| now < until) {
                    visitor.alarm = until
                        .zip(other)
                        .map(|(until, waker)| (state.set_alarm(until, waker), until));
                    let (place, before) = state.room.wait(visitor.place, weight, waker);
                    visitor.place = Some(place);
                    state.queue.set_pressed(true);
                    drop(state);
                    panics::swallow(|| drop(before));
                    self.go_on();
                    return Poll::Pending;
                }
                refusal
            }
        };
        state.queue.note_refused();
        state.see_off(visitor);
        drop(state);
        self.observe(|| Event::Refused { reason: &refusal });
        Poll::Ready(Err(refusal))
    }

    /// Takes one who no longer waits out of the queue for room.
    pub(crate) fn leave(&self, visitor: &mut Visitor) {
        if visitor.place.is_some() || visitor.alarm.is_some() {
            self.lock().see_off(visitor);
        }
    }
}

/// Puts a group into the journal; returns the id of its first item, which the others follow.
pub(super) fn store<P: BatchProcessor>(
    journal: &dyn Journal<P::Item>,
    group: &[Weighed<P>],
) -> Result<ItemId, JournalError> {
    let append = || {
        let first = journal.reserve(u64::try_from(group.len()).unwrap_or(u64::MAX));
        let ids = (0..).map(|offset| first.plus(offset));
        let entries: Vec<_> = ids.zip(group.iter().map(|weighed| &weighed.item)).collect();
        journal.append(&entries).map(|()| first)
    };
    journal::guard(append)
}

impl<P: BatchProcessor> State<P> {
    /// Asks whether an item of this weight may come in now: in its turn, and if there is room.
    pub(super) fn try_enter(
        &self,
        engine: &Engine<P>,
        weight: u64,
        visitor: &Visitor,
    ) -> Result<(), Obstacle> {
        match self.queue.admit(weight) {
            Ok(()) if self.room.is_next(visitor.place) => Ok(()),
            Ok(()) | Err(accumulator::Refused::Full) => {
                let policy = &engine.settings.policy;
                // Without weight only the items can be too many.
                let is_heavy = self.queue.admit(0).is_ok() && !self.room.is_waiting();
                Err(Obstacle::Full(if is_heavy {
                    Refusal::FullWeight { capacity: policy.capacity_weight }
                } else {
                    Refusal::Full { capacity: policy.capacity_items }
                }))
            }
            Err(accumulator::Refused::Closed) => Err(Obstacle::Final(Refusal::Closed)),
            Err(accumulator::Refused::TooHeavy { max }) => {
                Err(Obstacle::Final(Refusal::TooHeavy { weight, max }))
            }
            Err(accumulator::Refused::Fatal(item)) => Err(Obstacle::Final(Refusal::Fatal { item })),
        }
    }

    /// Accepts an item that joins the batch that is lent; returns how many were ever accepted, or
    /// gives it back.
    #[inline]
    fn join(
        &mut self,
        moment: &impl Moment,
        weighed: Weighed<P>,
    ) -> Result<(TicketOf<P>, u64), Weighed<P>> {
        let Some(open) = &mut self.open else { return Err(weighed) };
        if !open.takes(weighed.weight) || !self.queue.is_lent_by(&weighed.key) {
            return Err(weighed);
        }
        let now = moment.rough();
        let (filler, claim) = self.slots.pair();
        let id = self.next_ids.take(1);
        let accepted = open.join(now, id, weighed.weight, weighed.item, Seat::open(filler));
        Ok((Ticket::new(claim, id, open.lane()), accepted))
    }

    /// Accepts the next items that are alike and that the batch that is lent takes; `None` if there
    /// is none.
    fn join_all(&mut self, now: Time, items: &mut impl Supply<P>) -> Option<RowOf<P>> {
        let open = self.open.as_mut()?;
        let first = items.upcoming().first()?;
        if !open.takes(first.weight) || !self.queue.is_lent_by(&first.key) {
            return None;
        }
        let weight = first.weight;
        let is_like = |next: &&Weighed<P>| next.weight == weight && next.key == first.key;
        // No more than there are cells in a row: what comes after is looked at then.
        let places = open.places(weight).min(self.slots.left());
        let alike = items.upcoming().iter().take(places).take_while(is_like).count();
        let (fillers, claims) = self.slots.row(alike);
        let id = self.next_ids.take(fillers.len());
        let row = items.by_ref().take(fillers.len()).map(|Weighed { key, item, .. }| {
            // User code, in the middle of a change.
            panics::swallow(|| drop(key));
            item
        });
        open.join_all(now, id, weight, row, Seats::open(fillers));
        Some(TicketRow::new(claims, id, open.lane()))
    }

    /// Sets the batch that the last item joined apart for the next, if nobody waits for room.
    fn lend(&mut self) {
        if !self.room.is_waiting() {
            self.open = self.queue.lend();
        }
    }

    /// Gives back the batch that was set apart, before anything else is done.
    pub(super) fn gather(&mut self) {
        if let Some(open) = self.open.take() {
            self.queue.take_back(open);
        }
    }

    /// Accepts an item that no journal names.
    #[inline]
    fn accept_next(&mut self, moment: &impl Moment, weighed: Weighed<P>) -> TicketOf<P> {
        let id = self.next_ids.take(1);
        self.accept(moment, id, weighed)
    }

    /// Accepts an item for which there is room.
    #[inline]
    pub(super) fn accept(
        &mut self,
        moment: &impl Moment,
        id: ItemId,
        weighed: Weighed<P>,
    ) -> TicketOf<P> {
        let Weighed { key, weight, item } = weighed;
        let (filler, claim) = self.slots.pair();
        let lane = self.queue.push(moment, key, id, weight, item, Seat::open(filler));
        Ticket::new(claim, id, lane)
    }

    /// Takes one who no longer waits out of the queue for room.
    pub(super) fn see_off(&mut self, visitor: &mut Visitor) {
        if let Some(place) = visitor.place.take() {
            let waker = self.room.leave(place);
            self.buried.extend(waker);
            let is_waiting = self.room.is_waiting();
            self.queue.set_pressed(is_waiting);
        }
        self.clear_alarm(visitor.alarm.take().map(|(id, _)| id));
    }
}
