//! What is written: counting failures, feedback, forgetting, and what is found by it.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::{add_all, ids, lesson, missing, parsed, scratch};
use jiff::Timestamp;
use lessons_index::{Failure, Feedback, Fingerprint, Lesson, Sort};

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn the_same_failure_is_counted_whatever_place_it_speaks_of() {
    let file = missing();
    let index = file.open();
    let message = |path: &str, name: &str| format!("{path}: cannot find value `{name}` (E0425)");
    let first = Failure::new("build", message("src/a.rs:1:2", "x")).at(time(200)).pattern("names");
    let first = index.record(first).unwrap();
    assert!(first.id.starts_with("fp-"));
    assert_eq!((first.times_seen, first.last_seen), (1, Some(time(200))));

    let again = Failure::new("build", message("lib/b.rs:70:9", "y")).at(time(100));
    let again = index.record(again.resolution("import it")).unwrap();
    assert_eq!((&again.id, again.times_seen), (&first.id, 2));
    assert_eq!((again.last_seen, again.first_seen), (Some(time(200)), Some(time(100))));
    assert_eq!((again.resolution.as_str(), again.pattern.as_str()), ("import it", "names"));

    // A resolution that is known is not lost by a failure that brings none.
    let third = index.record(Failure::new("build", message("c.rs", "z")).at(time(300))).unwrap();
    assert_eq!((third.times_seen, third.resolution.as_str()), (3, "import it"));
    assert_eq!(index.snapshot().len(), 1);

    // Another type, code or scope is another failure.
    for other in [
        Failure::new("test", message("a.rs", "x")),
        Failure::new("build", "a.rs: cannot find value `x` (E0308)"),
        Failure::new("build", message("a.rs", "x")).scope("org/other"),
    ] {
        assert_eq!(index.record(other).unwrap().times_seen, 1);
    }
    assert_eq!(index.snapshot().len(), 4);
    assert_eq!(file.open().snapshot().all(), index.snapshot().all());
}

#[test]
fn a_failure_is_found_before_it_is_recorded_however_the_lesson_came_in() {
    let file = missing();
    let index = file.open();
    add_all(
        &index,
        &[
            r#"{"id":"mine","failure_type":"t","failure_msg":"took 10 s","last_seen":"2026-01-01T00:00:00Z"}"#,
            r#"{"id":"newer","failure_type":"t","failure_msg":"took 20 s","last_seen":"2026-01-02T00:00:00Z"}"#,
        ],
    );
    let failure = Failure::new("t", "took 99 s");
    for index in [&index, &file.open()] {
        let snapshot = index.snapshot();
        assert_eq!(snapshot.seen_before(&failure).unwrap().id(), "newer");
        assert!(snapshot.seen_before(&Failure::new("t", "took long")).is_none());
    }
    assert_eq!(index.record(failure.clone()).unwrap().id, "newer");
    index.forget("newer").unwrap();
    assert_eq!(index.snapshot().seen_before(&failure).unwrap().id(), "mine");
}

#[test]
fn failures_of_one_batch_are_counted_one_after_the_other() {
    let file = missing();
    let index = file.open();
    let failures =
        (0..500).map(|n| Failure::new("t", format!("took {n} s, kind {}", ["a", "b"][n % 2])));
    for lesson in index.record_all(failures) {
        lesson.unwrap();
    }
    assert_eq!(index.write_stats().writes, 1);
    let snapshot = index.snapshot();
    let times: Vec<u64> = snapshot.query().iter().map(|lesson| lesson.times_seen()).collect();
    assert_eq!(times, [250, 250]);
}

#[test]
fn an_id_that_was_taken_by_another_failure_is_not_overwritten() {
    let file = missing();
    let index = file.open();
    let failure = Failure::new("t", "one thing");
    let mut edited = (*index.record(failure.clone()).unwrap()).clone();
    edited.failure_msg = "another thing".into();
    index.add(edited.clone()).unwrap();
    let again = index.record(failure).unwrap();
    assert_ne!(again.id, edited.id);
    assert_eq!(index.snapshot().get(&edited.id).unwrap().failure_msg, "another thing");
}

#[test]
fn feedback_is_counted_and_kept() {
    let file = missing();
    let index = file.open();
    add_all(&index, &[r#"{"id":"a","x":1}"#]);
    index.feedback("a", Feedback::Helpful).unwrap();
    index.feedback("a", Feedback::Helpful).unwrap();
    let lesson = index.feedback("a", Feedback::Harmful).unwrap().unwrap();
    assert_eq!((lesson.helpful, lesson.harmful), (2, 1));
    assert_eq!(lesson.raw(), r#"{"id":"a","x":1,"times_seen":1,"helpful":2,"harmful":1}"#);
    assert!(index.feedback("nobody", Feedback::Helpful).unwrap().is_none());
    let snapshot = file.open().snapshot();
    let found = snapshot.find("a").unwrap();
    assert_eq!((found.helpful(), found.harmful()), (2, 1));
}

#[test]
fn a_forgotten_lesson_is_in_no_index_and_can_come_back() {
    let file = missing();
    let index = file.open();
    let line = r#"{"id":"a","task_type":"t","failure_msg":"gone","pattern":"p"}"#;
    add_all(&index, &[line, r#"{"id":"b","task_type":"t"}"#]);
    let before = index.snapshot();
    assert_eq!(index.forget("a").unwrap().unwrap().id, "a");
    assert!(index.forget("a").unwrap().is_none());
    for index in [&index, &file.open()] {
        let snapshot = index.snapshot();
        assert!(snapshot.get("a").is_none());
        assert_eq!(ids(&snapshot.all()), ["b"]);
        assert_eq!(snapshot.query().task_type("t").count(), 1);
        assert_eq!(snapshot.query().contains("gone").unwrap().count(), 0);
        assert_eq!(snapshot.stats().patterns, 0);
        assert!(snapshot.recall("gone").run().is_empty());
        let report = index.report();
        assert_eq!((report.lines, report.lessons, report.duplicates), (3, 1, 2));
    }
    assert_eq!(lessons_index::check(&file.path).unwrap(), index.report());
    assert!(before.get("a").is_some(), "an older snapshot still has it");

    index.add(parsed(line)).unwrap();
    assert_eq!(index.snapshot().get("a").unwrap().failure_msg, "gone");
    assert_eq!(file.open().snapshot().len(), 2);
}

#[test]
fn conditions_of_every_kind_hold_together() {
    let file = missing();
    let index = file.open();
    add_all(
        &index,
        &[
            r#"{"id":"a","failure_type":"oom","times_seen":3,"metadata":{"repo":"x","n":1}}"#,
            r#"{"id":"b","failure_type":"linker","times_seen":5,"metadata":{"repo":"x"}}"#,
            r#"{"id":"c","failure_type":"linker","times_seen":1,"metadata":{"repo":"y"}}"#,
            r#"{"id":"d","failure_type":"timeout","times_seen":9}"#,
        ],
    );
    for index in [&index, &file.open()] {
        let snapshot = index.snapshot();
        let found = |query: lessons_index::Query<'_>| ids(&query.sort(Sort::Id).run()).join(" ");
        let query = || snapshot.query();
        assert_eq!(found(query().failure_type_any(["oom", "linker", "none"])), "a b c");
        assert_eq!(found(query().failure_type_any([""; 0])), "");
        assert_eq!(found(query().metadata("repo", "x")), "a b");
        assert_eq!(found(query().metadata("n", 1).metadata("repo", "x")), "a");
        assert_eq!(found(query().seen_at_least(3)), "a b d");
        let all = query().failure_type_any(["linker", "oom"]).metadata("repo", "x");
        assert_eq!(found(all.clone().seen_at_least(4)), "b");
        assert_eq!(all.count(), 2);
    }
}

#[test]
fn pages_of_any_order_are_the_whole_listing_while_lessons_are_added() {
    let file = missing();
    let index = file.open();
    for n in 0..40_i64 {
        let mut lesson = Lesson::builder(format!("id/{}", n % 37)).times_seen(n.unsigned_abs() % 5);
        if n % 4 != 0 {
            lesson = lesson.last_seen(time(n % 7));
        }
        index.add(lesson.build().unwrap()).unwrap();
    }
    for sort in [Sort::Recent, Sort::Oldest, Sort::Frequent, Sort::Id] {
        for snapshot in [index.snapshot(), file.open().snapshot()] {
            let whole = snapshot.query().sort(sort).run();
            assert_eq!(whole.len(), 37);
            let mut pages = snapshot.query().sort(sort).limit(5).run();
            while let Some(last) = pages.last() {
                let cursor = lessons_index::Cursor::after(sort, last).to_string();
                let next = snapshot.query().after(cursor.parse().unwrap()).limit(5).run();
                if next.is_empty() {
                    break;
                }
                pages.extend(next);
            }
            assert_eq!(ids(&pages), ids(&whole), "{sort:?}");
        }
    }
    for wrong in ["", "recent", "recent/1/x/id", "up/1//id", "recent/1/", "recent/1//"] {
        let error = wrong.parse::<lessons_index::Cursor>().unwrap_err();
        assert!(error.to_string().contains("no cursor"), "{error}");
    }
}

#[test]
fn a_view_shows_what_the_lesson_holds() {
    let line = r#"{"id":"\u0061","task_type":"t","activity_type":"b","failure_type":"f","failure_msg":"m\n","resolution":"r","pattern":"p","times_seen":7,"last_seen":"2026-01-31T09:30:00.5Z","first_seen":"2026-01-30T09:30:00Z","scope":"s","helpful":1}"#;
    let file = scratch(format!("{line}\n"));
    let index = file.open();
    let added = missing();
    add_all(&added.open(), &[line]);
    for index in [index, added.open()] {
        let snapshot = index.snapshot();
        let view = snapshot.find("a").unwrap();
        let lesson = view.to_lesson();
        assert_eq!(view.id(), lesson.id);
        assert_eq!(view.task_type(), lesson.task_type);
        assert_eq!(view.activity_type(), lesson.activity_type);
        assert_eq!(view.failure_type(), lesson.failure_type);
        assert_eq!(view.pattern(), lesson.pattern);
        assert_eq!(view.failure_msg(), lesson.failure_msg);
        assert_eq!(view.resolution(), lesson.resolution);
        assert_eq!(view.scope(), lesson.scope);
        assert_eq!(view.times_seen(), lesson.times_seen);
        assert_eq!(view.last_seen(), lesson.last_seen);
        assert_eq!(view.first_seen(), lesson.first_seen);
        assert_eq!((view.helpful(), view.harmful()), (1, 0));
        assert_eq!(view.raw(), line);
        assert_eq!(view.fingerprint(), Fingerprint::of("s", "f", "m\n"));
    }
}

/// Values of the wrong type under the keys that are not the seed's are somebody else's keys.
#[test]
fn keys_that_others_may_use_are_no_faults() {
    let line = r#"{"id":"a","scope":7,"helpful":"yes","harmful":-1,"deleted_at":null}"#;
    let file = scratch(format!("{line}\n"));
    let index = file.open();
    assert_eq!(index.report().faults, []);
    let lesson = index.snapshot().get("a").unwrap();
    assert_eq!((lesson.scope.as_str(), lesson.helpful, lesson.harmful), ("", 0, 0));
    let mut changed = (*lesson).clone();
    changed.times_seen = 2;
    assert!(changed.to_line().starts_with(&line[..line.len() - 1]));
    drop(lesson);
    index.add(crate::lesson("b")).unwrap();
}

/// The fingerprint is stored as an id, so it never changes.
#[test]
fn fingerprints_are_the_same_for_ever() {
    let known = Fingerprint::of("org/a", "build", "src/x.rs:1: cannot find `y` (E0425)");
    assert_eq!(known.to_string(), "ecfd493eab3fd8b3909f420a31bbbde3");
}

/// Each count of one failure was a line, of which the last holds.
#[test]
fn what_changes_again_and_again_in_a_batch_is_appended_once() {
    let file = missing();
    let index = file.open();
    let counted = index.record_all((0..1_000).map(|_| Failure::new("build", "out of memory")));
    let times: Vec<u64> = counted.into_iter().map(|lesson| lesson.unwrap().times_seen).collect();
    assert_eq!(times, (1..=1_000).collect::<Vec<_>>());
    assert_eq!(file.content().lines().count() as u64, index.write_stats().writes);
    assert_eq!(file.open().snapshot().all()[0].times_seen, 1_000);
}

/// It was a time in memory, and none in the file.
#[test]
fn a_time_that_go_never_set_is_none_before_it_is_read_back() {
    let file = missing();
    let index = file.open();
    let never = "0001-01-01T00:00:00Z".parse().unwrap();
    let built = Lesson::builder("a").last_seen(never).first_seen(never).build().unwrap();
    let added = index.add(built).unwrap();
    assert_eq!((added.last_seen, added.first_seen), (None, None));
    assert_eq!(index.snapshot().all(), file.open().snapshot().all());
}
