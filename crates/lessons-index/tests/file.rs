//! The file as many writers and editors leave it: what is appended, noticed and kept.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::io::Write;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{add_all, ids, lesson, missing, options, parsed, scratch};
use lessons_index::{AddError, FaultKind, Fsync, InvalidLesson, Lesson, LessonsIndex, Refresh};
use proptest::prelude::*;

fn append(path: &std::path::Path, bytes: impl AsRef<[u8]>) {
    let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(bytes.as_ref()).unwrap();
}

#[test]
fn unknown_keys_and_the_spelling_of_a_line_stay_byte_for_byte() {
    let line = r#"{ "team":{"n":1.50,"x":[1,  2]}, "id":"\u0061", "huge":123456789012345678901234567890, "times_seen":2 }"#;
    let file = scratch(format!("  {line}\t\n"));
    let index = file.open();
    assert_eq!(index.snapshot().get("a").unwrap().raw(), line);

    // Unchanged, it is written as it was read.
    let copy = missing();
    let stored = copy.open().add(parsed(line)).unwrap();
    assert_eq!(stored.raw(), line);
    assert_eq!(copy.content(), format!("{line}\n"));

    // Changed, all that was not touched stays.
    let mut changed = (*stored).clone();
    changed.times_seen += 1;
    changed.pattern = "é\n".into();
    assert_eq!(
        index.add(changed).unwrap().raw(),
        r#"{"team":{"n":1.50,"x":[1,  2]},"id":"\u0061","huge":123456789012345678901234567890,"times_seen":3,"pattern":"é\n"}"#
    );
}

#[test]
fn a_written_record_says_how_often_it_was_seen_and_has_one_line() {
    let file = missing();
    let index = file.open();
    index.add(parsed("{\"id\":\"a\",\r\n\"x\":\"kept\"}")).unwrap();
    assert_eq!(file.content(), "{\"id\":\"a\",\"x\":\"kept\",\"times_seen\":1}\n");
    index.add(parsed("{\"id\":\"b\",\n\"times_seen\":2}")).unwrap();
    assert_eq!(file.content().lines().nth(1).unwrap(), "{\"id\":\"b\", \"times_seen\":2}");
}

#[test]
fn metadata_is_replaced_and_removed() {
    let lesson = parsed(r#"{"id":"a","metadata":{"k":1},"x":2}"#);
    let with = serde_json::from_str(r#"{"k":[2]}"#).unwrap();
    let lesson = lesson.with_metadata(with);
    assert_eq!(lesson.raw(), r#"{"id":"a","metadata":{"k":[2]},"x":2}"#);
    assert_eq!(lesson.with_metadata(serde_json::Map::new()).raw(), r#"{"id":"a","x":2}"#);
}

#[test]
fn a_lesson_is_serialized_with_its_known_fields() {
    let lesson =
        parsed(r#"{"x":1,"id":"a","last_seen":"2026-01-31T09:30:00+01:00","metadata":{"k":[1]}}"#);
    assert_eq!(
        serde_json::to_string(&lesson).unwrap(),
        r#"{"id":"a","task_type":"","activity_type":"","failure_type":"","failure_msg":"","resolution":"","pattern":"","times_seen":1,"last_seen":"2026-01-31T08:30:00Z","metadata":{"k":[1]}}"#
    );
}

#[test]
fn a_lesson_that_cannot_be_stored_stops_none_of_the_others() {
    let file = missing();
    let index = file.open();
    let mut no_id = lesson("x");
    no_id.id.clear();
    let added = index.add_all([lesson("a"), no_id, lesson("b")]);
    assert!(added[0].is_ok() && added[2].is_ok());
    assert!(matches!(added[1], Err(AddError::Invalid(InvalidLesson::EmptyId))));
    assert_eq!(ids(&index.snapshot().all()), ["a", "b"]);
    assert!(Lesson::builder("").build().is_err());
}

#[test]
fn a_last_line_without_an_end_is_not_glued_to_the_next() {
    let file = scratch("{\"id\":\"a\"}");
    let index = file.open();
    index.add(lesson("b")).unwrap();
    assert_eq!(ids(&file.open().snapshot().all()), ["a", "b"]);
    assert_eq!(index.report(), file.open().report());
}

#[test]
fn a_torn_tail_is_ended_and_kept() {
    let torn = "{\"id\":\"torn\",\"failure_msg\":\"cut sh";
    let file = scratch(format!("{{\"id\":\"a\"}}\n{torn}"));
    let index = file.open();
    assert_eq!(index.report().faults[0].kind, FaultKind::TornTail);

    index.add(lesson("b")).unwrap();
    assert!(file.content().contains(&format!("{torn}\n")), "nothing is deleted");
    assert_eq!(ids(&index.snapshot().all()), ["a", "b"]);
    let report = index.report();
    assert_eq!((report.faults_total, report.faults[0].kind), (1, FaultKind::Malformed));
    assert_eq!(report, file.open().report());
}

#[test]
fn a_torn_tail_that_is_completed_is_a_lesson() {
    let file = scratch("{\"id\":\"a\"}\n{\"id\":\"b\",\"times");
    let index = file.open();
    assert_eq!((index.snapshot().len(), index.report().faults_total), (1, 1));
    append(&file.path, "_seen\":4}\n");
    assert_eq!(index.refresh().unwrap(), Refresh::Appended { records: 1 });
    assert_eq!(index.snapshot().get("b").unwrap().times_seen, 4);
    assert_eq!(index.report().faults_total, 0);
}

#[test]
fn refresh_reads_what_was_appended() {
    let file = scratch("{\"id\":\"a\"}\n");
    let index = file.open();
    assert_eq!(index.refresh().unwrap(), Refresh::Unchanged);
    append(&file.path, "{\"id\":\"b\"}\n\nbroken\n{\"id\":\"a\",\"times_seen\":9}\n");
    assert_eq!(index.refresh().unwrap(), Refresh::Appended { records: 2 });
    assert_eq!(index.snapshot().get("a").unwrap().times_seen, 9);
    let report = index.report();
    assert_eq!(
        (report.lines, report.lessons, report.duplicates, report.faults_total),
        (4, 2, 1, 1)
    );
    assert_eq!((report.faults[0].line, report.faults[0].offset), (4, 23));
    assert_eq!(index.refresh().unwrap(), Refresh::Unchanged);
}

#[test]
fn refresh_notices_a_file_that_was_cut_replaced_rewritten_or_removed() {
    let file = scratch("{\"id\":\"a\"}\n{\"id\":\"b\"}\n");
    let index = file.open();
    let expect = |wanted: &[&str]| {
        assert_eq!(index.refresh().unwrap(), Refresh::Reloaded);
        assert_eq!(ids(&index.snapshot().all()), wanted);
    };
    std::fs::write(&file.path, "{\"id\":\"a\"}\n").unwrap();
    expect(&["a"]);
    // Replaced by a rename, and longer.
    let other = file.dir.path().join("other");
    std::fs::write(&other, "{\"id\":\"a\"}\n{\"id\":\"c\"}\n").unwrap();
    std::fs::rename(&other, &file.path).unwrap();
    expect(&["a", "c"]);
    // Written in place with more, so that the place of reading is in the middle of something else.
    std::fs::write(&file.path, "{\"id\":\"xyz\"}\n{\"id\":\"d\"}\n{\"id\":\"e\"}\n").unwrap();
    expect(&["d", "e", "xyz"]);
    // Written in place, as long as before, with another time.
    std::fs::write(&file.path, "{\"id\":\"xyz\"}\n{\"id\":\"d\"}\n{\"id\":\"f\"}\n").unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_mins(1);
    std::fs::File::options().write(true).open(&file.path).unwrap().set_modified(later).unwrap();
    expect(&["d", "f", "xyz"]);
    std::fs::remove_file(&file.path).unwrap();
    expect(&[]);
    assert_eq!(index.refresh().unwrap(), Refresh::Unchanged);
    index.add(lesson("new")).unwrap();
    assert_eq!(file.content().lines().count(), 1);
}

#[test]
fn adding_takes_in_what_others_wrote() {
    let file = missing();
    let (one, two) = (file.open(), file.open());
    one.add(lesson("a")).unwrap();
    two.add(lesson("b")).unwrap();
    assert_eq!(ids(&two.snapshot().all()), ["a", "b"]);
    one.refresh().unwrap();
    assert_eq!(one.report(), two.report());
}

#[test]
fn the_last_writer_of_an_id_holds_also_across_handles() {
    let file = missing();
    let (one, two) = (file.open(), file.open());
    add_all(&one, &[r#"{"id":"a","pattern":"old"}"#]);
    add_all(&two, &[r#"{"id":"a","pattern":"new"}"#]);
    one.refresh().unwrap();
    let snapshot = one.snapshot();
    assert_eq!(snapshot.query().pattern("old").count(), 0);
    assert_eq!(snapshot.query().pattern("new").count(), 1);
}

#[test]
fn readers_see_a_batch_whole_or_not_at_all() {
    const PAIRS: u64 = 200;
    let file = missing();
    let index = file.open();
    let done = AtomicBool::new(false);
    let numbered = |id: &str, n| Lesson::builder(id).times_seen(n).build().unwrap();
    index.add_all([numbered("left", 0), numbered("right", 0)]);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let (mut last, mut looks) = (0, 0);
                    while !done.load(Ordering::Acquire) || looks == 0 {
                        let snapshot = index.snapshot();
                        let left = snapshot.get("left").expect("it never goes away").times_seen;
                        let right = snapshot.get("right").expect("it never goes away").times_seen;
                        assert_eq!(left, right);
                        assert_eq!(snapshot.query().count(), 2);
                        assert!(left >= last);
                        (last, looks) = (left, looks + 1);
                    }
                })
            })
            .collect();
        for n in 1..=PAIRS {
            let added = index.add_all([numbered("left", n), numbered("right", n)]);
            assert!(added.iter().all(Result::is_ok));
        }
        done.store(true, Ordering::Release);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    assert_eq!(index.snapshot().get("left").unwrap().times_seen, PAIRS);
}

#[test]
fn a_caller_finds_its_own_lesson_at_once() {
    let file = missing();
    let index = file.open();
    let start = Barrier::new(8);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (index, start) = (&index, &start);
            scope.spawn(move || {
                start.wait();
                for n in 0..50 {
                    let id = format!("{thread}-{n}");
                    index.add(lesson(&id)).unwrap();
                    assert!(index.snapshot().get(&id).is_some());
                }
            });
        }
    });
    assert_eq!(index.snapshot().len(), 400);
    assert_eq!(file.content().lines().count(), 400);
    assert_eq!(file.open().report().faults, []);
}

#[test]
fn lessons_are_on_the_disk_by_default() {
    let file = missing();
    let index = LessonsIndex::open(&file.path, options().with_fsync(Fsync::OnBatch)).unwrap();
    index.add(lesson("a")).unwrap();
    assert_eq!(file.open().snapshot().len(), 1);
}

#[test]
fn an_add_that_cannot_be_written_is_an_error_and_changes_nothing() {
    let file = missing();
    let index = file.open();
    index.add(lesson("a")).unwrap();
    let before = file.content();

    // The lock cannot be taken: something else has its name.
    let lock = file.dir.path().join("lessons.jsonl.lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    let error = index.add(lesson("b")).unwrap_err();
    assert!(matches!(error, AddError::Write { .. }), "{error:?}");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("cannot lock") && source.contains("lessons.jsonl.lock"), "{source}");
    std::fs::remove_dir(&lock).unwrap();

    // The file has become a folder.
    std::fs::remove_file(&file.path).unwrap();
    std::fs::create_dir(&file.path).unwrap();
    for added in index.add_all([lesson("b"), lesson("c")]) {
        assert!(matches!(added, Err(AddError::Write { .. })), "{added:?}");
    }
    std::fs::remove_dir(&file.path).unwrap();

    assert_eq!(ids(&index.snapshot().all()), ["a"]);
    std::fs::write(&file.path, before).unwrap();
    index.add(lesson("d")).unwrap();
    assert_eq!(ids(&index.snapshot().all()), ["a", "d"]);
}

/// Lines of every sort, to be cut anywhere.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let whole = (0..5_u8, 0..3_u8).prop_map(|(id, times)| {
        format!("{{\"id\":\"{id}\",\"times_seen\":{times},\"failure_msg\":\"é\"}}").into_bytes()
    });
    let odd = prop::sample::select(vec![
        &b""[..],
        b" ",
        b"\r",
        b"\xEF\xBB\xBF",
        b"{\"id\":\"1\"}\r",
        b"{\"id\":\"1\"}{\"id\":\"2\"}",
        b"{\"id\":\"1\",\"failure_msg\":\"cut",
        b"{}",
        b"12",
        b"<<<<<<< HEAD",
        b"=======",
        b"\xFF\xFE{\0\"\0i\0d\0\"\0:\0\"\0x\0\"\0}\0\r\0",
        b"\0{\0}\0",
        b"\xC3",
        b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    ])
    .prop_map(<[u8]>::to_vec);
    prop_oneof![2 => whole, 1 => odd]
}

proptest! {
    #![proptest_config(common::cases(256))]

    /// A file that grows in any pieces is read as the whole file is, faults and counts included.
    #[test]
    fn refreshing_in_pieces_is_loading_whole(
        lines in prop::collection::vec(line(), 0..12),
        is_ended in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let mut content = lines.join(&b'\n');
        if is_ended {
            content.push(b'\n');
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(content.len() + 1)).collect();
        cuts.sort_unstable();
        let options = options().with_max_line_bytes(90);

        let file = missing();
        std::fs::write(&file.path, b"").unwrap();
        let index = LessonsIndex::open(&file.path, options.clone()).unwrap();
        let mut from = 0;
        for cut in cuts.into_iter().chain([content.len()]) {
            append(&file.path, &content[from..cut]);
            index.refresh().unwrap();
            from = cut;
            let whole = LessonsIndex::open(&file.path, options.clone()).unwrap();
            prop_assert_eq!(index.report(), whole.report());
            prop_assert_eq!(index.snapshot().all(), whole.snapshot().all());
        }

        // Adding keeps to the same law, whatever the tail is.
        index.add(parsed(r#"{"id":"added"}"#)).unwrap();
        let whole = LessonsIndex::open(&file.path, options).unwrap();
        prop_assert!(whole.snapshot().get("added").is_some());
        prop_assert_eq!(index.report(), whole.report());
        prop_assert_eq!(index.snapshot().all(), whole.snapshot().all());
        let now = std::fs::read(&file.path).unwrap();
        prop_assert!(now.starts_with(&content), "nothing is ever deleted");
    }
}
