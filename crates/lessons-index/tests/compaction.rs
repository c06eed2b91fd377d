//! Compaction and merging keep all that holds, byte for byte.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use common::{add_all, ids, lesson, missing, options, scratch};
use jiff::SignedDuration;
use lessons_index::{CompactError, Compaction, Lesson, LessonsIndex, merge_files};
use proptest::prelude::*;

#[test]
fn what_holds_stays_in_order_and_byte_for_byte() {
    let file = scratch(
        "{\"id\":\"a\",\"n\":1}\n\n  { \"id\" : \"b\", \"x\":[1.50] }\t\r\n{\"id\":\"a\",\"n\":2}\nbroken\n{\"id\":\"c\"}",
    );
    fs::set_permissions(&file.path, fs::Permissions::from_mode(0o640)).unwrap();
    let index = file.open();
    let before = index.snapshot().all();
    let done = index.compact(&Compaction::default()).unwrap();
    assert_eq!((done.kept, done.dropped, done.quarantined), (3, 1, 0));
    assert_eq!(
        file.content(),
        "{ \"id\" : \"b\", \"x\":[1.50] }\n{\"id\":\"a\",\"n\":2}\nbroken\n{\"id\":\"c\"}"
    );
    assert_eq!(done.bytes_after, file.content().len() as u64);
    assert_eq!(index.snapshot().all(), before);
    assert_eq!(file.open().snapshot().all(), before);
    assert_eq!(index.report(), file.open().report());
    assert_eq!(fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o640);
    let again = index.compact(&Compaction::default()).unwrap();
    assert_eq!((again.dropped, again.bytes_before), (0, again.bytes_after));
    index.add(lesson("d")).unwrap();
    assert_eq!(file.open().snapshot().len(), 4);
}

#[test]
fn broken_lines_move_aside_when_asked_and_conflicts_stop_it() {
    let text = "{\"id\":\"a\"}\n<<<<<<< ours\n{\"id\":\"b\"}\n=======\n{\"id\":\"b\",\"n\":2}\n>>>>>>> theirs\nbad \u{1}\n";
    let file = scratch(text);
    let index = file.open();
    let error = index.compact(&Compaction::default()).unwrap_err();
    assert!(matches!(error, CompactError::Conflict { .. }), "{error}");
    assert!(error.to_string().contains("line 2"), "{error}");
    assert_eq!(file.content(), text);

    let done = index.compact(&Compaction::default().with_quarantine(true)).unwrap();
    assert_eq!((done.kept, done.dropped, done.quarantined), (2, 1, 4));
    assert_eq!(file.content(), "{\"id\":\"a\"}\n{\"id\":\"b\",\"n\":2}\n");
    let aside = fs::read_to_string(file.dir.path().join("lessons.jsonl.quarantine")).unwrap();
    assert_eq!(aside, "<<<<<<< ours\n=======\n>>>>>>> theirs\nbad \u{1}\n");
    assert_eq!(index.report().faults, []);

    // Nobody is writing the rest of a marker.
    let file = scratch("{\"id\":\"a\"}\n>>>>>>> theirs");
    let done = file.open().compact(&Compaction::default().with_quarantine(true)).unwrap();
    assert_eq!((done.kept, done.quarantined), (1, 1));
    assert_eq!(file.content(), "{\"id\":\"a\"}\n");
}

#[test]
fn tombstones_stay_until_they_are_old() {
    let file = missing();
    let index = file.open();
    index.add(lesson("a")).unwrap();
    index.forget("a").unwrap();
    let done = index.compact(&Compaction::default()).unwrap();
    assert_eq!((done.kept, done.dropped), (1, 1));
    assert!(!file.content().contains("times_seen"), "the text of the lesson is gone");
    let policy = Compaction::default().with_keep_tombstones(SignedDuration::from_hours(-1));
    assert_eq!(index.compact(&policy).unwrap().kept, 0);
    assert_eq!(file.content(), "");
    // One whose time says nothing is kept.
    let odd = scratch("{\"id\":\"a\",\"deleted_at\":\"once\"}\n");
    assert_eq!(odd.open().compact(&policy).unwrap().kept, 1);
}

#[test]
fn a_file_of_which_most_is_dead_compacts_itself() {
    let file = missing();
    let options = options().with_auto_compact(Some(20_000));
    let index = LessonsIndex::open(&file.path, options).unwrap();
    let text = "x".repeat(500);
    for n in 0..200 {
        let lesson = Lesson::builder(format!("{}", n % 10)).failure_msg(&text).times_seen(n);
        index.add(lesson.build().unwrap()).unwrap();
        assert!(fs::metadata(&file.path).unwrap().len() < 21_000);
    }
    assert!(index.write_stats().compactions > 3);
    assert_eq!(index.snapshot().len(), 10);
    assert_eq!(index.snapshot().get("9").unwrap().times_seen, 199);
    assert_eq!(file.open().snapshot().all(), index.snapshot().all());
}

#[test]
fn a_link_stays_a_link_and_others_find_the_new_file() {
    let file = scratch("{\"id\":\"a\"}\n{\"id\":\"a\",\"n\":2}\n");
    let link = file.dir.path().join("link.jsonl");
    std::os::unix::fs::symlink("lessons.jsonl", &link).unwrap();
    let other = file.open();
    let index = LessonsIndex::open(&link, options()).unwrap();
    index.compact(&Compaction::default()).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(file.content(), "{\"id\":\"a\",\"n\":2}\n");
    other.add(lesson("b")).unwrap();
    assert_eq!(ids(&other.snapshot().all()), ["a", "b"]);
    index.refresh().unwrap();
    assert_eq!(index.snapshot().len(), 2);
}

struct Three(common::Scratch);

impl Three {
    fn merge(base: &str, ours: &str, theirs: &str) -> String {
        let three = Self(missing());
        three.run(base, ours, theirs).unwrap();
        fs::read_to_string(three.path("ours")).unwrap()
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.dir.path().join(name)
    }

    fn run(
        &self,
        base: &str,
        ours: &str,
        theirs: &str,
    ) -> Result<lessons_index::Merged, lessons_index::MergeError> {
        for (name, text) in [("base", base), ("ours", ours), ("theirs", theirs)] {
            fs::write(self.path(name), text).unwrap();
        }
        merge_files(self.path("base"), self.path("ours"), self.path("theirs"))
    }
}

#[test]
fn branches_that_both_appended_are_merged_by_id() {
    let base = "{\"id\":\"a\",\"times_seen\":2}\n{\"id\":\"gone\"}\nbroken\n";
    let ours =
        "{\"id\":\"a\",\"times_seen\":5,\"mine\":1}\n{\"id\":\"gone\"}\nbroken\n{\"id\":\"b\"}\n";
    let theirs = "{\"id\":\"a\",\"times_seen\":3,\"theirs\":2}\n{\"id\":\"c\"}\nbroken\n";
    assert_eq!(
        Three::merge(base, ours, theirs),
        "{\"id\":\"a\",\"times_seen\":6,\"mine\":1,\"theirs\":2}\n{\"id\":\"b\"}\n{\"id\":\"c\"}\nbroken\n"
    );
}

#[test]
fn a_value_that_both_changed_is_that_of_the_side_seen_later() {
    let base = r#"{"id":"a","resolution":"","x":1,"last_seen":"2026-01-01T00:00:00Z","first_seen":"2026-01-01T00:00:00Z"}"#;
    let ours = r#"{"id":"a","resolution":"one","x":1,"last_seen":"2026-01-03T00:00:00Z","first_seen":"2026-01-01T00:00:00Z"}"#;
    let theirs = r#"{"id":"a","resolution":"two","x":9,"last_seen":"2026-01-02T00:00:00Z","first_seen":"2025-12-31T00:00:00Z"}"#;
    let merged = r#"{"id":"a","resolution":"one","x":9,"last_seen":"2026-01-03T00:00:00Z","first_seen":"2025-12-31T00:00:00Z","times_seen":1}"#;
    let lines = |text: &str| format!("{text}\n");
    let one = Three::merge(&lines(base), &lines(ours), &lines(theirs));
    let other = Three::merge(&lines(base), &lines(theirs), &lines(ours));
    assert_eq!(one, other, "whichever side is ours");
    assert_eq!(one, merged.replace(",\"times_seen\":1", "") + "\n");
}

#[test]
fn the_same_failure_recorded_on_both_sides_is_counted_together() {
    let line = |times: u64| format!("{{\"id\":\"fp-1\",\"times_seen\":{times}}}\n");
    assert_eq!(Three::merge("", &line(3), &line(4)), line(7));
    assert_eq!(Three::merge(&line(2), &line(3), &line(4)), line(5));
    let many = line(u64::MAX);
    assert_eq!(Three::merge("", &many, &line(4)), many);
}

#[test]
fn a_tombstone_holds_against_what_was_seen_before_it() {
    let base = "{\"id\":\"a\",\"last_seen\":\"2026-01-01T00:00:00Z\"}\n";
    let dead = "{\"id\":\"a\",\"deleted_at\":\"2026-01-05T00:00:00Z\"}\n";
    let early = "{\"id\":\"a\",\"last_seen\":\"2026-01-04T00:00:00Z\"}\n";
    let late = "{\"id\":\"a\",\"last_seen\":\"2026-01-06T00:00:00Z\"}\n";
    assert_eq!(Three::merge(base, dead, early), dead);
    assert_eq!(Three::merge(base, early, dead), dead);
    assert_eq!(Three::merge(base, dead, late), late);
    assert_eq!(Three::merge(base, late, dead), late);
    assert_eq!(Three::merge(base, dead, base), dead);
}

#[test]
fn a_conflict_inside_a_side_is_an_error_and_nothing_is_written() {
    let three = Three(missing());
    let ours = "{\"id\":\"a\"}\n<<<<<<< x\n";
    let error = three.run("", ours, "{\"id\":\"b\"}\n").unwrap_err();
    assert!(error.to_string().contains("line 2"), "{error}");
    assert_eq!(fs::read_to_string(three.path("ours")).unwrap(), ours);
    assert!(merge_files(three.path("no"), three.path("ours"), three.path("theirs")).is_err());
}

proptest! {
    #![proptest_config(common::cases(128))]

    /// Loading, compacting and loading again changes no lesson and no byte of a line that holds.
    #[test]
    fn compaction_is_the_identity_on_what_holds(
        lines in prop::collection::vec((0..6_u8, 0..4_u8, any::<bool>()), 0..20),
        is_ended in any::<bool>(),
    ) {
        let line = |(id, kind, spaced): &(u8, u8, bool)| {
            let space = if *spaced { " " } else { "" };
            match kind {
                0 => format!("{{\"id\":{space}\"{id}\",\"deleted_at\":\"2999-01-01T00:00:00Z\"}}"),
                1 => format!("{space}{{\"x\":[{space}{id}],\"id\":\"{id}\"}}{space}"),
                2 => format!("{{\"id\":\"{id}\",{space}\"times_seen\":{id}}}\r"),
                _ => ["", "broken", "{\"id\":\"cut", "[]", " broken\t\r"][usize::from(*id) % 5].to_owned(),
            }
        };
        let mut text = lines.iter().map(line).collect::<Vec<_>>().join("\n");
        if is_ended {
            text.push('\n');
        }
        let file = scratch(&text);
        let index = file.open();
        let (before, faults) = (index.snapshot().all(), index.report().faults_total);
        let done = index.compact(&Compaction::default()).unwrap();
        let after = file.open();
        prop_assert_eq!(&index.snapshot().all(), &before);
        prop_assert_eq!(&after.snapshot().all(), &before);
        let report = after.report();
        prop_assert_eq!(report.faults_total, faults);
        prop_assert_eq!(report.lines, done.kept + faults);
        prop_assert_eq!(index.report(), report);
        // Every line is one of the old file, in the old order: broken ones to the byte, the others
        // without the blanks around them.
        let mut old = text.split('\n');
        let content = file.content();
        for line in content.split_terminator('\n') {
            let kept = old.find(|old| *old == line || (line.ends_with('}') && old.trim() == line));
            prop_assert!(kept.is_some(), "{:?} of {:?}", line, text);
        }
    }
}

#[test]
fn a_file_that_is_not_there_yet_has_nothing_to_compact() {
    let file = missing();
    let done = file.open().compact(&Compaction::default()).unwrap();
    assert_eq!((done.kept, done.bytes_after), (0, 0));
    assert!(!file.path.exists());
}

#[test]
fn compacting_needs_no_other_index() {
    let file = missing();
    let index = file.open();
    add_all(&index, &[r#"{"id":"a"}"#]);
    let other = file.open();
    add_all(&other, &[r#"{"id":"b"}"#]);
    index.compact(&Compaction::default()).unwrap();
    assert_eq!(ids(&index.snapshot().all()), ["a", "b"]);
}

/// What cannot be taken out is no reason to write the file anew after every change.
#[test]
fn broken_lines_do_not_make_a_file_compact_itself_again_and_again() {
    let broken = "broken line\n".repeat(2_000);
    let file = scratch(&broken);
    let options = options().with_auto_compact(Some(1_000));
    let index = LessonsIndex::open(&file.path, options).unwrap();
    for n in 0..50 {
        index.add(lesson(&n.to_string())).unwrap();
    }
    assert!(index.write_stats().compactions <= 1);
    assert_eq!(file.open().report().faults_total, 2_000);
    assert_eq!(index.snapshot().len(), 50);
}

/// Marks of removed lessons and broken lines hold nothing, but a compaction keeps them: each new
/// process would write the file anew for nothing.
#[test]
fn a_file_of_tombstones_and_broken_lines_is_not_compacted_by_each_process() {
    let gone =
        |n| format!("{{\"id\":\"{n}\",\"deleted_at\":\"2999-01-01T00:00:00Z\"}}\nbroken {n}\n");
    let text = (0..200).map(gone).fold("{\"id\":\"kept\"}\n".to_owned(), |text, line| text + &line);
    let file = scratch(&text);
    let inode = || fs::metadata(&file.path).unwrap().ino();
    let before = inode();
    for process in 0..5 {
        let options = options().with_auto_compact(Some(1_000));
        let index = LessonsIndex::open(&file.path, options).unwrap();
        index.add(lesson(&format!("new {process}"))).unwrap();
        assert_eq!(index.write_stats().compactions, 0);
    }
    assert_eq!(inode(), before);
    assert!(file.content().starts_with(&text));
    // What is really dead is found by a process that did not see it die.
    let dead = "{\"id\":\"kept\",\"failure_msg\":\"again and again\"}\n".repeat(500);
    fs::write(&file.path, text + &dead).unwrap();
    let index = LessonsIndex::open(&file.path, options().with_auto_compact(Some(1_000))).unwrap();
    index.add(lesson("last")).unwrap();
    assert_eq!(index.write_stats().compactions, 1);
    assert_eq!(index.snapshot().len(), 2);
}

/// The other names would have gone on with the old file, and its lock.
#[test]
fn a_file_of_two_names_is_not_compacted() {
    let file = scratch("{\"id\":\"a\"}\n{\"id\":\"a\"}\n");
    fs::hard_link(&file.path, file.dir.path().join("other")).unwrap();
    let index = LessonsIndex::open(&file.path, options().with_auto_compact(Some(1))).unwrap();
    index.add(lesson("a")).unwrap();
    let error = index.compact(&Compaction::default()).unwrap_err();
    assert!(matches!(error, CompactError::Linked { links: 2, .. }), "{error}");
    assert_eq!(file.content().lines().count(), 3);
    fs::remove_file(file.dir.path().join("other")).unwrap();
    assert_eq!(index.compact(&Compaction::default()).unwrap().dropped, 2);
}

/// A line end was put behind the half that was there, and the rest was another line.
#[test]
fn a_line_that_is_just_being_appended_is_not_cut_in_two() {
    for half in
        [r#"{"id":"b","#, r#"{"id":"b"}"#, r#"{"id":"b","deleted_at":"2001-01-01T00:00:00Z"}"#]
    {
        let file = scratch(format!("{{\"id\":\"a\"}}\n{{\"id\":\"a\"}}\n{half}"));
        for (quarantine, dropped) in [(false, 1), (true, 0)] {
            let policy = Compaction::default().with_quarantine(quarantine);
            let done = file.open().compact(&policy).unwrap();
            assert_eq!((done.dropped, done.quarantined), (dropped, 0));
            assert_eq!(file.content(), format!("{{\"id\":\"a\"}}\n{half}"));
        }
        assert!(!file.dir.path().join("lessons.jsonl.quarantine").exists());
        // The rest comes from somebody who does not know the lock.
        let mut appender = OpenOptions::new().append(true).open(&file.path).unwrap();
        let rest = if half.ends_with('}') { "\n" } else { "\"x\":1}\n" };
        appender.write_all(rest.as_bytes()).unwrap();
        let report = file.open().report();
        assert_eq!((report.lines, report.faults_total), (2, 0), "{half}");
    }
}

/// The file would grow without end, and nobody would be told.
#[test]
fn a_compaction_that_does_not_come_about_by_itself_says_why() {
    const LONG: usize = 600 << 10;
    let line = |id: &str| format!("{{\"id\":\"{id}\",\"failure_msg\":\"{}\"}}\n", "x".repeat(LONG));
    let conflict = "<<<<<<< ours\n";
    let file = scratch([&line("a"), &line("a"), conflict, &line("a")].concat());
    let index = file.open();
    assert!(index.failed_compaction().is_none());
    index.add(lesson("b")).unwrap();
    let error = index.failed_compaction().expect("it was due");
    assert!(matches!(*error, CompactError::Conflict { .. }), "{error}");
    index.compact(&Compaction::default().with_quarantine(true)).unwrap();
    assert!(index.failed_compaction().is_none());
    assert_eq!((index.write_stats().compactions, index.snapshot().len()), (1, 2));
}
