//! Groups: of their operations all are done, or none is.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use git_batch::{Class, Commit, OpErrorKind, Operation, Outcome};
use support::{Fixture, kind, landed, run};

fn commit(id: &str, branch: &str) -> Operation {
    Operation::commit(id, Commit::new(branch, "m").write(format!("{id}.txt"), "x\n"))
}

/// A commit and a push on each of two branches, in one group.
fn pair(group: &str, branches: [&str; 2]) -> Vec<Operation> {
    let of_branch = |branch: &&str| {
        let push = Operation::push(format!("push {branch}"), *branch);
        [commit(branch, branch).in_group(group), push.in_group(group)]
    };
    branches.iter().flat_map(of_branch).collect()
}

fn branches(fixture: &Fixture) -> String {
    fixture.git(["for-each-ref", "--format=%(refname:short)", "refs/heads"])
}

fn branches_there(fixture: &Fixture) -> String {
    fixture.at_remote(["for-each-ref", "--format=%(refname:short)", "refs/heads"])
}

fn because(outcome: Option<&Outcome>) -> Option<&str> {
    match outcome {
        Some(Outcome::Skipped { because }) => Some(because),
        _ => None,
    }
}

#[test]
fn a_group_lands_as_one_push_of_its_own() {
    let fixture = Fixture::new();
    let mut operations = pair("g", ["a", "b"]);
    operations.extend([commit("c", "c"), Operation::push("push c", "c")]);
    let report = fixture.open().apply(operations).unwrap();
    for id in ["a", "b", "c", "push a", "push b", "push c"] {
        landed(&report, id);
    }
    assert_eq!(report.pushes(), 2);
    assert_eq!(fixture.received(), 2);
    assert_eq!(branches(&fixture), "a\nb\nc\nmain\n");
    assert_eq!(branches_there(&fixture), "a\nb\nc\nmain\n");
    fixture.assert_sound();
}

#[test]
fn one_that_cannot_be_built_takes_its_group_with_it() {
    let fixture = Fixture::new();
    let mut operations = pair("g", ["a", "b"]);
    let bad = Commit::new("bad", "m").write("../x", "x");
    operations.push(Operation::commit("bad", bad).in_group("g"));
    operations.extend([commit("c", "c"), Operation::push("push c", "c")]);
    let report = fixture.open().apply(operations).unwrap();
    assert_eq!(kind(report.get("bad")), Some(OpErrorKind::InvalidPath));
    for id in ["a", "b", "push a", "push b"] {
        assert!(because(report.get(id)).is_some(), "{id}: {:?}", report.get(id));
    }
    landed(&report, "c");
    landed(&report, "push c");
    assert_eq!(branches(&fixture), "c\nmain\n");
    assert_eq!(report.pushes(), 1);
}

#[test]
fn a_ref_that_is_refused_keeps_its_whole_group_back() {
    let fixture = Fixture::new();
    fixture.hook("update", "case $1 in refs/heads/b) echo no; exit 1;; esac");
    let mut operations = pair("g", ["a", "b"]);
    operations.extend(pair("other", ["c", "d"]));
    let report = fixture.open().apply(operations).unwrap();
    let Some(Outcome::Rejected { class: Class::Permanent, reason }) = report.get("push b") else {
        panic!("{:?}", report.get("push b"));
    };
    assert!(reason.contains("hook declined"), "{reason}");
    for id in ["a", "b", "push a"] {
        assert_eq!(because(report.get(id)), Some("push b"), "{id}");
    }
    // Neither here nor there.
    assert_eq!(branches(&fixture), "c\nd\nmain\n");
    assert_eq!(branches_there(&fixture), "c\nd\nmain\n");
}

#[test]
fn a_hook_that_refuses_all_keeps_the_group_back() {
    let fixture = Fixture::new();
    fixture.hook("pre-receive", "grep -q refs/heads/b && exit 1; exit 0");
    let mut operations = pair("g", ["a", "b"]);
    operations.extend([commit("c", "c"), Operation::push("push c", "c")]);
    let report = fixture.open().apply(operations).unwrap();
    for id in ["push a", "push b"] {
        assert!(matches!(report.get(id), Some(Outcome::Rejected { .. })), "{id}");
    }
    for id in ["a", "b"] {
        assert!(because(report.get(id)).is_some(), "{id}");
    }
    landed(&report, "push c");
    assert_eq!(branches(&fixture), "c\nmain\n");
}

#[test]
fn a_group_without_a_push_moves_all_branches_or_none() {
    let fixture = Fixture::new();
    fixture.git(["branch", "held"]);
    std::fs::write(fixture.work().join(".git/refs/heads/held.lock"), "").unwrap();
    let operations =
        vec![commit("a", "a").in_group("g"), commit("h", "held").in_group("g"), commit("c", "c")];
    let report = fixture.open().apply(operations).unwrap();
    assert_eq!(kind(report.get("h")), Some(OpErrorKind::BranchMoved));
    assert_eq!(because(report.get("a")), Some("h"));
    landed(&report, "c");
    assert_eq!(branches(&fixture), "c\nheld\nmain\n");
}

#[test]
fn what_comes_after_a_group_waits_for_all_of_it() {
    let fixture = Fixture::new();
    fixture.hook("update", "case $1 in refs/heads/b) exit 1;; esac");
    let mut operations = pair("g", ["a", "b"]);
    operations.push(commit("next", "next").after("a"));
    operations.push(commit("on top", "a"));
    let report = fixture.open().apply(operations).unwrap();
    assert!(because(report.get("next")).is_some(), "{:?}", report.get("next"));
    assert!(because(report.get("on top")).is_some(), "{:?}", report.get("on top"));
    assert_eq!(branches(&fixture), "main\n");
}

#[test]
fn a_push_that_others_have_gone_beyond_is_superseded() {
    let fixture = Fixture::new();
    let report = fixture.open().apply(vec![commit("a", "a"), Operation::push("p", "a")]).unwrap();
    landed(&report, "p");
    fixture.move_remote("a", "more.txt", "more\n");
    run(&fixture.work(), ["fetch", "-q", "origin"]);
    let report = fixture.open().apply(vec![Operation::push("p", "a")]).unwrap();
    assert_eq!(report.get("p"), Some(&Outcome::Superseded));
    assert_eq!(report.pushes(), 0);
}
