//! How a batcher takes up what an earlier run left in its journal.

use super::{Engine, TicketOf};
use crate::journal::JournalError;
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
        let left = journal.unacked(before).inspect_err(|_| self.lock().resumed = false)?;
        let weighed: Vec<_> =
            left.into_iter().map(|(id, item)| (id, label(&item), self.weigh(item))).collect();
        let now = self.now();
        let mut state = self.lock();
        let accept = |(id, label, weighed)| (label, state.accept(now, id, weighed));
        let resumed: Vec<(L, TicketOf<P>)> = weighed.into_iter().map(accept).collect();
        drop(state);
        self.report_admitted(resumed.iter().map(|(_, ticket)| ticket.id()));
        self.go_on();
        Ok(resumed)
    }
}
