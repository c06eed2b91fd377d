//! The orders of results. Each is total: ids are distinct and come last.

use std::cmp::Ordering;

use crate::view::LessonRef;

/// Says in which order a query returns lessons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sort {
    /// The latest `last_seen` first, lessons without one last, then by id.
    #[default]
    Recent,
    /// [`Sort::Recent`] backwards.
    Oldest,
    /// The highest `times_seen` first, then as [`Sort::Recent`].
    Frequent,
    /// By id, in the order of its bytes.
    Id,
}

impl Sort {
    pub(crate) const ALL: [Self; 4] = [Self::Recent, Self::Oldest, Self::Frequent, Self::Id];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Recent => "recent",
            Self::Oldest => "oldest",
            Self::Frequent => "frequent",
            Self::Id => "id",
        }
    }

    pub(crate) fn compare(self, a: &LessonRef<'_>, b: &LessonRef<'_>) -> Ordering {
        match self {
            Self::Recent => a.recent(b),
            Self::Oldest => b.recent(a),
            Self::Frequent => b.times_seen().cmp(&a.times_seen()).then_with(|| a.recent(b)),
            Self::Id => a.id().cmp(b.id()),
        }
    }
}
