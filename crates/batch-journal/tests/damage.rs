//! Files that are torn, altered, empty, newer or something else.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use batch_core::ItemId;
use batch_journal::{OpenError, status};
use common::{Random, append, copy, folder, open, try_open, unacked};
use tempfile::TempDir;

type Items = Vec<(ItemId, Vec<u8>)>;

/// Files as a crash leaves them, and every state that was committed, the empty one first.
struct Crash {
    dir: TempDir,
    states: Vec<Items>,
}

/// Half of what is stored has been moved to the file, and half is in the log only.
fn crash() -> Crash {
    write_and(|journal, from, to| {
        copy(from, to);
        drop(journal);
    })
}

/// All that is stored has been moved to the file.
fn closed() -> Crash {
    write_and(|journal, from, to| {
        drop(journal);
        copy(from, to);
    })
}

fn write_and(end: impl Fn(common::Bin, &Path, &Path)) -> Crash {
    let dir = folder();
    let mut random = Random(7);
    let mut states = vec![Vec::new()];
    let mut items: Items = Vec::new();
    let mut write = |journal: &common::Bin, states: &mut Vec<Items>| {
        let mut payload = |n: u64| {
            let size = usize::try_from(random.below(if n == 3 { 9000 } else { 300 })).unwrap();
            let byte = u8::try_from(random.below(256)).unwrap();
            vec![byte; size]
        };
        let payloads: Vec<Vec<u8>> = (0..5).map(&mut payload).collect();
        let ids = append(journal, &payloads).unwrap();
        items.extend(ids.into_iter().zip(payloads));
        states.push(items.clone());
        let done: Vec<ItemId> = (0..3).map(|n| items.remove(n * 2 % items.len()).0).collect();
        journal.ack(&done).unwrap();
        states.push(items.clone());
    };
    let journal = open(dir.path());
    (0..20).for_each(|_| write(&journal, &mut states));
    drop(journal);
    let journal = open(dir.path());
    (0..20).for_each(|_| write(&journal, &mut states));
    let left = folder();
    end(journal, dir.path(), left.path());
    Crash { dir: left, states }
}

impl Crash {
    /// Damages a copy. What can still be opened holds one of the states; what cannot says why, and
    /// its files are as they were. Returns whether it could be opened.
    fn survives(&self, to: &Path, file: &str, damage: impl Fn(&mut Vec<u8>), what: &str) -> bool {
        copy(self.dir.path(), to);
        let path = to.join(file);
        let mut bytes = fs::read(&path).unwrap();
        damage(&mut bytes);
        fs::write(&path, &bytes).unwrap();
        // An empty log is as good as none.
        let read = |name| fs::read(to.join(name)).ok().filter(|bytes| !bytes.is_empty());
        let before = ["journal.db", "journal.db-wal"].map(read);
        let journal = match try_open(to) {
            Ok(journal) => journal,
            Err(error) => {
                let after = ["journal.db", "journal.db-wal"].map(read);
                assert!(before == after, "{what}: {error}: the files were changed");
                assert!(error.to_string().contains("journal.db"), "{what}: {error}");
                assert!(!matches!(error, OpenError::Locked { .. }), "{what}: {error}");
                return false;
            }
        };
        match batch_core::Journal::unacked(&journal, journal.reserve(0)) {
            Ok(items) => {
                assert!(self.states.contains(&items), "{what}: {} items of no state", items.len());
                // And it can be used.
                append(&journal, &[vec![1; 5000]]).unwrap();
                journal.ack(&items.iter().map(|item| item.0).collect::<Vec<_>>()).unwrap();
                assert_eq!(unacked(&journal).len(), 1, "{what}");
                true
            }
            Err(error) => {
                assert!(error.to_string().contains("is damaged"), "{what}: {error}");
                false
            }
        }
    }
}

#[test]
fn an_undamaged_crash_loses_nothing() {
    let crash = crash();
    let journal = open(crash.dir.path());
    assert_eq!(&unacked(&journal), crash.states.last().unwrap());
}

/// The pages that moving the log to the file would write, in the order of SQLite's checkpoint.
fn pages_of_log(log: &[u8]) -> BTreeMap<u32, &[u8]> {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes[..4].try_into().unwrap());
    let page = usize::try_from(number(&log[8..])).unwrap();
    let salts = &log[16..24];
    let frames = log[32..].chunks_exact(24 + page).take_while(|frame| frame[8..16] == *salts);
    frames.map(|frame| (number(frame), &frame[24..])).collect()
}

/// The first page names the new size before the file has it. SQLite alone knows from the log that
/// this is no damage, so whatever looks at the file has to look at the log too.
#[test]
fn a_kill_between_any_two_pages_of_a_checkpoint_loses_nothing() {
    let crash = crash();
    let log = fs::read(crash.dir.path().join("journal.db-wal")).unwrap();
    let (pages, stored) = (pages_of_log(&log), crash.states.last().unwrap());
    let before = fs::metadata(crash.dir.path().join("journal.db")).unwrap().len();
    let page = pages.values().next().unwrap().len() as u64;
    assert!(u64::from(*pages.keys().last().unwrap()) * page > before, "the file has to grow");
    for written in 0..=pages.len() {
        let dir = folder();
        copy(crash.dir.path(), dir.path());
        let file = fs::File::options().write(true).open(dir.path().join("journal.db")).unwrap();
        for (number, bytes) in pages.iter().take(written) {
            file.write_all_at(bytes, u64::from(number - 1) * page).unwrap();
        }
        assert_eq!(status(dir.path()).unwrap().items, stored.len() as u64, "{written}");
        let journal = try_open(dir.path()).unwrap_or_else(|error| panic!("{written}: {error}"));
        assert_eq!(unacked(&journal), *stored, "{written}");
    }
}

/// Users of another engine reported a buffer of two files that a crash had torn apart, and readers
/// that looped or crashed over it. Here one is older than the other, or shorter.
#[test]
fn vector_17644_files_that_a_crash_tore_apart_are_read_or_refused() {
    let (crash, to) = (crash(), folder());
    for file in ["journal.db", "journal.db-wal"] {
        let size = fs::metadata(crash.dir.path().join(file)).unwrap().len();
        let size = usize::try_from(size).unwrap();
        for end in [0, 1, size / 3, size / 2, size - 1] {
            let what = format!("{file} cut at {end} of {size}");
            // Whether it is refused or not: it ends, and holds what it held at some time.
            crash.survives(to.path(), file, |bytes| bytes.truncate(end), &what);
        }
    }
}

#[test]
fn a_torn_log_gives_back_what_was_committed_before() {
    let (crash, to) = (crash(), folder());
    let size = fs::metadata(crash.dir.path().join("journal.db-wal")).unwrap().len();
    let size = usize::try_from(size).unwrap();
    let mut opened = 0;
    for end in (0..size).step_by(size / 150).chain([1, 31, 32, 33, size - 1]) {
        let what = format!("log cut at {end} of {size}");
        opened += u32::from(crash.survives(
            to.path(),
            "journal.db-wal",
            |bytes| bytes.truncate(end),
            &what,
        ));
    }
    assert!(opened > 100, "only {opened} opened: the end of a log may be missing");
}

#[test]
fn a_torn_file_is_an_error() {
    for crash in [crash(), closed()] {
        let to = folder();
        let size = fs::metadata(crash.dir.path().join("journal.db")).unwrap().len();
        let size = usize::try_from(size).unwrap();
        for end in (0..size).step_by(size / 60).chain([1, 15, 16, 99, 100, size - 1]) {
            let what = format!("file cut at {end} of {size}");
            crash.survives(to.path(), "journal.db", |bytes| bytes.truncate(end), &what);
        }
    }
}

/// Flips single bytes: those of the header one after the other, then some of the rest.
fn flip(crash: &Crash, file: &str, rounds: u64) {
    let to = folder();
    let mut random = Random(42);
    let size = fs::metadata(crash.dir.path().join(file)).unwrap().len();
    let mut opened = 0;
    for round in 0..rounds {
        let at = if round < 100 { round } else { random.below(size) };
        let flip = u8::try_from(1 + random.below(255)).unwrap();
        let what = format!("byte {at} of {file} ^ {flip:#x}");
        let damage = |bytes: &mut Vec<u8>| bytes[usize::try_from(at).unwrap()] ^= flip;
        opened += u32::from(crash.survives(to.path(), file, damage, &what));
    }
    assert!(opened > 20, "{opened}: much of a file does not matter");
}

#[test]
fn altered_bytes_of_the_log_never_come_back_as_items() {
    flip(&crash(), "journal.db-wal", 300);
}

#[test]
fn altered_bytes_of_the_file_never_come_back_as_items() {
    flip(&crash(), "journal.db", 200);
    flip(&closed(), "journal.db", 400);
}

#[test]
fn whole_pages_that_are_lost_are_noticed() {
    for crash in [crash(), closed()] {
        let to = folder();
        let size = fs::metadata(crash.dir.path().join("journal.db")).unwrap().len();
        for page in 0..usize::try_from(size / 4096).unwrap() {
            let range = page * 4096..(page + 1) * 4096;
            let damage = |bytes: &mut Vec<u8>| bytes[range.clone()].fill(0);
            crash.survives(to.path(), "journal.db", damage, &format!("page {page} is zero"));
        }
    }
}

#[test]
fn a_log_of_another_time_is_noticed() {
    let dir = folder();
    append(&open(dir.path()), &vec![vec![1; 500]; 100]).unwrap();
    let journal = open(dir.path());
    let early = folder();
    copy(dir.path(), early.path());
    let ids: Vec<ItemId> = unacked(&journal).into_iter().map(|item| item.0).collect();
    journal.ack(&ids[10..60]).unwrap();
    append(&journal, &vec![vec![2; 500]; 200]).unwrap();
    drop(journal);
    // The file of the end under a log of before, which has some of its pages.
    fs::copy(dir.path().join("journal.db"), early.path().join("journal.db")).unwrap();
    let error = refused(early.path());
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("restore it from a backup"), "{error}");
}

/// Returns the error, and makes sure that nothing was changed or added but the lock.
fn refused(dir: &Path) -> OpenError {
    let files = || {
        let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        // The lock, and the index of the log, which is made anew each time.
        let paths = paths
            .filter(|path| !path.ends_with("journal.lock") && !path.ends_with("journal.db-shm"));
        let mut files: Vec<(PathBuf, Vec<u8>)> =
            paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
        files.sort();
        files
    };
    let before = files();
    let error = try_open(dir).unwrap_err();
    assert!(files() == before, "{error}");
    assert!(error.to_string().contains("journal.db"), "{error}");
    error
}

#[test]
fn files_of_others_are_left_alone() {
    let dir = folder();
    let path = dir.path().join("journal.db");
    fs::write(&path, "Dear diary,\n".repeat(1000)).unwrap();
    let error = refused(dir.path());
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("it is no SQLite file"), "{error}");
    assert!(matches!(status(dir.path()), Err(OpenError::Foreign { .. })));
    fs::remove_file(&path).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
    drop(other);
    let error = refused(dir.path());
    assert!(error.to_string().contains("an SQLite file with the mark 0x00000000"), "{error}");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(try_open(dir.path()), Err(OpenError::Foreign { .. })));
}

#[test]
fn an_empty_file_is_not_taken_for_a_new_one() {
    let dir = folder();
    for bytes in [0, 1, 511] {
        fs::write(dir.path().join("journal.db"), vec![0; bytes]).unwrap();
        let error = refused(dir.path());
        let what = format!("is damaged: it has only {bytes} bytes;");
        assert!(error.to_string().contains(&what), "{error}");
        assert!(matches!(status(dir.path()), Err(OpenError::Corrupt { .. })));
    }
}

#[test]
fn a_log_without_its_file_is_not_taken_over() {
    let dir = folder();
    let journal = open(dir.path());
    append(&journal, &[vec![1]]).unwrap();
    let left = folder();
    copy(dir.path(), left.path());
    fs::remove_file(left.path().join("journal.db")).unwrap();
    let error = refused(left.path());
    assert!(error.to_string().contains("it is gone, and its log is still there"), "{error}");
}

#[test]
fn a_newer_version_is_left_to_its_program() {
    let dir = folder();
    drop(open(dir.path()));
    let connection = rusqlite::Connection::open(dir.path().join("journal.db")).unwrap();
    connection.pragma_update(None, "user_version", 2).unwrap();
    drop(connection);
    let error = refused(dir.path());
    assert!(matches!(error, OpenError::Newer { version: 2, known: 1, .. }), "{error}");
    assert!(error.to_string().contains("has version 2, and only version 1 is known"), "{error}");
}

#[test]
fn what_a_killed_creation_left_is_in_nobodys_way() {
    let dir = folder();
    fs::write(dir.path().join("journal.new"), "half").unwrap();
    fs::write(dir.path().join("journal.new-wal"), "half").unwrap();
    let journal = open(dir.path());
    append(&journal, &[vec![1]]).unwrap();
    assert!(!dir.path().join("journal.new").exists());
}

#[test]
fn rows_that_others_changed_are_noticed() {
    for sql in [
        "DELETE FROM item WHERE seq = 1",
        "UPDATE item SET payload = x'00' WHERE seq = 1",
        "INSERT INTO item VALUES (1, 77, 0, x'')",
        "UPDATE ledger SET run = 0",
        "DELETE FROM ledger",
        "DROP TABLE item",
        "PRAGMA journal_mode = DELETE",
    ] {
        let dir = folder();
        append(&open(dir.path()), &[vec![1], vec![2], vec![3]]).unwrap();
        let connection = rusqlite::Connection::open(dir.path().join("journal.db")).unwrap();
        connection.execute_batch(sql).unwrap();
        drop(connection);
        let noticed = match try_open(dir.path()) {
            Err(OpenError::Corrupt { .. }) => true,
            Err(error) => panic!("{sql}: {error}"),
            Ok(journal) => {
                let next = journal.reserve(0);
                batch_core::Journal::<Vec<u8>>::unacked(&journal, next).is_err()
            }
        };
        assert!(noticed, "{sql}");
    }
}
