//! The place of one item in its batch, and what its result waits for.

use std::fmt;

use crate::accumulator::{self, Again, End, Entry};
use crate::error::{BatchError, Outcome};
use crate::link::Link;
use crate::panics;
use crate::slot;
use crate::sync::Arc;

/// The writer's side of the slot of one item.
pub(crate) type Filler<O, E> = slot::Filler<Outcome<O, E>, Link>;

/// The state of one item, from its submit to its result.
pub(crate) enum Seat<O, E> {
    /// No result yet; `last` is why the attempt before this one failed.
    Open { filler: Filler<O, E>, last: Option<Arc<E>> },
    /// Final, but not delivered.
    Resolved(Filler<O, E>, Outcome<O, E>),
    /// Tried in vain; goes back to the queue when the batch ends.
    Again(Filler<O, E>, Arc<E>, Again),
    /// Delivered.
    Delivered,
    /// Delivered: its time was over before its result came. The processor may hold the item still.
    TimedOut,
    /// As `TimedOut`, and a result came since.
    Late,
    /// Delivered: it was taken back from the processor.
    Withdrawn,
}

/// What becomes of a result.
pub(crate) enum Verdict<O, E> {
    /// It is final.
    Final(Outcome<O, E>),
    /// The item is tried again.
    Again(Arc<E>, Again),
}

/// Open seats in a row.
pub(crate) struct Seats<O, E>(slot::Fillers<Outcome<O, E>, Link>);

impl<O, E> Seats<O, E> {
    pub(crate) fn open(fillers: slot::Fillers<Outcome<O, E>, Link>) -> Self {
        Self(fillers)
    }

    /// Gives a result to each, as far as there are some.
    pub(crate) fn fill(
        self,
        round: &mut slot::Round<Outcome<O, E>, Link>,
        next: &mut impl FnMut() -> Option<Outcome<O, E>>,
    ) {
        round.fill_row(self.0, next);
    }

    /// Asks a thread that waits for one of them to lead; false if none does.
    pub(crate) fn hand_lead(&self) -> bool {
        self.0.hand_lead()
    }
}

impl<O, E> accumulator::Slot for Seat<O, E> {
    type Row = Seats<O, E>;
}

impl<O, E> accumulator::Row for Seats<O, E> {
    type Slot = Seat<O, E>;

    fn of(first: Seat<O, E>) -> Self {
        Self(slot::Fillers::of(first.into_filler().expect("the seat of a new item is open")))
    }

    #[inline]
    fn push(&mut self, next: Seat<O, E>) -> Result<(), Seat<O, E>> {
        match next {
            Seat::Open { filler, last: None } => self.0.push(filler).map_err(Seat::open),
            other => Err(other),
        }
    }

    fn append(&mut self, next: Self) -> Result<(), Self> {
        self.0.append(next.0).map_err(Self)
    }

    #[inline]
    fn len(&self) -> usize {
        self.0.len()
    }
}

impl<O, E> Iterator for Seats<O, E> {
    type Item = Seat<O, E>;

    fn next(&mut self) -> Option<Seat<O, E>> {
        self.0.next().map(Seat::open)
    }
}

impl<O, E> fmt::Debug for Seats<O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Seats").field(&self.0.len()).finish()
    }
}

impl<O, E> Seat<O, E> {
    pub(crate) fn open(filler: Filler<O, E>) -> Self {
        Self::Open { filler, last: None }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }

    /// Returns what delivers to an open seat.
    pub(crate) fn into_filler(self) -> Option<Filler<O, E>> {
        let Self::Open { filler, last } = self else { return None };
        // The error of an earlier attempt is user code when it is dropped.
        panics::swallow(|| drop(last));
        Some(filler)
    }

    /// Puts a verdict on an open seat and returns the error of the attempt before, or gives it
    /// back.
    pub(crate) fn judge(
        &mut self,
        verdict: Verdict<O, E>,
    ) -> Result<Option<Arc<E>>, Verdict<O, E>> {
        if !self.is_open() {
            return Err(verdict);
        }
        let Self::Open { filler, last } = std::mem::replace(self, Self::Delivered) else {
            unreachable!("the seat is open")
        };
        *self = match verdict {
            Verdict::Final(outcome) => Self::Resolved(filler, outcome),
            Verdict::Again(error, again) => Self::Again(filler, error, again),
        };
        Ok(last)
    }
}

impl<O, E> Seat<O, E> {
    /// Takes the result of a resolved seat, in a seat of its own.
    pub(crate) fn take_resolved(&mut self) -> Option<Self> {
        let over = match self {
            Self::Resolved(_, Err(BatchError::TimedOut)) => Self::TimedOut,
            Self::Resolved(_, Err(BatchError::Cancelled)) => Self::Withdrawn,
            Self::Resolved(..) => Self::Delivered,
            _ => return None,
        };
        Some(std::mem::replace(self, over))
    }

    /// Says whether the result is delivered.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Delivered | Self::TimedOut | Self::Late | Self::Withdrawn)
    }

    /// Says whether nobody asks for the item any more.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Delivered)
    }

    /// Notes a result that came too late; false if one was noted before, or none was missed.
    pub(crate) fn note_late(&mut self) -> bool {
        let is_late = matches!(self, Self::TimedOut);
        if is_late {
            *self = Self::Late;
        }
        is_late
    }
}

/// Says to which end a resolved item came.
pub(crate) fn end_of<O, E>(entry: &Entry<Seat<O, E>>) -> End {
    match &entry.slot {
        Seat::Resolved(_, Ok(_)) => End::Completed,
        Seat::Resolved(_, Err(BatchError::TimedOut)) => End::TimedOut,
        Seat::Resolved(_, Err(BatchError::Cancelled)) => End::Cancelled,
        _ => End::Failed,
    }
}
