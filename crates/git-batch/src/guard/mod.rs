//! Checks on what comes from outside: paths in trees, branch names, and files that look like
//! secrets.
//!
//! All checks are pure: they read no repository and no file system, and cost one pass over what they
//! are given. Those on names are as strict as git with `core.protectNTFS` and `core.protectHFS` on, on every
//! platform, because what is pushed from Linux is checked out elsewhere.

pub(crate) mod modules;
pub mod path;
pub mod refname;
pub mod secret;
