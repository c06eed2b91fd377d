//! Bounded parallel execution of tasks, with exactly one outcome for each.
//!
//! An orchestrator has a list of jobs: render this, ask that, run those checks. It wants them done by a
//! few threads, wants to know how each one ended, and does not want one panic to take the process
//! along. That is what this crate does, and no more: [`Dispatcher::run`] blocks until every task has an
//! [`Outcome`], and hands them back in the order of the input.
//!
//! ```
//! use task_dispatch::{CancelToken, Dispatcher, Outcome, Task};
//!
//! let tasks = ["7", "x", "9"].map(|text| Task::new(text, move |_| text.parse::<u32>())).into();
//! let report = Dispatcher::default().run(tasks, &CancelToken::new())?;
//!
//! assert_eq!(report.get("9").unwrap().outcome.as_ok(), Some(&9));
//! assert!(matches!(report.get("x").unwrap().outcome, Outcome::Err(_)));
//! assert_eq!(report.stats().succeeded, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Concepts
//!
//! * A [`Task`] is an id and a closure. It may borrow from the caller; it runs at most once.
//! * At most [`max_concurrency`](Builder::max_concurrency) tasks run at a time, on that many threads,
//!   one of which is the caller's. There is never a thread per task.
//! * Two tasks with one id are refused before anything runs, and all tasks are given back.
//! * A task that fails or panics stops no other, unless the [`Policy`] says so.
//! * [`CancelToken`] is cooperative: queued tasks no longer start, running tasks see it and decide.
//!   A token can carry a deadline; a task can carry a time-out of its own.
//!
//! # Limits
//!
//! * The input is a list, not a stream, and there are no dependencies between tasks.
//! * There is one limit for all tasks, no classes with limits of their own; tasks start in the order of
//!   the input, not the longest first; what failed is not tried again.
//! * [`Dispatcher::run`] blocks, and its token is waited for on threads, not in async code.
//! * A thread cannot be stopped from outside: `run` waits for tasks that ignore their token.
//! * Panics are contained only where they unwind; `panic = "abort"` ends the process.
//!   A panic still reaches the process's panic hook, which prints it by default.
//!
//! # Performance
//!
//! A task costs one atomic increment, two uncontended locks, two clock reads and its box; nothing is
//! allocated for a thread that has nothing to do.

#![forbid(unsafe_code)]

mod cancel;
mod dispatcher;
mod error;
mod report;
mod stats;
mod task;

pub use cancel::CancelToken;
pub use dispatcher::{Builder, Dispatcher, Policy};
pub use error::DispatchError;
pub use report::{Outcome, Record, Report};
pub use stats::Stats;
pub use task::Task;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
