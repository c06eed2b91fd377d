//! The same input again does nothing twice.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use git_batch::{ApplyError, Commit, GitBatch, OpErrorKind, Operation, Outcome, Settings};
use support::worktree::{capture, capture_files, linked, put, status};
use support::{Fixture, kind, landed};

fn tasks(count: usize) -> Vec<Operation> {
    (0..count)
        .flat_map(|n| {
            let branch = format!("task/{n}");
            let commit = Commit::new(&branch, "Work").write("work.txt", format!("{n}\n"));
            [Operation::commit(format!("c{n}"), commit), Operation::push(format!("p{n}"), branch)]
        })
        .collect()
}

#[test]
fn an_input_that_is_known_is_not_done_again() {
    let fixture = Fixture::new();
    let first = fixture.open().apply(tasks(3)).unwrap();
    assert!(first.replayed.is_empty());
    // Another handle, and the branches have gone on since.
    fixture
        .open()
        .apply(vec![Operation::commit(
            "later",
            Commit::new("task/1", "Later").write("later.txt", "x"),
        )])
        .unwrap();
    let refs = (fixture.git(["for-each-ref"]), fixture.at_remote(["for-each-ref"]));
    let again = fixture.open().apply(tasks(3)).unwrap();
    assert_eq!(again.outcomes, first.outcomes);
    assert_eq!(again.replayed.len(), 6);
    assert!(again.receipts.is_empty());
    assert_eq!(again.pushes(), 0);
    assert_eq!((fixture.git(["for-each-ref"]), fixture.at_remote(["for-each-ref"])), refs);
    assert_eq!(fixture.received(), 1);
}

#[test]
fn an_input_with_a_change_is_another_one() {
    let fixture = Fixture::new();
    fixture.open().apply(tasks(1)).unwrap();
    let mut changed = tasks(1);
    changed[0] = Operation::commit("c0", Commit::new("task/0", "Work").write("work.txt", "new"));
    let report = fixture.open().apply(changed).unwrap();
    assert!(report.replayed.is_empty());
    assert_eq!(fixture.at_remote(["show", "task/0:work.txt"]), "new");
}

#[test]
fn a_name_stands_for_the_input_whatever_it_contains() {
    let fixture = Fixture::new();
    let first = fixture.open().apply_as("nightly", tasks(1)).unwrap();
    let mut other = tasks(1);
    other[0] = Operation::commit("c0", Commit::new("task/0", "Other").write("a", "b"));
    let again = fixture.open().apply_as("nightly", other).unwrap();
    assert_eq!(again.outcomes, first.outcomes);
    assert_eq!(again.replayed.len(), 2);
    let error = fixture.open().apply_as("nightly", tasks(2)).unwrap_err();
    assert!(matches!(&error, ApplyError::OtherInput { id } if id == "nightly"), "{error}");
    // Under another name the same is done again, and changes nothing.
    let anew = fixture.open().apply_as("other", tasks(1)).unwrap();
    assert!(matches!(anew.get("c0"), Some(Outcome::NoChange { .. })));
}

#[test]
fn what_failed_is_tried_again_and_what_landed_is_not() {
    let fixture = Fixture::new();
    let operations = || {
        let mut operations = tasks(2);
        let lost = Commit::new("lost", "m").with_base("missing").write("a", "b");
        operations.push(Operation::commit("lost", lost));
        operations.push(
            Operation::commit("then", Commit::new("then", "m").write("a", "b")).after("lost"),
        );
        operations
    };
    let settings = Settings::default().with_remote("origin");
    let git = GitBatch::open(fixture.work(), settings).unwrap();
    let first = git.apply(operations()).unwrap();
    assert_eq!(kind(first.get("lost")), Some(OpErrorKind::UnknownBase));
    let same = git.apply(operations()).unwrap();
    assert_eq!(same.outcomes, first.outcomes);
    assert_eq!(same.replayed.len(), 6);
    fixture.git(["branch", "missing", "main"]);
    let third = git.apply(operations()).unwrap();
    landed(&third, "lost");
    landed(&third, "then");
    assert_eq!(landed(&third, "c0"), landed(&first, "c0"));
    assert_eq!(third.replayed.iter().collect::<Vec<_>>(), ["c0", "c1", "p0", "p1"]);
    let fourth = git.apply(operations()).unwrap();
    assert_eq!(fourth.outcomes, third.outcomes);
    assert_eq!(fourth.replayed.len(), 6);
    assert_eq!(fixture.received(), 1);
}

#[test]
fn a_push_that_could_not_reach_the_remote_is_made_later() {
    let fixture = Fixture::new();
    let away = fixture.beside("away.git");
    let base = |mut operations: Vec<Operation>| {
        operations[0] = Operation::commit(
            "c0",
            Commit::new("task/0", "Work").with_base("main").write("w", "x"),
        );
        operations
    };
    fs::rename(fixture.remote(), &away).unwrap();
    let first = fixture.open().apply(base(tasks(1))).unwrap();
    let commit = landed(&first, "c0");
    assert!(!first.get("p0").unwrap().is_success());
    fs::rename(&away, fixture.remote()).unwrap();
    let again = fixture.open().apply(base(tasks(1))).unwrap();
    assert_eq!((landed(&again, "c0"), landed(&again, "p0")), (commit, commit));
    assert!(again.replayed.contains("c0") && !again.replayed.contains("p0"));
    assert_eq!(fixture.git(["rev-list", "--count", "main..task/0"]).trim(), "1");
}

#[test]
fn a_branch_that_moved_is_pushed_again() {
    let fixture = Fixture::new();
    let push = || vec![Operation::push("p", "main")];
    let settled = fixture.open().apply(push()).unwrap();
    assert_eq!(fixture.open().apply(push()).unwrap().replayed.len(), 1);
    fixture.write("more.txt", "more\n");
    fixture.git(["add", "-A"]);
    fixture.git(["commit", "-qm", "More"]);
    let again = fixture.open().apply(push()).unwrap();
    assert_ne!(landed(&again, "p"), landed(&settled, "p"));
    assert!(again.replayed.is_empty());
    assert_eq!(fixture.at_remote(["rev-parse", "main"]), fixture.git(["rev-parse", "main"]));
}

#[test]
fn a_worktree_counts_with_what_it_contains() {
    let fixture = Fixture::new();
    let (all, some) = (linked(&fixture, "all"), linked(&fixture, "some"));
    let operations = || {
        vec![
            capture("a", "all", &all),
            capture_files("s1", "some", &some, &["one"]),
            capture_files("s2", "some", &some, &["two"]),
            Operation::push("p", "all"),
        ]
    };
    for dir in [&all, &some] {
        put(dir, "one", "1\n");
        put(dir, "two", "2\n");
    }
    let first = fixture.open().apply(operations()).unwrap();
    let again = fixture.open().apply(operations()).unwrap();
    assert_eq!(again.outcomes, first.outcomes);
    assert_eq!(again.replayed.len(), 4);
    assert_eq!(fixture.received(), 1);
    put(&all, "one", "changed\n");
    let third = fixture.open().apply(operations()).unwrap();
    assert_ne!(landed(&third, "a"), landed(&first, "a"));
    assert_eq!(fixture.at_remote(["show", "all:one"]), "changed\n");
    assert_eq!(status(&all), "");
}

#[test]
fn batches_of_one_input_are_known_each() {
    let fixture = Fixture::new();
    let operations = || {
        let mut operations = tasks(1);
        let commit = Commit::new("second", "Second").write("second.txt", "x");
        operations.push(Operation::commit("s", commit).after("p0"));
        operations.push(Operation::push("ps", "second"));
        operations
    };
    let first = fixture.open().apply(operations()).unwrap();
    assert_eq!(first.receipts.len(), 2);
    let again = fixture.open().apply(operations()).unwrap();
    assert_eq!(again.outcomes, first.outcomes);
    assert_eq!((again.replayed.len(), fixture.received()), (4, 2));
}

#[test]
fn a_record_of_another_version_is_refused_before_anything_is_done() {
    let fixture = Fixture::new();
    fixture.open().apply(tasks(1)).unwrap();
    let state = fixture.work().join(".git/batchyard");
    let record = fs::read_dir(state.join("done")).unwrap().next().unwrap().unwrap().path();
    let text = fs::read(&record).unwrap();
    let of_version = |n: usize| [format!("batchyard batch {n}\n").as_bytes(), &text[18..]].concat();
    // One of the version before is known.
    fs::write(&record, of_version(1)).unwrap();
    assert_eq!(fixture.open().apply(tasks(1)).unwrap().replayed.len(), 2);
    let refs = fixture.git(["for-each-ref"]);
    for broken in [of_version(3), b"batchyard batch 2\nxx".to_vec(), Vec::new()] {
        fs::write(&record, &broken).unwrap();
        let error = fixture.open().apply(tasks(1)).unwrap_err();
        assert!(matches!(&error, ApplyError::State { path, .. } if *path == record), "{error}");
        // One that is not finished is in everybody's way.
        let open = state.join("open").join(record.file_name().unwrap());
        fs::write(&open, &broken).unwrap();
        let error = fixture.open().apply(tasks(2)).unwrap_err();
        assert!(matches!(&error, ApplyError::State { path, .. } if *path == open), "{error}");
        fs::remove_file(open).unwrap();
    }
    assert_eq!(fixture.git(["for-each-ref"]), refs);
    assert_eq!(fs::metadata(state).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn old_records_are_forgotten() {
    let fixture = Fixture::new();
    fixture.open().apply(tasks(1)).unwrap();
    let done = fixture.work().join(".git/batchyard/done");
    let record = fs::read_dir(&done).unwrap().next().unwrap().unwrap().path();
    let old = std::time::SystemTime::now() - std::time::Duration::from_hours(24 * 31);
    fs::File::options().write(true).open(&record).unwrap().set_modified(old).unwrap();
    let report = fixture.open().apply(tasks(2)).unwrap();
    assert!(report.replayed.is_empty());
    assert!(!record.exists());
    for n in 0..1005 {
        fs::write(done.join(format!("{n}")), "x").unwrap();
    }
    fixture.open().apply(vec![Operation::push("p", "task/0")]).unwrap();
    assert!(fs::read_dir(&done).unwrap().count() <= 1001);
}
