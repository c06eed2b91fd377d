//! The batch that a processor owns, and the slots that it resolves.

use std::fmt;

use crate::accumulator::Packed;
use crate::current;
use crate::error::BatchError;
use crate::id::{BatchId, ItemId};
use crate::items::Items;
use crate::panics;
use crate::receipts::Receipts;
use crate::rounds::{Ledger, Shared};
use crate::seat::{Seat, Verdict};
use crate::sync::{Arc, Weak};

/// Owns the items of one batch and lends them; each has a slot to resolve.
///
/// A batch may be kept, shared between threads and resolved hours later. Results are delivered
/// when the last slot is resolved, when [`publish`](Self::publish) is called, and when the batch is
/// dropped; slots that are unresolved then get [`BatchError::Unresolved`]. Items that are to be
/// tried again go back to the queue when it is dropped. It holds its batcher weakly, so a processor
/// may keep batches in itself.
pub struct Batch<I, O, E> {
    items: Items<I>,
    shared: Arc<Shared<I, O, E>>,
}

impl<I, O, E> Batch<I, O, E> {
    pub(crate) fn new(
        id: BatchId,
        items: Items<I>,
        known: Packed<Seat<O, E>>,
        ledger: Weak<dyn Ledger<I, O, E>>,
        receipts: Option<Arc<Receipts>>,
        engine: usize,
    ) -> Self {
        let shared = Shared::new(id, known, ledger, receipts, engine);
        Self { items, shared: Arc::new(shared) }
    }

    /// Returns the id of the batch.
    pub fn id(&self) -> BatchId {
        self.shared.id()
    }

    /// Returns the number of items; never 0.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Says whether the batch has no item, which no batch of the engine is.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Lends the items, in the order in which they were accepted.
    pub fn items(&self) -> &[I] {
        &self.items
    }

    /// Returns the slot of the item at `index`.
    ///
    /// # Panics
    /// Panics if there is no item at `index`.
    pub fn slot(&self, index: usize) -> Slot<'_, I, O, E> {
        assert!(index < self.len(), "slot {index} of a batch of {}", self.len());
        Slot { batch: self, index }
    }

    /// Returns the slots, in the order of [`items`](Self::items).
    pub fn slots(&self) -> impl ExactSizeIterator<Item = Slot<'_, I, O, E>> {
        (0..self.len()).map(|index| Slot { batch: self, index })
    }

    /// Resolves every slot with the result at its place.
    ///
    /// Another number of results than items fails every open slot with
    /// [`BatchError::WrongCount`]. Slots that are resolved already keep their result.
    pub fn resolve_all(&self, results: Vec<Result<O, E>>) {
        let (expected, got) = (self.len(), results.len());
        if expected != got {
            let wrong = || Verdict::Final(Err(BatchError::WrongCount { expected, got }));
            self.shared.judge_open(wrong);
            panics::drop_each(results.into_iter());
            return;
        }
        let is_complete = results.iter().all(Result::is_ok);
        let results = if is_complete { self.shared.complete(results) } else { Err(results) };
        if let Err(results) = results {
            // The processor is asked about its errors before any lock is taken.
            let judge = |(index, result)| (index, self.shared.verdict(index, result));
            let verdicts: Vec<_> = results.into_iter().enumerate().map(judge).collect();
            self.shared.judge(verdicts.into_iter());
        }
    }

    /// Fails every open slot with one error that they share.
    ///
    /// The processor's [`classify`](crate::BatchProcessor::classify) decides, once for all of them,
    /// whether they are tried again.
    pub fn fail_all(&self, error: E) {
        let error = Arc::new(error);
        let again = self.shared.classify(self.shared.first_open(), &error);
        self.shared.judge_open(|| match again {
            None => Verdict::Final(Err(BatchError::Failed(Arc::clone(&error)))),
            Some(again) => Verdict::Again(Arc::clone(&error), again),
        });
    }

    /// Delivers what is resolved so far; the other slots stay open.
    pub fn publish(&self) {
        self.shared.publish();
    }

    /// Ends the batch early: gives back the items that are not resolved; their tickets say
    /// [`Cancelled`](BatchError::Cancelled).
    pub fn withdraw(mut self) -> Vec<(ItemId, I)> {
        self.shared.judge_open(|| Verdict::Final(Err(BatchError::Cancelled)));
        let items = self.items.take();
        self.shared.end(items, None)
    }

    /// Keeps what is needed to end the batch if its processor panics.
    pub(crate) fn shared(&self) -> Arc<Shared<I, O, E>> {
        Arc::clone(&self.shared)
    }
}

impl<I, O, E> Drop for Batch<I, O, E> {
    fn drop(&mut self) {
        let items = self.items.take();
        let shared = &self.shared;
        // The thread that runs the processor knows the message of the panic and ends the batch.
        if std::thread::panicking() && current::is_running_batch(shared.engine(), self.id()) {
            shared.abandon(items.into_vec());
            return;
        }
        // Nothing was withdrawn if the batch is dropped; what comes back is empty.
        drop(shared.end(items, None));
    }
}

impl<I, O, E> fmt::Debug for Batch<I, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("id", &self.id())
            .field("items", &self.len())
            .field("open", &self.shared.open())
            .finish()
    }
}

/// Points at one item of a batch and takes its result.
pub struct Slot<'b, I, O, E> {
    batch: &'b Batch<I, O, E>,
    index: usize,
}

impl<'b, I, O, E> Slot<'b, I, O, E> {
    /// Returns the id of the item, which is the same on every attempt to process it.
    pub fn id(self) -> ItemId {
        self.batch.shared.tag(self.index).id
    }

    /// Returns how often the item was given to the processor, this time included.
    pub fn attempt(self) -> u32 {
        self.batch.shared.tag(self.index).attempt
    }

    /// Returns the place of the item in its batch.
    pub fn index(self) -> usize {
        self.index
    }

    /// Lends the item.
    pub fn item(self) -> &'b I {
        &self.batch.items[self.index]
    }

    /// Resolves the item, and delivers the round if it was the last open slot.
    ///
    /// An error is shown to the processor's [`classify`](crate::BatchProcessor::classify) first:
    /// an item that is to be tried again stays pending for its caller. Returns false, and drops the
    /// result, if the slot is resolved already: the first counts.
    pub fn resolve(self, result: Result<O, E>) -> bool {
        let shared = &self.batch.shared;
        let verdict = shared.verdict(self.index, result);
        shared.judge([(self.index, verdict)].into_iter()) == 1
    }
}

impl<I, O, E> Clone for Slot<'_, I, O, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, O, E> Copy for Slot<'_, I, O, E> {}

impl<I, O, E> fmt::Debug for Slot<'_, I, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("id", &self.id()).field("index", &self.index).finish()
    }
}
