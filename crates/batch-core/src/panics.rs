//! Panics of user code, which end here.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs user code whose panic must not end the caller; the panic hook has told of it already.
pub(crate) fn swallow(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        // Dropping it could panic again.
        mem::forget(payload);
    }
}

/// Drops values of the user: one whose drop panics keeps neither the others nor the process from
/// going on, as two at once would.
pub(crate) fn drop_each<T>(mut values: impl Iterator<Item = T>) {
    let mut is_done = false;
    while !is_done {
        swallow(|| {
            values.by_ref().for_each(drop);
            is_done = true;
        });
    }
}

/// Returns what a panic said.
pub(crate) fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}
