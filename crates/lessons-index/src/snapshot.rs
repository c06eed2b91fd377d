use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use crate::lesson::Lesson;
use crate::order::Sort;
use crate::query::Query;
use crate::report::Summary;
use crate::segment::{Field, Segment};

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
    /// Returns the lesson with this id. A hash look-up in each of O(log n) segments.
    pub fn get(&self, id: &str) -> Option<Arc<Lesson>> {
        let State { segments, seq, .. } = &*self.state;
        segments
            .iter()
            .rev()
            .find_map(|segment| segment.find(id, *seq).map(|at| Arc::clone(segment.doc(at))))
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
        let State { segments, seq, .. } = &*self.state;
        let [task_types, activity_types, failure_types, patterns] = Field::ALL.map(|field| {
            let values: BTreeSet<&str> =
                segments.iter().flat_map(|segment| segment.values(field, *seq)).collect();
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

/// Is what a snapshot points to: segments from old and large to new and small.
///
/// Each segment is less than half as large as the one before it, so there are O(log n) of them,
/// and a lesson is copied (its pointer, its folded text and its places in the orders) O(log n)
/// times in its life. No lesson is visible in two segments.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) seq: u64,
    pub(crate) alive: usize,
    pub(crate) summary: Summary,
}

impl State {
    /// Returns the next state: this one, or an empty one, with lessons put over it. Of two
    /// lessons with one id the later holds.
    ///
    /// Amortised O(log n) a lesson; the rare call that merges large segments takes as long as it
    /// takes to build them.
    pub(crate) fn with(&self, lessons: Vec<Arc<Lesson>>, fresh: bool, summary: Summary) -> Self {
        let seq = self.seq + 1;
        let mut segments = if fresh { Vec::new() } else { self.segments.clone() };
        let mut alive = if fresh { 0 } else { self.alive };
        let lessons = last_of_each_id(lessons);
        if !lessons.is_empty() {
            let newest = Segment::build(lessons);
            for lesson in newest.docs() {
                let replaced = segments.iter().rev().any(|segment| segment.end(&lesson.id, seq));
                alive += usize::from(!replaced);
            }
            segments.push(Arc::new(newest));
            while let [.., before, last] = &segments[..]
                && before.len() / 2 <= last.len()
            {
                let merged = Segment::merge(&segments[segments.len() - 2..]);
                segments.truncate(segments.len() - 2);
                segments.push(Arc::new(merged));
            }
        }
        Self { segments, seq, alive, summary }
    }
}

fn last_of_each_id(lessons: Vec<Arc<Lesson>>) -> Vec<Arc<Lesson>> {
    if lessons.len() < 2 {
        return lessons;
    }
    let mut places = HashMap::with_capacity(lessons.len());
    let mut last: Vec<Arc<Lesson>> = Vec::with_capacity(lessons.len());
    for lesson in &lessons {
        match places.entry(lesson.id.as_str()) {
            std::collections::hash_map::Entry::Occupied(place) => {
                last[*place.get()] = Arc::clone(lesson);
            }
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(last.len());
                last.push(Arc::clone(lesson));
            }
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds lessons one by one and returns how many were copied into a segment, the final state
    /// and the size of the largest number of segments.
    fn add(start: State, ids: impl Iterator<Item = String>) -> (usize, State, usize) {
        let (mut state, mut copied, mut most) = (start, 0, 0);
        for id in ids {
            let lesson = Arc::new(Lesson::builder(id).build().unwrap());
            let next = state.with(vec![lesson], false, Summary::default());
            let is_old = |s: &Arc<Segment>| state.segments.iter().any(|old| Arc::ptr_eq(old, s));
            let built = next.segments.iter().filter(|segment| !is_old(segment));
            copied += built.map(|segment| segment.docs().len()).sum::<usize>();
            most = most.max(next.segments.len());
            state = next;
        }
        (copied, state, most)
    }

    #[test]
    fn publishing_copies_a_lesson_a_few_times_in_its_life_and_never_the_whole_set() {
        let (copied, state, most) = add(State::default(), (0..4096).map(|n| n.to_string()));
        assert_eq!(state.alive, 4096);
        assert!(copied <= 4096 * 12, "copied {copied}");
        assert!(most <= 12, "{most} segments");

        // Beside a large set, new lessons leave it alone.
        let large = &state.segments[0];
        let (copied, state, _) = add(
            State { segments: vec![Arc::clone(large)], ..State::default() },
            (5000..5100).map(|n| n.to_string()),
        );
        assert!(Arc::ptr_eq(&state.segments[0], large));
        assert!(copied < 100 * 8, "copied {copied}");
    }

    #[test]
    fn updating_one_lesson_for_ever_keeps_nothing_but_the_last() {
        let start = add(State::default(), (0..100).map(|n| n.to_string())).1;
        let (copied, state, _) = add(start, (0..1000).map(|_| "7".to_owned()));
        assert_eq!(state.alive, 100);
        let kept: usize = state.segments.iter().map(|segment| segment.docs().len()).sum();
        assert!(kept <= 150, "{kept} kept");
        assert!(copied < 5000, "{copied} copied");
    }
}
