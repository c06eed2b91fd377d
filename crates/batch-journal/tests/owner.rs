//! One owner, readers beside it, and folders that are not what they should be.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use batch_core::{Journal, JournalErrorKind};
use batch_journal::{Bytes, OpenError, Options, SqliteJournal, status};
use common::{append, folder, open, try_open, unacked};

/// Is set for the process that the tests start.
const FOLDER: &str = "JOURNAL_TEST_FOLDER";

#[test]
#[ignore = "is a process that the tests below start"]
fn owner_process() {
    let Ok(dir) = std::env::var(FOLDER) else { return };
    let journal = open(Path::new(&dir));
    append(&journal, &[b"of the other".to_vec()]).unwrap();
    println!("\nopen");
    // Until it is killed, or the other side is gone.
    std::io::stdin().read_line(&mut String::new()).unwrap();
    drop(journal);
}

fn start_owner(dir: &Path) -> std::process::Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["owner_process", "--exact", "--ignored", "--nocapture"])
        .env(FOLDER, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "open"));
    child
}

#[test]
fn who_comes_second_learns_who_the_owner_is() {
    let dir = folder();
    let mut child = start_owner(dir.path());
    let error = try_open(dir.path()).unwrap_err();
    let OpenError::Locked { path, holder } = &error else { panic!("{error}") };
    assert_eq!(path, &dir.path().join("journal.lock"));
    assert!(holder.starts_with(&format!("process {} (owner-", child.id())), "{holder}");
    assert!(error.to_string().ends_with("; end it, or wait for it"), "{error}");
    let seen = status(dir.path()).unwrap();
    assert_eq!((seen.items, seen.run), (1, 1));
    assert_eq!(seen.owner.as_ref(), Some(holder));

    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(status(dir.path()).unwrap().owner, None);
    let journal = open(dir.path());
    assert_eq!(unacked(&journal)[0].1, b"of the other");
    assert_eq!(status(dir.path()).unwrap().run, 2);
}

#[test]
fn a_second_one_in_the_same_process_is_refused_too() {
    let dir = folder();
    let first = open(dir.path());
    let error = try_open(dir.path()).unwrap_err();
    assert!(matches!(&error, OpenError::Locked { .. }), "{error}");
    // Neither that nor a look has cost the owner its locks.
    status(dir.path()).unwrap();
    append(&first, &[vec![1]]).unwrap();
    assert!(try_open(dir.path()).is_err());
    drop(first);
    open(dir.path());
}

#[test]
fn who_waits_becomes_the_owner() {
    let dir = folder();
    let mut child = start_owner(dir.path());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let options = Options::default().wait(Duration::MAX);
            SqliteJournal::open(dir.path(), Bytes, options).unwrap()
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(unacked(&waiting.join().unwrap()).len(), 1);
    });
}

#[test]
fn readers_see_whole_transactions_while_the_owner_writes() {
    let dir = folder();
    let journal = open(dir.path());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..200 {
                let ids = append(&journal, &[vec![1], vec![2], vec![3]]).unwrap();
                journal.ack(&ids).unwrap();
            }
        });
        while !writer.is_finished() {
            let seen = status(dir.path()).unwrap();
            assert!(seen.items == 0 || seen.items == 3, "{seen:?}");
            assert_eq!(seen.oldest.is_some(), seen.items > 0);
            assert!(seen.oldest.is_none_or(|oldest| {
                seen.newest.is_some_and(|newest| newest.seq == oldest.seq + 2)
            }));
            assert!(seen.owner.is_some());
        }
    });
    drop(journal);
    assert_eq!(status(dir.path()).unwrap().owner, None);
}

#[test]
fn a_look_changes_nothing_and_needs_no_owner() {
    let dir = folder();
    drop(open(dir.path()));
    let before = fs::read(dir.path().join("journal.db")).unwrap();
    assert_eq!(status(dir.path()).unwrap().items, 0);
    assert_eq!(fs::read(dir.path().join("journal.db")).unwrap(), before);
    let missing = status(dir.path().join("none")).unwrap_err();
    assert!(missing.to_string().starts_with("there is no journal in "), "{missing}");
    assert!(matches!(status(folder().path()), Err(OpenError::Missing { .. })));
}

#[test]
fn what_it_makes_is_for_its_owner_alone() {
    let dir = folder();
    let deep = dir.path().join("a/b");
    let journal = open(&deep);
    append(&journal, &[vec![1]]).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&deep), mode(&dir.path().join("a"))), (0o700, 0o700));
    let files: Vec<_> = fs::read_dir(&deep).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 4, "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    drop(journal);

    fs::set_permissions(&deep, fs::Permissions::from_mode(0o770)).unwrap();
    let error = try_open(&deep).unwrap_err();
    assert!(error.to_string().contains("may be written to by others (mode 770)"), "{error}");
}

#[test]
fn folders_are_found_under_any_name() {
    let dir = folder();
    let odd = dir.path().join("a b%20?#\u{e9}&mode=ro");
    append(&open(&odd), &[vec![1]]).unwrap();
    let link = dir.path().join("link");
    symlink(&odd, &link).unwrap();
    let journal = open(&link);
    assert_eq!(unacked(&journal).len(), 1);
    assert!(matches!(try_open(&odd), Err(OpenError::Locked { .. })), "it is one journal");
    assert_eq!(status(&link).unwrap().items, 1);
    drop(journal);

    symlink(dir.path().join("nowhere"), dir.path().join("dangling")).unwrap();
    let error = try_open(&dir.path().join("dangling")).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
}

#[test]
fn links_in_place_of_files_are_refused() {
    for name in ["journal.db", "journal.lock"] {
        let dir = folder();
        let elsewhere = dir.path().join("elsewhere");
        File::create(&elsewhere).unwrap();
        symlink(&elsewhere, dir.path().join(name)).unwrap();
        let error = try_open(dir.path()).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(fs::read(&elsewhere).unwrap(), b"");
    }
}

#[test]
fn a_folder_that_cannot_be_made_or_written_is_named() {
    let dir = folder();
    let file = dir.path().join("file");
    File::create(&file).unwrap();
    for path in [file.join("below"), file] {
        let error = try_open(&path).unwrap_err();
        assert!(matches!(error, OpenError::Io { .. }), "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        assert!(std::error::Error::source(&error).is_some());
    }
}

/// A folder of the system where nobody can make a file, not even root.
#[test]
#[cfg(target_os = "linux")]
fn a_folder_that_cannot_be_written_to_is_an_error() {
    let error = try_open(Path::new("/proc/self/fdinfo")).unwrap_err();
    assert!(error.to_string().starts_with("cannot open \"/proc"), "{error}");
}

#[test]
fn the_lock_file_may_hold_anything() {
    let dir = folder();
    fs::write(dir.path().join("journal.lock"), [0xff; 5000]).unwrap();
    let journal = open(dir.path());
    let seen = status(dir.path()).unwrap().owner.unwrap();
    assert!(seen.starts_with("process "), "{seen}");
    drop(journal);
    fs::remove_file(dir.path().join("journal.lock")).unwrap();
    assert_eq!(status(dir.path()).unwrap().owner, None);
}

#[test]
fn an_owner_whose_lock_was_taken_away_stops_before_it_does_harm() {
    let dir = folder();
    let first = open(dir.path());
    let ids = append(&first, &[vec![1], vec![2]]).unwrap();
    fs::remove_file(dir.path().join("journal.lock")).unwrap();
    let second = open(dir.path());
    for _ in 0..2 {
        assert!(append(&first, &[vec![3]]).is_err());
        assert!(first.ack(&ids).is_err());
    }
    append(&second, &[vec![4]]).unwrap();
    let left = unacked(&second);
    assert_eq!(left.iter().map(|(_, item)| item[0]).collect::<Vec<_>>(), [1, 2, 4]);
    drop(second);
    drop(first);
    assert_eq!(unacked(&open(dir.path())), left);
}

#[test]
fn a_stranger_who_writes_is_noticed() {
    let dir = folder();
    let journal = open(dir.path());
    append(&journal, &[vec![1]]).unwrap();
    let stranger = rusqlite::Connection::open(dir.path().join("journal.db")).unwrap();
    stranger.execute("UPDATE ledger SET seal = 0", []).unwrap();
    let error = append(&journal, &[vec![2]]).unwrap_err();
    assert_eq!(error.kind(), JournalErrorKind::Corrupt);
    assert!(error.to_string().ends_with("was written to by somebody who is not its owner"));
    let error = append(&journal, &[vec![2]]).unwrap_err();
    assert_eq!(error.kind(), JournalErrorKind::Stopped);
}

#[test]
fn it_is_a_journal_for_the_engine() {
    let dir = folder();
    let journal: Box<dyn Journal<Vec<u8>>> = Box::new(open(dir.path()));
    let id = journal.reserve(1);
    journal.append(&[(id, &vec![1])]).unwrap();
    assert_eq!(journal.unacked(journal.reserve(0)).unwrap(), [(id, vec![1])]);
}
