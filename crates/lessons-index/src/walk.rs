//! The lessons of a segment that a query selects, one after the other.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, binary_heap::PeekMut};
use std::iter::Copied;
use std::ops::Range;
use std::slice;
use std::sync::Arc;

use memchr::memmem::Finder;
use serde_json::Value;

use crate::column::Column;
use crate::common::Common;
use crate::fold;
use crate::messages::Search;
use crate::record::Field;
use crate::segment::Segment;
use crate::select::Selection;
use crate::view::LessonRef;

/// Lists that are shorter than this part of a segment are looked through message by message,
/// rather than have all messages folded for one query.
const SHORT: usize = 16;

/// Walks over the selected lessons of a segment, newest first. There is one for each segment of each
/// query, so that it gets no memory of its own where one value of a field is asked for.
pub(crate) struct Walk<'s> {
    along: Along<'s>,
    check: Check<'s>,
}

/// Is what is walked along.
enum Along<'s> {
    Nothing,
    Common(Common<'s>),
    One(Copied<slice::Iter<'s, u32>>),
    Any(Union<'s>),
    Text(Box<Search<'s>>),
    All(Range<u32>),
}

/// Is what each lesson on the way has to have too.
struct Check<'s> {
    segment: &'s Segment,
    fields: Fields<'s>,
    needle: Option<Arc<Finder<'static>>>,
    metadata: Arc<[(String, Value)]>,
    min_times: u64,
    seq: u64,
    is_whole: bool,
    is_short: bool,
}

/// Holds the fields that are asked for; the one that fewest lessons have comes first.
type Fields<'s> = [Option<Asked<'s>>; Field::ALL.len()];

impl<'s> Walk<'s> {
    /// Starts with the lessons of a range.
    pub(crate) fn new(selection: &Selection<'s>, segment: &'s Segment, range: Range<u32>) -> Self {
        let mut check = Check {
            segment,
            fields: Fields::default(),
            needle: selection.needle.clone(),
            metadata: Arc::clone(&selection.metadata),
            min_times: selection.min_times,
            seq: selection.state.seq,
            is_whole: segment.is_whole(),
            is_short: false,
        };
        let along = check.take(selection, range);
        Self { along, check }
    }
}

impl Iterator for Walk<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let Self { along, check } = self;
        let keeps = |doc: &u32| check.keeps(*doc);
        match along {
            Along::Nothing => None,
            Along::Common(docs) => docs.find(keeps),
            Along::One(docs) => docs.find(keeps),
            Along::Any(docs) => docs.find(keeps),
            Along::Text(docs) => docs.find(keeps),
            Along::All(docs) => docs.find(keeps),
        }
    }
}

impl<'s> Check<'s> {
    /// Takes what is to be walked along out of what is asked for; the rest is left to check.
    fn take(&mut self, selection: &Selection<'s>, range: Range<u32>) -> Along<'s> {
        let mut count = 0;
        for (field, values) in Field::ALL.into_iter().zip(&selection.exact) {
            let Some(values) = values else { continue };
            let asked = Asked::of(self.segment.column(field), values);
            if asked.is_none() {
                return Along::Nothing;
            }
            self.fields[count] = asked;
            count += 1;
        }
        let fields = &mut self.fields[..count];
        fields.sort_by_key(|field| field.as_ref().map(|field| field.len));
        let first = fields.first().and_then(Option::as_ref);
        self.is_short = first.is_some_and(|first| first.len <= self.segment.len() as usize / SHORT);
        // One alone has a list, which is walked faster than its bits.
        let bits = |field: &Option<Asked<'s>>| field.as_ref().and_then(|field| field.bits);
        if count >= 2
            && fields.iter().all(|field| bits(field).is_some())
            && let Some((first, others)) = fields.split_first()
            && let Some(first) = bits(first)
        {
            let common = Common::new(first, others.iter().filter_map(bits), range);
            self.fields = Fields::default();
            return Along::Common(common);
        }
        let Some(Asked { column, values, .. }) = self.fields[0].take() else {
            return match self.needle.take() {
                Some(needle) => {
                    Along::Text(Box::new(self.segment.messages().search(range, needle)))
                }
                None => Along::All(range),
            };
        };
        let within = |list: &'s [u32]| {
            let from = list.partition_point(|doc| *doc < range.start);
            let to = list.partition_point(|doc| *doc < range.end);
            &list[from..to.max(from)]
        };
        match values {
            Values::One(symbol) => Along::One(within(column.list(symbol)).iter().copied()),
            Values::Many(symbols) => {
                let lists = symbols.iter().map(|symbol| within(column.list(*symbol)));
                Along::Any(Union::of(lists))
            }
        }
    }

    #[inline]
    fn keeps(&self, doc: u32) -> bool {
        let segment = self.segment;
        self.fields.iter().flatten().all(|field| field.has(doc))
            && (self.is_whole || segment.is_visible(doc, self.seq))
            && (self.min_times == 0 || segment.times(doc) >= self.min_times)
            && (self.needle.as_ref())
                .is_none_or(|needle| has_text(segment, doc, needle, self.is_short))
            && has_metadata(&self.metadata, &LessonRef::doc(segment, doc))
    }
}

/// Returns whether a lesson has all this in its metadata.
pub(crate) fn has_metadata(wanted: &[(String, Value)], lesson: &LessonRef<'_>) -> bool {
    if wanted.is_empty() {
        return true;
    }
    let metadata = lesson.to_lesson().metadata();
    wanted.iter().all(|(key, value)| metadata.get(key) == Some(value))
}

/// Returns whether a message has a text in it; few messages are folded for that alone.
pub(crate) fn has_text(segment: &Segment, doc: u32, needle: &Finder<'_>, is_short: bool) -> bool {
    if is_short && segment.messages.get().is_none() {
        return needle.find(&fold::fold(&segment.message(doc))).is_some();
    }
    segment.messages().contains(doc, needle)
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
