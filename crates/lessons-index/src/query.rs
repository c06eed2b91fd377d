use std::cmp::Ordering;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use jiff::Timestamp;
use memchr::memmem::Finder;

use crate::error::EmptyNeedle;
use crate::fold;
use crate::lesson::Lesson;
use crate::order::Sort;
use crate::segment::{Field, Segment};
use crate::snapshot::State;

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
    state: &'s State,
    fields: Vec<(Field, String)>,
    needle: Option<Finder<'static>>,
    since: Bound<Timestamp>,
    until: Bound<Timestamp>,
    sort: Sort,
    limit: usize,
}

impl<'s> Query<'s> {
    pub(crate) fn new(state: &'s State) -> Self {
        Self {
            state,
            fields: Vec::new(),
            needle: None,
            since: Bound::Unbounded,
            until: Bound::Unbounded,
            sort: Sort::default(),
            limit: usize::MAX,
        }
    }

    /// Asks for exactly this `task_type`; an empty one selects the lessons without.
    pub fn task_type(self, value: impl Into<String>) -> Self {
        self.field(Field::TaskType, value.into())
    }

    /// Asks for exactly this `activity_type`.
    pub fn activity_type(self, value: impl Into<String>) -> Self {
        self.field(Field::ActivityType, value.into())
    }

    /// Asks for exactly this `failure_type`.
    pub fn failure_type(self, value: impl Into<String>) -> Self {
        self.field(Field::FailureType, value.into())
    }

    /// Asks for exactly this `pattern`.
    pub fn pattern(self, value: impl Into<String>) -> Self {
        self.field(Field::Pattern, value.into())
    }

    /// Asks for this text anywhere in `failure_msg`, whatever its case.
    ///
    /// The text is literal: no character has a meaning of its own. Case is compared by Unicode
    /// simple folding (`ς` is `σ`, `ß` is not `ss`, no Turkish rules). Without an exact field this scans all messages of the time range.
    ///
    /// # Errors
    ///
    /// Returns [`EmptyNeedle`] when the text is empty.
    pub fn contains(mut self, text: &str) -> Result<Self, EmptyNeedle> {
        if text.is_empty() {
            return Err(EmptyNeedle);
        }
        self.needle = Some(Finder::new(&fold::fold(text)).into_owned());
        Ok(self)
    }

    /// Asks for a `last_seen` in this range, whose ends are in or out as written:
    /// `a..b`, `a..=b`, `a..`, or a pair of [`Bound`]s.
    ///
    /// With an end, lessons without `last_seen` are not selected; `..` selects all. A range
    /// that ends before it begins selects none.
    pub fn last_seen(mut self, range: impl RangeBounds<Timestamp>) -> Self {
        self.since = range.start_bound().cloned();
        self.until = range.end_bound().cloned();
        self
    }

    /// Sets the order; [`Sort::Recent`] by default.
    pub fn sort(mut self, sort: Sort) -> Self {
        self.sort = sort;
        self
    }

    /// Asks for the first `limit` lessons only.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Returns the selected lessons in order.
    ///
    /// With [`Sort::Recent`], or [`Sort::Frequent`] without conditions, the work ends with the
    /// limit; else all selected lessons are ordered.
    pub fn run(&self) -> Vec<Arc<Lesson>> {
        match self.sort {
            Sort::Recent => self.merge(|segment| self.matches(segment)),
            Sort::Frequent if self.is_unconditional() => {
                self.merge(|segment| self.visible(segment, segment.by_frequency().iter().copied()))
            }
            Sort::Frequent | Sort::Id => self.select(),
        }
    }

    /// Returns how many lessons are selected, whatever the limit.
    pub fn count(&self) -> usize {
        if self.is_unconditional() {
            return self.state.alive;
        }
        self.state.segments.iter().map(|segment| self.matches(segment).count()).sum()
    }

    fn field(mut self, field: Field, value: String) -> Self {
        self.fields.retain(|(known, _)| *known != field);
        self.fields.push((field, value));
        self
    }

    fn is_unconditional(&self) -> bool {
        self.fields.is_empty() && self.needle.is_none() && !self.has_range()
    }

    fn has_range(&self) -> bool {
        (self.since, self.until) != (Bound::Unbounded, Bound::Unbounded)
    }

    /// Returns the selected lessons of a segment, newest first.
    fn matches<'a>(&'a self, segment: &'a Segment) -> Box<dyn Iterator<Item = u32> + 'a> {
        let range = if self.has_range() {
            segment.time_range(|time| self.is_after(time), |time| self.is_before(time))
        } else {
            0..segment.len()
        };
        let shortest =
            self.fields.iter().map(|(f, value)| segment.with(*f, value)).min_by_key(|l| l.len());
        match (shortest, &self.needle) {
            (Some(list), needle) => {
                let from = list.partition_point(|at| *at < range.start);
                let to = list.partition_point(|at| *at < range.end);
                let docs = list[from..to].iter().copied().filter(move |at| {
                    let lesson = segment.doc(*at);
                    self.fields.iter().all(|(field, value)| field.of(lesson) == value)
                        && needle.as_ref().is_none_or(|n| segment.text().contains(*at, n))
                });
                Box::new(self.visible(segment, docs))
            }
            (None, Some(needle)) => {
                Box::new(self.visible(segment, segment.text().search(range, needle)))
            }
            (None, None) => Box::new(self.visible(segment, range)),
        }
    }

    fn visible<'a>(
        &self,
        segment: &'a Segment,
        docs: impl Iterator<Item = u32> + 'a,
    ) -> impl Iterator<Item = u32> + 'a {
        let seq = self.state.seq;
        docs.filter(move |at| segment.is_visible(*at, seq))
    }

    fn is_after(&self, time: Timestamp) -> bool {
        match self.until {
            Bound::Included(until) => time > until,
            Bound::Excluded(until) => time >= until,
            Bound::Unbounded => false,
        }
    }

    fn is_before(&self, time: Timestamp) -> bool {
        match self.since {
            Bound::Included(since) => time < since,
            Bound::Excluded(since) => time <= since,
            Bound::Unbounded => false,
        }
    }

    /// Merges the ordered results of all segments up to the limit.
    fn merge<'a, I>(&'a self, part: impl Fn(&'a Segment) -> I) -> Vec<Arc<Lesson>>
    where
        I: Iterator<Item = u32>,
    {
        let mut parts: Vec<_> = self
            .state
            .segments
            .iter()
            .map(|segment| part(segment).map(|at| segment.doc(at)).peekable())
            .collect();
        let mut found = Vec::new();
        while found.len() < self.limit {
            let heads = parts.iter_mut().enumerate().filter_map(|(i, p)| Some((*p.peek()?, i)));
            let Some((_, first)) = heads.min_by(|(a, _), (b, _)| self.compare(a, b)) else { break };
            found.extend(parts[first].next().cloned());
        }
        found
    }

    fn select(&self) -> Vec<Arc<Lesson>> {
        let mut found: Vec<&Arc<Lesson>> = self
            .state
            .segments
            .iter()
            .flat_map(|segment| self.matches(segment).map(|at| segment.doc(at)))
            .collect();
        if self.limit == 0 {
            return Vec::new();
        }
        if self.limit < found.len() {
            found.select_nth_unstable_by(self.limit, |a, b| self.compare(a, b));
            found.truncate(self.limit);
        }
        found.sort_unstable_by(|a, b| self.compare(a, b));
        found.into_iter().cloned().collect()
    }

    fn compare(&self, a: &Lesson, b: &Lesson) -> Ordering {
        self.sort.compare(a, b)
    }
}

impl fmt::Debug for Query<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query")
            .field("fields", &self.fields)
            .field("contains", &self.needle.is_some())
            .field("last_seen", &(self.since, self.until))
            .field("sort", &self.sort)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
