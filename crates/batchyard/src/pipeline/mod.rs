//! The whole journey: lessons, prompts, one model batch per group, file changes, gate, commits,
//! merges, one push, and a lesson for each failure.

mod apart;
mod ask;
mod begin;
mod board;
mod budget;
mod end;
mod ends;
mod land;
mod learn;
mod ops;
mod page;
mod prompts;
mod report;
mod round;
mod state;

pub(crate) use ask::{Asked, ask};
pub(crate) use board::{Board, Standing};
pub(crate) use budget::Budget;
pub(crate) use land::{Landing, Place, land, unlanded};
pub(crate) use learn::learn;
pub(crate) use ops::make as operations;
pub(crate) use page::{Content, Page};
pub(crate) use prompts::Study;
pub(crate) use report::{Summary, savings, tasks};
pub(crate) use state::{RunState, Started};
