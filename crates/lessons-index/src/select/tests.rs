//! The newest few of several segments, against the listing of all.

use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;

use crate::cursor::Cursor;
use crate::lesson::Lesson;
use crate::order::Sort;
use crate::query::Query;
use crate::state::{BULK, Change, State};
use crate::view::LessonRef;

/// Each alone, and some together.
const CONDITIONS: [u8; 11] =
    [0, 0b1, 0b10, 0b100, 0b1000, 0b1_0000, 0b110, 0b1_0011, 0b1_1101, 0b10_0000, 0b10_1010];

/// Is when the lessons of one publication were seen: how many seconds from when on.
type Times = (i64, i64);

fn times() -> impl Strategy<Value = Times> {
    (0..60_i64, prop::sample::select(vec![1, 3, 40, 5_000]))
}

/// Mixes two numbers.
fn mixed(a: usize, b: usize) -> usize {
    let product = (a as u64 + 1).wrapping_mul(b as u64 + 0x9E37_79B9_7F4A_7C15);
    usize::try_from((product ^ (product >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 33)
        .expect("31 bits")
}

fn lesson(n: usize, seed: usize, (start, spread): Times) -> Arc<Lesson> {
    let of = |kind: usize, count: usize| mixed(n, seed + kind) % count;
    // Some publications have whole seconds only.
    let has_nanos = i32::try_from(seed % 3).expect("it is small").min(1);
    let mut lesson = Lesson::builder(n.to_string())
        .failure_type(format!("type {}", of(1, 3)))
        .task_type(format!("task {}", of(2, 40)))
        .failure_msg(if of(3, 5) == 0 { "Disk full" } else { "timed out" })
        .times_seen(of(4, 3) as u64);
    if of(5, 9) > 0 {
        let second = start + i64::try_from(of(6, 1 << 20)).expect("it is small") % spread;
        // Many are of one second.
        let nanos = [0, 0, 1, 2, 999_999_999][of(8, 5)] * has_nanos;
        lesson = lesson.last_seen(Timestamp::new(second, nanos).expect("it is a time"));
    }
    if of(7, 4) == 0 {
        lesson = lesson.metadata(serde_json::Map::from_iter([("host".into(), "a".into())]));
    }
    Arc::new(lesson.build().expect("it has an id"))
}

/// Each publication replaces some lessons of the one before.
fn state(seed: usize, times: &[Times], in_pages: usize, last: Times) -> State {
    let with = |state: &State, lessons| {
        state.with(Change { lessons, ..Change::default() }, &mut |_, _, _| {})
    };
    let mut state = State::default();
    for (at, times) in times.iter().enumerate() {
        let first = at * (BULK - 300);
        let lessons = (first..first + BULK).map(|n| lesson(n, seed + at, *times));
        state = with(&state, lessons.collect());
    }
    let tombstone =
        |n: usize| Lesson::parse_line(&format!("{{\"id\":\"{n}\",\"deleted_at\":\"now\"}}"));
    let lessons = (0..in_pages).map(|n| match n % 4 {
        0 => Arc::new(tombstone(7 * n).expect("it is a line")),
        1 => lesson(5 * n, seed, last),
        _ => lesson(100_000 + n, seed, last),
    });
    with(&state, lessons.collect())
}

/// Returns a query with some conditions, by the bits of a number.
fn asked(state: &State, conditions: u8) -> Query<'_> {
    let is_on = |bit: u8| conditions & (1 << bit) != 0;
    let mut query = Query::new(state);
    if is_on(0) {
        query = query.failure_type_any(["type 0", "type 2"]);
    }
    if is_on(1) {
        query = query.contains("FULL").expect("it is not empty");
    }
    if is_on(2) {
        let [from, to] = [20, 70].map(|n| Timestamp::from_second(n).expect("it is a time"));
        query = query.last_seen(from..to);
    }
    if is_on(3) {
        query = query.metadata("host", "a");
    }
    if is_on(4) {
        query = query.task_type("task 3").seen_at_least(1);
    }
    if is_on(5) {
        query = query.failure_type("type 1").task_type("task 5");
    }
    query
}

fn ids<'s>(query: &Query<'s>) -> Vec<&'s str> {
    query.iter().map(|lesson| lesson.id()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn the_newest_few_of_several_segments_are_the_first_of_all(
        seed in 0..1_000_usize,
        publications in prop::collection::vec(times(), 3..5),
        in_pages in 0..300_usize,
        last in times(),
    ) {
        let state = state(seed, &publications, in_pages, last);
        prop_assert_eq!(state.segments.len(), publications.len());
        let few = |conditions| [1, 7, 33, 256].map(|limit| ids(&asked(&state, conditions).limit(limit)));
        // What queries for text need is not built yet; a segment that is asked for all of them has it.
        let cold = CONDITIONS.map(few);
        for (conditions, cold) in CONDITIONS.into_iter().zip(cold) {
            let query = || asked(&state, conditions);
            let all: Vec<_> = query().iter().collect();
            let all_ids: Vec<&str> = all.iter().map(LessonRef::id).collect();
            for found in cold.iter().chain(&few(conditions)) {
                prop_assert!(all_ids.starts_with(found), "conditions {:b}", conditions);
            }
            prop_assert_eq!(cold[3].len(), all.len().min(256));
            for limit in [1, 2, 3, 5, 9, 20, 39] {
                let found = ids(&query().limit(limit));
                prop_assert_eq!(&found[..], &all_ids[..limit.min(all.len())]);
                // The first behind the lesson that this one ends with, and behind one far from it.
                for at in [limit - 1, limit * 37] {
                    let Some(last) = all.get(at) else { continue };
                    let cursor = Cursor::after(Sort::Recent, &last.to_lesson());
                    let next = ids(&query().after(cursor).limit(limit));
                    let to = (at + 1 + limit).min(all.len());
                    prop_assert_eq!(&next[..], &all_ids[at + 1..to], "conditions {:b}", conditions);
                }
            }
        }
    }
}
