//! Who runs the batches.

mod sim;
mod tasks;
mod threads;

use crate::sync::Arc;

pub use sim::{Progress, Sim};
pub use tasks::Tasks;
pub(crate) use tasks::start as start_tasks;
pub(crate) use threads::start as start_threads;

/// Who runs the batches of an engine.
#[derive(Clone)]
pub(crate) enum Driver {
    /// So many threads of its own.
    Threads(usize),
    /// The threads that submit and wait.
    Inline,
    /// Tasks of an executor.
    Tasks(Arc<Tasks>),
    /// A simulation, step by step.
    Stepped,
}

impl Driver {
    /// Returns the number of workers that take batches by themselves.
    pub(crate) fn workers(&self) -> usize {
        match self {
            Self::Threads(threads) => *threads,
            Self::Tasks(tasks) => tasks.count(),
            Self::Inline | Self::Stepped => 0,
        }
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Threads(threads) => f.debug_tuple("Threads").field(threads).finish(),
            Self::Inline => f.write_str("Inline"),
            Self::Tasks(tasks) => f.debug_tuple("Tasks").field(tasks).finish(),
            Self::Stepped => f.write_str("Stepped"),
        }
    }
}
