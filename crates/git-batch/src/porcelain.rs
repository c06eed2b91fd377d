//! Reads what `git push --porcelain` writes.

use bstr::BString;

/// Whether the same push can succeed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The remote moved or was busy: fetch, and try again.
    Transient,
    /// A hook, a policy or a rule refused: the same push is refused again.
    Permanent,
}

/// What became of one ref in a push.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushStatus {
    /// The remote confirmed that the ref moved.
    Updated,
    /// The remote confirmed that the ref is new.
    Created,
    /// The ref was there already, nothing was sent.
    UpToDate,
    /// The ref did not move.
    Rejected {
        /// Whether trying again can help.
        class: Class,
        /// What git or the remote gave as the reason.
        reason: BString,
    },
}
