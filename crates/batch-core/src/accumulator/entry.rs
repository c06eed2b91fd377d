//! What goes with an item while it is not final.

use std::time::Duration;

use super::eras::EraId;
use super::policy::Time;
use super::run::Known;
use crate::id::ItemId;

/// What the accumulator knows of an item, with what the engine keeps with it.
#[derive(Debug)]
pub(crate) struct Entry<S> {
    pub(crate) id: ItemId,
    pub(crate) mark: Mark,
    pub(super) accepted: Time,
    /// From this moment on the item is neither sent nor waited for.
    pub(crate) deadline: Time,
    /// How often the item was sent, the call that it waits for included: 1 at first.
    pub(crate) attempt: u32,
    /// How many of those followed a retry, and not a split.
    pub(super) retries: u32,
    pub(crate) slot: S,
}

impl<S> Entry<S> {
    pub(super) fn known(&self) -> Known {
        let Self { id, mark, accepted, deadline, .. } = self;
        Known { id: *id, mark: *mark, accepted: *accepted, deadline: *deadline }
    }

    /// Returns the same entry with something else of the engine's.
    pub(crate) fn with(&self, slot: S) -> Self {
        let Self { id, mark, accepted, deadline, attempt, retries, slot: _ } = self;
        let (id, mark, accepted, deadline) = (*id, *mark, *accepted, *deadline);
        Self { id, mark, accepted, deadline, attempt: *attempt, retries: *retries, slot }
    }
}

/// What the books need of an item when it becomes final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(super) era: EraId,
    pub(super) weight: u64,
}

/// How an item in flight became final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Completed,
    Failed,
    /// Its deadline passed first.
    TimedOut,
    /// It was taken back from the processor.
    Cancelled,
}

/// What an item in flight asks for in place of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// To be sent again later, after so many nanoseconds at least.
    Retry { after: Option<u64> },
    /// To be sent again with half of the others that ask for it.
    Split,
}

impl Again {
    /// Asks for a retry, not before `after` if it is given.
    pub(crate) fn retry(after: Option<Duration>) -> Self {
        let nanos = |after: Duration| u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        Self::Retry { after: after.map(nanos) }
    }

    pub(crate) fn is_split(self) -> bool {
        self == Self::Split
    }
}
