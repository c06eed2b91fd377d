//! Pages of a query, put together, are its whole listing, in an order that is total.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::{ids, missing};
use jiff::Timestamp;
use lessons_index::{Cursor, Lesson, LessonsIndex, Query, Snapshot, Sort};
use proptest::prelude::*;

fn lesson() -> impl Strategy<Value = Lesson> {
    (0..40_u8, 0..3_u64, prop::option::of((0..4_i64, 0..2_i32)), 0..3_u8).prop_map(
        |(id, times, time, kind)| {
            let lesson = Lesson::builder(format!("{id}/"))
                .times_seen(times)
                .failure_type(format!("type {kind}"))
                .failure_msg(if id % 3 == 0 { "disk full" } else { "timed out" });
            let time = time.map(|(seconds, nanos)| Timestamp::new(seconds, nanos).unwrap());
            time.into_iter().fold(lesson, lessons_index::LessonBuilder::last_seen).build().unwrap()
        },
    )
}

/// Returns a query with some conditions, by the bits of a number.
fn asked(snapshot: &Snapshot, conditions: u8) -> Query<'_> {
    let is_on = |bit: u8| conditions & (1 << bit) != 0;
    let mut query = snapshot.query();
    if is_on(0) {
        query = query.failure_type_any(["type 0", "type 2"]);
    }
    if is_on(1) {
        query = query.contains("FULL").unwrap();
    }
    if is_on(2) {
        query = query.last_seen(Timestamp::from_second(1).unwrap()..);
    }
    if is_on(3) {
        query = query.seen_at_least(1);
    }
    query
}

fn assert_pages_are_whole(index: &LessonsIndex, page: usize) {
    let snapshot = index.snapshot();
    for conditions in 0..16 {
        for sort in [Sort::Recent, Sort::Oldest, Sort::Frequent, Sort::Id] {
            let query = || asked(&snapshot, conditions).sort(sort);
            let whole = query().run();
            assert_eq!(query().count(), whole.len());
            let mut pages = query().limit(page).run();
            while let Some(last) = pages.last() {
                let cursor: Cursor = Cursor::after(sort, last).to_string().parse().unwrap();
                let next = query().after(cursor).limit(page).run();
                if next.is_empty() {
                    break;
                }
                pages.extend(next);
            }
            assert_eq!(ids(&pages), ids(&whole), "{sort:?}, conditions {conditions:b}");
        }
    }
}

proptest! {
    #![proptest_config(common::cases(48))]

    /// Of lessons in a segment, of lessons that were added after it, and of both.
    #[test]
    fn pages_of_any_query_are_its_listing(
        lessons in prop::collection::vec(lesson(), 0..60),
        loaded in any::<prop::sample::Index>(),
        page in 1..9_usize,
    ) {
        let file = missing();
        let (before, after) = lessons.split_at(loaded.index(lessons.len() + 1));
        file.open().add_all(before.iter().cloned());
        let index = file.open();
        index.add_all(after.iter().cloned());
        assert_pages_are_whole(&index, page);
        let reopened = file.open();
        for conditions in 0..16 {
            for sort in [Sort::Recent, Sort::Oldest, Sort::Frequent, Sort::Id] {
                let of = |index: &LessonsIndex| {
                    let snapshot = index.snapshot();
                    asked(&snapshot, conditions).sort(sort).run()
                };
                prop_assert_eq!(of(&index), of(&reopened), "wherever they stand");
            }
        }
    }
}

/// The lessons were cut by the place of the cursor in one order, and left out by that in another.
#[test]
fn a_query_that_goes_on_keeps_the_order_of_its_cursor() {
    let file = common::scratch(
        "{\"id\":\"a\",\"last_seen\":\"2026-01-03T00:00:00Z\"}\n{\"id\":\"b\"}\n{\"id\":\"c\",\"last_seen\":\"2026-01-04T00:00:00Z\"}\n",
    );
    let index = file.open();
    let snapshot = index.snapshot();
    let first = snapshot.query().sort(Sort::Id).limit(1).run();
    let cursor = Cursor::after(Sort::Id, &first[0]);
    let rest = snapshot.query().after(cursor).sort(Sort::Recent).run();
    assert_eq!(ids(&rest), ["b", "c"]);
}
