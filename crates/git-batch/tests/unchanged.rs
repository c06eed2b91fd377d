//! Operations that find nothing to change because of another one of the batch: they have come if that has.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;
use std::process::{Command, Stdio};

use git_batch::{Commit, OpErrorKind, Operation, Outcome, Report, Strategy, stops};
use git_batch::{Merge, OperationKind};
use support::{Fixture, kind, landed, no_change};

/// One and the same commit, whatever branch it is for.
fn same(id: &str, branch: &str) -> Operation {
    let commit = Commit::new(branch, "Same").with_base("main").write("same.txt", "x");
    Operation::commit(id, commit)
}

/// What one agent does on two branches, and once more on the first.
fn fan_out() -> Vec<Operation> {
    let then = Commit::new("then", "Then").with_base("main").write("then.txt", "x");
    vec![
        same("a1", "a"),
        same("b1", "b"),
        same("a2", "a"),
        Operation::commit("then", then).after("a2"),
    ]
}

/// Somebody holds a branch.
fn lock(fixture: &Fixture, branch: &str) {
    fs::write(fixture.work().join(format!(".git/refs/heads/{branch}.lock")), "").unwrap();
}

fn is_skipped(report: &Report, id: &str) -> bool {
    matches!(report.get(id), Some(Outcome::Skipped { .. }))
}

#[test]
fn what_is_there_is_there_whatever_becomes_of_the_same_commit_elsewhere() {
    let fixture = Fixture::new();
    lock(&fixture, "b");
    let report = fixture.open().apply(fan_out()).unwrap();
    let commit = landed(&report, "a1");
    assert_eq!(kind(report.get("b1")), Some(OpErrorKind::BranchMoved), "{report:?}");
    assert_eq!(report.get("a2"), Some(&no_change(commit)));
    landed(&report, "then");
}

#[test]
fn what_is_not_there_is_not_there_although_the_same_commit_is_elsewhere() {
    let fixture = Fixture::new();
    lock(&fixture, "a");
    let report = fixture.open().apply(fan_out()).unwrap();
    landed(&report, "b1");
    assert_eq!(kind(report.get("a1")), Some(OpErrorKind::BranchMoved), "{report:?}");
    for id in ["a2", "then"] {
        assert!(is_skipped(&report, id), "{id}: {report:?}");
    }
}

/// The process that is killed, in a test of its own.
#[test]
#[ignore = "run by the next test, in a process of its own"]
fn runs_a_batch_and_is_killed() {
    let Some(work) = std::env::var_os("UNCHANGED_WORK") else { return };
    stops::kill_at("built", 1);
    let git = git_batch::GitBatch::open(work, git_batch::Settings::default()).unwrap();
    git.apply(fan_out()).unwrap();
}

#[test]
fn nor_is_it_there_where_the_batch_is_finished_by_another_process() {
    let fixture = Fixture::new();
    let mut killed = Command::new(std::env::current_exe().unwrap());
    killed.args(["--ignored", "--exact", "runs_a_batch_and_is_killed"]);
    killed.env("UNCHANGED_WORK", fixture.work()).stdout(Stdio::null()).stderr(Stdio::null());
    assert_eq!(killed.status().unwrap().code(), None, "it was not killed");
    fixture.branch("a", "main", "theirs.txt", "x");
    landed(&fixture.open().apply(vec![Operation::push("p", "main")]).unwrap(), "p");
    assert_eq!(fixture.git(["log", "--format=%s", "main..b"]), "Same\n");
    assert_eq!(fixture.git(["branch", "--list", "then"]), "");
    // So it is done now, and not only told.
    let report = fixture.open().apply(fan_out()).unwrap();
    assert!(report.outcomes.iter().all(|(_, outcome)| outcome.is_success()), "{report:?}");
    assert_eq!(report.replayed.iter().collect::<Vec<_>>(), ["b1"]);
    assert_eq!(fixture.git(["show", "a:same.txt"]), "x");
}

/// All of a group or nothing: what one of it has found there already counts.
#[test]
fn a_group_falls_with_what_it_has_found_there() {
    for is_pushed in [true, false] {
        let fixture = Fixture::new();
        lock(&fixture, "a");
        let there = Commit::new("there", "There").with_base("main").write("there.txt", "x");
        let mut operations = vec![
            same("a1", "a"),
            same("a2", "a").in_group("g"),
            Operation::commit("there", there).in_group("g"),
        ];
        if is_pushed {
            operations.push(Operation::push("push", "there").in_group("g"));
        }
        let report = fixture.open().apply(operations).unwrap();
        assert!(report.outcomes.iter().all(|(_, outcome)| !outcome.is_success()), "{report:?}");
        assert_eq!(fixture.git(["branch", "--format=%(refname:short)"]), "main\n");
        assert_eq!(fixture.at_remote(["branch", "--format=%(refname:short)"]), "main\n");
    }
}

/// The group comes after what it has found there, which moves at the remote only.
#[test]
fn a_group_needs_what_it_has_found_at_the_remote() {
    for is_refused in [false, true] {
        let fixture = Fixture::new();
        if is_refused {
            fixture.hook("update", "test $1 != refs/heads/main");
        }
        let there = Commit::new("there", "There").with_base("main~0").write("there.txt", "x");
        let operations = vec![
            same("m1", "main"),
            same("g1", "main").in_group("g"),
            Operation::commit("g2", there).in_group("g"),
            Operation::push("g3", "there").in_group("g"),
            Operation::push("p", "main"),
        ];
        let report = fixture.open().apply(operations).unwrap();
        let has_come = |(_, outcome): &(String, Outcome)| outcome.is_success() != is_refused;
        assert!(report.outcomes.iter().all(has_come), "{report:?}");
        let there = if is_refused { "main\n" } else { "main\nthere\n" };
        assert_eq!(fixture.git(["branch", "--format=%(refname:short)"]), there);
        assert_eq!(fixture.at_remote(["branch", "--format=%(refname:short)"]), there);
        assert_eq!(report.pushes(), if is_refused { 1 } else { 2 });
    }
}

/// It does not need the group, whose operations others may have handed in.
#[test]
fn what_a_group_has_found_there_does_not_fall_with_it() {
    let fixture = Fixture::new();
    fixture.hook("update", "test $1 != refs/heads/there");
    let there = Commit::new("there", "There").with_base("main").write("there.txt", "x");
    let operations = vec![
        same("a1", "a"),
        Operation::push("push a", "a"),
        same("a2", "a").in_group("g"),
        Operation::commit("there", there).in_group("g"),
        Operation::push("push there", "there").in_group("g"),
    ];
    let report = fixture.open().apply(operations).unwrap();
    assert_eq!(landed(&report, "a1"), landed(&report, "push a"));
    assert!(matches!(report.get("push there"), Some(Outcome::Rejected { .. })), "{report:?}");
    assert!(is_skipped(&report, "there"), "{report:?}");
    assert_eq!(fixture.git(["branch", "--format=%(refname:short)"]), "a\nmain\n");
    assert_eq!(fixture.at_remote(["branch", "--format=%(refname:short)"]), "a\nmain\n");
}

/// It starts at a commit of this batch that does not come, so nothing may be built on it.
#[test]
fn a_new_branch_without_a_change_stands_on_its_base() {
    let fixture = Fixture::new();
    fixture.git(["branch", "trunk"]);
    lock(&fixture, "a");
    let again = Commit::new("y", "Same").with_base("a").write("same.txt", "x");
    let operations = vec![
        same("a1", "a"),
        Operation::commit("y", again),
        Operation::push("push y", "y"),
        Operation::merge("merge", "y", "trunk"),
    ];
    let report = fixture.open().apply(operations).unwrap();
    for id in ["y", "push y", "merge"] {
        assert!(is_skipped(&report, id), "{id}: {report:?}");
    }
    assert_eq!(fixture.id("trunk"), fixture.id("main"));
}

/// The remote has the commit, and more: it has come, if not by this batch.
#[test]
fn what_is_behind_the_remote_is_there() {
    let fixture = Fixture::new();
    fixture.branch("a", "main", "a.txt", "x");
    fixture.git(["push", "-q", "origin", "a:main"]);
    fixture.move_remote("main", "theirs.txt", "x");
    let merge = |id: &str| {
        let merge = Merge {
            source: "a".to_owned(),
            into: "main".to_owned(),
            strategy: Strategy::FastForward,
            message: None,
        };
        Operation::new(id, OperationKind::Merge(merge))
    };
    let operations = vec![merge("one"), merge("two"), Operation::push("push", "main")];
    let report = fixture.open().apply(operations).unwrap();
    assert_eq!(report.get("one"), Some(&Outcome::Superseded));
    assert_eq!(report.get("two"), Some(&no_change(fixture.id("a"))));
}

/// Nothing can be written down of what is about to be done, so nothing is done.
#[test]
fn nothing_has_come_where_the_batch_cannot_begin() {
    let fixture = Fixture::new();
    let state = |fixture: &Fixture| fixture.work().join(".git/batchyard");
    let twin = fixture.copy();
    landed(&twin.open().apply(fan_out()).unwrap(), "a1");
    let name = fs::read_dir(state(&twin).join("done")).unwrap().next().unwrap().unwrap();
    // In the place of its record, before that gets its name.
    let taken = state(&fixture).join("open").join(name.file_name()).with_extension("new");
    fs::create_dir_all(taken.join("x")).unwrap();
    let report = fixture.open().apply(fan_out()).unwrap();
    assert!(report.outcomes.iter().all(|(_, outcome)| !outcome.is_success()), "{report:?}");
    assert_eq!(fixture.git(["branch", "--format=%(refname:short)"]), "main\n");
}
