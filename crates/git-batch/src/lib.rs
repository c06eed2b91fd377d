//! Commits, merges and pushes of many tasks in one push.

#![forbid(unsafe_code)]

pub mod guard;
mod porcelain;
pub mod program;
pub mod publish;
