//! The batch that a processor owns, and the slots that it resolves.

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::block::SharedBlock;
use crate::current;
use crate::error::{BatchError, Outcome};
use crate::id::{BatchId, ItemId};
use crate::sync::{Arc, Mutex, Weak, lock};

/// What a batch tells its engine.
pub(crate) trait Ledger: Send + Sync {
    /// Counts items of a batch that are final now, before anybody learns of them.
    fn settle(&self, batch: BatchId, round: Settled);
    /// Notes that the tickets of a counted round have their results; after the last one the next
    /// batch of the key may go.
    fn delivered(&self, batch: BatchId);
}

/// How many items of one round came to which end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settled {
    pub(crate) completed: usize,
    pub(crate) failed: usize,
}

/// Owns the items of one batch and lends them; each has a slot to resolve.
///
/// A batch may be kept, shared between threads and resolved hours later. Results are delivered
/// when the last slot is resolved, when [`publish`](Self::publish) is called, and when the batch is
/// dropped; slots that are unresolved then get [`BatchError::Unresolved`]. It holds its batcher
/// weakly, so a processor may keep batches in itself.
pub struct Batch<I, O, E> {
    items: Vec<I>,
    shared: Arc<Shared<O, E>>,
}

/// The part of a batch that outlives a panicking processor, to be resolved with its message.
pub(crate) struct Shared<O, E> {
    id: BatchId,
    ids: Vec<ItemId>,
    block: SharedBlock<O, E>,
    ledger: Weak<dyn Ledger>,
    engine: usize,
    slots: Mutex<Slots<O, E>>,
    /// The batch was dropped by its panicking processor and waits for the message.
    abandoned: AtomicBool,
}

/// Results with the places of their items.
type Round<O, E> = Vec<(usize, Outcome<O, E>)>;

struct Slots<O, E> {
    states: Vec<SlotState<O, E>>,
    /// Slots that are not resolved.
    open: usize,
}

enum SlotState<O, E> {
    Open,
    Resolved(Outcome<O, E>),
    Published,
}

impl<I, O, E> Batch<I, O, E> {
    pub(crate) fn new(
        id: BatchId,
        items: Vec<I>,
        ids: Vec<ItemId>,
        block: SharedBlock<O, E>,
        ledger: Weak<dyn Ledger>,
        engine: usize,
    ) -> Self {
        let open = items.len();
        let states = items.iter().map(|_| SlotState::Open).collect();
        let slots = Mutex::new(Slots { states, open });
        Self {
            items,
            shared: Arc::new(Shared {
                id,
                ids,
                block,
                ledger,
                engine,
                slots,
                abandoned: AtomicBool::new(false),
            }),
        }
    }

    /// Returns the id of the batch.
    pub fn id(&self) -> BatchId {
        self.shared.id
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
        if expected == got {
            self.shared.fill(results.into_iter().map(|r| r.map_err(failed)).enumerate());
        } else {
            self.shared.fill_open(|| Err(BatchError::WrongCount { expected, got }));
        }
    }

    /// Fails every open slot with one error that they share.
    pub fn fail_all(&self, error: E) {
        let error = Arc::new(error);
        self.shared.fill_open(|| Err(BatchError::Failed(Arc::clone(&error))));
    }

    /// Delivers what is resolved so far; the other slots stay open.
    pub fn publish(&self) {
        self.shared.publish();
    }

    /// Keeps what is needed to end the batch if its processor panics.
    pub(crate) fn shared(&self) -> Arc<Shared<O, E>> {
        Arc::clone(&self.shared)
    }
}

impl<I, O, E> Drop for Batch<I, O, E> {
    fn drop(&mut self) {
        let shared = &self.shared;
        // The thread that runs the processor knows the message of the panic and ends the batch.
        if std::thread::panicking() && current::is_running_batch(shared.engine, shared.id) {
            shared.abandoned.store(true, Ordering::Relaxed);
            return;
        }
        shared.end(None);
    }
}

impl<I, O, E> fmt::Debug for Batch<I, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("id", &self.shared.id)
            .field("items", &self.len())
            .field("open", &lock(&self.shared.slots).open)
            .finish()
    }
}

impl<O, E> Shared<O, E> {
    /// Resolves what is open as unresolved by the processor, and delivers everything.
    fn end(&self, panic: Option<&str>) {
        self.fill_open(|| Err(BatchError::Unresolved { panic: panic.map(str::to_owned) }));
    }

    /// Ends a batch that its panicking processor dropped; without a message if the panic was
    /// caught before it came here.
    pub(crate) fn end_abandoned(&self, panic: Option<&str>) {
        // The batch was dropped by this very thread, so there is nothing to order.
        if self.abandoned.load(Ordering::Relaxed) {
            self.end(panic);
        }
    }

    /// Returns the ids of the items whose result is not delivered.
    pub(crate) fn undelivered_ids(&self) -> Vec<ItemId> {
        let slots = lock(&self.slots);
        let items = self.ids.iter().zip(&slots.states);
        items
            .filter(|(_, state)| !matches!(state, SlotState::Published))
            .map(|(id, _)| *id)
            .collect()
    }

    fn fill_open(&self, mut outcome: impl FnMut() -> Outcome<O, E>) {
        self.fill((0..self.ids.len()).map(|index| (index, outcome())));
    }

    /// Resolves those of the slots that are open, and publishes if none is left.
    fn fill(&self, outcomes: impl Iterator<Item = (usize, Outcome<O, E>)>) {
        let mut refused = Vec::new();
        let all_resolved = {
            let mut slots = lock(&self.slots);
            if slots.open > 0 {
                for (index, outcome) in outcomes {
                    // A refused outcome is dropped after the lock: its drop is user code.
                    refused.extend(slots.resolve(index, outcome).err());
                }
            }
            slots.open == 0
        };
        if all_resolved {
            self.publish();
        }
    }

    fn publish(&self) {
        let (round, settled) = lock(&self.slots).take_resolved();
        if round.is_empty() {
            return;
        }
        // The books are in order before anybody wakes up and looks.
        let ledger = self.ledger.upgrade();
        if let Some(ledger) = &ledger {
            ledger.settle(self.id, settled);
        }
        self.block.publish(round);
        if let Some(ledger) = &ledger {
            ledger.delivered(self.id);
        }
    }
}

impl<O, E> Slots<O, E> {
    fn resolve(&mut self, index: usize, outcome: Outcome<O, E>) -> Result<(), Outcome<O, E>> {
        match &mut self.states[index] {
            state @ SlotState::Open => {
                *state = SlotState::Resolved(outcome);
                self.open -= 1;
                Ok(())
            }
            SlotState::Resolved(_) | SlotState::Published => Err(outcome),
        }
    }

    fn take_resolved(&mut self) -> (Round<O, E>, Settled) {
        let mut round = Vec::new();
        let mut settled = Settled::default();
        for (index, state) in self.states.iter_mut().enumerate() {
            if !matches!(state, SlotState::Resolved(_)) {
                continue;
            }
            if let SlotState::Resolved(outcome) = mem::replace(state, SlotState::Published) {
                let count =
                    if outcome.is_ok() { &mut settled.completed } else { &mut settled.failed };
                *count += 1;
                round.push((index, outcome));
            }
        }
        (round, settled)
    }
}

fn failed<E>(error: E) -> BatchError<E> {
    BatchError::Failed(Arc::new(error))
}

/// Points at one item of a batch and takes its result.
pub struct Slot<'b, I, O, E> {
    batch: &'b Batch<I, O, E>,
    index: usize,
}

impl<'b, I, O, E> Slot<'b, I, O, E> {
    /// Returns the id of the item, which is the same on every attempt to process it.
    pub fn id(self) -> ItemId {
        self.batch.shared.ids[self.index]
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
    /// Returns false, and drops the result, if the slot is resolved already: the first counts.
    pub fn resolve(self, result: Result<O, E>) -> bool {
        let shared = &self.batch.shared;
        let (resolved, last) = {
            let mut slots = lock(&shared.slots);
            (slots.resolve(self.index, result.map_err(failed)), slots.open == 0)
        };
        if resolved.is_ok() && last {
            shared.publish();
        }
        resolved.is_ok()
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
