//! The items of a batch.

use std::mem;
use std::ops::Deref;

/// The items of a batch; one that is alone needs no memory of its own.
pub(crate) enum Items<I> {
    One(I),
    Many(Vec<I>),
}

impl<I> Items<I> {
    /// Takes the items out; there is none left.
    pub(crate) fn take(&mut self) -> Self {
        mem::replace(self, Self::Many(Vec::new()))
    }

    pub(crate) fn into_vec(self) -> Vec<I> {
        match self {
            Self::One(item) => vec![item],
            Self::Many(items) => items,
        }
    }
}

impl<I> Deref for Items<I> {
    type Target = [I];

    fn deref(&self) -> &[I] {
        match self {
            Self::One(item) => std::slice::from_ref(item),
            Self::Many(items) => items,
        }
    }
}
