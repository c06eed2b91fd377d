//! Claims of cells in a row.

use std::mem;

use super::{Claim, Claims, Place};

impl<T, H> Claims<T, H> {
    pub(crate) fn of(claim: Claim<T, H>) -> Self {
        let Place { block, index } = claim.0;
        mem::forget(claim);
        Self { block, first: index, len: 1 }
    }

    /// Adds the claim of the next cell.
    ///
    /// # Errors
    /// The claim, if it is that of another cell.
    #[inline]
    pub(crate) fn push(&mut self, claim: Claim<T, H>) -> Result<(), Claim<T, H>> {
        let Place { block, index } = claim.0;
        if block != self.block || index != self.first + self.len {
            return Err(claim);
        }
        mem::forget(claim);
        self.len += 1;
        Ok(())
    }

    /// Adds the claims of the next cells.
    ///
    /// # Errors
    /// The claims, if they are those of other cells.
    pub(crate) fn append(&mut self, mut next: Self) -> Result<(), Self> {
        if next.block != self.block || next.first != self.first + self.len {
            return Err(next);
        }
        self.len += mem::take(&mut next.len);
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Takes the claim of the last cell out.
    pub(crate) fn pop(&mut self) -> Option<Claim<T, H>> {
        self.len = self.len.checked_sub(1)?;
        Some(Claim(Place { block: self.block, index: self.first + self.len }))
    }

    pub(super) fn first_place(&self) -> Option<Place<T, H>> {
        (self.len > 0).then_some(Place { block: self.block, index: self.first })
    }
}

impl<T, H> Iterator for Claims<T, H> {
    type Item = Claim<T, H>;

    fn next(&mut self) -> Option<Claim<T, H>> {
        let place = self.first_place()?;
        self.first += 1;
        self.len -= 1;
        Some(Claim(place))
    }
}

impl<T, H> Drop for Claims<T, H> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
