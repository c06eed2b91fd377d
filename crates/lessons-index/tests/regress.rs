//! Faults of the seed and of others in the field, one test each, named for what holds here.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::fmt::Write as _;
use std::fs::File;

use common::{add_all, ids, lesson, missing, scratch};
use lessons_index::{AddError, InvalidLesson, Lesson, Sort, check};

/// The seed appends each version to its lists and never takes one out.
#[test]
fn an_updated_lesson_is_in_no_list_of_its_old_values() {
    let file = missing();
    let index = file.open();
    add_all(
        &index,
        &[
            r#"{"id":"1","task_type":"old","activity_type":"old","failure_type":"old","pattern":"old","failure_msg":"old"}"#,
            r#"{"id":"1","task_type":"new","activity_type":"new","failure_type":"new","pattern":"new","failure_msg":"new"}"#,
        ],
    );
    for index in [&index, &file.open()] {
        let snapshot = index.snapshot();
        assert_eq!(snapshot.query().task_type("old").count(), 0);
        assert_eq!(snapshot.query().activity_type("old").count(), 0);
        assert_eq!(snapshot.query().failure_type("old").count(), 0);
        assert_eq!(snapshot.query().pattern("old").count(), 0);
        assert_eq!(snapshot.query().contains("old").unwrap().count(), 0);
        assert_eq!(snapshot.query().task_type("new").pattern("new").run().len(), 1);
        assert_eq!(snapshot.stats().task_types, 1);
    }
}

/// The seed goes on without a word.
#[test]
fn a_malformed_line_is_reported() {
    let file = scratch("{\"id\":\"a\"}\n{broken\n{\"id\":\"b\"}\n");
    let report = file.open().report();
    assert_eq!((report.lessons, report.faults_total), (2, 1));
    assert_eq!((report.faults[0].line, report.faults[0].offset), (2, 11));
}

/// The seed reads with a scanner whose lines end at 64 KiB; it fails with an index cut short.
#[test]
fn a_line_over_64_kib_is_loaded() {
    let mut text = String::new();
    for id in ["a", "b"] {
        writeln!(text, "{{\"id\":\"{id}\",\"failure_msg\":\"{}\"}}", "x".repeat(100_000)).unwrap();
    }
    assert_eq!(scratch(text).open().snapshot().len(), 2);
}

/// The seed lists in the order of its hash map.
#[test]
fn the_same_question_has_the_same_answer_in_the_same_order() {
    let lines: Vec<String> = (0..100)
        .map(|n| format!(r#"{{"id":"{n:02}","times_seen":{},"failure_msg":"x"}}"#, n % 3))
        .collect();
    let forward = scratch(lines.join("\n"));
    let backward = scratch(lines.iter().rev().map(String::as_str).collect::<Vec<_>>().join("\n"));
    for sort in [Sort::Recent, Sort::Frequent, Sort::Id] {
        let of = |file: &common::Scratch| {
            let found = file.open().snapshot().query().contains("x").unwrap().sort(sort).run();
            ids(&found).into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of(&forward), of(&backward), "{sort:?}");
    }
}

/// The seed drops it without a word.
#[test]
fn a_lesson_without_id_is_refused() {
    let file = missing();
    let mut nameless = lesson("a");
    nameless.id.clear();
    let refused = file.open().add(nameless).unwrap_err();
    assert!(matches!(refused, AddError::Invalid(InvalidLesson::EmptyId)), "{refused:?}");
}

/// The seed empties its maps before it opens the file.
#[test]
fn a_reload_that_fails_leaves_the_index_as_it_was() {
    let file = scratch("{\"id\":\"a\"}\n");
    let index = file.open();
    std::fs::remove_file(&file.path).unwrap();
    std::fs::create_dir(&file.path).unwrap();
    assert!(index.reload().is_err());
    assert!(index.refresh().is_err());
    assert_eq!(ids(&index.snapshot().all()), ["a"]);
    std::fs::remove_dir(&file.path).unwrap();
    std::fs::write(&file.path, "{\"id\":\"b\"}\n").unwrap();
    index.refresh().unwrap();
    assert_eq!(ids(&index.snapshot().all()), ["b"]);
}

/// The seed hands out pointers into its maps; a caller that writes changes the index.
#[test]
fn a_lesson_that_was_handed_out_cannot_change_the_index() {
    let file = missing();
    let index = file.open();
    index.add(lesson("a")).unwrap();
    let mut copy = Lesson::clone(&index.snapshot().get("a").unwrap());
    copy.times_seen = 99;
    assert_eq!(index.snapshot().get("a").unwrap().times_seen, 1);
}

/// The seed finds everything.
#[test]
fn an_empty_needle_is_an_error() {
    let file = missing();
    assert!(file.open().snapshot().query().contains("").is_err());
}

/// The seed leaves out both ends and cannot say otherwise.
#[test]
fn the_ends_of_a_time_range_are_in_or_out_as_written() {
    let file = missing();
    let index = file.open();
    let time = |n: i64| jiff::Timestamp::from_second(n).unwrap();
    for n in 1..=3 {
        index.add(Lesson::builder(n.to_string()).last_seen(time(n)).build().unwrap()).unwrap();
    }
    let snapshot = index.snapshot();
    assert_eq!(ids(&snapshot.query().last_seen(time(1)..time(3)).run()), ["2", "1"]);
    assert_eq!(ids(&snapshot.query().last_seen(time(1)..=time(3)).run()), ["3", "2", "1"]);
    assert_eq!(ids(&snapshot.query().last_seen(time(2)..).run()), ["3", "2"]);
    assert_eq!(snapshot.query().last_seen(time(3)..time(1)).count(), 0);
}

/// The seed writes nothing; others write with two calls, or without a lock.
#[test]
fn calls_that_wait_for_the_lock_share_one_write() {
    const WAITING: u64 = 20;
    let file = missing();
    let index = file.open();
    let lock = File::create(file.dir.path().join("lessons.jsonl.lock")).unwrap();
    lock.lock().unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| index.add(lesson("first")).unwrap());
        while index.write_stats().writes == 0 {
            std::thread::yield_now();
        }
        for n in 0..WAITING {
            let index = &index;
            scope.spawn(move || index.add(lesson(&n.to_string())).unwrap());
        }
        while index.write_stats().accepted < 1 + WAITING {
            std::thread::yield_now();
        }
        assert!(index.snapshot().is_empty(), "readers go on");
        lock.unlock().unwrap();
        assert_eq!(first.join().unwrap().id, "first");
    });
    let stats = index.write_stats();
    assert_eq!((stats.added, stats.writes), (1 + WAITING, 2));
    assert_eq!(check(&file.path).unwrap().lessons, 1 + WAITING);

    index.add_all((0..500).map(|n| lesson(&format!("bulk{n}"))));
    assert_eq!(index.write_stats().writes, 3);
}

/// beads#1379: reading rewrites the file. A search must leave no trace.
#[test]
fn reading_writes_nothing() {
    let file = scratch("{\"id\":\"a\"}\n");
    let index = file.open();
    index.refresh().unwrap();
    check(&file.path).unwrap();
    assert_eq!(index.snapshot().query().count(), 1);
    let names: Vec<_> = std::fs::read_dir(file.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["lessons.jsonl"]);
}

/// A folder without the right to write can be read; root can write anyway.
#[cfg(unix)]
#[test]
fn a_read_only_folder_can_be_read_and_says_why_it_cannot_be_written() {
    use std::os::unix::fs::PermissionsExt;
    let file = scratch("{\"id\":\"a\"}\n");
    let set = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(file.dir.path(), mode).unwrap();
    };
    set(0o555);
    let is_root = File::create(file.dir.path().join("probe")).is_ok();
    let index = file.open();
    assert_eq!(index.snapshot().len(), 1);
    let added = index.add(lesson("b"));
    set(0o755);
    match added {
        Ok(_) => assert!(is_root),
        Err(error) => {
            assert!(!is_root);
            let source = std::error::Error::source(&error).unwrap().to_string();
            assert!(source.contains("writable"), "{source}");
        }
    }
}

/// `git clean` removes the lock file while somebody waits for it: two locks of one name.
#[test]
fn a_removed_lock_file_still_locks() {
    let file = missing();
    let index = file.open();
    let path = file.dir.path().join("lessons.jsonl.lock");
    let old = File::create(&path).unwrap();
    old.lock().unwrap();
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| index.add(lesson("a")).unwrap());
        while index.write_stats().accepted == 0 {
            std::thread::yield_now();
        }
        std::fs::remove_file(&path).unwrap();
        let new = File::create(&path).unwrap();
        new.lock().unwrap();
        old.unlock().unwrap();
        // Whether it waited for the old or the new one, it gets in when the new one is free.
        new.unlock().unwrap();
        adding.join().unwrap();
    });
    assert_eq!(check(&file.path).unwrap().lessons, 1);
}

/// recall#38, ragflow#19179: a byte order mark hides the first record.
#[test]
fn a_byte_order_mark_in_front_of_any_line_hides_no_record() {
    let file = scratch("\u{FEFF}{\"id\":\"a\"}\n\u{FEFF}{\"id\":\"b\"}\n");
    assert_eq!(ids(&file.open().snapshot().all()), ["a", "b"]);
    assert_eq!(file.open().report().faults, []);
}

/// agent-os#2253: characters with a meaning in a query language find nothing.
#[test]
fn a_needle_is_literal() {
    let file = missing();
    let index = file.open();
    add_all(&index, &[r#"{"id":"a","failure_msg":"NOT found: src/*.rs (a|b) \"x\" OR 100% ünï"}"#]);
    for needle in ["not ", "/*.RS", "(a|b)", "\"x\" or", "100%", "ÜNÏ"] {
        assert_eq!(index.snapshot().query().contains(needle).unwrap().count(), 1, "{needle}");
    }
    assert_eq!(index.snapshot().query().contains("a.b").unwrap().count(), 0);
}

/// A value that was laid out over several lines and then changed beside was written as it stood.
#[test]
fn a_line_end_inside_a_kept_value_does_not_tear_the_record() {
    let file = missing();
    let index = file.open();
    let mut spread = common::parsed("{\"id\":\"a\",\"metadata\":{\r\n\"k\":[1,\n2]}}");
    index.add(spread.clone()).unwrap();
    spread.pattern = "p".into();
    index.add(spread).unwrap();
    assert_eq!(file.content().lines().count(), 2);
    let reopened = file.open();
    assert_eq!(reopened.report().faults, []);
    assert_eq!(reopened.report(), index.report());
    assert_eq!(reopened.snapshot().get("a").unwrap().metadata()["k"][1], 2);
}

/// Two names of one file are one file: locked under one of them alone, writers would not meet.
#[test]
fn a_link_to_the_file_locks_what_the_file_itself_locks() {
    let file = missing();
    let link = file.dir.path().join("link.jsonl");
    std::os::unix::fs::symlink("lessons.jsonl", &link).unwrap();
    // The first time the link leads nowhere yet; the second time it does.
    for id in ["a", "b"] {
        let index = lessons_index::LessonsIndex::open(&link, common::options()).unwrap();
        index.add(lesson(id)).unwrap();
    }
    assert_eq!(file.open().snapshot().len(), 2);

    let lock = file.dir.path().join("lessons.jsonl.lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    let index = lessons_index::LessonsIndex::open(&link, common::options()).unwrap();
    let error = index.add(lesson("c")).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("lessons.jsonl.lock"), "{source}");
    assert!(index.path().ends_with("link.jsonl"), "the path stays as it was given");
}

/// Each lesson was looked for in each list of values.
#[test]
fn any_of_very_many_values_is_one_walk() {
    const VALUES: usize = 3_000;
    let mut text = String::new();
    for n in 0..2 * VALUES {
        let task = n % (2 * VALUES - 7);
        writeln!(text, "{{\"id\":\"{n:05}\",\"task_type\":\"t{task}\"}}").unwrap();
    }
    let file = scratch(text);
    let snapshot = file.open().snapshot();
    let values = (0..VALUES).map(|n| format!("t{}", 2 * n));
    let found = snapshot.query().task_type_any(values).run();
    let wanted: Vec<String> = (0..2 * VALUES)
        .filter(|n| (n % (2 * VALUES - 7)).is_multiple_of(2))
        .map(|n| format!("{n:05}"))
        .collect();
    assert_eq!(ids(&found), wanted);
}

/// A line end stayed in `raw`, and had the line parsed the long way.
#[test]
fn a_line_end_is_no_part_of_a_line() {
    for line in ["{\"id\":\"a\"}\n", "{\"id\":\"a\"}\r\n", "\n \t{\"id\":\"a\"} \n\n"] {
        assert_eq!(Lesson::parse_line(line).unwrap().raw(), "{\"id\":\"a\"}", "{line:?}");
    }
}
