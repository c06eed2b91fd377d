use std::fmt;
use std::sync::Arc;

use crate::failure::Failure;
use crate::lesson::Lesson;
use crate::order::Sort;
use crate::query::Query;
use crate::recall::Recall;
use crate::record::Field;
use crate::state::State;
use crate::view::LessonRef;

/// Is the index as it was at one moment; it never changes.
///
/// Cheap to clone and to hold, but it keeps the memory of its lessons.
///
/// ```
/// use lessons_index::{Lesson, LessonsIndex, Options};
///
/// let dir = tempfile::tempdir()?;
/// let index = LessonsIndex::open(dir.path().join("lessons.jsonl"), Options::default())?;
/// let before = index.snapshot();
/// index.add(Lesson::builder("a").build()?)?;
/// assert!(before.is_empty());
/// assert_eq!(index.snapshot().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) state: Arc<State>,
}

/// Counts what is in an index; empty values do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Lessons.
    pub lessons: usize,
    /// Distinct types of tasks.
    pub task_types: usize,
    /// Distinct activities.
    pub activity_types: usize,
    /// Distinct types of failures.
    pub failure_types: usize,
    /// Distinct patterns.
    pub patterns: usize,
}

impl Snapshot {
    /// Returns the lesson with this id as a value of its own. Costs what [`find`](Self::find)
    /// costs, and decodes the line.
    pub fn get(&self, id: &str) -> Option<Arc<Lesson>> {
        self.find(id).map(|lesson| lesson.to_lesson())
    }

    /// Returns the lesson with this id where it stands. A hash look-up in each of O(log n)
    /// segments; copies nothing.
    pub fn find(&self, id: &str) -> Option<LessonRef<'_>> {
        self.state.find(id)
    }

    /// Returns the newest lesson of the same failure, whatever files, lines, numbers and names its
    /// message speaks of: the one that [`record`](crate::LessonsIndex::record) would count up.
    ///
    /// A hash look-up. The first call after loading makes the fingerprints of all lessons, if the
    /// thread in the background has not done so yet.
    pub fn seen_before(&self, failure: &Failure) -> Option<LessonRef<'_>> {
        self.state.find_kind(failure.fingerprint(), |_| true)
    }

    /// Starts to look for the lessons that say most about a text, such as a task or an error.
    pub fn recall(&self, text: &str) -> Recall<'_> {
        Recall::new(&self.state, text)
    }

    /// Returns the number of lessons. O(1).
    pub fn len(&self) -> usize {
        self.state.alive
    }

    /// Returns whether there is no lesson. O(1).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts a query for all lessons, newest first.
    pub fn query(&self) -> Query<'_> {
        Query::new(&self.state)
    }

    /// Returns the `n` lessons that were seen most often, as [`Sort::Frequent`] orders them.
    pub fn top(&self, n: usize) -> Vec<Arc<Lesson>> {
        self.query().sort(Sort::Frequent).limit(n).run()
    }

    /// Returns all lessons by id. O(n log n).
    pub fn all(&self) -> Vec<Arc<Lesson>> {
        self.query().sort(Sort::Id).run()
    }

    /// Counts lessons and distinct values. O(distinct values), if few lessons were replaced.
    pub fn stats(&self) -> Stats {
        let [task_types, activity_types, failure_types, patterns] = Field::ALL.map(|field| {
            let values = self.state.texts(field);
            values.len() - usize::from(values.contains(""))
        });
        Stats { lessons: self.len(), task_types, activity_types, failure_types, patterns }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { segments, seq, alive, .. } = &*self.state;
        f.debug_struct("Snapshot")
            .field("lessons", alive)
            .field("segments", &segments.len())
            .field("seq", seq)
            .finish_non_exhaustive()
    }
}
