//! What is known of the items of a batch, as tightly as it goes.

use std::mem;

use super::entry::Entry;
use super::policy::Time;
use super::run::{Known, Run, Slot};
use crate::id::ItemId;

/// What is known of the items of a batch, in their order.
///
/// Most batches are never looked into: all their items come to one end. So items stay in runs until
/// somebody asks for each of them.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Packed<S: Slot> {
    /// The last items; those before are in `runs`, and before them in `entries`.
    last: Option<Run<S>>,
    runs: Vec<Run<S>>,
    entries: Vec<Entry<S>>,
}

/// Items that follow each other, as seen from outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) first: ItemId,
    pub(crate) attempt: u32,
    pub(crate) len: usize,
}

impl Span {
    pub(super) fn has(self, id: ItemId) -> bool {
        let place = id.seq.checked_sub(self.first.seq);
        id.epoch == self.first.epoch && place.is_some_and(|place| place < self.len as u64)
    }
}

impl<S: Slot> Default for Packed<S> {
    fn default() -> Self {
        Self::new(Vec::new(), Vec::new())
    }
}

impl<S: Slot> Packed<S> {
    /// Holds nothing; the buffers are to be empty.
    pub(super) fn new(runs: Vec<Run<S>>, entries: Vec<Entry<S>>) -> Self {
        Self { last: None, runs, entries }
    }

    /// Holds one item that was never sent.
    pub(super) fn of(known: Known, slot: S) -> Self {
        Self { last: Some(Run::of(known, slot)), runs: Vec::new(), entries: Vec::new() }
    }

    /// Takes the buffers out, emptied.
    pub(super) fn take_buffers(&mut self) -> (Vec<Run<S>>, Vec<Entry<S>>) {
        self.last = None;
        self.runs.clear();
        self.entries.clear();
        (mem::take(&mut self.runs), mem::take(&mut self.entries))
    }

    /// Takes the items out, if they stand in one row.
    pub(crate) fn take_row(&mut self) -> Option<S::Row> {
        let is_one = self.runs.is_empty() && self.entries.is_empty();
        self.last.take_if(|_| is_one).map(Run::into_row)
    }

    /// Adds an item that was never sent.
    #[inline]
    pub(super) fn push(&mut self, known: Known, slot: S) {
        let refused = match &mut self.last {
            Some(run) => run.push(known, slot).err(),
            None => Some(slot),
        };
        if let Some(slot) = refused {
            self.begin(known, slot);
        }
    }

    /// Adds an item of the era and with the time-out of those before, if all else is as with the
    /// last of them.
    ///
    /// # Errors
    /// The slot, if something is not.
    #[inline]
    pub(super) fn extend(
        &mut self,
        id: ItemId,
        weight: u64,
        accepted: Time,
        slot: S,
    ) -> Result<(), S> {
        match &mut self.last {
            Some(run) => run.extend(id, weight, accepted, slot),
            None => Err(slot),
        }
    }

    /// Adds items that were never sent and follow each other, all alike.
    pub(super) fn append(&mut self, first: Known, row: S::Row) {
        let refused = match &mut self.last {
            Some(run) => run.append(first, row).err(),
            None => Some(row),
        };
        if let Some(row) = refused {
            self.runs.extend(self.last.replace(Run::of_row(first, row)));
        }
    }

    #[cold]
    fn begin(&mut self, known: Known, slot: S) {
        self.runs.extend(self.last.replace(Run::of(known, slot)));
    }

    fn all_runs(&self) -> impl Iterator<Item = &Run<S>> {
        self.runs.iter().chain(&self.last)
    }

    /// Returns the items one by one, to be looked at, changed and taken out.
    pub(crate) fn spread(&mut self) -> &mut Vec<Entry<S>> {
        for run in self.runs.drain(..).chain(self.last.take()) {
            self.entries.extend(run.entries());
        }
        &mut self.entries
    }

    /// Lends the items that stand by themselves; those in [`rows`](Self::rows) come after them.
    pub(crate) fn entries(&self) -> &[Entry<S>] {
        &self.entries
    }

    /// Lends the slots of the items that stand in rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &S::Row> {
        self.all_runs().map(Run::row)
    }

    /// Takes everything out: the items that stand by themselves, then the slots of those in rows.
    pub(crate) fn take_all(
        &mut self,
    ) -> (impl Iterator<Item = Entry<S>>, impl Iterator<Item = S::Row>) {
        let rows = self.runs.drain(..).chain(self.last.take()).map(Run::into_row);
        (self.entries.drain(..), rows)
    }

    /// Returns the number of items.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() + self.all_runs().map(Run::len).sum::<usize>()
    }

    /// Returns the items as one group, if they all follow each other.
    pub(crate) fn span(&self) -> Option<Span> {
        let run = self.last.as_ref().filter(|_| self.runs.is_empty() && self.entries.is_empty());
        run.map(Run::span)
    }

    /// Returns the items in groups of those that follow each other.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Span> {
        let entries = self.entries.iter().map(|entry| Span {
            first: entry.id,
            attempt: entry.attempt,
            len: 1,
        });
        entries.chain(self.all_runs().map(Run::span))
    }

    /// Returns the ids of the items.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ItemId> {
        self.spans().flat_map(|span| (0..span.len as u64).map(move |place| span.first.plus(place)))
    }

    /// Returns what is known of the first item, if there is one.
    pub(super) fn first(&self) -> Option<Known> {
        let entry = self.entries.first().map(Entry::known);
        entry.or_else(|| self.all_runs().next().map(Run::first))
    }

    /// Returns the id of the last item, if there is one.
    pub(super) fn last_id(&self) -> Option<ItemId> {
        let run = self.last.as_ref().or(self.runs.last()).map(Run::last_id);
        run.or_else(|| self.entries.last().map(|entry| entry.id))
    }
}
