//! The network half: what a remote has, fetches into private refs, and the one push of a batch.
//!
//! All of it is the `git` program, so that credential helpers, SSH settings, proxies and hooks
//! work as they do by hand. Nothing that others share is written: no `FETCH_HEAD`, no
//! `refs/remotes`, no tags, no configuration.

mod ahead;
mod error;
mod fetch;
pub(crate) mod push;
mod refspecs;
mod remote;
pub(crate) mod scrub;

use bstr::BString;
use gix::ObjectId;

pub(crate) use self::ahead::Ahead;
pub use self::error::PublishError;
pub use self::fetch::fetch;
pub(crate) use self::fetch::forget;
pub(crate) use self::push::push_known;
pub use self::push::{PushOptions, push, push_with};
pub(crate) use self::remote::Untracked;
pub use self::remote::{RemoteState, remote_refs};
pub use crate::porcelain::{Class, PushStatus};

/// One ref that a push is to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefUpdate {
    /// The full name at the remote, such as `refs/heads/main`.
    pub name: BString,
    /// What the remote must have; `None` means that the ref must not exist there.
    pub expect: Option<ObjectId>,
    /// What the remote is to have: an object of this repository.
    pub new: ObjectId,
}

/// What one push did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PushReport {
    /// One status per update, in the order given.
    pub refs: Vec<(BString, PushStatus)>,
    /// How many push commands ran against the remote: none if every update was refused here.
    pub pushes: u32,
    /// How many `git` programs were started here; git starts more by itself.
    pub processes: u32,
    /// The beginning of what git and the remote wrote on standard error, at most 4 KiB, without
    /// credentials and control characters.
    pub stderr: String,
}
