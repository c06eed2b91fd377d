//! What others do while a gate runs, and what a machine does that has no room: nobody is blamed for it.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;
use std::time::Duration;

use git_batch::{
    Commit, Gate, GitBatch, OpErrorKind, Operation, OperationKind, Outcome, Settings, Strategy,
};
use support::{Fixture, kind, landed, make_executable, wait_until, waits_for};

fn script(fixture: &Fixture, text: &str) -> Gate {
    let scratch = fixture.beside("scratch");
    fs::create_dir_all(&scratch).unwrap();
    Gate::new("sh").with_args(["-ec", text]).in_folder(scratch)
}

/// A gate that waits for the file `go` where `path` is in the tree, and says that it has begun.
fn waiting(fixture: &Fixture, path: &str) -> Gate {
    let (begun, go) = (fixture.beside("begun"), fixture.beside("go"));
    let wait = waits_for(&go);
    script(fixture, &format!("test -e {path} || exit 0; touch '{}'; {wait}", begun.display()))
}

fn open(fixture: &Fixture, gate: Gate) -> GitBatch {
    GitBatch::open(fixture.work(), Settings::default().with_gate(gate)).unwrap()
}

/// Waits until the gate has begun.
fn wait_for_gate(fixture: &Fixture) {
    wait_until(|| fixture.beside("begun").exists());
}

fn commit(id: &str, branch: &str) -> Operation {
    let commit = Commit::new(branch, id).with_base("main").write(format!("{id}.txt"), "x\n");
    Operation::commit(id, commit)
}

/// `a` is at the remote, which has got something since.
fn moved() -> Fixture {
    let fixture = Fixture::new();
    fixture.branch("a", "main", "a.txt", "x\n");
    fixture.git(["push", "-q", "origin", "a"]);
    fixture.move_remote("a", "theirs.txt", "x\n");
    fixture
}

/// It keeps the commit, and does not go with the push.
#[test]
fn what_others_commit_to_a_branch_that_waits_is_not_pushed() {
    let fixture = moved();
    let git = open(&fixture, waiting(&fixture, "theirs.txt"));
    let report = std::thread::scope(|scope| {
        let applied =
            scope.spawn(|| git.apply(vec![commit("a1", "a"), Operation::push("p", "a")]).unwrap());
        wait_for_gate(&fixture);
        fixture.branch("a", "a", "others.txt", "x\n");
        fs::write(fixture.beside("go"), "").unwrap();
        applied.join().unwrap()
    });
    landed(&report, "a1");
    landed(&report, "p");
    let there = fixture.at_remote(["ls-tree", "--name-only", "a"]);
    assert!(there.contains("a1.txt") && there.contains("theirs.txt"), "{there}");
    assert!(!there.contains("others.txt"), "{there}");
    assert_eq!(fixture.git(["log", "--format=%s", "-2", "a"]), "a\na1\n");
    fixture.assert_sound();
}

/// What others push to where a branch starts is no part of it: it stays as the gate has seen it.
#[test]
fn a_new_branch_starts_where_it_did_however_the_remote_moves() {
    let fixture = Fixture::new();
    fixture.git(["push", "-q", "origin", "main:trunk"]);
    let push = format!(
        "cd '{}'; export GIT_INDEX_FILE=own; for b in main trunk; do git read-tree $b; \
         git update-index --add --cacheinfo 100644,$(date +%N | git hash-object -w --stdin),theirs.txt; \
         git update-ref refs/heads/$b $(git -c user.name=B -c user.email=b@c commit-tree -p $b \
         -m theirs $(git write-tree)); done",
        fixture.remote().display()
    );
    let start = |id: &str, base: Option<&str>| {
        let commit = Commit::new(id, id).write(format!("{id}.txt"), "good\n");
        let commit = match base {
            Some(base) => commit.with_base(base),
            None => commit,
        };
        [Operation::commit(id, commit), Operation::push(format!("push {id}"), id)]
    };
    let operations = start("a", None).into_iter().chain(start("b", Some("trunk"))).collect();
    let report = open(&fixture, script(&fixture, &push)).apply(operations).unwrap();
    for (id, _) in &report.outcomes {
        landed(&report, id);
    }
    assert_eq!(report.receipt().gate_runs, 2);
    fixture.assert_sound();
}

/// Another writer has the repository when the gate has looked at a branch that waits.
#[test]
fn what_waits_says_that_the_lock_was_lost() {
    let fixture = moved();
    let settings = Settings::default().with_gate(waiting(&fixture, "theirs.txt"));
    let settings = settings.with_wait(Duration::from_millis(50));
    let git = GitBatch::open(fixture.work(), settings).unwrap();
    let operations = || {
        let other = [commit("b", "b"), Operation::push("push b", "b")];
        [commit("a1", "a"), Operation::push("p", "a")].into_iter().chain(other).collect()
    };
    std::thread::scope(|scope| {
        let applied = scope.spawn(|| git.apply(operations()).unwrap());
        wait_for_gate(&fixture);
        let lock = fs::File::open(fixture.work().join(".git/batchyard/lock")).unwrap();
        lock.lock().unwrap();
        fs::write(fixture.beside("go"), "").unwrap();
        let report = applied.join().unwrap();
        for id in ["a1", "b", "push b"] {
            landed(&report, id);
        }
        let Some(Outcome::Failed(error)) = report.get("p") else { panic!("{report:?}") };
        assert!(error.message.contains("still locked"), "{error}");
        // A process that is just started by another test may have it, too.
        lock.unlock().unwrap();
    });
    let again = git.apply(operations()).unwrap();
    landed(&again, "p");
    assert_eq!(again.replayed.len(), 3);
}

/// Another process runs the same input in smaller batches, and is done with it before the gate is.
#[test]
fn an_input_that_others_have_cut_otherwise_meanwhile_is_not_done_again() {
    let fixture = Fixture::new();
    let operations = || {
        let delete = Commit::new("a", "delete").with_base("main").delete("README.md");
        vec![
            Operation::commit("a", delete),
            Operation::push("push a", "a"),
            commit("b", "b"),
            Operation::push("push b", "b"),
        ]
    };
    let git = open(&fixture, waiting(&fixture, "b.txt"));
    let (report, other) = std::thread::scope(|scope| {
        let applied = scope.spawn(|| git.apply(operations()).unwrap());
        wait_for_gate(&fixture);
        let settings = Settings::default().with_max_items(2);
        let other = GitBatch::open(fixture.work(), settings).unwrap().apply(operations()).unwrap();
        fs::write(fixture.beside("go"), "").unwrap();
        (applied.join().unwrap(), other)
    });
    assert_eq!(report.outcomes, other.outcomes);
    for (id, _) in &report.outcomes {
        landed(&report, id);
    }
    assert_eq!((report.replayed.len(), report.pushes()), (4, 0));
}

/// Nothing is asked of the remote before the gate has spoken, so a slow one keeps nobody back.
#[test]
fn a_remote_is_asked_only_when_the_gate_has_spoken() {
    let fixture = Fixture::new();
    let (begun, early) = (fixture.beside("begun"), fixture.beside("early"));
    let program = fixture.beside("upload-pack");
    let text = format!(
        "#!/bin/sh\ntest -e '{}' || touch '{}'\nexec git upload-pack \"$@\"\n",
        begun.display(),
        early.display()
    );
    fs::write(&program, text).unwrap();
    make_executable(&program);
    fixture.git(["config", "remote.origin.uploadpack", program.to_str().unwrap()]);
    let git = open(&fixture, script(&fixture, &format!("touch '{}'", begun.display())));
    let report = git.apply(vec![commit("a", "a"), Operation::push("p", "a")]).unwrap();
    landed(&report, "p");
    assert!(begun.exists() && !early.exists());
}

/// What is at the remote already cannot be checked out: it is the machine, or a server of contents.
#[test]
fn nobody_is_blamed_where_what_was_there_before_cannot_be_checked_out() {
    let fixture = Fixture::new();
    let tries = fixture.beside("tries");
    fixture.write(".gitattributes", "src/lib.rs filter=far\n");
    fixture.git(["add", "-A"]);
    fixture.git(["commit", "-q", "-m", "Far"]);
    fixture.git(["push", "-q", "origin", "main"]);
    let smudge = format!("echo x >> '{}'; exit 1", tries.display());
    fixture.git(["config", "filter.far.smudge", &smudge]);
    fixture.git(["config", "filter.far.required", "true"]);
    let names: Vec<String> = (0..12).map(|n| format!("b{n}")).collect();
    let task = |name: &String| [commit(name, name), Operation::push(format!("p {name}"), name)];
    let git = open(&fixture, script(&fixture, "true"));
    let report = git.apply(names.iter().flat_map(task).collect()).unwrap();
    let count = || fs::read_to_string(&tries).unwrap().lines().count();
    for name in &names {
        landed(&report, name);
        let push = report.get(&format!("p {name}"));
        assert_eq!(kind(push), Some(OpErrorKind::Repository), "{push:?}");
    }
    assert_eq!(count(), 2);
    // In a landing too.
    let report = git.land("main", &names, Strategy::Merge).unwrap();
    assert!(names.iter().all(|name| kind(report.get(name)) == Some(OpErrorKind::Repository)));
    assert_eq!(count(), 4);
}

/// The new objects of a tree cannot be written beside it, which is the machine's fault; what was there before
/// has none.
#[cfg(target_os = "linux")]
#[test]
fn nor_where_the_machine_has_no_room_for_what_is_new() {
    let fixture = Fixture::new();
    fixture.branch("b", "main", "b.txt", "x");
    // Just so deep that their names are too long, however short the id of this process is.
    let mut deep = fixture.beside("deep");
    let left = |deep: &std::path::Path| 4030 - deep.as_os_str().len() - 1;
    while left(&deep) > 400 {
        deep.push("x".repeat(200));
    }
    deep.push("x".repeat(left(&deep) / 2));
    deep.push("x".repeat(left(&deep)));
    fs::create_dir_all(&deep).unwrap();
    let git = open(&fixture, Gate::new("true").in_folder(&deep));
    // They begin at the same commit. The last one has what is in the repository already.
    let mut operations = tasks(4);
    fixture.git(["branch", "known", "main"]);
    let mut known = Operation::merge("known", "b", "known");
    let OperationKind::Merge(merge) = &mut known.kind else { unreachable!() };
    merge.strategy = Strategy::FastForward;
    operations.extend([known, Operation::push("push known", "known")]);
    let report = git.apply(operations).unwrap();
    for n in 0..4 {
        landed(&report, &format!("b{n}"));
        let end = report.get(&format!("push b{n}"));
        let Some(Outcome::Failed(error)) = end else { panic!("{report:?}") };
        assert_eq!(error.kind, OpErrorKind::Repository, "{error}");
        assert!(error.message.contains("too long"), "{error}");
    }
    landed(&report, "push known");
    assert_eq!((report.receipt().gate_runs, fixture.received()), (1, 1));
    // A landing says of which it is, too.
    fixture.branch("a", "main", "a.txt", "x");
    fixture.move_remote("main", "theirs.txt", "x");
    let report = git.land("main", &["a".to_owned(), "b".to_owned()], Strategy::Merge).unwrap();
    for name in ["a", "b"] {
        assert_eq!(kind(report.get(name)), Some(OpErrorKind::Repository), "{report:?}");
    }
    // What was there before has room, and passes.
    assert_eq!(report.receipt().gate_runs, 1);
}

/// Files that go through a filter which fails where another tree is there already, as on a disk that has
/// room for one of them.
fn with_room_for_one(fixture: &Fixture) {
    fixture.write(".gitattributes", "src/lib.rs filter=room\n");
    fixture.git(["add", "-A"]);
    fixture.git(["commit", "-q", "-m", "Room"]);
    fixture.git(["push", "-q", "origin", "main"]);
    let smudge = format!("test $(ls '{}' | wc -l) = 1 && cat", fixture.beside("scratch").display());
    fixture.git(["config", "filter.room.smudge", &smudge]);
    fixture.git(["config", "filter.room.required", "true"]);
}

fn tasks(count: usize) -> Vec<Operation> {
    let task = |n: usize| {
        let branch = format!("b{n}");
        let push = Operation::push(format!("push {branch}"), &branch);
        [commit(&branch, &branch), push]
    };
    (0..count).flat_map(task).collect()
}

/// They wait for their turn, however often that comes to others first: they do not change by that.
#[test]
fn trees_that_have_no_room_beside_each_other_are_looked_at_one_after_the_other() {
    let fixture = Fixture::new();
    with_room_for_one(&fixture);
    let report = open(&fixture, script(&fixture, "true")).apply(tasks(9)).unwrap();
    for (id, _) in &report.outcomes {
        landed(&report, id);
    }
    assert_eq!(report.receipt().gate_runs, 9);
}

/// The same where the remote has moved two branches, and both have to be looked at again.
#[test]
fn so_are_those_that_the_remote_has_moved() {
    let fixture = Fixture::new();
    for name in ["b0", "b1"] {
        fixture.git(["push", "-q", "origin", &format!("main:{name}")]);
        fixture.git(["branch", name, "main"]);
        fixture.move_remote(name, "theirs.txt", "x\n");
    }
    with_room_for_one(&fixture);
    for name in ["b0", "b1"] {
        fixture.git(["branch", "-f", name, "main"]);
    }
    let report = open(&fixture, script(&fixture, "true")).apply(tasks(2)).unwrap();
    for (id, _) in &report.outcomes {
        landed(&report, id);
    }
    assert_eq!(report.receipt().gate_runs, 4);
    for name in ["b0", "b1"] {
        assert_eq!(fixture.at_remote(["show", &format!("{name}:theirs.txt")]), "x\n");
    }
}

/// Where no folder can be made any more, those that are there are looked at, and make room.
#[test]
fn trees_that_are_ready_are_looked_at_where_no_other_can_be_made() {
    let fixture = Fixture::new();
    fixture.write(".gitattributes", "src/lib.rs filter=full\n");
    fixture.git(["add", "-A"]);
    fixture.git(["commit", "-q", "-m", "Full"]);
    let state = fixture.work().join(".git/batchyard");
    let (gate, away) = (state.join("gate"), state.join("away"));
    let (gate, away) = (gate.display(), away.display());
    let fill = format!("test -d '{away}' || {{ mv '{gate}' '{away}'; touch '{gate}'; }}; cat");
    fixture.git(["config", "filter.full.smudge", &fill]);
    fixture.git(["config", "filter.full.required", "true"]);
    let empty = format!("rm '{gate}'; mv '{away}' '{gate}'");
    let report = open(&fixture, script(&fixture, &empty)).apply(tasks(3)).unwrap();
    for (id, _) in &report.outcomes {
        landed(&report, id);
    }
    assert_eq!(report.receipt().gate_runs, 3);
}

/// The same input asks for it by then.
#[test]
fn a_push_that_is_asked_for_again_takes_along_what_came_meanwhile() {
    let fixture = moved();
    fixture.branch("a", "a", "mine.txt", "x\n");
    let operations = || vec![Operation::push("p", "a")];
    let git = open(&fixture, waiting(&fixture, "theirs.txt"));
    let report = std::thread::scope(|scope| {
        let applied = scope.spawn(|| git.apply(operations()).unwrap());
        wait_for_gate(&fixture);
        fixture.branch("a", "a", "others.txt", "x\n");
        fs::write(fixture.beside("go"), "").unwrap();
        applied.join().unwrap()
    });
    landed(&report, "p");
    let there = || fixture.at_remote(["ls-tree", "--name-only", "a"]);
    assert!(there().contains("mine.txt") && !there().contains("others.txt"), "{}", there());
    let again = git.apply(operations()).unwrap();
    landed(&again, "p");
    assert!(again.replayed.is_empty());
    assert!(there().contains("others.txt"), "{}", there());
    // Now there is nothing more to push.
    assert_eq!(git.apply(operations()).unwrap().pushes(), 0);
    fixture.assert_sound();
}
