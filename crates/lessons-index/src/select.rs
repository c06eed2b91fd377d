//! How a query finds its lessons.

use std::cmp::Reverse;
use std::iter::Peekable;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::vec;

use memchr::memmem::Finder;
use serde_json::Value;

use crate::cursor::Cursor;
use crate::marks::Wanted;
use crate::order::Sort;
use crate::record::Field;
use crate::segment::Segment;
use crate::stamp;
use crate::state::State;
use crate::view::LessonRef;
use crate::walk::{Walk, has_metadata, has_text};

type Parts = (i64, i32);

/// Of a range with so few lessons each is looked at, rather than the lists of what is wanted.
const NEAR: usize = 12;

/// So many lessons are looked for at once, rather than one after the other.
const FEW: usize = 256;

/// Is what a query asks for.
#[derive(Clone)]
pub(crate) struct Selection<'s> {
    pub(crate) state: &'s State,
    /// By [`Field`]: the values of which a lesson must have one.
    pub(crate) exact: [Option<Vec<String>>; 4],
    /// Shared by the walks, which a copy in each would make large.
    pub(crate) needle: Option<Arc<Finder<'static>>>,
    pub(crate) metadata: Arc<[(String, Value)]>,
    pub(crate) min_times: u64,
    pub(crate) since: Bound<Parts>,
    pub(crate) until: Bound<Parts>,
    pub(crate) sort: Sort,
    pub(crate) after: Option<Cursor>,
}

/// Is what was selected, in order.
pub(crate) enum Selected<'s> {
    Found(vec::IntoIter<LessonRef<'s>>),
    Merged(Merged<'s>),
}

/// Merges the results of all parts of a state.
pub(crate) struct Merged<'s> {
    sort: Sort,
    parts: Vec<Peekable<Part<'s>>>,
}

type Part<'s> = Box<dyn Iterator<Item = LessonRef<'s>> + 's>;

impl Default for Selected<'_> {
    fn default() -> Self {
        Self::Found(vec::IntoIter::default())
    }
}

impl<'s> Iterator for Selected<'s> {
    type Item = LessonRef<'s>;

    fn next(&mut self) -> Option<LessonRef<'s>> {
        match self {
            Self::Found(found) => found.next(),
            Self::Merged(merged) => merged.next(),
        }
    }
}

impl<'s> Iterator for Merged<'s> {
    type Item = LessonRef<'s>;

    fn next(&mut self) -> Option<LessonRef<'s>> {
        if let [one] = &mut self.parts[..] {
            return one.next();
        }
        let heads = self.parts.iter_mut().enumerate().filter_map(|(at, p)| Some((*p.peek()?, at)));
        let (_, first) = heads.min_by(|(a, _), (b, _)| self.sort.compare(a, b))?;
        self.parts[first].next()
    }
}

impl<'s> Selection<'s> {
    pub(crate) fn new(state: &'s State) -> Self {
        Self {
            state,
            exact: Default::default(),
            needle: None,
            metadata: Arc::default(),
            min_times: 0,
            since: Bound::Unbounded,
            until: Bound::Unbounded,
            sort: Sort::default(),
            after: None,
        }
    }

    /// Returns the selected lessons in order; only the first `limit` are asked for, one at least.
    pub(crate) fn ordered(&self, limit: usize) -> Selected<'s> {
        match self.sort {
            Sort::Recent if limit <= FEW => self.newest(limit),
            Sort::Recent => {
                self.merged(|segment| Box::new(Walk::new(self, segment, self.range(segment))))
            }
            Sort::Frequent if self.is_unconditional() => {
                let state = self.state;
                self.merged(|segment| {
                    let docs = segment.by_frequency().iter().copied();
                    Box::new(docs.filter(|doc| segment.is_visible(*doc, state.seq)))
                })
            }
            Sort::Frequent | Sort::Oldest | Sort::Id => self.sorted(limit),
        }
    }

    pub(crate) fn count(&self) -> usize {
        if self.is_unconditional() {
            return self.state.alive;
        }
        let in_segments = self.state.segments.iter().map(|segment| {
            let range = self.time_range(segment);
            Walk::new(self, segment, range).count()
        });
        in_segments.sum::<usize>() + self.slots().count()
    }

    /// Returns whether every lesson is selected.
    pub(crate) fn is_unconditional(&self) -> bool {
        self.exact.iter().all(Option::is_none)
            && self.needle.is_none()
            && self.metadata.is_empty()
            && self.min_times == 0
            && !self.has_range()
    }

    /// Merges what `docs` returns of each segment, which must be in order, with the pages.
    fn merged(
        &self,
        docs: impl Fn(&'s Segment) -> Box<dyn Iterator<Item = u32> + 's>,
    ) -> Selected<'s> {
        let mut slots: Vec<LessonRef<'s>> = self.slots().filter(|l| self.is_behind(l)).collect();
        slots.sort_unstable_by(|a, b| self.sort.compare(a, b));
        let mut parts = Vec::with_capacity(self.state.segments.len() + 1);
        for segment in self.state.segments.iter() {
            let after = self.after.clone();
            let found = docs(segment).map(|doc| LessonRef::doc(segment, doc));
            let part: Part<'s> = match after {
                None => Box::new(found),
                Some(after) => Box::new(found.filter(move |lesson| after.is_before(lesson))),
            };
            parts.push(part.peekable());
        }
        if !slots.is_empty() {
            let part: Part<'s> = Box::new(slots.into_iter());
            parts.push(part.peekable());
        }
        Selected::Merged(Merged { sort: self.sort, parts })
    }

    /// Returns the newest lessons, not one after the other. The newest parts come first; in each only
    /// what is newer than the oldest so far is looked at, and that most often is little: so it makes
    /// no great difference how many segments there are.
    fn newest(&self, limit: usize) -> Selected<'s> {
        // What there is, and what one part adds.
        let mut found: Vec<LessonRef<'s>> = Vec::with_capacity(2 * limit.min(NEAR));
        let settle = |found: &mut Vec<LessonRef<'s>>| {
            found.sort_unstable_by(|a, b| self.sort.compare(a, b));
            found.truncate(limit);
        };
        // Walks over all pages in one loop, which `extend` does not.
        self.slots().filter(|lesson| self.is_behind(lesson)).for_each(|lesson| found.push(lesson));
        settle(&mut found);
        let newest = |segment: &'s Arc<Segment>| (segment.time_parts(0), &**segment);
        let mut segments: Vec<(Parts, &'s Segment)> =
            self.state.segments.iter().map(newest).collect();
        // Of those with the same the largest stays first.
        segments.sort_by_key(|(newest, _)| Reverse(*newest));
        for (newest, segment) in segments {
            let oldest = found.get(limit - 1).map(LessonRef::time_parts);
            if oldest.is_some_and(|oldest| newest < oldest) {
                break;
            }
            let mut range = self.range(segment);
            if let Some(oldest) = oldest {
                range.end = range.end.min(segment.first_before(oldest));
            }
            let before = found.len();
            if range.len() <= NEAR {
                let docs = range.filter(|doc| self.wants_doc(segment, *doc));
                let docs = docs.map(|doc| LessonRef::doc(segment, doc));
                found.extend(docs.filter(|lesson| self.is_behind(lesson)).take(limit));
            } else {
                let docs = Walk::new(self, segment, range);
                let docs = docs.map(|doc| LessonRef::doc(segment, doc));
                found.extend(docs.filter(|lesson| self.is_behind(lesson)).take(limit));
            }
            // What one segment has is in order already.
            if before > 0 && found.len() > before {
                settle(&mut found);
            }
        }
        Selected::Found(found.into_iter())
    }

    fn sorted(&self, limit: usize) -> Selected<'s> {
        let compare = |a: &LessonRef<'_>, b: &LessonRef<'_>| self.sort.compare(a, b);
        let mut found: Vec<LessonRef<'s>> = self.slots().collect();
        for segment in self.state.segments.iter() {
            let docs = Walk::new(self, segment, self.time_range(segment));
            found.extend(docs.map(|doc| LessonRef::doc(segment, doc)));
        }
        found.retain(|lesson| self.is_behind(lesson));
        if limit < found.len() {
            found.select_nth_unstable_by(limit, compare);
            found.truncate(limit);
        }
        found.sort_unstable_by(compare);
        Selected::Found(found.into_iter())
    }

    fn is_behind(&self, lesson: &LessonRef<'_>) -> bool {
        self.after.as_ref().is_none_or(|after| after.is_before(lesson))
    }

    /// Returns the selected lessons of the pages.
    pub(crate) fn slots(&self) -> impl Iterator<Item = LessonRef<'s>> {
        let slots = self.state.slots_with(Wanted::of(&self.exact));
        slots.filter(|slot| self.wants(slot)).map(LessonRef::slot)
    }

    fn wants(&self, slot: &crate::tail::Slot) -> bool {
        let lesson = LessonRef::slot(slot);
        self.has_values(&lesson)
            && self.is_in_range(lesson.time_parts())
            && self.needle.as_ref().is_none_or(|needle| needle.find(slot.folded()).is_some())
            && has_metadata(&self.metadata, &lesson)
    }

    /// The same for a lesson of a segment that is in the range of time.
    fn wants_doc(&self, segment: &Segment, doc: u32) -> bool {
        let lesson = LessonRef::doc(segment, doc);
        self.has_values(&lesson)
            && segment.is_visible(doc, self.state.seq)
            && self.needle.as_ref().is_none_or(|needle| has_text(segment, doc, needle, true))
            && has_metadata(&self.metadata, &lesson)
    }

    fn has_values(&self, lesson: &LessonRef<'_>) -> bool {
        let is_one_of = |(field, values): (Field, &Option<Vec<String>>)| {
            let text = lesson.exact(field);
            values.as_ref().is_none_or(|values| values.iter().any(|value| value == text))
        };
        Field::ALL.into_iter().zip(&self.exact).all(is_one_of)
            && (self.min_times == 0 || lesson.times_seen() >= self.min_times)
    }

    fn has_range(&self) -> bool {
        (self.since, self.until) != (Bound::Unbounded, Bound::Unbounded)
    }

    fn is_in_range(&self, time: Parts) -> bool {
        !self.has_range()
            || (time != stamp::parts(None) && !self.is_after(time) && !self.is_before(time))
    }

    /// Returns the lessons of a segment within the range of time.
    pub(crate) fn time_range(&self, segment: &Segment) -> Range<u32> {
        if !self.has_range() {
            return 0..segment.len();
        }
        segment.time_range(|time| self.is_after(time), |time| self.is_before(time))
    }

    /// Returns that range without what is certainly before the cursor.
    fn range(&self, segment: &Segment) -> Range<u32> {
        let range = self.time_range(segment);
        let Some(after) = &self.after else { return range };
        let start = segment.first(|time| time <= after.time_parts()).max(range.start);
        start..range.end.max(start)
    }

    fn is_after(&self, time: Parts) -> bool {
        match self.until {
            Bound::Included(until) => time > until,
            Bound::Excluded(until) => time >= until,
            Bound::Unbounded => false,
        }
    }

    fn is_before(&self, time: Parts) -> bool {
        match self.since {
            Bound::Included(since) => time < since,
            Bound::Excluded(since) => time <= since,
            Bound::Unbounded => false,
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
