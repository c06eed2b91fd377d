//! What a writer is asked to do, and what comes of it.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

use crate::error::InvalidLesson;
use crate::failure::Failure;
use crate::fingerprint::Fingerprint;
use crate::lesson::Lesson;
use crate::members;
use crate::state::State;

/// Says what somebody thinks of a lesson.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feedback {
    /// It helped.
    Helpful,
    /// It did harm.
    Harmful,
}

/// Is a change to the file.
#[derive(Debug)]
pub(crate) enum Op {
    Put(Arc<Lesson>),
    Record(Box<Failure>),
    Vote { id: String, feedback: Feedback },
    Forget { id: String },
}

/// Is the lesson that is in the file now; `None` if there is none with the id.
pub(crate) type Outcome = Result<Option<Arc<Lesson>>, InvalidLesson>;

/// Is what came of the same changes in files that others have replaced since, the last at the end.
///
/// Whoever replaced one may have read it behind the append, so that what was appended is in the new
/// file too, and must not be counted twice.
#[derive(Default)]
pub(crate) struct Before(Vec<Try>);

struct Try {
    outcomes: Vec<Outcome>,
    /// What was appended, by id.
    lessons: HashMap<String, Arc<Lesson>>,
}

impl Before {
    /// Keeps what came of all changes, and what was appended for those that were not done before.
    pub(crate) fn keep(&mut self, outcomes: Vec<Outcome>, appended: Vec<Arc<Lesson>>) {
        let by_id = appended.into_iter().map(|lesson| (lesson.id.clone(), lesson));
        self.0.push(Try { outcomes, lessons: by_id.collect() });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns what came of a change, if that is what a state holds.
    fn done(&self, at: usize, op: &Op, state: &State) -> Option<Outcome> {
        self.0.iter().rev().find_map(|before| before.done(at, op, state))
    }
}

impl Try {
    fn done(&self, at: usize, op: &Op, state: &State) -> Option<Outcome> {
        let outcome = self.outcomes.get(at)?.as_ref().ok()?;
        let id = match op {
            Op::Put(lesson) => &lesson.id,
            Op::Record(_) => &outcome.as_ref()?.id,
            Op::Vote { id, .. } | Op::Forget { id } => id,
        };
        let appended = self.lessons.get(id)?;
        let is_there = match state.find(id) {
            Some(known) => is_alike(known.raw(), appended.raw()),
            None => appended.is_tombstone(),
        };
        is_there.then(|| Ok(outcome.clone()))
    }
}

/// Returns whether two lines have the same keys and values: who replaces a file may have parsed the
/// lines, and have written them in another way.
fn is_alike(a: &str, b: &str) -> bool {
    let parse = |line| serde_json::from_str::<serde_json::Value>(line);
    a == b || matches!((parse(a), parse(b)), (Ok(a), Ok(b)) if a == b)
}

impl Op {
    /// Returns how many bytes of the file it will take, as things are now.
    pub(crate) fn bytes(&self, state: &State) -> u64 {
        let bytes = match self {
            Self::Put(lesson) => lesson.raw().len(),
            Self::Record(failure) => {
                let known = state.find_kind(failure.fingerprint(), |_| true);
                known.map_or(0, |lesson| lesson.raw().len()) + failure.bytes()
            }
            Self::Vote { id, .. } => state.find(id).map_or(0, |lesson| lesson.raw().len() + 64),
            Self::Forget { id } => id.len() + 64,
        };
        bytes as u64 + 1
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Self::Put(lesson) => lesson.id.clone(),
            Self::Record(failure) => format!("fp-{}", failure.fingerprint()),
            Self::Vote { id, .. } | Self::Forget { id } => id.clone(),
        }
    }
}

/// Returns what comes of each change, and the lessons to append for that. What is changed several
/// times is appended once: nobody sees what it was in between. What was done before, and is there,
/// is not done again.
pub(crate) fn carry_out(
    ops: &[Op],
    state: &State,
    max_line_bytes: usize,
    before: &Before,
) -> (Vec<Outcome>, Vec<Arc<Lesson>>) {
    let needs_kinds = ops.iter().any(|op| matches!(op, Op::Record(_)));
    let is_plain = ops.iter().all(|op| matches!(op, Op::Put(_)));
    let mut batch = Batch {
        state,
        max_line_bytes,
        now: Timestamp::now(),
        needs_kinds,
        is_plain,
        by_id: HashMap::new(),
        by_kind: HashMap::new(),
        lessons: Vec::with_capacity(ops.len()),
    };
    let outcomes = ops.iter().enumerate().map(|(at, op)| {
        let done = before.done(at, op, state);
        done.unwrap_or_else(|| batch.one(op))
    });
    (outcomes.collect(), batch.lessons)
}

/// Is the state with the changes of a batch so far.
struct Batch<'a> {
    state: &'a State,
    max_line_bytes: usize,
    now: Timestamp,
    /// Whether a change looks for a fingerprint, and whether none looks for anything.
    needs_kinds: bool,
    is_plain: bool,
    /// The place in `lessons` of what was changed; a tombstone stands there for what is gone.
    by_id: HashMap<String, usize>,
    by_kind: HashMap<Fingerprint, BTreeSet<String>>,
    lessons: Vec<Arc<Lesson>>,
}

impl Batch<'_> {
    fn one(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Put(lesson) => Ok(Some(self.put(Arc::clone(lesson)))),
            Op::Record(failure) => self.record(failure).map(Some),
            Op::Vote { id, feedback } => {
                let Some(known) = self.get(id) else { return Ok(None) };
                let mut lesson = (*known).clone();
                let votes = match feedback {
                    Feedback::Helpful => &mut lesson.helpful,
                    Feedback::Harmful => &mut lesson.harmful,
                };
                *votes = votes.saturating_add(1);
                self.store(lesson).map(Some)
            }
            Op::Forget { id } => {
                let Some(known) = self.get(id) else { return Ok(None) };
                // Not before the lesson was seen, on a machine whose clock runs ahead.
                let at = known.last_seen.map_or(self.now, |seen| seen.max(self.now));
                let (id, at) = (members::quote(id), members::quote(&at.to_string()));
                let line = format!("{{\"id\":{id},\"deleted_at\":{at}}}");
                // A line that nobody would read back removes nothing.
                let (bytes, max) = (line.len(), self.max_line_bytes);
                if bytes > max {
                    return Err(InvalidLesson::TooLong { id: known.id.clone(), bytes, max });
                }
                let tombstone = Lesson::parse_line(&line)
                    .map_err(|source| InvalidLesson::Unreadable { id: known.id.clone(), source })?;
                self.put(Arc::new(tombstone));
                Ok(Some(known))
            }
        }
    }

    fn record(&mut self, failure: &Failure) -> Result<Arc<Lesson>, InvalidLesson> {
        let kind = failure.fingerprint();
        if let Some(known) = self.get_kind(kind) {
            let mut lesson = (*known).clone();
            failure.again(&mut lesson, self.now);
            return self.store(lesson);
        }
        let mut id = format!("fp-{kind}");
        // A lesson of this id whose message was changed is another by now.
        let mut number = 1;
        while self.get(&id).is_some() {
            number += 1;
            id = format!("fp-{kind}-{number}");
        }
        self.store(failure.first(id, self.now)?)
    }

    fn get(&self, id: &str) -> Option<Arc<Lesson>> {
        match self.by_id.get(id).map(|at| &self.lessons[*at]) {
            Some(changed) => (!changed.is_tombstone()).then(|| Arc::clone(changed)),
            None => self.state.find(id).map(|lesson| lesson.to_lesson()),
        }
    }

    /// Returns the newest lesson with a fingerprint, as it would be found if each change had been
    /// a batch of its own.
    fn get_kind(&self, kind: Fingerprint) -> Option<Arc<Lesson>> {
        let known = self.state.find_kind(kind, |id| !self.by_id.contains_key(id));
        let ids = self.by_kind.get(&kind).into_iter().flatten();
        let changed = ids.filter_map(|id| self.get(id));
        let changed = changed.filter(|lesson| Fingerprint::of_lesson(lesson) == kind);
        let newest_first = |lesson: &Arc<Lesson>| (Reverse(lesson.last_seen), lesson.id.clone());
        known.map(|lesson| lesson.to_lesson()).into_iter().chain(changed).min_by_key(newest_first)
    }

    fn store(&mut self, lesson: Lesson) -> Result<Arc<Lesson>, InvalidLesson> {
        let stored = lesson.stored(self.max_line_bytes)?;
        Ok(self.put(Arc::new(stored)))
    }

    fn put(&mut self, lesson: Arc<Lesson>) -> Arc<Lesson> {
        if self.needs_kinds && !lesson.is_tombstone() {
            let ids = self.by_kind.entry(Fingerprint::of_lesson(&lesson)).or_default();
            ids.insert(lesson.id.clone());
        }
        if let Some(at) = self.by_id.get(&lesson.id) {
            self.lessons[*at] = Arc::clone(&lesson);
            return lesson;
        }
        if !self.is_plain {
            self.by_id.insert(lesson.id.clone(), self.lessons.len());
        }
        self.lessons.push(Arc::clone(&lesson));
        lesson
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::state::Change;

    fn op() -> impl Strategy<Value = Op> {
        let id = || (0..4_u8).prop_map(|id| id.to_string());
        let message = || prop::sample::select(vec!["disk full", "timed out"]);
        let time = || (1..5_i64).prop_map(|n| Timestamp::from_second(n).unwrap());
        prop_oneof![
            (id(), message(), time()).prop_map(|(id, message, time)| {
                let lesson = Lesson::builder(id).failure_msg(message).last_seen(time).build();
                Op::Put(Arc::new(lesson.unwrap()))
            }),
            (message(), time())
                .prop_map(|(text, time)| Op::Record(Box::new(Failure::new("", text).at(time)))),
            id().prop_map(|id| Op::Vote { id, feedback: Feedback::Helpful }),
            id().prop_map(|id| Op::Forget { id }),
        ]
    }

    fn carry_out(ops: &[Op], state: &State, max: usize) -> (Vec<Outcome>, Vec<Arc<Lesson>>) {
        super::carry_out(ops, state, max, &Before::default())
    }

    fn publish(state: &State, lessons: Vec<Arc<Lesson>>) -> State {
        state.with(Change { lessons, ..Change::default() }, &mut |_, _, _| {})
    }

    fn lines(outcome: &Outcome) -> Option<String> {
        outcome.as_ref().unwrap().as_ref().map(|lesson| lesson.raw().to_owned())
    }

    /// The bytes of a batch are bounded by what its changes say they take.
    #[test]
    fn a_change_counts_for_all_that_it_appends() {
        const LONG: usize = 50_000;
        let notes = || serde_json::Map::from_iter([("notes".into(), "x".repeat(LONG).into())]);
        let long =
            || Op::Record(Box::new(Failure::new("build", "out of memory").metadata(notes())));
        let state = State::default();
        assert!(long().bytes(&state) > LONG as u64);
        let (outcomes, lessons) = carry_out(&[long()], &state, usize::MAX);
        let state = publish(&state, lessons);
        let again = Op::Record(Box::new(Failure::new("build", "out of memory")));
        assert!(again.bytes(&state) > LONG as u64);
        let id = outcomes[0].as_ref().unwrap().as_ref().unwrap().id.clone();
        assert!(Op::Vote { id, feedback: Feedback::Harmful }.bytes(&state) > LONG as u64);
    }

    proptest! {
        #[test]
        fn changes_at_once_are_changes_one_after_the_other(
            before in prop::collection::vec(op(), 0..6),
            ops in prop::collection::vec(op(), 1..8),
        ) {
            let start = publish(&State::default(), carry_out(&before, &State::default(), 9999).1);
            let (at_once, lessons) = carry_out(&ops, &start, 9999);
            // The marks of what is replaced are shared, so each way has a state of its own.
            let again = publish(&State::default(), carry_out(&before, &State::default(), 9999).1);
            let batched = publish(&again, lessons);
            let mut state = start;
            for (op, outcome) in ops.iter().zip(&at_once) {
                let (alone, lessons) = carry_out(std::slice::from_ref(op), &state, 9999);
                prop_assert_eq!(lines(&alone[0]), lines(outcome), "{:?}", op);
                state = publish(&state, lessons);
            }
            let all = |state: &State| {
                let query = crate::query::Query::new(state);
                query.iter().map(|lesson| lesson.raw().to_owned()).collect::<Vec<_>>()
            };
            prop_assert_eq!(all(&state), all(&batched));
        }
    }
}
