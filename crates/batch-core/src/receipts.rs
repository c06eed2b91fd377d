//! What tells the journal of the items that came to their end.

use std::{fmt, mem};

use crate::id::ItemId;
use crate::journal::{Journal, JournalError, guard};
use crate::sync::{Arc, Mutex, lock};

type Acknowledge = dyn Fn(&[ItemId]) -> Result<(), JournalError> + Send + Sync;

/// Acknowledges items, and keeps those that the journal did not take for the next time.
///
/// A batch holds it as well as its engine does: its results are told to the journal also where the
/// batch outlives the engine, and the journal is not closed while somebody works on its items.
pub(crate) struct Receipts {
    acknowledge: Box<Acknowledge>,
    /// Items for which an acknowledgement failed.
    owed: Mutex<Vec<ItemId>>,
}

impl Receipts {
    pub(crate) fn of<I: 'static>(journal: Arc<dyn Journal<I>>) -> Self {
        Self { acknowledge: Box::new(move |ids| journal.ack(ids)), owed: Mutex::new(Vec::new()) }
    }

    /// Acknowledges items, and then those that are owed: what the journal never takes keeps it from no
    /// other. Blocks for the journal.
    pub(crate) fn acknowledge(&self, ids: Vec<ItemId>) -> Result<(), JournalError> {
        self.tell(ids)?;
        let owed = mem::take(&mut *lock(&self.owed));
        self.tell(owed)
    }

    fn tell(&self, mut ids: Vec<ItemId>) -> Result<(), JournalError> {
        if ids.is_empty() {
            return Ok(());
        }
        let told = guard(|| (self.acknowledge)(&ids));
        if told.is_err() {
            lock(&self.owed).append(&mut ids);
        }
        told
    }
}

impl fmt::Debug for Receipts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipts").field("owed", &lock(&self.owed).len()).finish_non_exhaustive()
    }
}
