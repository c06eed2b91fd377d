//! Files, locks and folders as crashes, other programs and attackers leave them.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::process::Command;
use std::time::{Duration, SystemTime};

use common::{Scratch, ids, lesson, missing, options, scratch};
use lessons_index::{
    AddError, CompactError, Compaction, InvalidLesson, Lesson, LessonsIndex, Mode, OpenError,
    Refresh, WriteError,
};
use proptest::prelude::*;

const TWO: &str = "{\"id\":\"a\",\"n\":1}\n{\"id\":\"b\"}\n{\"id\":\"a\",\"n\":2}\n";

fn write_error(error: &AddError) -> &WriteError {
    let AddError::Write { source, .. } = error else { panic!("{error:?}") };
    source
}

fn make_pipe(path: &std::path::Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    assert!(fs::metadata(path).unwrap().file_type().is_fifo());
}

/// A writer that is killed leaves any part of its one write: before it, torn, or all of it.
#[test]
fn whatever_a_killed_write_left_is_read_and_written_on() {
    let batch = "\n{\"id\":\"x\",\"failure_msg\":\"é\"}\n{\"id\":\"y\"}\n{\"id\":\"a\",\"n\":3}\n";
    for cut in 0..=batch.len() {
        let file = scratch(TWO);
        let reader = file.open();
        let left = &batch.as_bytes()[..cut];
        fs::write(&file.path, [TWO.as_bytes(), left].concat()).unwrap();
        reader.refresh().unwrap();

        let index = file.open();
        assert_eq!(reader.report(), index.report(), "cut at {cut}");
        assert!(index.report().faults_total <= 1);
        index.add(lesson("next")).unwrap();
        let whole = left.split_inclusive(|byte| *byte == b'\n').filter(|l| l.ends_with(b"}\n"));
        let now = file.open();
        reader.refresh().unwrap();
        for (index, name) in [(&index, "writer"), (&reader, "reader")] {
            assert_eq!(index.report(), now.report(), "{name}, cut at {cut}");
            assert_eq!(index.snapshot().all(), now.snapshot().all(), "{name}, cut at {cut}");
        }
        // The last line may be whole without its end.
        let lines = now.report().lines - now.report().faults_total;
        let expected = 3 + 1 + whole.count() as u64;
        assert!(lines == expected || lines == expected + 1, "{lines}, cut at {cut}");
        let content = fs::read(&file.path).unwrap();
        assert!(content.starts_with(&[TWO.as_bytes(), left].concat()), "nothing is deleted");
    }
}

/// A compaction that is killed leaves a part of the new file under its name, or a link is there.
#[test]
fn what_a_killed_compaction_left_is_in_nobodys_way() {
    let fresh = ".lessons.jsonl.compact";
    let file = scratch(TWO);
    let index = file.open();
    for left in
        ["", "{\"id\":\"b\"}\n{\"id\":\"a\"", "{\"id\":\"b\"}\n{\"id\":\"old\"}\n\n\n\n\n\n"]
    {
        fs::write(&file.path, TWO).unwrap();
        fs::write(file.dir.path().join(fresh), left).unwrap();
        assert_eq!(file.open().snapshot().len(), 2, "it is no part of the file");
        index.compact(&Compaction::default()).unwrap();
        assert_eq!(file.content(), "{\"id\":\"b\"}\n{\"id\":\"a\",\"n\":2}\n");
        assert!(!file.dir.path().join(fresh).exists());
    }

    let other = file.dir.path().join("other");
    fs::write(&other, "untouched").unwrap();
    symlink(&other, file.dir.path().join(fresh)).unwrap();
    index.compact(&Compaction::default()).unwrap();
    assert_eq!(fs::read_to_string(&other).unwrap(), "untouched");
    assert!(fs::symlink_metadata(&file.path).unwrap().is_file());

    fs::create_dir(file.dir.path().join(fresh)).unwrap();
    let before = file.content();
    let error = index.compact(&Compaction::default()).unwrap_err();
    assert!(matches!(error, CompactError::Write { .. }), "{error:?}");
    assert_eq!(file.content(), before);
}

#[test]
fn a_lock_file_that_is_a_link_or_a_pipe_locks() {
    for kind in ["link", "dangling", "pipe"] {
        let file = missing();
        let lock = file.dir.path().join("lessons.jsonl.lock");
        let target = file.dir.path().join("elsewhere");
        match kind {
            "pipe" => make_pipe(&lock),
            _ => symlink(&target, &lock).unwrap(),
        }
        if kind == "link" {
            fs::write(&target, "kept").unwrap();
        }
        let (one, two) = (file.open(), file.open());
        std::thread::scope(|scope| {
            for index in [&one, &two] {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let failure = lessons_index::Failure::new("t", "disk full");
                        index.record(failure).unwrap();
                    }
                });
            }
        });
        let all = file.open().snapshot().all();
        assert_eq!((all.len(), all[0].times_seen), (1, 100), "{kind}");
        if kind == "link" {
            assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
        }
    }
    // A link to itself is an error.
    let file = missing();
    let lock = file.dir.path().join("lessons.jsonl.lock");
    symlink(&lock, &lock).unwrap();
    let error = file.open().add(lesson("a")).unwrap_err();
    assert!(matches!(write_error(&error), WriteError::Lock { .. }), "{error:?}");
}

/// A pipe or a device in place of the file takes what is written and keeps nothing.
#[test]
fn what_is_no_file_any_more_takes_no_lesson() {
    let pipe = |file: &Scratch| make_pipe(&file.path);
    let device = |file: &Scratch| symlink("/dev/null", &file.path).unwrap();
    let folder = |file: &Scratch| fs::create_dir(&file.path).unwrap();
    let kinds: [&dyn Fn(&Scratch); 3] = [&pipe, &device, &folder];
    for replace in kinds {
        let file = scratch(TWO);
        let index = file.open();
        index.add(lesson("c")).unwrap();
        fs::remove_file(&file.path).unwrap();
        replace(&file);
        let error = index.add(lesson("d")).unwrap_err();
        let is_refused =
            matches!(write_error(&error), WriteError::Refresh(OpenError::NotAFile { .. }));
        assert!(is_refused, "{error:?}");
        assert!(matches!(index.refresh(), Err(OpenError::NotAFile { .. })));
        assert!(matches!(index.reload(), Err(OpenError::NotAFile { .. })));
        let error = index.compact(&Compaction::default()).unwrap_err();
        let CompactError::File(WriteError::Refresh(found)) = &error else { panic!("{error:?}") };
        assert!(matches!(found, OpenError::NotAFile { .. }), "{error:?}");
        assert_eq!(ids(&index.snapshot().all()), ["a", "b", "c"]);
    }
}

/// In the same moment, with the same length, and with the time of writing put back.
#[test]
fn a_change_in_place_that_leaves_length_and_time_is_noticed() {
    let file = scratch("{\"id\":\"a\"}\n");
    let index = file.open();
    let time = fs::metadata(&file.path).unwrap().modified().unwrap();
    for id in ["b", "c", "d", "e"] {
        fs::write(&file.path, format!("{{\"id\":\"{id}\"}}\n")).unwrap();
        fs::File::options().write(true).open(&file.path).unwrap().set_modified(time).unwrap();
        assert_eq!(index.refresh().unwrap(), Refresh::Reloaded);
        assert_eq!(ids(&index.snapshot().all()), [id]);
    }
    let old = SystemTime::now() - Duration::from_hours(1);
    fs::File::options().write(true).open(&file.path).unwrap().set_modified(old).unwrap();
    index.refresh().unwrap();
    assert_eq!(ids(&index.snapshot().all()), ["e"], "a time alone changes nothing");
}

/// Nothing at the end tells, and the time of writing was put back, as `cp -p` and `touch -r` do.
#[test]
fn a_change_far_from_the_end_of_a_file_at_rest_is_noticed() {
    let text = |id| format!("{{\"id\":\"{id}\",\"failure_msg\":\"{}\"}}\n", "x".repeat(10_000));
    let file = scratch(text("a"));
    let index = file.open();
    let written = fs::metadata(&file.path).unwrap().modified().unwrap();
    while SystemTime::now() < written + Duration::from_millis(50) {
        std::thread::yield_now();
    }
    assert_eq!(index.refresh().unwrap(), Refresh::Unchanged, "from here on it is at rest");
    fs::write(&file.path, text("b")).unwrap();
    fs::File::options().write(true).open(&file.path).unwrap().set_modified(written).unwrap();
    assert_eq!(index.refresh().unwrap(), Refresh::Reloaded);
    assert_eq!(ids(&index.snapshot().all()), ["b"]);
}

/// What `refresh` cannot see: bytes far from the end, while the file grows.
#[test]
fn verifying_finds_what_a_refresh_cannot_see() {
    let long = format!("{{\"id\":\"long\",\"failure_msg\":\"{}\"}}\n", "x".repeat(10_000));
    let text = |n: u8| format!("{{\"id\":\"a\",\"n\":{n}}}\n{{\"id\":\"old{n}\"}}\n{long}");
    let file = scratch(text(1));
    let index = file.open();
    let verified = index.verify().unwrap();
    assert_eq!((verified.lessons, verified.is_right()), (3, true));

    fs::write(&file.path, text(2) + "{\"id\":\"b\"}\n").unwrap();
    let verified = index.verify().unwrap();
    assert_eq!(verified.lessons, 4);
    assert_eq!(verified.stale, ["a", "old1", "old2"]);
    assert_eq!(ids(&index.snapshot().all()), ["a", "b", "long", "old1"], "what is new is taken in");
    index.reload().unwrap();
    assert!(index.verify().unwrap().is_right());
    index.clear();
    assert_eq!(index.verify().unwrap().stale.len(), 4);
}

/// The snapshot of a file that is gone is empty, also if the last reading of it failed.
#[test]
fn a_file_that_went_away_after_a_failed_reading_is_empty() {
    let file = scratch("{\"id\":\"a\"}\n");
    let index = LessonsIndex::open(&file.path, options().with_mode(Mode::Strict)).unwrap();
    fs::write(&file.path, "{\"id\":\"a\"}\nbroken\n").unwrap();
    assert!(index.refresh().is_err());
    fs::remove_file(&file.path).unwrap();
    assert_eq!(index.refresh().unwrap(), Refresh::Reloaded);
    assert!(index.snapshot().is_empty());
    assert_eq!(index.refresh().unwrap(), Refresh::Unchanged);
}

/// The tombstone of an id that fills its line would be over the cap, and come to nothing.
#[test]
fn a_lesson_that_cannot_be_removed_says_so() {
    let line = format!("{{\"id\":\"{}\"}}", "x".repeat(100));
    let file = scratch(format!("{line}\n"));
    let index = LessonsIndex::open(&file.path, options().with_max_line_bytes(line.len())).unwrap();
    let error = index.forget("x".repeat(100)).unwrap_err();
    assert!(matches!(error, AddError::Invalid(InvalidLesson::TooLong { .. })), "{error:?}");
    assert_eq!(index.snapshot().len(), 1);
    assert_eq!(file.content(), format!("{line}\n"));
}

#[test]
fn what_is_put_aside_is_read_by_nobody_who_may_not_read_the_file() {
    let file = scratch(format!("{TWO}broken\n"));
    fs::set_permissions(&file.path, fs::Permissions::from_mode(0o600)).unwrap();
    file.open().compact(&Compaction::default().with_quarantine(true)).unwrap();
    let aside = file.dir.path().join("lessons.jsonl.quarantine");
    assert_eq!(fs::metadata(&aside).unwrap().permissions().mode() & 0o777, 0o600);
    fs::write(&file.path, format!("{TWO}worse\n")).unwrap();
    file.open().compact(&Compaction::default().with_quarantine(true)).unwrap();
    assert_eq!(fs::read_to_string(&aside).unwrap(), "broken\nworse\n");
}

#[test]
fn a_report_of_100_000_faults_is_bounded_or_whole_as_asked() {
    const FAULTS: usize = 100_000;
    let file = scratch("x\n".repeat(FAULTS));
    let index = file.open();
    let report = index.report();
    assert_eq!((report.faults_total, report.faults.len()), (FAULTS as u64, 1_000));
    index.add(lesson("a")).unwrap();
    let all = LessonsIndex::open(&file.path, options().with_max_faults(usize::MAX)).unwrap();
    let report = all.report();
    assert_eq!((report.faults.len(), report.lessons), (FAULTS, 1));
    assert!(
        (1..).zip(&report.faults).all(|(n, fault)| (fault.line, fault.offset) == (n, 2 * n - 2))
    );
}

#[test]
fn a_file_over_the_cap_is_not_read_and_not_made() {
    let file = scratch(TWO);
    let capped = |bytes| options().with_max_file_bytes(bytes);
    let len = TWO.len() as u64;
    let error = LessonsIndex::open(&file.path, capped(len - 1)).unwrap_err();
    assert!(matches!(error, OpenError::TooLarge { .. }), "{error:?}");
    assert!(error.to_string().contains("the cap is"), "{error}");

    let short = || Lesson::parse_line("{\"id\":\"c\",\"times_seen\":1}").unwrap();
    let index = LessonsIndex::open(&file.path, capped(len + 20)).unwrap();
    let error = index.add(short()).unwrap_err();
    assert!(matches!(write_error(&error), WriteError::Full { .. }), "{error:?}");
    assert_eq!(file.content(), TWO);
    assert_eq!(index.refresh().unwrap(), Refresh::Unchanged);

    // Somebody else makes it longer: what is in memory stays.
    file.open().add(lesson("d")).unwrap();
    assert!(matches!(index.refresh(), Err(OpenError::TooLarge { .. })));
    assert_eq!(ids(&index.snapshot().all()), ["a", "b"]);

    // Compaction makes room.
    fs::write(&file.path, TWO).unwrap();
    index.compact(&Compaction::default()).unwrap();
    index.add(short()).unwrap();
    assert_eq!(ids(&index.snapshot().all()), ["a", "b", "c"]);
}

proptest! {
    #![proptest_config(common::cases(200))]

    /// What is stored comes back, whatever it is made of.
    #[test]
    fn any_text_in_any_field_comes_back(
        texts in prop::collection::vec(prop_oneof![any::<String>(), "[\u{0}-\u{20}\"\\\\\u{7F}-\u{A0}\u{2028}\u{FEFF}{}<>=|]{0,12}"], 9),
        keys in prop::collection::vec((any::<String>(), any::<String>()), 0..3),
        times in any::<u64>(),
    ) {
        let [id, task, activity, kind, message, resolution, pattern, scope, changed] =
            texts.try_into().expect("nine");
        let id = format!("i{id}");
        let metadata: serde_json::Map<_, _> =
            keys.into_iter().map(|(key, text)| (key, text.into())).collect();
        let lesson = Lesson::builder(&id)
            .task_type(&task)
            .activity_type(&activity)
            .failure_type(&kind)
            .failure_msg(&message)
            .resolution(&resolution)
            .pattern(&pattern)
            .scope(&scope)
            .times_seen(times)
            .metadata(metadata.clone())
            .build()
            .unwrap();
        let file = missing();
        let index = file.open();
        index.add(lesson).unwrap();
        for _ in 0..2 {
            let stored = file.open().snapshot().get(&id).unwrap();
            let texts = [
                &stored.task_type,
                &stored.activity_type,
                &stored.failure_type,
                &stored.resolution,
                &stored.pattern,
                &stored.scope,
            ];
            prop_assert_eq!(texts, [&task, &activity, &kind, &resolution, &pattern, &scope]);
            prop_assert_eq!(stored.metadata(), metadata.clone());
            prop_assert_eq!(stored.times_seen, times);
            prop_assert_eq!(index.snapshot().get(&id), Some(stored));
            index.compact(&Compaction::default()).unwrap();
        }
        let mut edited = (*index.snapshot().get(&id).unwrap()).clone();
        prop_assert_eq!(&edited.failure_msg, &message);
        edited.failure_msg.clone_from(&changed);
        index.add(edited).unwrap();
        let reopened = file.open();
        prop_assert_eq!(reopened.report().faults_total, 0);
        prop_assert_eq!(&reopened.snapshot().get(&id).unwrap().failure_msg, &changed);
        index.forget(&id).unwrap().unwrap();
        prop_assert!(file.open().snapshot().is_empty());
    }
}
