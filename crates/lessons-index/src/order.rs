//! The orders of results. Each is total: ids are distinct and come last.

use std::cmp::Ordering;

use crate::lesson::Lesson;

/// Says in which order a query returns lessons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sort {
    /// The latest `last_seen` first, lessons without one last, then by id.
    #[default]
    Recent,
    /// The highest `times_seen` first, then as [`Sort::Recent`].
    Frequent,
    /// By id, in the order of its bytes.
    Id,
}

impl Sort {
    pub(crate) fn compare(self, a: &Lesson, b: &Lesson) -> Ordering {
        match self {
            Self::Recent => recent(a, b),
            Self::Frequent => frequent(a, b),
            Self::Id => a.id.cmp(&b.id),
        }
    }
}

pub(crate) fn recent(a: &Lesson, b: &Lesson) -> Ordering {
    b.last_seen.cmp(&a.last_seen).then_with(|| a.id.cmp(&b.id))
}

pub(crate) fn frequent(a: &Lesson, b: &Lesson) -> Ordering {
    b.times_seen.cmp(&a.times_seen).then_with(|| recent(a, b))
}
