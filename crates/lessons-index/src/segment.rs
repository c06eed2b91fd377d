//! An immutable part of the index.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use memchr::memmem::Finder;

use crate::fold;
use crate::lesson::Lesson;
use crate::order;

/// The sequence number of a death that has not come.
const NOT_DEAD: u64 = u64::MAX;

/// A field with an exact index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    TaskType,
    ActivityType,
    FailureType,
    Pattern,
}

impl Field {
    pub(crate) const ALL: [Self; 4] =
        [Self::TaskType, Self::ActivityType, Self::FailureType, Self::Pattern];

    pub(crate) fn of(self, lesson: &Lesson) -> &str {
        match self {
            Self::TaskType => &lesson.task_type,
            Self::ActivityType => &lesson.activity_type,
            Self::FailureType => &lesson.failure_type,
            Self::Pattern => &lesson.pattern,
        }
    }
}

/// Holds lessons with distinct ids, newest first; a lesson is named by its place ("doc").
///
/// Nothing changes but `dead`: a newer version of a lesson marks this one with the sequence
/// number of the snapshot that is the first without it. Older snapshots still see it.
pub(crate) struct Segment {
    docs: Box<[Arc<Lesson>]>,
    dead: Box<[AtomicU64]>,
    by_id: HashMap<ById, u32>,
    by_field: [HashMap<Box<str>, Vec<u32>>; Field::ALL.len()],
    by_frequency: Box<[u32]>,
    text: Text,
}

impl Segment {
    /// Builds a segment. O(n log n); the ids must be distinct.
    pub(crate) fn build(mut lessons: Vec<Arc<Lesson>>) -> Self {
        lessons.sort_unstable_by(|a, b| order::recent(a, b));
        let count = u32::try_from(lessons.len()).expect("memory ends before 2^32 lessons");
        let by_id = (0..count).zip(&lessons).map(|(at, doc)| (ById(Arc::clone(doc)), at)).collect();
        let mut by_field: [HashMap<Box<str>, Vec<u32>>; 4] = Default::default();
        for (at, lesson) in (0..count).zip(&lessons) {
            for (field, lists) in Field::ALL.into_iter().zip(&mut by_field) {
                let value = field.of(lesson);
                match lists.get_mut(value) {
                    Some(list) => list.push(at),
                    None => drop(lists.insert(value.into(), vec![at])),
                }
            }
        }
        let mut by_frequency: Box<[u32]> = (0..count).collect();
        by_frequency
            .sort_unstable_by(|a, b| order::frequent(&lessons[*a as usize], &lessons[*b as usize]));
        Self {
            dead: lessons.iter().map(|_| AtomicU64::new(NOT_DEAD)).collect(),
            by_id,
            by_field,
            by_frequency,
            text: Text::of(&lessons),
            docs: lessons.into(),
        }
    }

    /// Builds one segment from the lessons that are not dead in any of these.
    pub(crate) fn merge(segments: &[Arc<Self>]) -> Self {
        let alive = segments.iter().flat_map(|segment| {
            segment
                .docs
                .iter()
                .zip(&segment.dead)
                .filter(|(_, dead)| dead.load(Relaxed) == NOT_DEAD)
                .map(|(doc, _)| Arc::clone(doc))
        });
        Self::build(alive.collect())
    }

    /// The number of lessons, dead ones included.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.docs.len()).expect("checked when built")
    }

    pub(crate) fn docs(&self) -> &[Arc<Lesson>] {
        &self.docs
    }

    pub(crate) fn doc(&self, at: u32) -> &Arc<Lesson> {
        &self.docs[at as usize]
    }

    /// Returns whether the snapshot with this sequence number has the lesson.
    ///
    /// Relaxed is enough: a reader got its snapshot through a pointer swap that came after the
    /// marks of that snapshot, and every later mark has a higher number, seen or not.
    pub(crate) fn is_visible(&self, at: u32, seq: u64) -> bool {
        seq < self.dead[at as usize].load(Relaxed)
    }

    pub(crate) fn find(&self, id: &str, seq: u64) -> Option<u32> {
        self.by_id.get(id).copied().filter(|at| self.is_visible(*at, seq))
    }

    /// Ends the lesson with this id from snapshot `seq` on. Returns whether it was alive.
    pub(crate) fn end(&self, id: &str, seq: u64) -> bool {
        let Some(at) = self.by_id.get(id) else { return false };
        // There is one writer.
        let dead = &self.dead[*at as usize];
        let was_alive = dead.load(Relaxed) == NOT_DEAD;
        if was_alive {
            dead.store(seq, Relaxed);
        }
        was_alive
    }

    /// Returns the lessons with this value, newest first.
    pub(crate) fn with(&self, field: Field, value: &str) -> &[u32] {
        self.by_field[field as usize].get(value).map_or(&[], Vec::as_slice)
    }

    /// Returns the values of a field that a lesson of snapshot `seq` has, in no order.
    pub(crate) fn values(&self, field: Field, seq: u64) -> impl Iterator<Item = &str> {
        self.by_field[field as usize]
            .iter()
            .filter(move |(_, list)| list.iter().any(|at| self.is_visible(*at, seq)))
            .map(|(value, _)| value.as_ref())
    }

    pub(crate) fn by_frequency(&self) -> &[u32] {
        &self.by_frequency
    }

    /// Returns the lessons whose `last_seen` the test puts after, in, and before a range of time.
    /// Lessons without `last_seen` are in no range.
    pub(crate) fn time_range(
        &self,
        is_after: impl Fn(jiff::Timestamp) -> bool,
        is_before: impl Fn(jiff::Timestamp) -> bool,
    ) -> Range<u32> {
        let start = self.docs.partition_point(|doc| doc.last_seen.is_some_and(&is_after));
        let end =
            self.docs.partition_point(|doc| doc.last_seen.is_some_and(|time| !is_before(time)));
        let narrow = |at| u32::try_from(at).expect("checked when built");
        narrow(start)..narrow(end.max(start))
    }

    pub(crate) fn text(&self) -> &Text {
        &self.text
    }
}

/// Is a lesson under its id.
struct ById(Arc<Lesson>);

impl Borrow<str> for ById {
    fn borrow(&self) -> &str {
        &self.0.id
    }
}

impl Hash for ById {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}

impl PartialEq for ById {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for ById {}

/// Holds the folded failure messages of a segment end to end, so that a search is one scan.
pub(crate) struct Text {
    bytes: Vec<u8>,
    /// Where the message of each lesson ends; a byte follows that is in no UTF-8 text.
    ends: Vec<usize>,
}

impl Text {
    const BORDER: u8 = 0xFF;

    fn of(lessons: &[Arc<Lesson>]) -> Self {
        let mut bytes = Vec::with_capacity(lessons.iter().map(|l| l.failure_msg.len() + 1).sum());
        let mut ends = Vec::with_capacity(lessons.len());
        for lesson in lessons {
            fold::fold_into(&lesson.failure_msg, &mut bytes);
            ends.push(bytes.len());
            bytes.push(Self::BORDER);
        }
        Self { bytes, ends }
    }

    fn start(&self, at: usize) -> usize {
        if at == 0 { 0 } else { self.ends[at - 1] + 1 }
    }

    pub(crate) fn contains(&self, at: u32, needle: &Finder<'_>) -> bool {
        let at = at as usize;
        needle.find(&self.bytes[self.start(at)..self.ends[at]]).is_some()
    }

    /// Returns the lessons of a range with the needle in their message, in order.
    pub(crate) fn search(
        &self,
        docs: Range<u32>,
        needle: &Finder<'_>,
    ) -> impl Iterator<Item = u32> {
        let mut from = self.start(docs.start as usize);
        let end = self.start(docs.end as usize);
        std::iter::from_fn(move || {
            let hit = from + needle.find(self.bytes.get(from..end)?)?;
            let at = self.ends.partition_point(|end| *end <= hit);
            from = self.ends[at] + 1;
            u32::try_from(at).ok()
        })
    }
}
