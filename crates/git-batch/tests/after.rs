//! What is `after` another operation comes when that has come, and not before.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;
use std::process::{Command, Stdio};

use git_batch::{Commit, Gate, GitBatch, Operation, Outcome, Report, Settings, stops};
use support::{Fixture, landed};

fn commit(id: &str, branch: &str, base: &str) -> Operation {
    Operation::commit(id, Commit::new(branch, id).with_base(base).write(id, "x"))
}

/// `main` is checked out, so it moves at the remote only.
fn after_the_remote() -> Vec<Operation> {
    vec![
        commit("m", "main", "main"),
        Operation::push("push m", "main"),
        commit("y", "y", "main~0").after("m"),
        Operation::push("push y", "y"),
        // They stand on it, although they do not say so.
        commit("z", "z", "main"),
        Operation::merge("merge", "z", "w"),
        Operation::push("push w", "w"),
        commit("alone", "alone", "main~0"),
        Operation::push("push alone", "alone"),
    ]
}

fn names(fixture: &Fixture) -> [String; 2] {
    let args = ["branch", "--format=%(refname:short)"];
    [fixture.git(args), fixture.at_remote(args)]
}

fn is_skipped(report: &Report, id: &str) -> bool {
    matches!(report.get(id), Some(Outcome::Skipped { .. }))
}

#[test]
fn what_needs_a_commit_that_the_remote_refuses_does_not_come() {
    let fixture = Fixture::new();
    fixture.git(["branch", "w"]);
    fixture.hook("update", "test $1 != refs/heads/main");
    let report = fixture.open().apply(after_the_remote()).unwrap();
    assert!(matches!(report.get("m"), Some(Outcome::Rejected { .. })), "{report:?}");
    for id in ["y", "push y", "z", "merge", "push w"] {
        assert!(is_skipped(&report, id), "{id}: {report:?}");
    }
    landed(&report, "push alone");
    assert_eq!(names(&fixture), ["alone\nmain\nw\n", "alone\nmain\n"]);
    assert_eq!((report.pushes(), fixture.id("w")), (1, fixture.id("main")));
    // Asked for again, all of it comes, with one push for what the first one has to come before.
    fixture.hook("update", "exit 0");
    let again = fixture.open().apply(after_the_remote()).unwrap();
    for (id, _) in &again.outcomes {
        landed(&again, id);
    }
    assert_eq!((again.pushes(), again.replayed.len()), (2, 2));
    fixture.assert_sound();
}

/// The process that is killed, in a test of its own.
#[test]
#[ignore = "run by the next test, in a process of its own"]
fn runs_a_batch_and_is_killed() {
    let Some(work) = std::env::var_os("AFTER_WORK") else { return };
    stops::kill_at("pushed", 1);
    GitBatch::open(work, Settings::default()).unwrap().apply(after_the_remote()).unwrap();
}

#[test]
fn nor_where_another_process_goes_on_with_the_rest() {
    for is_refused in [true, false] {
        let fixture = Fixture::new();
        fixture.git(["branch", "w"]);
        if is_refused {
            fixture.hook("update", "test $1 != refs/heads/main");
        }
        let mut killed = Command::new(std::env::current_exe().unwrap());
        killed.args(["--ignored", "--exact", "runs_a_batch_and_is_killed"]);
        killed.env("AFTER_WORK", fixture.work()).stdout(Stdio::null()).stderr(Stdio::null());
        assert_eq!(killed.status().unwrap().code(), None, "it was not killed");
        assert_eq!(fixture.git(["branch", "--list", "y", "z"]), "");
        let report = fixture.open().apply(after_the_remote()).unwrap();
        for id in ["m", "y", "push y", "z", "merge", "push w"] {
            let has_landed = matches!(report.get(id), Some(Outcome::Landed { .. }));
            assert_eq!(has_landed, !is_refused, "{id}: {report:?}");
        }
        landed(&report, "push alone");
        fixture.assert_sound();
    }
}

/// What comes between the two pushes keeps them apart, so that the gate has to look at both.
#[test]
fn what_is_pushed_twice_has_passed_a_gate_twice() {
    let fixture = Fixture::new();
    let gate = Gate::new("true").in_folder(fixture.beside(""));
    let git = GitBatch::open(fixture.work(), Settings::default().with_gate(gate)).unwrap();
    let operations = vec![
        commit("m1", "main", "main"),
        Operation::push("p1", "main"),
        commit("y", "y", "main~0").after("m1"),
        commit("m2", "main", "main").after("y"),
        Operation::push("p2", "main"),
    ];
    let report = git.apply(operations).unwrap();
    for (id, _) in &report.outcomes {
        landed(&report, id);
    }
    assert_eq!((report.pushes(), report.receipt().gate_runs), (2, 2));
    fixture.assert_sound();
}

/// The first step of `main` loses its push, the second one the first step: all of it is tried again.
#[test]
fn what_has_skipped_each_other_is_tried_again() {
    let fixture = Fixture::new();
    let operations = || {
        vec![
            commit("c", "x", "main~0"),
            commit("m1", "main", "main"),
            Operation::push("p1", "main").after("c"),
            commit("y", "y", "main~0").after("m1"),
            commit("m2", "main", "main").after("y"),
            Operation::push("p2", "main"),
        ]
    };
    let lock = fixture.work().join(".git/refs/heads/x.lock");
    fs::write(&lock, "").unwrap();
    let report = fixture.open().apply(operations()).unwrap();
    assert!(is_skipped(&report, "p1"), "{report:?}");
    fs::remove_file(&lock).unwrap();
    let report = fixture.open().apply(operations()).unwrap();
    for (id, _) in &report.outcomes {
        landed(&report, id);
    }
    assert_eq!(fixture.at_remote(["log", "--format=%s", "-2", "main"]), "m2\nm1\n");
    fixture.assert_sound();
}

/// Its local branches move before what a group has to come before, and after what it comes after.
#[test]
fn a_group_comes_after_what_is_none_of_it() {
    let operations = || {
        vec![
            commit("before", "before", "main"),
            commit("here", "here", "main").in_group("g").after("before"),
            commit("there", "there", "main").in_group("g"),
            Operation::push("push", "there").in_group("g"),
        ]
    };
    let fixture = Fixture::new();
    let lock = fixture.work().join(".git/refs/heads/before.lock");
    fs::write(&lock, "").unwrap();
    let report = fixture.open().apply(operations()).unwrap();
    for id in ["here", "there", "push"] {
        assert!(is_skipped(&report, id), "{id}: {report:?}");
    }
    assert_eq!(names(&fixture), ["main\n", "main\n"]);
    fs::remove_file(&lock).unwrap();
    let report = fixture.open().apply(operations()).unwrap();
    for (id, _) in &report.outcomes {
        landed(&report, id);
    }
}

/// The first operation of the later group comes before the other one in the input.
#[test]
fn a_group_comes_after_another_one() {
    let group = |name: &str| {
        [commit(name, name, "main"), Operation::push(format!("push {name}"), name)]
            .map(|operation| operation.in_group(name))
    };
    let [one, push_one] = group("one");
    let [two, push_two] = group("two");
    let fixture = Fixture::new();
    fixture.hook("update", "test $1 != refs/heads/two");
    let more = commit("more", "more", "main").in_group("one").after("two");
    let report = fixture.open().apply(vec![one, push_one, two, push_two, more]).unwrap();
    assert!(matches!(report.get("push two"), Some(Outcome::Rejected { .. })), "{report:?}");
    for id in ["one", "push one", "more"] {
        assert!(is_skipped(&report, id), "{id}: {report:?}");
    }
    assert_eq!(names(&fixture), ["main\n", "main\n"]);
}

/// Neither can be first: what is merged to the remote's branch is gone on from after that.
fn needs_itself() -> Vec<Operation> {
    vec![
        commit("x1", "x", "main"),
        Operation::merge("m", "x", "main"),
        Operation::push("push m", "main"),
        commit("x2", "x", "main~0").after("m"),
    ]
}

#[test]
fn what_is_after_something_that_needs_itself_comes_after_it() {
    let fixture = Fixture::new();
    fixture.hook("update", "test $1 != refs/heads/main");
    let mut operations = needs_itself();
    operations.push(commit("z", "z", "main~0").after("m"));
    let report = fixture.open().apply(operations).unwrap();
    assert!(matches!(report.get("m"), Some(Outcome::Rejected { .. })), "{report:?}");
    assert!(is_skipped(&report, "z"), "{report:?}");
    assert_eq!(fixture.git(["branch", "--list", "z"]), "");
}

#[test]
fn what_needs_itself_is_done_at_once() {
    let fixture = Fixture::new();
    let report = fixture.open().apply(needs_itself()).unwrap();
    for (id, _) in &report.outcomes {
        landed(&report, id);
    }
    assert_eq!(report.pushes(), 1);
}
