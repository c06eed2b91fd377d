//! How a batcher takes up what an earlier run left in its journal.

use super::{Engine, TicketOf};
use crate::journal::{self, JournalError};
use crate::processor::BatchProcessor;

impl<P: BatchProcessor> Engine<P> {
    /// Queues what the journal holds of earlier runs, in order, whatever the bound; once.
    pub(crate) fn resume<L>(
        &self,
        label: impl Fn(&P::Item) -> L,
    ) -> Result<Vec<(L, TicketOf<P>)>, JournalError> {
        let Some(journal) = &self.hooks.journal else { return Ok(Vec::new()) };
        let Some(before) = self.resume_from else { return Ok(Vec::new()) };
        if std::mem::replace(&mut self.lock().resumed, true) {
            return Ok(Vec::new());
        }
        let mut attempt = Attempt(Some(self));
        let left = journal::guard(|| journal.unacked(before))?;
        let weighed: Vec<_> =
            left.into_iter().map(|(id, item)| (id, label(&item), self.weigh(item))).collect();
        let now = self.now();
        let mut state = self.lock();
        let accept = |(id, label, weighed)| (label, state.accept(&now, id, weighed));
        let resumed: Vec<(L, TicketOf<P>)> = weighed.into_iter().map(accept).collect();
        // A batcher that is closed sends nothing any more.
        state.ended |= state.fatal.is_some();
        self.give_up_if_ended(state);
        attempt.0 = None;
        self.report_admitted(resumed.iter().map(|(_, ticket)| ticket.id()));
        self.go_on();
        Ok(resumed)
    }
}

/// Lets the journal be read again, unless what was read is queued.
struct Attempt<'e, P: BatchProcessor>(Option<&'e Engine<P>>);

impl<P: BatchProcessor> Drop for Attempt<'_, P> {
    fn drop(&mut self) {
        if let Some(engine) = self.0 {
            engine.lock().resumed = false;
        }
    }
}
