//! Empty buffers, kept so that a steady stream of batches allocates nothing.

use super::entry::Entry;
use super::packed::Packed;
use super::run::{Run, Slot};

/// This many buffers are kept whatever they hold: for batches in flight, and those that fill.
const FEW: usize = 4;
/// More are kept while they have room for no more items than this.
const PLACES: usize = 4_096;

/// The buffers that are kept.
#[derive(Debug)]
pub(super) struct Pool<I, S: Slot> {
    kept: Vec<Buffers<I, S>>,
    /// The items that they have room for.
    places: usize,
}

/// Room for the items of one batch.
#[derive(Debug)]
pub(crate) struct Buffers<I, S: Slot> {
    items: Vec<I>,
    runs: Vec<Run<S>>,
    entries: Vec<Entry<S>>,
}

impl<I, S: Slot> Buffers<I, S> {
    /// Takes them from a batch, emptied.
    pub(crate) fn of(mut items: Vec<I>, known: &mut Packed<S>) -> Self {
        items.clear();
        let (runs, entries) = known.take_buffers();
        Self { items, runs, entries }
    }

    fn places(&self) -> usize {
        self.items.capacity().max(self.runs.capacity()).max(self.entries.capacity())
    }
}

impl<I, S: Slot> Pool<I, S> {
    pub(super) fn new() -> Self {
        Self { kept: Vec::new(), places: 0 }
    }

    /// Returns empty buffers.
    pub(super) fn take(&mut self) -> (Vec<I>, Packed<S>) {
        let Some(kept) = self.kept.pop() else {
            return (Vec::new(), Packed::default());
        };
        self.places -= kept.places();
        (kept.items, Packed::new(kept.runs, kept.entries))
    }

    /// Keeps buffers, or drops them if there are enough.
    pub(super) fn keep(&mut self, buffers: Buffers<I, S>) {
        let places = buffers.places();
        if places > 0 && (self.kept.len() < FEW || self.places + places <= PLACES) {
            self.places += places;
            self.kept.push(buffers);
        }
    }
}
