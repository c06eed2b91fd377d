//! Commits, merges and pushes of many tasks in one push.

#![forbid(unsafe_code)]

mod batch;
mod error;
mod git_batch;
pub mod guard;
mod lock;
mod operation;
mod outcome;
mod plan;
mod porcelain;
mod processor;
pub mod program;
pub mod publish;
mod settings;
mod store;

pub use error::{ApplyError, OpenError};
pub use git_batch::GitBatch;
pub use gix::ObjectId;
pub use operation::{
    Action, Author, Change, Commit, Merge, Mode, Operation, OperationKind, Push, Strategy,
};
pub use outcome::{Class, OpError, OpErrorKind, Outcome, Place, Receipt, RefChange, Report};
pub use processor::GitProcessor;
pub use settings::Settings;
