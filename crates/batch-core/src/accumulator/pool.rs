//! Empty buffers, kept so that a steady stream of batches allocates nothing.

use super::entry::Entry;

/// How many are kept: a few batches in flight and one that fills.
const KEPT: usize = 8;

/// Room for the items of one batch.
#[derive(Debug)]
pub(super) struct Buffers<I, S> {
    pub(super) items: Vec<I>,
    pub(super) entries: Vec<Entry<S>>,
}

/// The buffers that are kept.
#[derive(Debug)]
pub(super) struct Pool<I, S>(Vec<Buffers<I, S>>);

impl<I, S> Pool<I, S> {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(KEPT))
    }

    /// Returns empty buffers.
    pub(super) fn take(&mut self) -> Buffers<I, S> {
        self.0.pop().unwrap_or_else(|| Buffers { items: Vec::new(), entries: Vec::new() })
    }

    /// Keeps buffers, which are to be empty, or drops them if there are enough.
    pub(super) fn keep(&mut self, mut items: Vec<I>, mut entries: Vec<Entry<S>>) {
        items.clear();
        entries.clear();
        if self.0.len() < KEPT {
            self.0.push(Buffers { items, entries });
        }
    }
}
