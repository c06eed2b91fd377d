use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::Task;

/// A run that was refused before any task started. It carries all tasks.
#[derive(thiserror::Error)]
#[error("two tasks have the id '{id}'; ids are unique within a run, rename one of them")]
pub struct DispatchError<'a, T, E> {
    id: String,
    /// In a mutex so that the error is `Sync`, as `?` into most error types demands.
    tasks: Mutex<Vec<Task<'a, T, E>>>,
}

impl<'a, T, E> DispatchError<'a, T, E> {
    pub(crate) fn duplicate(id: String, tasks: Vec<Task<'a, T, E>>) -> Self {
        Self { id, tasks: Mutex::new(tasks) }
    }

    /// Returns the first id, in the order of the input, that had been used before.
    pub fn duplicate_id(&self) -> &str {
        &self.id
    }

    /// Returns all tasks, in the order of the input; none has run.
    pub fn into_tasks(self) -> Vec<Task<'a, T, E>> {
        self.tasks.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T, E> fmt::Debug for DispatchError<'_, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DispatchError").field("id", &self.id).finish_non_exhaustive()
    }
}
