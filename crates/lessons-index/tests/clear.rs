//! An index that was emptied does not know what its file holds, and must not act as if it did.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::{lesson, missing, options, scratch};
use lessons_index::{Failure, Feedback, LessonsIndex};

/// The failure was taken for a new one, whose lesson then replaced that of the file.
#[test]
fn a_failure_is_counted_on_behind_a_clear() {
    let file = missing();
    let index = file.open();
    let failure = || Failure::new("build", "cannot find `x` (E0425)");
    index.record(failure().resolution("import it")).unwrap();
    index.record(failure()).unwrap();
    index.clear();
    assert_eq!(index.record(failure()).unwrap().times_seen, 3);
    for index in [&index, &file.open()] {
        let all = index.snapshot().all();
        assert_eq!((all.len(), all[0].times_seen, &*all[0].resolution), (1, 3, "import it"));
    }
}

#[test]
fn what_is_in_the_file_is_removed_and_judged_behind_a_clear() {
    let file = scratch("{\"id\":\"a\"}\n{\"id\":\"b\"}\n");
    let index = file.open();
    index.clear();
    assert_eq!(index.feedback("a", Feedback::Helpful).unwrap().unwrap().helpful, 1);
    index.clear();
    assert_eq!(index.forget("b").unwrap().unwrap().id, "b");
    assert_eq!(file.open().snapshot().len(), 1);
}

/// Nothing was alive in memory, so that the file was compacted, and read again for that.
#[test]
fn what_is_added_behind_a_clear_brings_nothing_back() {
    let file = scratch("{\"id\":\"a\"}\n{\"id\":\"b\"}\n".repeat(100));
    let options = options().with_auto_compact(Some(100));
    let index = LessonsIndex::open(&file.path, options).unwrap();
    index.clear();
    index.add(lesson("new")).unwrap();
    assert_eq!(index.snapshot().len(), 1);
    assert_eq!(index.write_stats().compactions, 0);
    index.reload().unwrap();
    assert_eq!(index.snapshot().len(), 3);
}
