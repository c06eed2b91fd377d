use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use jiff::Timestamp;
use memchr::memmem::Finder;
use serde_json::Value;

use crate::cursor::Cursor;
use crate::error::EmptyNeedle;
use crate::fold;
use crate::lesson::Lesson;
use crate::order::Sort;
use crate::record::Field;
use crate::select::{Selected, Selection};
use crate::stamp;
use crate::state::State;
use crate::view::LessonRef;

/// Selects lessons of a [`Snapshot`](crate::Snapshot): all conditions must hold. Asking twice for
/// the same field replaces the first value.
///
/// ```
/// use lessons_index::{Lesson, LessonsIndex, Options, Sort};
///
/// let dir = tempfile::tempdir()?;
/// let index = LessonsIndex::open(dir.path().join("lessons.jsonl"), Options::default())?;
/// index.add(Lesson::builder("a").failure_type("oom").failure_msg("Out of MEMORY").build()?)?;
/// index.add(Lesson::builder("b").failure_type("oom").failure_msg("killed").build()?)?;
///
/// let snapshot = index.snapshot();
/// let found = snapshot.query().failure_type("oom").contains("memory")?.limit(10).run();
/// assert_eq!(found.len(), 1);
/// assert_eq!(found[0].id, "a");
/// assert_eq!(snapshot.query().failure_type("oom").sort(Sort::Frequent).count(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "a query does nothing until it is run"]
pub struct Query<'s> {
    selection: Selection<'s>,
    limit: usize,
}

impl<'s> Query<'s> {
    pub(crate) fn new(state: &'s State) -> Self {
        Self { selection: Selection::new(state), limit: usize::MAX }
    }

    /// Asks for exactly this `task_type`; an empty one selects the lessons without.
    pub fn task_type(self, value: impl Into<String>) -> Self {
        self.field(Field::TaskType, vec![value.into()])
    }

    /// Asks for exactly this `activity_type`.
    pub fn activity_type(self, value: impl Into<String>) -> Self {
        self.field(Field::ActivityType, vec![value.into()])
    }

    /// Asks for exactly this `failure_type`.
    pub fn failure_type(self, value: impl Into<String>) -> Self {
        self.field(Field::FailureType, vec![value.into()])
    }

    /// Asks for exactly this `pattern`.
    pub fn pattern(self, value: impl Into<String>) -> Self {
        self.field(Field::Pattern, vec![value.into()])
    }

    /// Asks for one of these values of `task_type`; an empty list selects nothing.
    pub fn task_type_any<T: Into<String>>(self, values: impl IntoIterator<Item = T>) -> Self {
        self.field(Field::TaskType, values.into_iter().map(Into::into).collect())
    }

    /// Asks for one of these values of `activity_type`; an empty list selects nothing.
    pub fn activity_type_any<T: Into<String>>(self, values: impl IntoIterator<Item = T>) -> Self {
        self.field(Field::ActivityType, values.into_iter().map(Into::into).collect())
    }

    /// Asks for one of these values of `failure_type`; an empty list selects nothing.
    pub fn failure_type_any<T: Into<String>>(self, values: impl IntoIterator<Item = T>) -> Self {
        self.field(Field::FailureType, values.into_iter().map(Into::into).collect())
    }

    /// Asks for one of these values of `pattern`; an empty list selects nothing.
    pub fn pattern_any<T: Into<String>>(self, values: impl IntoIterator<Item = T>) -> Self {
        self.field(Field::Pattern, values.into_iter().map(Into::into).collect())
    }

    /// Asks for this text anywhere in `failure_msg`, whatever its case.
    ///
    /// The text is literal: no character has a meaning of its own. Case is compared by Unicode
    /// simple folding (`ς` is `σ`, `ß` is not `ss`, no Turkish rules); an accent is a character of
    /// its own where it is written as one. Without an exact field this
    /// scans the messages that can hold the text, as an index of trigrams tells.
    ///
    /// # Errors
    ///
    /// Returns [`EmptyNeedle`] when the text is empty.
    pub fn contains(mut self, text: &str) -> Result<Self, EmptyNeedle> {
        if text.is_empty() {
            return Err(EmptyNeedle);
        }
        self.selection.needle = Some(Arc::new(Finder::new(&fold::fold(text)).into_owned()));
        Ok(self)
    }

    /// Asks for this value under this key of `metadata`; several keys may be asked for. Decodes
    /// the lines that all other conditions leave.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        let known = self.selection.metadata.iter().cloned();
        self.selection.metadata = known.chain([(key.into(), value.into())]).collect();
        self
    }

    /// Asks for lessons that were seen so often, or more.
    pub fn seen_at_least(mut self, times: u64) -> Self {
        self.selection.min_times = times;
        self
    }

    /// Asks for a `last_seen` in this range, whose ends are in or out as written:
    /// `a..b`, `a..=b`, `a..`, or a pair of [`Bound`]s.
    ///
    /// With an end, lessons without `last_seen` are not selected; `..` selects all. A range
    /// that ends before it begins selects none.
    pub fn last_seen(mut self, range: impl RangeBounds<Timestamp>) -> Self {
        let parts = |bound: Bound<&Timestamp>| bound.map(|time| stamp::parts(Some(*time)));
        self.selection.since = parts(range.start_bound());
        self.selection.until = parts(range.end_bound());
        self
    }

    /// Sets the order; [`Sort::Recent`] by default. A query that goes on [`after`](Self::after) a
    /// cursor keeps the order of that.
    pub fn sort(mut self, sort: Sort) -> Self {
        if self.selection.after.is_none() {
            self.selection.sort = sort;
        }
        self
    }

    /// Goes on behind a lesson, in the order of the cursor.
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.selection.sort = cursor.sort();
        self.selection.after = Some(cursor);
        self
    }

    /// Asks for the first `limit` lessons only.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Returns the selected lessons in order, each as a value of its own.
    ///
    /// With [`Sort::Recent`], or [`Sort::Frequent`] without conditions, the work ends with the
    /// limit; else all selected lessons are ordered.
    pub fn run(&self) -> Vec<Arc<Lesson>> {
        self.iter().map(|lesson| lesson.to_lesson()).collect()
    }

    /// Returns the selected lessons in order, where they stand. Copies no lesson; work as for
    /// [`run`](Self::run).
    pub fn iter(&self) -> impl Iterator<Item = LessonRef<'s>> + use<'s> {
        match self.limit {
            0 => Selected::default(),
            limit => self.selection.ordered(limit),
        }
        .take(self.limit)
    }

    /// Returns how many lessons are selected, whatever the limit and the cursor.
    pub fn count(&self) -> usize {
        self.selection.count()
    }

    pub(crate) fn selection(&self) -> &Selection<'s> {
        &self.selection
    }

    fn field(mut self, field: Field, values: Vec<String>) -> Self {
        self.selection.exact[field as usize] = Some(values);
        self
    }
}

impl fmt::Debug for Query<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Selection { exact, needle, metadata, since, until, sort, after, .. } = &self.selection;
        f.debug_struct("Query")
            .field("exact", exact)
            .field("contains", &needle.is_some())
            .field("metadata", metadata)
            .field("last_seen", &(since, until))
            .field("sort", sort)
            .field("after", after)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
