use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::draft::Votes;
use crate::fingerprint::Fingerprint;
use crate::lesson::Lesson;
use crate::record::Field;
use crate::segment::Segment;
use crate::stamp;
use crate::tail::Slot;

/// Is a lesson of a [`Snapshot`](crate::Snapshot), where it stands: nothing is copied.
///
/// What queries compare is at hand; the texts that they do not compare are decoded from the line
/// on each call. [`to_lesson`](Self::to_lesson) makes a lesson of its own.
///
/// ```
/// use lessons_index::{Lesson, LessonsIndex, Options};
///
/// let dir = tempfile::tempdir()?;
/// let index = LessonsIndex::open(dir.path().join("lessons.jsonl"), Options::default())?;
/// index.add(Lesson::builder("a").failure_type("oom").failure_msg("out of memory").build()?)?;
///
/// let snapshot = index.snapshot();
/// let lesson = snapshot.find("a").expect("just added");
/// assert_eq!((lesson.failure_type(), lesson.times_seen()), ("oom", 1));
/// assert_eq!(lesson.failure_msg(), "out of memory");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct LessonRef<'s>(Inner<'s>);

#[derive(Clone, Copy)]
enum Inner<'s> {
    Doc(&'s Segment, u32),
    Slot(&'s Slot),
}

impl<'s> LessonRef<'s> {
    pub(crate) fn doc(segment: &'s Segment, doc: u32) -> Self {
        Self(Inner::Doc(segment, doc))
    }

    pub(crate) fn slot(slot: &'s Slot) -> Self {
        Self(Inner::Slot(slot))
    }

    /// Returns the id.
    pub fn id(&self) -> &'s str {
        match self.0 {
            Inner::Doc(segment, doc) => segment.id(doc),
            Inner::Slot(slot) => &slot.lesson.id,
        }
    }

    /// Returns the type of the task.
    pub fn task_type(&self) -> &'s str {
        self.exact(Field::TaskType)
    }

    /// Returns the activity that failed.
    pub fn activity_type(&self) -> &'s str {
        self.exact(Field::ActivityType)
    }

    /// Returns the type of the failure.
    pub fn failure_type(&self) -> &'s str {
        self.exact(Field::FailureType)
    }

    /// Returns the name for failures of the same kind.
    pub fn pattern(&self) -> &'s str {
        self.exact(Field::Pattern)
    }

    /// Returns how often the failure was seen.
    pub fn times_seen(&self) -> u64 {
        match self.0 {
            Inner::Doc(segment, doc) => segment.times(doc),
            Inner::Slot(slot) => slot.lesson.times_seen,
        }
    }

    /// Returns when the failure was seen last.
    pub fn last_seen(&self) -> Option<Timestamp> {
        match self.0 {
            Inner::Doc(segment, doc) => segment.last_seen(doc),
            Inner::Slot(slot) => slot.lesson.last_seen,
        }
    }

    /// Returns how often the lesson was said to have helped.
    pub fn helpful(&self) -> u64 {
        self.votes().helpful
    }

    /// Returns how often the lesson was said to have done harm.
    pub fn harmful(&self) -> u64 {
        self.votes().harmful
    }

    /// Returns what the failure said. Copies it only where the line has escapes in it.
    pub fn failure_msg(&self) -> Cow<'s, str> {
        match self.0 {
            Inner::Doc(segment, doc) => segment.message(doc),
            Inner::Slot(slot) => Cow::Borrowed(&slot.lesson.failure_msg),
        }
    }

    /// Returns what resolved it. Copies it only where the line has escapes in it.
    pub fn resolution(&self) -> Cow<'s, str> {
        match self.0 {
            Inner::Doc(segment, doc) => segment.resolution(doc),
            Inner::Slot(slot) => Cow::Borrowed(&slot.lesson.resolution),
        }
    }

    /// Returns where the lesson holds. Decodes the line.
    pub fn scope(&self) -> Cow<'s, str> {
        match self.0 {
            Inner::Doc(segment, doc) => segment.record(doc).scope,
            Inner::Slot(slot) => Cow::Borrowed(&slot.lesson.scope),
        }
    }

    /// Returns when the failure was seen first. Decodes the line.
    pub fn first_seen(&self) -> Option<Timestamp> {
        match self.0 {
            Inner::Doc(segment, doc) => segment.record(doc).first_seen,
            Inner::Slot(slot) => slot.lesson.first_seen,
        }
    }

    /// Returns the fingerprint of the failure. Decodes the line, unless it is known.
    pub fn fingerprint(&self) -> Fingerprint {
        match self.0 {
            Inner::Doc(segment, doc) => segment.kind(doc),
            Inner::Slot(slot) => slot.kind(),
        }
    }

    /// Returns the line, byte for byte without blanks around it.
    pub fn raw(&self) -> &'s str {
        match self.0 {
            Inner::Doc(segment, doc) => segment.raw(doc),
            Inner::Slot(slot) => slot.lesson.raw(),
        }
    }

    /// Returns the lesson as a value of its own. Decodes the line, if it was not added just now.
    pub fn to_lesson(&self) -> Arc<Lesson> {
        match self.0 {
            Inner::Doc(segment, doc) => Arc::new(Lesson::of(segment.record(doc), segment.raw(doc))),
            Inner::Slot(slot) => Arc::clone(&slot.lesson),
        }
    }

    pub(crate) fn as_slot(&self) -> Option<&'s Slot> {
        match self.0 {
            Inner::Doc(..) => None,
            Inner::Slot(slot) => Some(slot),
        }
    }

    pub(crate) fn exact(&self, field: Field) -> &'s str {
        match self.0 {
            Inner::Doc(segment, doc) => segment.column(field).text_of(doc),
            Inner::Slot(slot) => slot.lesson.exact(field),
        }
    }

    pub(crate) fn votes(&self) -> Votes {
        match self.0 {
            Inner::Doc(segment, doc) => segment.votes(doc),
            Inner::Slot(slot) => {
                Votes { helpful: slot.lesson.helpful, harmful: slot.lesson.harmful }
            }
        }
    }

    pub(crate) fn time_parts(&self) -> (i64, i32) {
        match self.0 {
            Inner::Doc(segment, doc) => segment.time_parts(doc),
            Inner::Slot(slot) => stamp::parts(slot.lesson.last_seen),
        }
    }

    pub(crate) fn recent(&self, other: &LessonRef<'_>) -> Ordering {
        let newest_first = other.time_parts().cmp(&self.time_parts());
        newest_first.then_with(|| self.id().cmp(other.id()))
    }
}

/// Two views are equal if their lines are.
impl PartialEq for LessonRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.raw() == other.raw()
    }
}

impl Eq for LessonRef<'_> {}

impl fmt::Debug for LessonRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LessonRef").field(&self.raw()).finish()
    }
}
