//! Fillers of cells in a row.

use std::mem;

use super::{Filler, Place};

/// Fillers of one block that follow each other.
pub(crate) struct Fillers<T, H> {
    first: Place<T, H>,
    /// Each is the one owner of its filler, and of its reference.
    pub(super) len: u32,
}

impl<T, H> Fillers<T, H> {
    pub(crate) fn of(filler: Filler<T, H>) -> Self {
        let first = filler.0;
        mem::forget(filler);
        Self { first, len: 1 }
    }

    fn goes_on_at(&self, next: Place<T, H>) -> bool {
        next.block == self.first.block && next.index == self.first.index + self.len
    }

    /// Adds the filler of the next cell.
    ///
    /// # Errors
    /// The filler, if it is that of another cell.
    #[inline]
    pub(crate) fn push(&mut self, filler: Filler<T, H>) -> Result<(), Filler<T, H>> {
        if !self.goes_on_at(filler.0) {
            return Err(filler);
        }
        mem::forget(filler);
        self.len += 1;
        Ok(())
    }

    /// Adds the fillers of the next cells.
    ///
    /// # Errors
    /// The fillers, if they are those of other cells.
    pub(crate) fn append(&mut self, mut next: Self) -> Result<(), Self> {
        if !self.goes_on_at(next.first) {
            return Err(next);
        }
        self.len += mem::take(&mut next.len);
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the places of the cells.
    pub(super) fn places(&self) -> impl Iterator<Item = Place<T, H>> + use<T, H> {
        let Place { block, index } = self.first;
        (index..index + self.len).map(move |index| Place { block, index })
    }

    /// As [`Filler::hand_lead`], with the first of the cells that a thread waits for.
    pub(crate) fn hand_lead(&self) -> bool {
        self.places().any(|place| place.hand_lead())
    }
}

impl<T, H> Iterator for Fillers<T, H> {
    type Item = Filler<T, H>;

    fn next(&mut self) -> Option<Filler<T, H>> {
        self.len = self.len.checked_sub(1)?;
        let filler = Filler(self.first);
        self.first.index += 1;
        Some(filler)
    }
}

impl<T, H> Drop for Fillers<T, H> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
