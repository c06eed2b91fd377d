//! Items in a row, which differ in nothing but their number.
//!
//! Items that are accepted one after the other have ids in a row, and mostly the same weight and
//! time. So what is known of them is written once for many, and each item adds a single step.

use std::fmt;

use super::entry::{Entry, Mark};
use super::packed::Span;
use super::policy::Time;
use crate::id::ItemId;

/// What the caller keeps with an item; several that follow each other are kept as one row.
pub(crate) trait Slot: Sized {
    type Row: Row<Slot = Self> + fmt::Debug;
}

/// Slots that follow each other; never none.
pub(crate) trait Row: IntoIterator<Item = Self::Slot> {
    type Slot;

    fn of(first: Self::Slot) -> Self;

    /// Adds the slot that follows, or gives it back if it is another.
    ///
    /// # Errors
    /// The slot that does not follow.
    fn push(&mut self, next: Self::Slot) -> Result<(), Self::Slot>;

    /// Adds the slots that follow, or gives them back if they are others.
    ///
    /// # Errors
    /// The slots that do not follow.
    fn append(&mut self, next: Self) -> Result<(), Self>
    where
        Self: Sized;

    fn len(&self) -> usize;
}

/// Items in a row that were never sent.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Run<S: Slot> {
    row: S::Row,
    first: Known,
}

/// What is known of the first of a run, and but for its id of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) id: ItemId,
    pub(super) mark: Mark,
    pub(super) accepted: Time,
    pub(super) deadline: Time,
}

impl Known {
    fn nth(self, place: u64) -> Self {
        Self { id: self.id.plus(place), ..self }
    }
}

impl<S: Slot> Run<S> {
    pub(super) fn of(first: Known, slot: S) -> Self {
        Self::of_row(first, S::Row::of(slot))
    }

    pub(super) fn of_row(first: Known, row: S::Row) -> Self {
        Self { row, first }
    }

    /// Says whether an item of the same era and with the same time-out would follow.
    #[inline]
    fn goes_on_with(&self, id: ItemId, weight: u64, accepted: Time) -> bool {
        let Known { id: first, mark, accepted: at, .. } = self.first;
        id == first.plus(self.row.len() as u64) && weight == mark.weight && accepted == at
    }

    fn is_like(&self, next: Known) -> bool {
        next.mark.era == self.first.mark.era && next.deadline == self.first.deadline
    }

    /// Adds an item that follows, or gives its slot back.
    pub(super) fn push(&mut self, next: Known, slot: S) -> Result<(), S> {
        let Known { id, mark: Mark { weight, .. }, accepted, .. } = next;
        if self.is_like(next) { self.extend(id, weight, accepted, slot) } else { Err(slot) }
    }

    /// As [`push`](Self::push), for an item of the same era and with the same time-out.
    #[inline]
    pub(super) fn extend(
        &mut self,
        id: ItemId,
        weight: u64,
        accepted: Time,
        slot: S,
    ) -> Result<(), S> {
        if self.goes_on_with(id, weight, accepted) { self.row.push(slot) } else { Err(slot) }
    }

    /// Adds items that follow, all alike, or gives their slots back.
    pub(super) fn append(&mut self, next: Known, row: S::Row) -> Result<(), S::Row> {
        let Known { id, mark: Mark { weight, .. }, accepted, .. } = next;
        let goes_on = self.is_like(next) && self.goes_on_with(id, weight, accepted);
        if goes_on { self.row.append(row) } else { Err(row) }
    }

    pub(super) fn first(&self) -> Known {
        self.first
    }

    pub(super) fn last_id(&self) -> ItemId {
        self.first.id.plus(self.row.len() as u64 - 1)
    }

    pub(super) fn len(&self) -> usize {
        self.row.len()
    }

    pub(super) fn span(&self) -> Span {
        Span { first: self.first.id, attempt: 1, len: self.row.len() }
    }

    pub(super) fn row(&self) -> &S::Row {
        &self.row
    }

    pub(super) fn into_row(self) -> S::Row {
        self.row
    }

    /// Returns the items one by one.
    pub(super) fn entries(self) -> impl Iterator<Item = Entry<S>> {
        let Self { row, first } = self;
        (0..).zip(row).map(move |(place, slot)| {
            let Known { id, mark, accepted, deadline } = first.nth(place);
            Entry { id, mark, accepted, deadline, attempt: 1, retries: 0, slot }
        })
    }
}
