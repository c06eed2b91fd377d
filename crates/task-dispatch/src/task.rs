use std::fmt;
use std::time::Duration;

use crate::CancelToken;

type Run<'a, T, E> = Box<dyn FnOnce(&CancelToken) -> Result<T, E> + Send + 'a>;

/// A unit of work: an id that is unique within a run, and a closure that runs at most once.
///
/// The closure gets the token of the run, narrowed by the task's own time-out. It may borrow from the
/// caller for `'a`.
pub struct Task<'a, T, E> {
    pub(crate) id: String,
    pub(crate) timeout: Option<Duration>,
    pub(crate) run: Run<'a, T, E>,
}

impl<'a, T, E> Task<'a, T, E> {
    /// Returns a task that runs `run` under the name `id`.
    pub fn new(
        id: impl Into<String>,
        run: impl FnOnce(&CancelToken) -> Result<T, E> + Send + 'a,
    ) -> Self {
        Self { id: id.into(), timeout: None, run: Box::new(run) }
    }

    /// Sets a deadline for the task's token, counted from the moment the task starts.
    ///
    /// It is cooperative, as all cancelling is: the task sees it, and what the task returns counts.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Returns the id.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl<T, E> fmt::Debug for Task<'_, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("id", &self.id)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
