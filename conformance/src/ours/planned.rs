//! What the tests know how to use and the engine does not have yet.

use batch_core::Ticket;

use crate::candidate::Part;

/// What the driver of threads lacks.
pub(super) const LACKS: &[Part] = &[Part::Split];

/// What the inline driver lacks: it has no thread to linger.
pub(super) const INLINE_LACKS: &[Part] = &[Part::Split, Part::Linger];

/// Whether an item can be taken back before it is sent.
pub(super) const CANCELS: bool = false;

/// Takes the item back; says whether it was still there.
pub(super) fn cancel(_ticket: &Ticket<u64, String>) -> bool {
    false
}
