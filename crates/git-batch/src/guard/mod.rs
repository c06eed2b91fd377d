//! Checks on names that come from outside: paths in trees, and branch names.
//!
//! Both checks are pure: they read no repository and no file system, and cost one pass over the
//! name. They are as strict as git with `core.protectNTFS` and `core.protectHFS` on, on every
//! platform, because what is pushed from Linux is checked out elsewhere.

pub mod path;
pub mod refname;
