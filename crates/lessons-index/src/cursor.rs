use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

use crate::lesson::Lesson;
use crate::order::Sort;
use crate::stamp;
use crate::view::LessonRef;

/// Is a place in an ordered listing: just behind a lesson, whether that is still there or not.
///
/// As text it can be handed to another process.
///
/// ```
/// use lessons_index::{Cursor, Lesson, LessonsIndex, Options, Sort};
///
/// let dir = tempfile::tempdir()?;
/// let index = LessonsIndex::open(dir.path().join("lessons.jsonl"), Options::default())?;
/// for id in ["a", "b", "c"] {
///     index.add(Lesson::builder(id).build()?)?;
/// }
/// let snapshot = index.snapshot();
/// let first = snapshot.query().sort(Sort::Id).limit(2).run();
/// let cursor = Cursor::after(Sort::Id, &first[1]).to_string();
///
/// let rest = snapshot.query().after(cursor.parse()?).run();
/// assert_eq!(rest[0].id, "c");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    sort: Sort,
    times: u64,
    seconds: i64,
    nanos: i32,
    id: String,
}

/// Says that a text is no cursor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no cursor; pass one on as it was printed")]
#[non_exhaustive]
pub struct InvalidCursor {
    /// The text.
    pub text: String,
}

impl Cursor {
    /// Returns the place behind a lesson.
    pub fn after(sort: Sort, lesson: &Lesson) -> Self {
        let (seconds, nanos) = stamp::parts(lesson.last_seen);
        Self { sort, times: lesson.times_seen, seconds, nanos, id: lesson.id.clone() }
    }

    /// Returns the order of the listing.
    pub fn sort(&self) -> Sort {
        self.sort
    }

    pub(crate) fn is_before(&self, lesson: &LessonRef<'_>) -> bool {
        let time = || self.time_parts().cmp(&lesson.time_parts());
        let id = || lesson.id().cmp(&self.id);
        let recent = || time().then_with(id);
        let order = match self.sort {
            Sort::Recent => recent(),
            Sort::Oldest => recent().reverse(),
            Sort::Frequent => self.times.cmp(&lesson.times_seen()).then_with(recent),
            Sort::Id => id(),
        };
        order == Ordering::Greater
    }

    pub(crate) fn time_parts(&self) -> (i64, i32) {
        (self.seconds, self.nanos)
    }
}

/// Writes `recent/3/2026-01-31T09:30:00Z/id`.
impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sort, times, id, .. } = self;
        write!(f, "{}/{times}/", sort.as_str())?;
        if let Some(time) = stamp::from_parts((self.seconds, self.nanos)) {
            write!(f, "{time}")?;
        }
        write!(f, "/{id}")
    }
}

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        parse(text).ok_or_else(|| InvalidCursor { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<Cursor> {
    let mut parts = text.splitn(4, '/');
    let name = parts.next()?;
    let sort = Sort::ALL.into_iter().find(|sort| sort.as_str() == name)?;
    let times = parts.next()?.parse().ok()?;
    let time = parts.next()?;
    let time = if time.is_empty() { None } else { Some(time.parse::<Timestamp>().ok()?) };
    let (seconds, nanos) = stamp::parts(time);
    let id = parts.next().filter(|id| !id.is_empty())?.to_owned();
    Some(Cursor { sort, times, seconds, nanos, id })
}
