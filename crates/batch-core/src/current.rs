//! Which batchers the current thread runs a batch of right now.

use std::cell::RefCell;

use crate::id::BatchId;
use crate::sync::thread_local;

thread_local! {
    static RUNNING: RefCell<Vec<(usize, Option<BatchId>)>> = const { RefCell::new(Vec::new()) };
}

/// Notes that the thread runs a batch, or other code of the user that the engine called and may
/// have nobody to replace, until it is dropped.
pub(crate) struct Running(());

impl Running {
    pub(crate) fn enter(engine: usize, batch: Option<BatchId>) -> Self {
        RUNNING.with(|running| running.borrow_mut().push((engine, batch)));
        Self(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.with(|running| running.borrow_mut().pop());
    }
}

/// Says whether the thread is inside the processor of `engine`, or the heir of its dropped items.
pub(crate) fn is_running(engine: usize) -> bool {
    RUNNING.with(|running| running.borrow().iter().any(|(id, _)| *id == engine))
}

/// Says whether the thread is inside the call that was given `batch`.
pub(crate) fn is_running_batch(engine: usize, batch: BatchId) -> bool {
    RUNNING.with(|running| running.borrow().contains(&(engine, Some(batch))))
}
