//! How a query finds its lessons.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, binary_heap::PeekMut};
use std::iter::Peekable;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::vec;

use memchr::memmem::Finder;
use serde_json::Value;

use crate::column::{Column, Common};
use crate::cursor::Cursor;
use crate::fold;
use crate::marks::Wanted;
use crate::order::Sort;
use crate::record::Field;
use crate::segment::Segment;
use crate::stamp;
use crate::state::State;
use crate::view::LessonRef;

type Parts = (i64, i32);

/// Lists that are shorter than this part of a segment are looked through message by message,
/// rather than have all messages folded for one query.
const SHORT: usize = 16;

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
    pub(crate) metadata: Vec<(String, Value)>,
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
            metadata: Vec::new(),
            min_times: 0,
            since: Bound::Unbounded,
            until: Bound::Unbounded,
            sort: Sort::default(),
            after: None,
        }
    }

    /// Returns the selected lessons in order; only the first `limit` are asked for.
    pub(crate) fn ordered(&self, limit: usize) -> Selected<'s> {
        match self.sort {
            Sort::Recent if limit <= FEW => self.newest(limit),
            Sort::Recent => {
                self.merged(|segment| Box::new(self.docs(segment, self.range(segment))))
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
            self.docs(segment, range).count()
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
        found.extend(self.slots().filter(|lesson| self.is_behind(lesson)));
        settle(&mut found);
        let state = self.state;
        let mut one_by_one = |segment: &'s Segment| {
            let oldest = found.get(limit - 1).map(LessonRef::time_parts);
            if oldest.is_some_and(|oldest| segment.time_parts(0) < oldest) {
                return;
            }
            let mut range = self.range(segment);
            if let Some((seconds, _)) = oldest {
                range.end = range.end.min(segment.first_before(seconds));
            }
            if range.is_empty() {
                return;
            }
            let before = found.len();
            if range.len() <= NEAR {
                let docs = range.filter(|doc| self.wants_doc(segment, *doc));
                let docs = docs.map(|doc| LessonRef::doc(segment, doc));
                found.extend(docs.filter(|lesson| self.is_behind(lesson)).take(limit));
            } else {
                let docs = self.docs(segment, range).map(|doc| LessonRef::doc(segment, doc));
                found.extend(docs.filter(|lesson| self.is_behind(lesson)).take(limit));
            }
            // What one segment has is in order already.
            if before > 0 && found.len() > before {
                settle(&mut found);
            }
        };
        match &state.segments[..] {
            [] => {}
            [segment] => one_by_one(segment),
            segments => {
                let mut segments: Vec<&'s Segment> = segments.iter().map(|s| &**s).collect();
                // Of those with the same the largest stays first.
                segments.sort_by_key(|segment| Reverse(segment.time_parts(0)));
                segments.into_iter().for_each(one_by_one);
            }
        }
        Selected::Found(found.into_iter())
    }

    fn sorted(&self, limit: usize) -> Selected<'s> {
        let compare = |a: &LessonRef<'_>, b: &LessonRef<'_>| self.sort.compare(a, b);
        let mut found: Vec<LessonRef<'s>> = self.slots().collect();
        for segment in self.state.segments.iter() {
            let docs = self.docs(segment, self.time_range(segment));
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

    /// Returns the selected lessons of a segment among those of a range, newest first.
    pub(crate) fn docs(
        &self,
        segment: &'s Segment,
        range: Range<u32>,
    ) -> Box<dyn Iterator<Item = u32> + 's> {
        let mut asked = Vec::with_capacity(Field::ALL.len());
        for (field, values) in Field::ALL.into_iter().zip(&self.exact) {
            let Some(values) = values else { continue };
            match Asked::of(segment.column(field), values) {
                Some(field) => asked.push(field),
                None => return Box::new(std::iter::empty()),
            }
        }
        let (needle, metadata) = (self.needle.clone(), self.metadata.clone());
        let (seq, min_times) = (self.state.seq, self.min_times);
        asked.sort_by_key(|field| field.len);
        if let Some(rows) = rows(&asked) {
            let is_short = asked[0].len <= segment.len() as usize / SHORT;
            let has_text = move |doc: &u32| {
                needle.as_ref().is_none_or(|needle| has_text(segment, *doc, needle, is_short))
            };
            let keeps = keeps(segment, seq, min_times, metadata);
            return Box::new(Common::new(rows, range).filter(has_text).filter(keeps));
        }
        let mut others = asked.into_iter();
        let Some(Asked { column, values, len, .. }) = others.next() else {
            let keeps = keeps(segment, seq, min_times, metadata);
            return match needle {
                Some(needle) => Box::new(segment.messages().search(range, needle).filter(keeps)),
                None => Box::new(range.filter(keeps)),
            };
        };
        let is_short = len <= segment.len() as usize / SHORT;
        let keeps = keeps(segment, seq, min_times, metadata);
        let is_selected = move |doc: &u32| {
            others.as_slice().iter().all(|field| field.has(*doc))
                && needle.as_ref().is_none_or(|needle| has_text(segment, *doc, needle, is_short))
        };
        let within = |list: &'s [u32]| {
            let from = list.partition_point(|doc| *doc < range.start);
            let to = list.partition_point(|doc| *doc < range.end);
            &list[from..to.max(from)]
        };
        match values {
            Values::One(symbol) => {
                let docs = within(column.list(symbol)).iter().copied();
                Box::new(docs.filter(is_selected).filter(keeps))
            }
            Values::Many(symbols) => {
                let lists = symbols.iter().map(|symbol| within(column.list(*symbol)));
                Box::new(Union::of(lists).filter(is_selected).filter(keeps))
            }
        }
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

/// Is a field that is asked for, in one segment.
struct Asked<'s> {
    column: &'s Column,
    values: Values,
    /// A bit for each lesson with the value, if there is one and many have it.
    bits: Option<&'s [u64]>,
    /// How many lessons have one of the values.
    len: usize,
}

/// Holds the numbers of values in a column; most often there is one.
enum Values {
    One(u32),
    /// In order.
    Many(Vec<u32>),
}

impl<'s> Asked<'s> {
    /// Returns `None` if no lesson has one of the values.
    fn of(column: &'s Column, values: &[String]) -> Option<Self> {
        let mut symbols = values.iter().filter_map(|value| column.symbol(value));
        let list_len = |symbol: u32| column.list(symbol).len();
        let first = symbols.next()?;
        let (values, bits, len) = match symbols.next() {
            None => (Values::One(first), column.bits(first), list_len(first)),
            Some(second) => {
                let mut all: Vec<u32> = [first, second].into_iter().chain(symbols).collect();
                all.sort_unstable();
                all.dedup();
                let len = all.iter().map(|symbol| list_len(*symbol)).sum();
                (Values::Many(all), None, len)
            }
        };
        (len > 0).then_some(Self { column, values, bits, len })
    }

    fn has(&self, doc: u32) -> bool {
        // The bits are fewer bytes than the column, and stay in the cache.
        if let Some(bits) = self.bits {
            return bits[doc as usize / 64] >> (doc % 64) & 1 == 1;
        }
        let symbol = self.column.symbol_of(doc);
        match &self.values {
            Values::One(one) => *one == symbol,
            Values::Many(all) => all.binary_search(&symbol).is_ok(),
        }
    }
}

/// Returns the bits of two fields or more of which each has some.
fn rows<'s>(asked: &[Asked<'s>]) -> Option<Vec<&'s [u64]>> {
    if asked.len() < 2 {
        return None;
    }
    let mut rows = Vec::with_capacity(asked.len());
    for field in asked {
        rows.push(field.bits?);
    }
    Some(rows)
}

/// Returns the conditions that are checked last.
fn keeps(
    segment: &Segment,
    seq: u64,
    min_times: u64,
    metadata: Vec<(String, Value)>,
) -> impl Fn(&u32) -> bool {
    let is_whole = segment.is_whole();
    move |doc| {
        (is_whole || segment.is_visible(*doc, seq))
            && (min_times == 0 || segment.times(*doc) >= min_times)
            && has_metadata(&metadata, &LessonRef::doc(segment, *doc))
    }
}

fn has_metadata(wanted: &[(String, Value)], lesson: &LessonRef<'_>) -> bool {
    if wanted.is_empty() {
        return true;
    }
    let metadata = lesson.to_lesson().metadata();
    wanted.iter().all(|(key, value)| metadata.get(key) == Some(value))
}

fn has_text(segment: &Segment, doc: u32, needle: &Finder<'_>, is_short: bool) -> bool {
    if is_short && segment.messages.get().is_none() {
        return needle.find(&fold::fold(&segment.message(doc))).is_some();
    }
    segment.messages().contains(doc, needle)
}

/// Merges lists that have no lesson in common.
struct Union<'s> {
    /// What is left of each, by its first lesson.
    lists: BinaryHeap<Reverse<&'s [u32]>>,
}

impl<'s> Union<'s> {
    fn of(lists: impl Iterator<Item = &'s [u32]>) -> Self {
        Self { lists: lists.filter(|list| !list.is_empty()).map(Reverse).collect() }
    }
}

impl Iterator for Union<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let mut first = self.lists.peek_mut()?;
        let (doc, rest) = first.0.split_first()?;
        first.0 = rest;
        if rest.is_empty() {
            PeekMut::pop(first);
        }
        Some(*doc)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
