//! Merging keeps what may still be there, whatever else uses the file meanwhile.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use common::{Scratch, lesson, scratch};
use lessons_index::merge_files;

const TWO: &str = "{\"id\":\"x\",\"n\":1}\n{\"id\":\"y\",\"n\":2}\n";
const WELDED: &str = "{\"id\":\"x\",\"n\":1}{\"id\":\"y\",\"n\":2}\n";
const TORN: &str = "{\"id\":\"x\",\"n\":1}\n{\"id\":\"y\",\"n";

fn beside(file: &Scratch, name: &str, text: &str) -> PathBuf {
    let path = file.dir.path().join(name);
    fs::write(&path, text).unwrap();
    path
}

/// A side without a lesson was taken for one that compacted it away.
#[test]
fn a_lesson_that_may_be_in_a_broken_line_stays() {
    for broken in [WELDED, TORN] {
        for (ours, theirs) in [(TWO, broken), (broken, TWO)] {
            let file = scratch(ours);
            let (base, theirs) = (beside(&file, "base", TWO), beside(&file, "theirs", theirs));
            merge_files(base, &file.path, theirs).unwrap();
            let merged = file.content();
            assert!(TWO.lines().all(|line| merged.lines().any(|l| l == line)), "{merged}");
            assert!(merged.lines().any(|line| line == broken.lines().last().unwrap()), "{merged}");
        }
    }
    // With no new broken line, what is absent was compacted away.
    let broken = format!("broken\n{TWO}");
    for (ours, theirs) in [(&*broken, "broken\n"), ("broken\n", &*broken)] {
        let file = scratch(ours);
        let (base, theirs) = (beside(&file, "base", &broken), beside(&file, "theirs", theirs));
        assert_eq!(merge_files(base, &file.path, theirs).unwrap().lessons, 0);
        assert_eq!(file.content(), "broken\n");
    }
}

/// What was appended while the result was made was lost with the file that it replaced.
#[test]
fn a_merge_into_a_file_that_writers_share_loses_nothing() {
    const LESSONS: usize = 300;
    let file = scratch(TWO);
    let index = file.open();
    // The lock file is there from now on.
    index.add(lesson("first")).unwrap();
    let (base, theirs) = (beside(&file, "base", TWO), beside(&file, "theirs", TWO));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..LESSONS {
                index.add(lesson(&n.to_string())).unwrap();
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while file.open().snapshot().find(&(LESSONS - 1).to_string()).is_none() {
                    merge_files(&base, &file.path, &theirs).unwrap();
                }
            });
        }
    });
    let report = file.open().report();
    assert_eq!((report.lessons, report.faults_total), (LESSONS as u64 + 3, 0));
}

#[test]
fn a_merge_through_a_link_leaves_the_link() {
    let file = scratch(TWO);
    let (base, theirs) = (beside(&file, "base", TWO), beside(&file, "theirs", "{\"id\":\"z\"}\n"));
    let link = file.dir.path().join("link");
    symlink(&file.path, &link).unwrap();
    merge_files(base, &link, theirs).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(file.content(), "{\"id\":\"z\"}\n");
}

/// Each key was once looked for among all others.
#[test]
fn lessons_of_many_keys_are_merged_in_one_pass() {
    const KEYS: usize = 100_000;
    let dir = tempfile::tempdir().unwrap();
    let side = |name: &str, changed: usize, value: &str| {
        let mut line = String::from("{\"id\":\"a\"");
        for key in 0..KEYS {
            let value = if key == changed { value } else { "0" };
            write!(line, ",\"key {key}\":{value}").unwrap();
        }
        let path = dir.path().join(name);
        fs::write(&path, line + "}\n").unwrap();
        path
    };
    let (base, ours) = (side("base", KEYS, ""), side("ours", 7, "1"));
    let merged = merge_files(base, &ours, side("theirs", KEYS - 1, "2")).unwrap();
    assert_eq!((merged.lessons, merged.combined), (1, 1));
    let both = fs::read_to_string(side("both", 7, "1")).unwrap();
    let last = format!("\"key {}\":", KEYS - 1);
    let both = both.replace(&format!("{last}0"), &format!("{last}2"));
    assert_eq!(fs::read_to_string(ours).unwrap(), both);
}

/// A tombstone from before the lesson was seen would not hold against it.
#[test]
fn what_was_removed_by_a_slow_clock_stays_removed() {
    let ahead = "{\"id\":\"x\",\"last_seen\":\"2999-01-01T00:00:00Z\"}\n";
    let file = scratch(ahead);
    file.open().forget("x").unwrap();
    let base = beside(&file, "base", ahead);
    let voted = ahead.replace('}', ",\"helpful\":1}");
    merge_files(base, &file.path, beside(&file, "theirs", &voted)).unwrap();
    assert!(file.open().snapshot().is_empty());
}

/// A mark of removal was taken for a lesson that was seen once, and one count was lost.
#[test]
fn what_both_sides_counted_anew_after_it_was_removed_is_counted_in_full() {
    let base = "{\"id\":\"a\",\"deleted_at\":\"2026-01-01T00:00:00Z\"}\n";
    let side = |times, second| {
        format!(
            "{base}{{\"id\":\"a\",\"times_seen\":{times},\"helpful\":1,\"last_seen\":\"2026-01-02T00:00:0{second}Z\"}}\n"
        )
    };
    let file = scratch(side(1, 1));
    let (base, theirs) = (beside(&file, "base", base), beside(&file, "theirs", &side(2, 2)));
    merge_files(base, &file.path, theirs).unwrap();
    let merged = file.open().snapshot().get("a").unwrap();
    assert_eq!((merged.times_seen, merged.helpful), (3, 2));
}
