//! What the seed's own tests ask for, one by one.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::fmt::Write as _;

use common::{add_all, ids, lesson, missing, scratch};
use jiff::{Timestamp, ToSpan};
use lessons_index::{Lesson, LessonsIndex, Sort};

/// The file that the seed's tests make: 50 records over 50 ids.
fn seed_file(count: usize) -> String {
    let now: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
    let mut text = String::new();
    for i in 0..count {
        let lesson = Lesson::builder(format!("lesson-{}-{}", i % 10, i / 10))
            .task_type(["add_feature", "fix_bug", "refactor"][i % 3])
            .activity_type(["implementer", "judge", "planner"][i % 3])
            .failure_type(["syntax_error", "logic_error", "timeout"][i % 3])
            .failure_msg(format!("Error message {i}"))
            .resolution("Fix strategy")
            .pattern(format!("pattern-{}", i % 5))
            .times_seen(i as u64 % 10)
            .last_seen(now - i64::try_from(i).unwrap().hours())
            .first_seen(now - (24 * i64::try_from(i).unwrap()).hours())
            .metadata(serde_json::from_str(&format!(r#"{{"index":{i}}}"#)).unwrap())
            .build()
            .unwrap();
        writeln!(text, "{}", lesson.raw()).unwrap();
    }
    text
}

fn with(lines: &[&str]) -> (common::Scratch, LessonsIndex) {
    let scratch = missing();
    let index = scratch.open();
    add_all(&index, lines);
    (scratch, index)
}

#[test]
fn a_new_index_is_empty() {
    let file = missing();
    let index = file.open();
    assert_eq!(index.snapshot().len(), 0);
    assert!(index.snapshot().is_empty());
}

#[test]
fn an_index_is_built_from_a_file() {
    let file = scratch(seed_file(50));
    let index = file.open();
    assert_eq!(index.snapshot().len(), 50);
    assert_eq!(index.report().lessons, 50);
    let lesson = index.snapshot().get("lesson-7-1").unwrap();
    assert_eq!((lesson.times_seen, lesson.metadata()["index"].as_u64()), (7, Some(17)));
}

#[test]
fn an_added_lesson_is_there() {
    let file = missing();
    let index = file.open();
    let now: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
    let lesson = Lesson::builder("test-1")
        .task_type("add_feature")
        .activity_type("implementer")
        .failure_type("syntax_error")
        .failure_msg("Missing semicolon")
        .resolution("Add semicolon")
        .pattern("syntax-missing-semi")
        .times_seen(1)
        .last_seen(now)
        .first_seen(now)
        .build()
        .unwrap();
    let stored = index.add(lesson.clone()).unwrap();
    assert_eq!(*stored, lesson);
    assert_eq!(index.snapshot().len(), 1);
    assert_eq!(*index.snapshot().get("test-1").unwrap(), lesson);
}

#[test]
fn lessons_are_found_by_task_type() {
    let (_file, index) = with(&[
        r#"{"id":"1","task_type":"add_feature","activity_type":"implementer"}"#,
        r#"{"id":"2","task_type":"add_feature","activity_type":"judge"}"#,
        r#"{"id":"3","task_type":"fix_bug","activity_type":"implementer"}"#,
    ]);
    assert_eq!(ids(&index.snapshot().query().task_type("add_feature").run()), ["1", "2"]);
}

#[test]
fn lessons_are_found_by_activity_type() {
    let (_file, index) = with(&[
        r#"{"id":"1","activity_type":"implementer"}"#,
        r#"{"id":"2","activity_type":"implementer"}"#,
        r#"{"id":"3","activity_type":"judge"}"#,
    ]);
    assert_eq!(ids(&index.snapshot().query().activity_type("implementer").run()), ["1", "2"]);
}

#[test]
fn lessons_are_found_by_failure_type() {
    let (_file, index) = with(&[
        r#"{"id":"1","failure_type":"syntax_error"}"#,
        r#"{"id":"2","failure_type":"syntax_error"}"#,
        r#"{"id":"3","failure_type":"logic_error"}"#,
    ]);
    assert_eq!(ids(&index.snapshot().query().failure_type("syntax_error").run()), ["1", "2"]);
}

#[test]
fn lessons_are_found_by_pattern() {
    let (_file, index) = with(&[
        r#"{"id":"1","pattern":"pattern-1"}"#,
        r#"{"id":"2","pattern":"pattern-2"}"#,
        r#"{"id":"3","pattern":"pattern-1"}"#,
    ]);
    assert_eq!(ids(&index.snapshot().query().pattern("pattern-1").run()), ["1", "3"]);
}

#[test]
fn similar_lessons_are_found_whatever_the_case() {
    let (_file, index) = with(&[
        r#"{"id":"1","failure_msg":"Syntax error: missing semicolon"}"#,
        r#"{"id":"2","failure_msg":"Logic error: wrong condition"}"#,
        r#"{"id":"3","failure_msg":"Syntax error: missing bracket"}"#,
    ]);
    let snapshot = index.snapshot();
    assert_eq!(ids(&snapshot.query().contains("syntax").unwrap().run()), ["1", "3"]);
    assert_eq!(ids(&snapshot.query().contains("LOGIC ERROR").unwrap().run()), ["2"]);
}

#[test]
fn all_conditions_must_hold() {
    let (_file, index) = with(&[
        r#"{"id":"1","task_type":"add_feature","activity_type":"implementer","failure_type":"syntax_error"}"#,
        r#"{"id":"2","task_type":"add_feature","activity_type":"judge","failure_type":"syntax_error"}"#,
        r#"{"id":"3","task_type":"fix_bug","activity_type":"implementer","failure_type":"logic_error"}"#,
    ]);
    let snapshot = index.snapshot();
    let query = snapshot
        .query()
        .task_type("add_feature")
        .activity_type("implementer")
        .failure_type("syntax_error");
    assert_eq!(ids(&query.run()), ["1"]);
    assert_eq!(query.count(), 1);
    assert_eq!(snapshot.query().activity_type("judge").failure_type("logic_error").count(), 0);
}

#[test]
fn lessons_are_found_by_time() {
    let now: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
    let file = missing();
    let index = file.open();
    for (id, hours) in [("1", 2), ("2", 1), ("3", 24)] {
        index.add(Lesson::builder(id).last_seen(now - hours.hours()).build().unwrap()).unwrap();
    }
    let snapshot = index.snapshot();
    let between = |from: i64, to: i64| {
        ids(&snapshot.query().last_seen(now - from.hours()..now - to.hours()).run())
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(between(48, 25), [""; 0]);
    assert_eq!(between(25, 0), ["2", "1", "3"]);
    assert_eq!(between(3, 0), ["2", "1"]);
}

#[test]
fn stats_count_distinct_values() {
    let (_file, index) = with(&[
        r#"{"id":"1","task_type":"add_feature","activity_type":"implementer"}"#,
        r#"{"id":"2","task_type":"add_feature","activity_type":"judge"}"#,
        r#"{"id":"3","task_type":"fix_bug","activity_type":"implementer"}"#,
    ]);
    let stats = index.snapshot().stats();
    assert_eq!((stats.lessons, stats.task_types, stats.activity_types), (3, 2, 2));
    assert_eq!((stats.failure_types, stats.patterns), (0, 0));
    assert_eq!(index.path().file_name().unwrap(), "lessons.jsonl");
    assert!(index.last_load().at <= std::time::SystemTime::now());
}

#[test]
fn all_lessons_come_by_id() {
    let (_file, index) = with(&[r#"{"id":"3"}"#, r#"{"id":"1"}"#, r#"{"id":"2"}"#]);
    assert_eq!(ids(&index.snapshot().all()), ["1", "2", "3"]);
}

#[test]
fn a_cleared_index_is_empty_and_the_file_is_not() {
    let (file, index) = with(&[r#"{"id":"1"}"#, r#"{"id":"2"}"#]);
    let before = index.snapshot();
    index.clear();
    assert_eq!(index.snapshot().len(), 0);
    assert_eq!(before.len(), 2, "a snapshot never changes");
    assert_eq!(file.content().lines().count(), 2);

    index.add(lesson("3")).unwrap();
    assert_eq!(ids(&index.snapshot().all()), ["3"]);
    index.reload().unwrap();
    assert_eq!(ids(&index.snapshot().all()), ["1", "2", "3"]);
}

#[test]
fn the_most_frequent_come_first() {
    let (_file, index) = with(&[
        r#"{"id":"1","times_seen":5}"#,
        r#"{"id":"2","times_seen":10}"#,
        r#"{"id":"3","times_seen":3}"#,
    ]);
    let snapshot = index.snapshot();
    let top: Vec<_> = snapshot.top(2).iter().map(|lesson| lesson.times_seen).collect();
    assert_eq!(top, [10, 5]);
    assert_eq!(snapshot.top(99).len(), 3);
    assert_eq!(snapshot.query().sort(Sort::Frequent).limit(0).run().len(), 0);
}

/// The seed adds 1,000 records under 100 ids and finds 1,000 by field: stale copies.
#[test]
fn of_a_thousand_records_under_a_hundred_ids_a_hundred_are_found() {
    let file = missing();
    let index = file.open();
    let records = (0..1000).map(|i| {
        let id = format!("lesson-{}", i % 100);
        let lesson = Lesson::builder(id).task_type("add_feature").activity_type("implementer");
        lesson.failure_type("syntax_error").times_seen(i).build().unwrap()
    });
    assert!(index.add_all(records).iter().all(Result::is_ok));
    let found = index.snapshot().query().task_type("add_feature").run();
    assert_eq!(found.len(), 100);
    assert!(found.iter().all(|lesson| lesson.times_seen >= 900), "the last record holds");
}

#[test]
fn of_ten_thousand_records_each_lesson_is_in_the_list_of_its_last_value() {
    let file = missing();
    let index = file.open();
    let records = (0..10_000_usize).map(|i| {
        Lesson::builder(format!("lesson-{}", i % 100))
            .task_type(["add_feature", "fix_bug", "refactor"][i % 3])
            .activity_type(["implementer", "judge", "planner"][i % 3])
            .failure_type("syntax_error")
            .build()
            .unwrap()
    });
    assert!(index.add_all(records).iter().all(Result::is_ok));
    let snapshot = index.snapshot();
    let by_activity =
        ["implementer", "judge", "planner"].map(|a| snapshot.query().activity_type(a).count());
    assert_eq!(by_activity.iter().sum::<usize>(), 100, "{by_activity:?}");
    assert_eq!(snapshot.query().activity_type("implementer").count(), 34);
}

#[test]
fn queries_run_at_the_same_time() {
    let (_file, index) = with(&[r#"{"id":"1","task_type":"add_feature"}"#]);
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                assert_eq!(index.snapshot().query().task_type("add_feature").count(), 1);
            });
        }
    });
}

#[test]
fn what_is_not_there_is_not_found() {
    let (_file, index) = with(&[r#"{"id":"1","task_type":"a"}"#]);
    let snapshot = index.snapshot();
    assert_eq!(snapshot.query().task_type("nonexistent").count(), 0);
    assert_eq!(snapshot.query().activity_type("nonexistent").run().len(), 0);
    assert_eq!(snapshot.query().failure_type("nonexistent").run().len(), 0);
    assert_eq!(snapshot.query().task_type("a").pattern("nonexistent").run().len(), 0);
}

#[test]
fn a_lesson_is_got_by_id() {
    let (_file, index) = with(&[r#"{"id":"test-1","task_type":"add_feature"}"#]);
    assert_eq!(index.snapshot().get("test-1").unwrap().id, "test-1");
    assert!(index.snapshot().get("nonexistent").is_none());
}

#[test]
fn a_lesson_is_in_every_index() {
    let (_file, index) = with(&[
        r#"{"id":"1","task_type":"a","activity_type":"b","failure_type":"c","pattern":"d"}"#,
    ]);
    let snapshot = index.snapshot();
    assert_eq!(snapshot.query().task_type("a").count(), 1);
    assert_eq!(snapshot.query().activity_type("b").count(), 1);
    assert_eq!(snapshot.query().failure_type("c").count(), 1);
    assert_eq!(snapshot.query().pattern("d").count(), 1);
}

#[test]
fn a_reload_changes_nothing_if_the_file_has_not() {
    let file = scratch(seed_file(50));
    let index = file.open();
    let (before, report) = (index.snapshot().all(), index.report());
    index.reload().unwrap();
    assert_eq!(index.snapshot().all(), before);
    assert_eq!(index.report(), report);
}
