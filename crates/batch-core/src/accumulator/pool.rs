//! Empty buffers, kept so that a steady stream of batches allocates nothing.

use super::entry::Entry;

/// This many buffers are kept whatever they hold: for batches in flight, and those that fill.
const FEW: usize = 4;
/// More are kept while they have room for no more items than this.
const PLACES: usize = 4_096;

/// Room for the items of one batch.
#[derive(Debug)]
pub(super) struct Buffers<I, S> {
    pub(super) items: Vec<I>,
    pub(super) entries: Vec<Entry<S>>,
}

/// The buffers that are kept.
#[derive(Debug)]
pub(super) struct Pool<I, S> {
    kept: Vec<Buffers<I, S>>,
    /// The items that they have room for.
    places: usize,
}

impl<I, S> Pool<I, S> {
    pub(super) fn new() -> Self {
        Self { kept: Vec::new(), places: 0 }
    }

    /// Returns empty buffers.
    pub(super) fn take(&mut self) -> Buffers<I, S> {
        let kept = self.kept.pop();
        self.places -= kept.as_ref().map_or(0, |kept| kept.entries.capacity());
        kept.unwrap_or_else(|| Buffers { items: Vec::new(), entries: Vec::new() })
    }

    /// Keeps buffers, which are to be empty, or drops them if there are enough.
    pub(super) fn keep(&mut self, mut items: Vec<I>, mut entries: Vec<Entry<S>>) {
        items.clear();
        entries.clear();
        let places = entries.capacity();
        if places > 0 && (self.kept.len() < FEW || self.places + places <= PLACES) {
            self.places += places;
            self.kept.push(Buffers { items, entries });
        }
    }
}
