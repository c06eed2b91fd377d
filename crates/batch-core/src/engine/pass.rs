//! How an idle inline engine runs one item, with as little ado as there can be.

use super::admission::Weighed;
use super::work::{Called, Job};
use super::{Engine, Keeper, SharedOf, State, TicketOf};
use crate::accumulator::{Moment, Pass};
use crate::current::Running;
use crate::id::BatchId;
use crate::items::Items;
use crate::panics;
use crate::processor::BatchProcessor;
use crate::rounds::Ledger;
use crate::seat::Seat;
use crate::sync::{Arc, MutexGuard};
use crate::ticket::Ticket;

/// The batch of an item that goes through alone.
///
/// It is known to nobody but the one who runs it, who has the ticket until it is over. Whoever else
/// takes the lock [gathers](Engine::gather) it, and from then on it is a batch in flight as any other.
pub(super) struct Passing<P: BatchProcessor> {
    pass: Pass<P::Key>,
    batch: Arc<SharedOf<P>>,
}

/// The lock and the item, which cannot go through alone.
type Declined<'e, P> = (MutexGuard<'e, State<P>>, Weighed<P>);

/// Such a batch after it was gathered, for the thread that runs it.
pub(super) struct Seen<P: BatchProcessor> {
    batch: Arc<SharedOf<P>>,
    /// It was completed before, and is in no list.
    is_over: bool,
}

impl<P: BatchProcessor> Engine<P> {
    /// Accepts an item and runs it at once, if this engine, an inline one, has nothing else to do;
    /// gives it back with the lock if not.
    pub(super) fn pass<'e>(
        &'e self,
        mut state: MutexGuard<'e, State<P>>,
        weighed: Weighed<P>,
    ) -> Result<TicketOf<P>, Declined<'e, P>> {
        let may_pass = state.open.is_none()
            && state.passing.is_none()
            && !state.leading
            && !state.room.is_waiting()
            && state.queue.can_pass()
            && !self.has_to_watch(&state)
            && state.queue.admit(weighed.weight).is_ok();
        if !may_pass {
            return Err((state, weighed));
        }
        let Weighed { key, weight, item } = weighed;
        let id = state.next_ids.take(1);
        let (filler, claim) = state.slots.pair();
        let of_pass = key.clone();
        let (pass, known) =
            state.queue.pass(&self.lately(), of_pass, id, weight, Seat::open(filler));
        let (reason, ticket) = (pass.reason(), Ticket::new(claim, id, pass.lane()));
        let batch = self.batch(pass.batch(), Items::One(item), known);
        state.passing = Some(Passing { pass, batch: batch.shared() });
        state.leading = true;
        self.core.board.write(state.queue.stats());
        drop(state);
        let id = batch.id();
        let running = Running::enter_pass(self.id(), id);
        let called = self.call(Job { key, batch, reason, queued: 0, attempt: 1, weight });
        let is_complete = running.is_complete();
        if is_complete && self.end_pass(&called) {
            // The key is user code.
            panics::swallow(|| drop(called));
        } else {
            self.end_seen(id, is_complete, called, running);
        }
        Ok(ticket)
    }

    /// Says whether the keeper sleeps for longer than the delivery time-out of an item.
    fn has_to_watch(&self, state: &State<P>) -> bool {
        let Keeper::Asleep { until, .. } = &state.keeper else { return false };
        self.settings.policy.deadline(self.lately().rough()) < *until
    }

    /// Ends such a batch and the lead of who ran it; false if somebody else looked meanwhile.
    fn end_pass(&self, called: &Called<P>) -> bool {
        let now = self.steady_now();
        let mut state = self.core.lock();
        let Some(Passing { pass, batch }) = state.passing.take_if(|_| called.is_whole()) else {
            return false;
        };
        state.leading = false;
        state.queue.end_pass(now, pass);
        self.core.board.write(state.queue.stats());
        drop(state);
        panics::swallow(|| drop(batch));
        true
    }

    /// Ends a call whose batch others have seen, or which is not over yet, and goes on to lead.
    #[cold]
    fn end_seen(&self, id: BatchId, is_complete: bool, called: Called<P>, running: Running) {
        let Seen { batch, is_over } = self.lock().seen.take().expect("a lock takes in what passes");
        if is_complete && !is_over {
            Ledger::complete(self, id, None);
            Ledger::finish(self, id, Vec::new());
        }
        called.settle(batch);
        // This thread may run others from here on, and one of them may drop what was kept of this.
        drop(running);
        let mut state = self.lock();
        if state.hand_over() {
            state.leading = false;
        } else {
            self.lead_on(state);
        }
    }

    /// Puts what stands apart where everything else is, before anything else is done.
    pub(super) fn gather(&self, state: &mut State<P>) {
        state.gather();
        if state.passing.is_some() {
            self.take_in(state);
        }
    }

    /// Enters a batch that goes through alone where every other batch is, or was.
    #[cold]
    fn take_in(&self, state: &mut State<P>) {
        let now = self.steady_now();
        let Some(Passing { pass, batch }) = state.passing.take() else { return };
        let (id, known, is_over) = (pass.batch(), Arc::downgrade(&batch), batch.list());
        state.seen = Some(Seen { batch, is_over });
        if is_over {
            state.queue.end_pass(now, pass);
        } else {
            state.queue.take_in(pass);
            state.in_flight.push((id, known));
        }
    }
}
