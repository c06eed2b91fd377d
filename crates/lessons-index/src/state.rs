//! What a snapshot points to, and how the next one is made.

use std::collections::HashSet;
use std::sync::Arc;

use crate::assemble::assemble;
use crate::draft::{Draft, MAX_SEGMENT_BYTES, groups};
use crate::fingerprint::Fingerprint;
use crate::hash;
use crate::lesson::Lesson;
use crate::marks::Wanted;
use crate::report::Summary;
use crate::segment::Segment;
use crate::tail::{PAGE, Page, Slot};
use crate::view::LessonRef;

/// So many lessons at once make a segment of their own.
pub(crate) const BULK: usize = 4 * PAGE;

/// Is the index as it was at one moment: segments, and pages with what came after them.
///
/// A lesson is visible in one place at most. `seq` counts publications; what was born later or
/// died before is passed.
#[derive(Default)]
pub(crate) struct State {
    /// The largest first, but for what is new. Shared by the states that have the same, so that the
    /// next one is made, and an old one dropped, by counting to one.
    pub(crate) segments: Arc<[Arc<Segment>]>,
    pub(crate) pages: Arc<[Arc<Page>]>,
    /// Slots of the last page that this state has.
    pub(crate) last_len: usize,
    pub(crate) seq: u64,
    pub(crate) alive: usize,
    /// Bytes of the lines of lessons that a later line replaced or removed, line ends included: what
    /// a compaction drops, but for old tombstones.
    pub(crate) dead_bytes: u64,
    pub(crate) summary: Summary,
}

/// Is what is to be published at once.
#[derive(Default)]
pub(crate) struct Change {
    /// Replaces all there is.
    pub(crate) fresh: Option<Vec<Draft>>,
    /// Comes after that. A tombstone removes its id.
    pub(crate) lessons: Vec<Arc<Lesson>>,
    pub(crate) summary: Summary,
}

/// Is told of each lesson that has an end: hash, id and the first snapshot without it.
pub(crate) type OnEnd<'a> = &'a mut dyn FnMut(u64, &str, u64);

impl State {
    /// Returns the next state. Costs what the change costs, whatever the size of the index.
    pub(crate) fn with(&self, change: Change, on_end: OnEnd<'_>) -> Self {
        let mut next = Self {
            segments: Arc::clone(&self.segments),
            pages: Arc::clone(&self.pages),
            last_len: self.last_len,
            seq: self.seq + 1,
            alive: self.alive,
            dead_bytes: self.dead_bytes,
            summary: change.summary,
        };
        if let Some(drafts) = change.fresh {
            next = Self { seq: next.seq, summary: next.summary, ..Self::default() };
            next.take_drafts(drafts, on_end);
        }
        if change.lessons.len() >= BULK {
            next.take_drafts(Draft::of_lessons(change.lessons, MAX_SEGMENT_BYTES), on_end);
        } else {
            for lesson in change.lessons {
                next.take(lesson, on_end);
            }
        }
        next
    }

    fn take(&mut self, lesson: Arc<Lesson>, on_end: OnEnd<'_>) {
        let hash = hash::of(&lesson.id);
        self.end(hash, &lesson.id, on_end);
        if lesson.is_tombstone() {
            return;
        }
        if self.pages.is_empty() || self.last_len == PAGE {
            self.pages = plus(&self.pages, Page::new());
            self.last_len = 0;
        }
        self.alive += 1;
        let page = self.pages.last().expect("there is one now");
        page.push(self.last_len, hash, lesson, self.seq);
        self.last_len += 1;
    }

    fn take_drafts(&mut self, drafts: Vec<Draft>, on_end: OnEnd<'_>) {
        for drafts in groups(drafts, MAX_SEGMENT_BYTES) {
            let assembled = assemble(drafts);
            self.dead_bytes += assembled.replaced_bytes;
            for id in &assembled.removed {
                self.end(hash::of(id), id, on_end);
            }
            let segment = assembled.segment;
            for doc in 0..segment.len() {
                if self.alive > 0 {
                    let id = segment.id(doc);
                    self.end(hash::of(id), id, on_end);
                }
            }
            self.alive += segment.len() as usize;
            if segment.len() > 0 {
                self.segments = plus(&self.segments, segment);
            }
        }
    }

    fn end(&mut self, hash: u64, id: &str, on_end: OnEnd<'_>) {
        let in_pages =
            self.pages_with_len().rev().find_map(|(page, len)| page.end(len, hash, id, self.seq));
        let ended = in_pages.map(|slot| slot.lesson.raw().len() as u64).or_else(|| {
            // Most lessons are in the first segment, which is the largest.
            self.segments.iter().find_map(|segment| {
                let doc = segment.end(hash, id, self.seq)?;
                Some(u64::from(segment.place(doc).len))
            })
        });
        if let Some(bytes) = ended {
            self.alive -= 1;
            self.dead_bytes += bytes + 1;
            on_end(hash, id, self.seq);
        }
    }

    /// Returns the pages with how many of their slots this state has.
    pub(crate) fn pages_with_len(&self) -> impl DoubleEndedIterator<Item = (&Page, usize)> {
        let last = self.pages.len();
        self.pages
            .iter()
            .enumerate()
            .map(move |(at, page)| (&**page, if at + 1 == last { self.last_len } else { PAGE }))
    }

    /// Returns the lessons of the pages, the oldest version first.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots_with(Wanted::ALL)
    }

    /// Returns those that can have some values, and perhaps others.
    pub(crate) fn slots_with(&self, wanted: Wanted) -> impl Iterator<Item = &Slot> {
        self.pages_with_len().flat_map(move |(page, len)| page.visible(len, self.seq, wanted))
    }

    pub(crate) fn find(&self, id: &str) -> Option<LessonRef<'_>> {
        let hash = hash::of(id);
        // Most lessons are in the first segment, which is the largest.
        let doc = self
            .segments
            .iter()
            .find_map(|segment| Some(LessonRef::doc(segment, segment.find(hash, id, self.seq)?)));
        doc.or_else(|| {
            let mut pages = self.pages_with_len().rev();
            pages.find_map(|(page, len)| page.find(len, hash, id, self.seq).map(LessonRef::slot))
        })
    }

    /// Returns the newest lesson with a fingerprint, of those whose id is wanted.
    pub(crate) fn find_kind(
        &self,
        kind: Fingerprint,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Option<LessonRef<'_>> {
        let slots = self.slots().filter(|slot| slot.kind() == kind).map(LessonRef::slot);
        let docs = self.segments.iter().filter_map(|segment| {
            let docs = segment.failures().of_kind(segment, kind);
            docs.filter(|doc| segment.is_visible(*doc, self.seq))
                .map(|doc| LessonRef::doc(segment, doc))
                .find(|lesson| is_wanted(lesson.id()))
        });
        slots.filter(|lesson| is_wanted(lesson.id())).chain(docs).min_by(LessonRef::recent)
    }

    /// Returns the distinct texts of a field.
    pub(crate) fn texts(&self, field: crate::record::Field) -> HashSet<&str> {
        let mut texts: HashSet<&str> = HashSet::new();
        for segment in self.segments.iter() {
            let is_whole = segment.is_whole();
            let is_seen = |list: &[u32]| {
                let mut docs = list.iter();
                docs.any(|doc| is_whole || segment.is_visible(*doc, self.seq))
            };
            let lists = segment.column(field).lists();
            texts.extend(lists.filter(|(_, list)| is_seen(list)).map(|(text, _)| text));
        }
        texts.extend(self.slots().map(|slot| slot.lesson.exact(field)));
        texts
    }
}

fn plus<T>(all: &[Arc<T>], one: T) -> Arc<[Arc<T>]> {
    all.iter().cloned().chain([Arc::new(one)]).collect()
}
