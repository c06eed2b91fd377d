//! Tests of a file that other programs replace while it is written.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::sync::Arc;

use super::Step::{Append, SyncData, SyncFolder};
use super::tests::{lesson, open, scratch};
use super::trace::{before, fail, take};
use crate::{AddError, Failure, Feedback, Fsync, WriteError};

fn failure() -> Failure {
    Failure::new("t", "disk full")
}

/// Right behind an append, puts what `change` makes of the file in its place.
fn replace(path: &Path, change: fn(String) -> String) {
    replace_and(path, change, || {});
}

/// The same, and does `more` then.
fn replace_and(path: &Path, change: fn(String) -> String, more: impl FnOnce() + 'static) {
    let (from, new) = (path.to_owned(), path.with_extension("new"));
    before(SyncData, move || {
        let text = fs::read_to_string(&from)?;
        fs::write(&new, change(text))?;
        fs::rename(&new, &from)?;
        more();
        Ok(())
    });
}

/// Replaces the file in each of so many writes, by one that has nothing of what was appended.
fn replace_times(path: &Path, times: usize) {
    let again = path.to_owned();
    replace_and(path, without_last, move || {
        if times > 1 {
            replace_times(&again, times - 1);
        }
    });
}

fn write_error(error: AddError) -> Arc<WriteError> {
    let AddError::Write { source, .. } = error else { panic!("{error:?}") };
    source
}

/// Returns a text without its last line.
fn without_last(mut text: String) -> String {
    text.truncate(text.trim_end().rfind('\n').map_or(0, |end| end + 1));
    text
}

/// An editor or git puts another file in place without the lock: what is appended to the old
/// one is in no file.
#[test]
fn what_was_appended_to_a_file_that_is_gone_is_appended_again() {
    for fsync in [Fsync::Never, Fsync::OnBatch] {
        let (dir, path) = scratch();
        let index = open(&path, fsync);
        let counted = index.record(failure()).unwrap();
        let theirs = counted.raw().replace("\"times_seen\":1", "\"times_seen\":5");
        let other = dir.path().join("other");
        fs::write(&other, format!("{theirs}\n{{\"id\":\"b\"}}\n")).unwrap();
        let to = path.clone();
        before(Append, move || fs::rename(other, to));
        assert_eq!(index.record(failure()).unwrap().times_seen, 6, "of those in that file");
        assert_eq!(index.snapshot().len(), 2);
        assert_eq!(open(&path, Fsync::Never).snapshot().all(), index.snapshot().all());

        // As an editor does that keeps the old one under another name.
        let (from, kept) = (path.clone(), dir.path().join("lessons.jsonl~"));
        before(Append, move || {
            fs::rename(&from, &kept)?;
            fs::copy(&kept, &from).map(drop)
        });
        assert_eq!(index.record(failure()).unwrap().times_seen, 7);
        assert_eq!(index.snapshot().len(), 2);
        assert_eq!(open(&path, Fsync::Never).snapshot().all(), index.snapshot().all());

        // As a rotation does, before there is a new one.
        let (from, kept) = (path.clone(), dir.path().join("lessons.jsonl.1"));
        before(Append, move || fs::rename(from, kept));
        index.add(lesson("d")).unwrap();
        assert_eq!(fs::read(&path).unwrap().split(|b| *b == b'\n').count(), 2);

        let gone = path.clone();
        before(Append, move || fs::remove_file(gone));
        index.add(lesson("c")).unwrap();
        assert_eq!(fs::read(&path).unwrap().split(|b| *b == b'\n').count(), 2);
        assert_eq!(index.snapshot().len(), 1);
    }
}

/// Whoever replaces a file may have read it behind the append: what is in the new one already
/// is not counted again, but it has to be on the disk.
#[test]
fn what_the_new_file_has_of_an_append_is_not_appended_again() {
    let (_dir, path) = scratch();
    let index = open(&path, Fsync::OnBatch);
    let id = index.record(failure()).unwrap().id.clone();
    index.add_all([lesson("a"), lesson("b")]).into_iter().for_each(|added| drop(added.unwrap()));
    let stored = || open(&path, Fsync::Never).snapshot().all();

    replace(&path, |text| text);
    take();
    assert_eq!(index.record(failure()).unwrap().times_seen, 2);
    assert_eq!(take(), [Append, SyncData, Append, SyncData, SyncFolder]);
    replace(&path, |text| text);
    assert_eq!(index.feedback(&*id, Feedback::Helpful).unwrap().unwrap().helpful, 1);
    replace(&path, |text| text);
    assert_eq!(index.forget("a").unwrap().unwrap().id, "a", "it was there");
    assert_eq!(index.snapshot().all(), stored());
    assert_eq!(index.snapshot().len(), 2);

    // Of three changes the new file has one, and another of a lesson that was counted.
    replace(&path, |text| {
        let kept = text.lines().filter(|line| !line.contains("\"times_seen\":4"));
        let kept = kept.collect::<Vec<_>>().join("\n") + "\n";
        kept.replace("\"times_seen\":2", "\"times_seen\":7")
    });
    let counted = index.record_all([failure(), Failure::new("t", "no such host"), failure()]);
    let counted: Vec<u64> = counted.into_iter().map(|l| l.unwrap().times_seen).collect();
    assert_eq!(counted, [8, 1, 9]);
    assert_eq!(index.snapshot().all(), stored());
}

/// A program that parses the lines and writes them again spaces and orders them as it likes.
#[test]
fn what_the_new_file_has_in_another_writing_is_not_appended_again() {
    let (_dir, path) = scratch();
    let index = open(&path, Fsync::OnBatch);
    let notes = serde_json::Map::from_iter([("host".into(), "b\u{fc}ro".into())]);
    let failure = || failure().metadata(notes.clone());
    let id = index.record(failure()).unwrap().id.clone();
    // As `json.dumps` of Python does, and as `jq -S`.
    replace(&path, |text| text.replace("\":", "\": ").replace('\u{fc}', "\\u00fc"));
    assert_eq!(index.record(failure()).unwrap().times_seen, 2);
    replace(&path, |text| {
        let lines = text.lines().map(|line| {
            let sorted: BTreeMap<String, serde_json::Value> = serde_json::from_str(line).unwrap();
            serde_json::to_string(&sorted).unwrap() + "\n"
        });
        lines.collect()
    });
    assert_eq!(index.feedback(&*id, Feedback::Helpful).unwrap().unwrap().helpful, 1);
    let stored = open(&path, Fsync::Never).snapshot().all();
    assert_eq!((stored[0].times_seen, stored[0].helpful), (2, 1));
    assert_eq!(stored, index.snapshot().all());
}

/// Of two programs that replace a file, the second may have read it before the first did so.
#[test]
fn what_any_earlier_file_got_is_not_appended_again() {
    let (dir, path) = scratch();
    let index = open(&path, Fsync::OnBatch);
    index.record(failure()).unwrap();
    let (first, kept) = (path.clone(), dir.path().join("kept"));
    before(SyncData, move || {
        fs::copy(&first, &kept)?;
        let text = fs::read_to_string(&first)?;
        let theirs = without_last(text).replace("\"times_seen\":1", "\"times_seen\":5");
        let new = first.with_extension("new");
        fs::write(&new, theirs)?;
        fs::rename(&new, &first)?;
        before(SyncData, move || fs::rename(kept, first));
        Ok(())
    });
    assert_eq!(index.record(failure()).unwrap().times_seen, 2, "of those in that file");
    let stored = open(&path, Fsync::Never).snapshot().all();
    assert_eq!(stored[0].times_seen, 2);
    assert_eq!(stored, index.snapshot().all());
}

/// What replaces the file may take the lock file with it, as `git clean` does; the next process
/// would lock the new one.
#[test]
fn the_lock_of_a_replaced_file_is_the_one_that_others_look_for() {
    let (_dir, path) = scratch();
    let index = open(&path, Fsync::OnBatch);
    index.record(failure()).unwrap();
    let lock = path.with_extension("jsonl.lock");
    let (gone, there) = (lock.clone(), lock);
    replace_and(&path, without_last, move || {
        fs::remove_file(gone).unwrap();
        before(Append, move || {
            let theirs = File::options().create(true).append(true).open(there)?;
            assert!(matches!(theirs.try_lock(), Err(TryLockError::WouldBlock)), "nobody has it");
            Ok(())
        });
    });
    take();
    assert_eq!(index.record(failure()).unwrap().times_seen, 2);
    assert_eq!(take(), [Append, SyncData, Append, SyncData, SyncFolder]);
}

#[test]
fn a_file_that_is_replaced_in_each_try_is_an_error_that_says_so() {
    let (_dir, path) = scratch();
    let index = open(&path, Fsync::OnBatch);
    index.add(lesson("a")).unwrap();
    replace_times(&path, 7);
    index.add(lesson("b")).unwrap();
    replace_times(&path, 8);
    let error = write_error(index.add(lesson("c")).unwrap_err());
    assert!(matches!(*error, WriteError::Replaced { source: None, .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.ends_with("was replaced while it was written; look whether the lessons are in it")
    );
    assert!(error.has_changed_file());
    index.add(lesson("d")).unwrap();
    assert_eq!(index.snapshot().len(), 3);
    assert_eq!(open(&path, Fsync::Never).snapshot().all(), index.snapshot().all());
}

/// Who took it for "nothing was written" and tried again would have it counted twice.
#[test]
fn an_error_in_the_new_file_says_that_the_lessons_may_be_in_it() {
    let (_dir, path) = scratch();
    let index = open(&path, Fsync::OnBatch);
    index.record(failure()).unwrap();
    replace_and(&path, |text| text, || fail(SyncData));
    let error = write_error(index.record(failure()).unwrap_err());
    let WriteError::Replaced { source: Some(source), .. } = &*error else { panic!("{error:?}") };
    assert!(matches!(**source, WriteError::Write { .. }), "{source:?}");
    assert!(error.has_changed_file());
    assert!(fs::read_to_string(&path).unwrap().contains("\"times_seen\":2"), "it is there");

    // Without a file that was replaced, all is as it was.
    fail(SyncData);
    let error = write_error(index.record(failure()).unwrap_err());
    assert!(matches!(*error, WriteError::Write { .. }), "{error:?}");
    assert!(!error.has_changed_file());
}
