//! Processes that go to another folder, or run as somebody else.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Mutex;

use common::{lesson, options, scratch};
use lessons_index::{CompactError, Compaction, LessonsIndex};

/// Is set for the processes that the tests start.
const FOLDER: &str = "LESSONS_TEST_FOLDER";

/// A program that was just copied cannot be started while a process that another test starts has
/// not let go of the copy yet.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn child(test: &str, folder: &std::path::Path) -> Command {
    // Who runs as somebody else may not be let into the build folder.
    let program = folder.join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = Command::new(program);
    command.args([test, "--exact", "--ignored", "--nocapture"]).env(FOLDER, folder);
    command
}

fn assert_passed(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
}

#[test]
#[ignore = "is a process that the test below starts"]
fn process_that_goes_elsewhere() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    std::env::set_current_dir(&folder).unwrap();
    let index = LessonsIndex::open("lessons.jsonl", options()).unwrap();
    fs::create_dir("elsewhere").unwrap();
    std::env::set_current_dir("elsewhere").unwrap();
    index.refresh().unwrap();
    assert_eq!(index.snapshot().len(), 1);
    index.add(lesson("b")).unwrap();
    assert!(!fs::exists("lessons.jsonl").unwrap());
    assert_eq!(index.path(), folder.canonicalize().unwrap().join("lessons.jsonl"));
}

/// A relative path was looked up anew by each call.
#[test]
fn a_process_that_goes_to_another_folder_keeps_its_file() {
    let _turn = ONE_AT_A_TIME.lock();
    let file = scratch("{\"id\":\"a\"}\n");
    assert_passed(&child("process_that_goes_elsewhere", file.dir.path()).output().unwrap());
    assert_eq!(file.open().snapshot().len(), 2);
}

#[test]
#[ignore = "is a process that the test below starts"]
fn process_of_a_stranger() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let path = folder.join("lessons.jsonl");
    let index = LessonsIndex::open(&path, options()).unwrap();
    let error = index.compact(&Compaction::default()).unwrap_err();
    assert!(matches!(error, CompactError::Write { .. }), "{error}");
    fs::set_permissions(folder.join("open"), fs::Permissions::from_mode(0o666)).unwrap_err();
    let index = LessonsIndex::open(folder.join("open"), options()).unwrap();
    assert_eq!(index.compact(&Compaction::default()).unwrap().dropped, 1);
}

/// The new file got the stranger's group, and the members of the old one could not write any more.
#[test]
fn a_compaction_that_would_shut_the_group_out_is_refused() {
    const STRANGER: u32 = 65_534;
    let _turn = ONE_AT_A_TIME.lock();
    let text = "{\"id\":\"a\"}\n{\"id\":\"a\"}\n";
    let file = scratch(text);
    let owner = fs::metadata(&file.path).unwrap();
    let others = [("lessons.jsonl", 0o664), ("open", 0o666)];
    for (name, mode) in others {
        let path = file.dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(file.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    if owner.uid() != 0 {
        // Only root can run a process as somebody else.
        return;
    }
    let mut command = child("process_of_a_stranger", file.dir.path());
    match command.uid(STRANGER).gid(STRANGER).output() {
        // Not every root may.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return,
        output => assert_passed(&output.unwrap()),
    }
    assert_eq!(file.content(), text);
    let now = fs::metadata(&file.path).unwrap();
    assert_eq!((now.uid(), now.gid(), now.ino()), (owner.uid(), owner.gid(), owner.ino()));
}
