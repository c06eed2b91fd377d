//! The thread that writes to the journal for callers that may not block.

use super::admission::{Refused, Weighed, store};
use super::{Engine, TicketOf};
use crate::accumulator;
use crate::error::Refusal;
use crate::id::ItemId;
use crate::journal::{self, Journal};
use crate::link::Link;
use crate::processor::BatchProcessor;
use crate::slot::{Claim, Filler, Round};
use crate::sync::{Arc, spawn};
use crate::ticket::Ticket;

/// What an async submit to a journaled batcher comes to.
pub(crate) type Reply<P> = Result<TicketOf<P>, Refused<P>>;
pub(crate) type ReplyClaim<P> = Claim<Reply<P>, Link>;

/// An item for which there is room, on its way to the journal.
pub(super) struct Append<P: BatchProcessor> {
    weighed: Weighed<P>,
    reply: Filler<Reply<P>, Link>,
}

impl<P: BatchProcessor> Engine<P> {
    /// Sends an item for which room is reserved to the journal. The caller holds no lock.
    pub(super) fn append_later(&self, weighed: Weighed<P>) -> ReplyClaim<P> {
        let mut state = self.lock();
        let (reply, claim) = state.reply_slots.pair();
        state.appends.push(Append { weighed, reply });
        let is_missing = !std::mem::replace(&mut state.has_appender, true);
        drop(state);
        if is_missing
            && let Some(engine) = self.itself.upgrade()
            && spawn("batch-core-journal", move || engine.append_all()).is_err()
        {
            // No thread can be started: this one has to wait for the disk.
            self.append_all();
        }
        claim
    }

    /// Writes what is there, group by group, and ends.
    fn append_all(&self) {
        loop {
            let mut state = self.lock();
            let group = std::mem::take(&mut state.appends);
            let Some(journal) = self.hooks.journal.clone().filter(|_| !group.is_empty()) else {
                state.has_appender = false;
                return;
            };
            drop(state);
            self.append_group(&*journal, group);
        }
    }

    fn append_group(&self, journal: &dyn Journal<P::Item>, group: Vec<Append<P>>) {
        let (group, replies): (Vec<_>, Vec<_>) =
            group.into_iter().map(|append| (append.weighed, append.reply)).unzip();
        let results: Vec<Reply<P>> = match store(journal, &group) {
            Ok(first) => match self.accept_stored(journal, first, group) {
                Ok(tickets) => tickets.into_iter().map(Ok).collect(),
                Err((items, refusal)) => refuse::<P>(items, &refusal),
            },
            Err(error) => {
                let (items, refusal) = self.give_up(group, error);
                refuse::<P>(items, &refusal)
            }
        };
        let refusals = || results.iter().filter_map(|result| Some(&result.as_ref().err()?.1));
        if refusals().next().is_some() {
            let mut state = self.lock();
            for _ in refusals() {
                state.queue.note_refused();
            }
            drop(state);
            self.report_refused(refusals());
        }
        let mut round = Round::new();
        for (reply, result) in replies.into_iter().zip(results) {
            round.fill(reply, result);
        }
        round.finish();
        self.go_on();
    }

    /// Accepts a group that is in the journal and for which room is reserved.
    pub(super) fn accept_stored(
        &self,
        journal: &dyn Journal<P::Item>,
        first: ItemId,
        group: Vec<Weighed<P>>,
    ) -> Result<Vec<TicketOf<P>>, Refused<P>> {
        let now = self.steady_now();
        let ids = (0..).map(|offset| first.plus(offset));
        let mut state = self.lock();
        for weighed in &group {
            state.queue.release(weighed.weight);
        }
        let refusal = match state.queue.admit(0) {
            Err(accumulator::Refused::Fatal(item)) => Some(Refusal::Fatal { item }),
            _ => state.ended.then_some(Refusal::Closed),
        };
        if let Some(refusal) = refusal {
            // It was closed meanwhile, and nobody is left to process them.
            drop(state);
            let ids: Vec<_> = ids.take(group.len()).collect();
            let refusal = journal::guard(|| journal.ack(&ids))
                .map_or_else(|error| Refusal::Journal(Arc::new(error)), |()| refusal);
            return Err((group.into_iter().map(|weighed| weighed.item).collect(), refusal));
        }
        let accepted = ids.zip(group).map(|(id, weighed)| state.accept(&now, id, weighed));
        let tickets: Vec<_> = accepted.collect();
        drop(state);
        self.report_admitted(tickets.iter().map(Ticket::id));
        Ok(tickets)
    }
}

fn refuse<P: BatchProcessor>(items: Vec<P::Item>, refusal: &Refusal) -> Vec<Reply<P>> {
    items.into_iter().map(|item| Err((vec![item], refusal.clone()))).collect()
}
