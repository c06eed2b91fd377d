//! The requests of a run, before anything of it is sent.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::accounting::Run;
use crate::answer::{Answer, RequestError};
use crate::engine::Engine;
use crate::error::Error;
use crate::request::Request;
use crate::table::{Encoded, Table};

/// Requests that were read and checked, and not sent: what [`LlmBatch::load`] returns.
///
/// [`LlmBatch::load`]: crate::LlmBatch::load
pub struct Loaded<'l> {
    engine: &'l Engine,
    table: Arc<Table>,
}

impl fmt::Debug for Loaded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").field("requests", &self.len()).finish_non_exhaustive()
    }
}

impl<'l> Loaded<'l> {
    pub(crate) fn read<E>(
        engine: &'l Engine,
        requests: impl IntoIterator<Item = Result<Request, E>>,
    ) -> Result<Loaded<'l>, Error>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut table = engine.table();
        let mut seen = HashSet::new();
        for request in requests {
            let request = request.map_err(|error| Error::Input(error.into()))?;
            if request.id.is_empty() {
                return Err(Error::EmptyId);
            }
            let provider = &*engine.provider;
            table.push(&request, Encoded::of(&request, provider), provider)?;
            let id = &table.items()[table.items().len() - 1].id;
            if !seen.insert(Arc::clone(id)) {
                return Err(Error::DuplicateId { id: request.id });
            }
        }
        Ok(Loaded { engine, table: Arc::new(table) })
    }

    /// Returns how many requests there are.
    pub fn len(&self) -> usize {
        self.table.items().len()
    }

    /// Tells whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Brings them to their outcomes, as [`LlmBatch::run`](crate::LlmBatch::run) does. It blocks as
    /// long.
    ///
    /// # Errors
    ///
    /// Those of [`LlmBatch::run`](crate::LlmBatch::run).
    pub fn run(
        &self,
        mut on_outcome: impl FnMut(&str, Result<Answer, RequestError>),
    ) -> Result<Run, Error> {
        let mut by_index = |index: usize, outcome| on_outcome(self.table.id(index), outcome);
        self.engine.drive(&self.table, &mut by_index)
    }
}
