//! Checks on names that come from outside: paths and branch names.

pub mod path;
pub mod refname;
