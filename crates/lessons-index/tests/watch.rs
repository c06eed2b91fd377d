//! A thread of an index sees what others write to its file.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use lessons_index::{Fsync, Lesson, LessonsIndex, Mode, OpenError, Options, Refresh};

/// Long enough for a machine that does much else; a test that passes does not wait for it.
const PATIENCE: Duration = Duration::from_mins(1);

const OFTEN: Duration = Duration::from_millis(5);

type Told = Receiver<Result<Refresh, OpenError>>;

fn open(path: &Path) -> LessonsIndex {
    LessonsIndex::open(path, Options::default().with_fsync(Fsync::Never)).unwrap()
}

fn append(path: &Path, line: &str) {
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

fn wait_for(told: &Told, index: &LessonsIndex, is_there: impl Fn(&LessonsIndex) -> bool) {
    while !is_there(index) {
        told.recv_timeout(PATIENCE).unwrap().unwrap();
    }
}

#[test]
fn what_others_write_is_seen_and_the_watch_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lessons.jsonl");
    let index = open(&path);
    let (tell, told) = channel();
    let watch = index.watch(OFTEN, move |found| tell.send(found).unwrap()).unwrap();
    let has = |id: &'static str| move |index: &LessonsIndex| index.snapshot().find(id).is_some();

    append(&path, "{\"id\":\"a\"}\n");
    wait_for(&told, &index, has("a"));
    // Another index, its lock and all.
    open(&path).add(Lesson::builder("b").build().unwrap()).unwrap();
    wait_for(&told, &index, has("b"));
    // Another file in its place.
    let other = dir.path().join("other");
    fs::write(&other, "{\"id\":\"c\"}\n").unwrap();
    fs::rename(&other, &path).unwrap();
    wait_for(&told, &index, has("c"));
    assert_eq!(index.snapshot().len(), 1);

    drop(watch);
    // What it told before may still be there; then it has dropped its end.
    let end = std::iter::repeat_with(|| told.recv_timeout(PATIENCE)).find_map(Result::err);
    assert_eq!(end, Some(RecvTimeoutError::Disconnected));
    append(&path, "{\"id\":\"d\"}\n");
    assert!(index.snapshot().find("d").is_none(), "nobody looks any more");
}

#[test]
fn a_file_that_cannot_be_read_is_told_once_and_what_there_was_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lessons.jsonl");
    append(&path, "{\"id\":\"a\"}\n");
    let index = LessonsIndex::open(&path, Options::default().with_mode(Mode::Strict)).unwrap();
    let (tell, told) = channel();
    let _watch = index.watch(OFTEN, move |found| tell.send(found).unwrap()).unwrap();
    append(&path, "broken\n");
    let error = told.recv_timeout(PATIENCE).unwrap().unwrap_err();
    assert!(matches!(error, OpenError::Fault { .. }), "{error}");
    assert!(index.snapshot().find("a").is_some());

    fs::write(&path, "{\"id\":\"b\"}\n").unwrap();
    // Nothing is told in between: neither the same fault again, nor that nothing has changed.
    let next = told.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(next, Ok(Refresh::Reloaded)), "{next:?}");
    wait_for(&told, &index, |index| index.snapshot().find("b").is_some());
}

#[test]
fn a_watch_may_be_dropped_by_what_it_calls() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lessons.jsonl");
    let index = open(&path);
    let (give, given) = channel::<lessons_index::Watch>();
    let (tell, told) = channel();
    let watch = index.watch(OFTEN, move |_| {
        drop(given.recv());
        tell.send(()).unwrap();
    });
    give.send(watch.unwrap()).unwrap();
    append(&path, "{\"id\":\"a\"}\n");
    assert_eq!(told.recv_timeout(PATIENCE), Ok(()));
    assert_eq!(told.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
}

/// It ended without a word, and nobody could tell.
#[test]
fn a_watch_whose_outcome_panics_says_that_it_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lessons.jsonl");
    let index = open(&path);
    let (tell, told) = channel();
    let watch = index.watch(Duration::ZERO, move |_| {
        tell.send(()).unwrap();
        std::panic::resume_unwind(Box::new("out of luck"));
    });
    let watch = watch.unwrap();
    assert!(watch.is_running());
    append(&path, "{\"id\":\"a\"}\n");
    told.recv_timeout(PATIENCE).unwrap();
    // Its end of the channel is gone once the thread unwinds.
    assert_eq!(told.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
    while watch.is_running() {
        std::thread::yield_now();
    }
    append(&path, "{\"id\":\"b\"}\n");
    assert!(index.snapshot().find("b").is_none());
    index.refresh().unwrap();
    assert!(index.snapshot().find("b").is_some(), "the index is as good as before");
}
