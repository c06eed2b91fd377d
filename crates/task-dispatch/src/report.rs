use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::Stats;

/// How a task ended. Each task of a run has exactly one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome<T, E> {
    /// The task returned a value.
    Ok(T),
    /// The task returned an error.
    Err(E),
    /// The task panicked with this message; other tasks did not notice.
    Panicked(String),
    /// The token was cancelled, or its deadline had passed, before the task started.
    Cancelled,
    /// The task was not started because another had failed; see [`Policy::FailFast`](crate::Policy).
    Skipped {
        /// The id of the task that failed.
        because: String,
    },
}

impl<T, E> Outcome<T, E> {
    /// Returns the value, if the task returned one.
    pub fn as_ok(&self) -> Option<&T> {
        match self {
            Self::Ok(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the error, if the task returned one.
    pub fn as_err(&self) -> Option<&E> {
        match self {
            Self::Err(error) => Some(error),
            _ => None,
        }
    }

    /// Returns whether the task returned a value.
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Ok(_))
    }

    /// Returns whether the task was started.
    pub fn has_run(&self) -> bool {
        matches!(self, Self::Ok(_) | Self::Err(_) | Self::Panicked(_))
    }
}

/// A task's id, its outcome, and when it ran.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Record<T, E> {
    /// The id the task was given.
    pub id: String,
    /// How it ended.
    pub outcome: Outcome<T, E>,
    /// When it started and ended; `None` if it never started.
    pub span: Option<(Instant, Instant)>,
}

impl<T, E> Record<T, E> {
    /// Returns how long the task ran; `None` if it never started.
    pub fn duration(&self) -> Option<Duration> {
        self.span.map(|(start, end)| end.saturating_duration_since(start))
    }
}

/// The outcomes of a run, in the order of the input and by id.
#[derive(Clone, Debug)]
pub struct Report<T, E> {
    records: Vec<Record<T, E>>,
    by_id: HashMap<String, usize>,
    stats: Stats,
}

impl<T, E> Report<T, E> {
    /// `by_id` holds each record's index.
    pub(crate) fn new(
        records: Vec<Record<T, E>>,
        by_id: HashMap<String, usize>,
        stats: Stats,
    ) -> Self {
        Self { records, by_id, stats }
    }

    /// Returns the record of the task with this id, in constant time.
    pub fn get(&self, id: &str) -> Option<&Record<T, E>> {
        self.by_id.get(id).map(|&index| &self.records[index])
    }

    /// Returns all records in the order of the input.
    pub fn records(&self) -> &[Record<T, E>] {
        &self.records
    }

    /// Returns all records in the order of the input, owned.
    pub fn into_records(self) -> Vec<Record<T, E>> {
        self.records
    }

    /// Returns the figures of the run.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns whether every task returned a value; true for an empty run.
    pub fn all_ok(&self) -> bool {
        self.stats.succeeded == self.stats.tasks
    }
}

impl<T, E> IntoIterator for Report<T, E> {
    type Item = Record<T, E>;
    type IntoIter = std::vec::IntoIter<Record<T, E>>;

    fn into_iter(self) -> Self::IntoIter {
        self.records.into_iter()
    }
}
