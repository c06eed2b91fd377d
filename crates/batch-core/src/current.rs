//! Which batchers the current thread runs a batch of right now.
//!
//! A thread that ends runs destructors of its locals, of which the list here is one. A batcher may be
//! used in those that come after: nothing is noted then, and nothing runs.

use std::cell::RefCell;

use crate::id::BatchId;
use crate::sync::thread_local;

thread_local! {
    static RUNNING: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
}

/// A call of user code that is not over.
struct Call {
    engine: usize,
    batch: Option<BatchId>,
    pass: Pass,
}

impl Call {
    fn is_of(&self, engine: usize, batch: BatchId) -> bool {
        self.engine == engine && self.batch == Some(batch)
    }
}

/// How far a batch is that goes through alone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// It is none.
    No,
    /// Its item is not final.
    Open,
    /// Its item was completed.
    Complete,
}

/// Notes that the thread runs a batch, or other code of the user that the engine called and may
/// have nobody to replace, until it is dropped.
pub(crate) struct Running(());

impl Running {
    pub(crate) fn enter(engine: usize, batch: Option<BatchId>) -> Self {
        Self::call(Call { engine, batch, pass: Pass::No })
    }

    /// Notes that the thread runs a batch that goes through alone: its ticket is still here.
    pub(crate) fn enter_pass(engine: usize, batch: BatchId) -> Self {
        Self::call(Call { engine, batch: Some(batch), pass: Pass::Open })
    }

    fn call(call: Call) -> Self {
        with(|running| running.push(call));
        Self(())
    }

    /// Says whether the item of the batch was completed by this thread, inside a call that
    /// [passes](Self::enter_pass).
    #[expect(clippy::unused_self, reason = "nobody else may ask, and not afterwards")]
    pub(crate) fn is_complete(&self) -> bool {
        let last = with(|running| running.last().map(|call| call.pass)).flatten();
        last == Some(Pass::Complete)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        with(Vec::pop);
    }
}

/// Says whether the thread is inside the processor of `engine`, or the heir of its dropped items.
pub(crate) fn is_running(engine: usize) -> bool {
    with(|running| running.iter().any(|call| call.engine == engine)).unwrap_or(false)
}

/// Says whether the thread is inside the call that was given `batch`.
pub(crate) fn is_running_batch(engine: usize, batch: BatchId) -> bool {
    with(|running| running.iter().any(|call| call.is_of(engine, batch))).unwrap_or(false)
}

/// Notes that all of a batch is completed, if the thread is inside the call that was given it and it
/// goes through alone; says whether it is so.
pub(crate) fn complete_pass(engine: usize, batch: BatchId) -> bool {
    let is_it = |call: &&mut Call| call.pass == Pass::Open && call.is_of(engine, batch);
    let complete = |call: &mut Call| call.pass = Pass::Complete;
    with(|running| running.iter_mut().find(is_it).map(complete).is_some()).unwrap_or(false)
}

/// Lends the list of the thread; `None` if the thread has ended so far that there is none any more.
fn with<R>(look: impl FnOnce(&mut Vec<Call>) -> R) -> Option<R> {
    RUNNING.try_with(|running| look(&mut running.borrow_mut())).ok()
}
