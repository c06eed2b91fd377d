//! A process that has the lock and never gives it back.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Scratch, lesson, options, scratch};
use lessons_index::{AddError, CompactError, Compaction, LessonsIndex, WriteError};

/// Is set for the process that the tests start.
const LOCK: &str = "LESSONS_TEST_LOCK";

#[test]
#[ignore = "is a process that the tests below start"]
fn holding_process() {
    let Some(path) = std::env::var_os(LOCK) else { return };
    let file = File::options().write(true).create(true).truncate(false).open(path).unwrap();
    file.lock().unwrap();
    println!("\nheld");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// Is a process that holds a lock until it is dropped.
struct Holder(Child);

impl Holder {
    fn of(lock: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["holding_process", "--exact", "--ignored", "--nocapture"]).env(LOCK, lock);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "held"));
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn lock_of(file: &Scratch) -> PathBuf {
    file.dir.path().join("lessons.jsonl.lock")
}

#[test]
fn a_writer_gives_up_on_a_lock_in_time_and_names_who_has_it() {
    let file = scratch("{\"id\":\"a\"}\n{\"id\":\"a\"}\n");
    let options = options().with_lock_timeout(Duration::from_millis(30));
    let index = LessonsIndex::open(&file.path, options).unwrap();
    let holder = Holder::of(&lock_of(&file));

    let is_held = |error: &WriteError| match error {
        WriteError::Held { by, .. } => {
            let known = cfg!(target_os = "linux").then_some(holder.0.id());
            assert_eq!(*by, known, "{error}");
            known.is_none_or(|id| error.to_string().contains(&format!("process {id};")))
        }
        other => panic!("{other:?}"),
    };
    for _ in 0..2 {
        let AddError::Write { source, .. } = index.add(lesson("b")).unwrap_err() else { panic!() };
        assert!(is_held(&source));
        assert!(!source.has_changed_file());
    }
    let error = index.compact(&Compaction::default()).unwrap_err();
    let CompactError::File(error) = error else { panic!("{error:?}") };
    assert!(is_held(&error));
    assert_eq!(file.content(), "{\"id\":\"a\"}\n{\"id\":\"a\"}\n");
    assert_eq!(index.snapshot().len(), 1, "readers see what there is");

    drop(holder);
    index.add(lesson("b")).unwrap();
    assert_eq!(index.compact(&Compaction::default()).unwrap().dropped, 1);
    assert_eq!(file.open().snapshot().len(), 2);
}

#[test]
fn a_lock_file_that_was_removed_is_not_waited_for() {
    let file = scratch("");
    let index = file.open();
    // From here on the index has the lock file open.
    index.add(lesson("a")).unwrap();
    let _holder = Holder::of(&lock_of(&file));
    fs::remove_file(lock_of(&file)).unwrap();
    index.add(lesson("b")).unwrap();
    assert_eq!(index.snapshot().len(), 2);
}
