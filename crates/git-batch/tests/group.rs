//! Groups: of their operations all are done, or none is.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use git_batch::{Class, Commit, GitBatch, OnMoved, OpErrorKind, Operation, Outcome, Settings};
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

/// Two branches that both sides have, one of which the remote has moved on.
fn moved(path: &str) -> Fixture {
    let fixture = Fixture::new();
    for branch in ["a", "b"] {
        fixture.branch(branch, "main", &format!("{branch}.txt"), "1\n");
        fixture.git(["push", "-q", "origin", branch]);
    }
    fixture.move_remote("b", path, "theirs\n");
    fixture.at_remote(["reflog", "expire", "--expire=now", "--all"]);
    fixture
}

fn with(fixture: &Fixture, on_moved: OnMoved) -> GitBatch {
    GitBatch::open(fixture.work(), Settings::default().with_on_moved(on_moved)).unwrap()
}

fn entries(fixture: &Fixture, branch: &str) -> usize {
    fixture.at_remote(["reflog", "show", branch]).lines().count()
}

#[test]
fn a_group_whose_remote_has_moved_is_brought_together_and_pushed_as_a_whole() {
    for on_moved in [OnMoved::Merge, OnMoved::Rebase] {
        let fixture = moved("theirs.txt");
        let mut operations = pair("g", ["a", "b"]);
        operations[0] =
            Operation::commit("a", Commit::new("a", "m").write("more", "x")).in_group("g");
        operations[2] =
            Operation::commit("b", Commit::new("b", "m").write("more", "x")).in_group("g");
        let report = with(&fixture, on_moved).apply(operations).unwrap();
        for branch in ["a", "b"] {
            let pushed = landed(&report, &format!("push {branch}"));
            assert_eq!(fixture.at_remote(["rev-parse", branch]).trim(), pushed.to_string());
            assert_eq!(fixture.id(branch), pushed, "{on_moved:?}: {branch} does not follow");
            assert_eq!(entries(&fixture, branch), 1);
            // The commit that the operation is said to have made is on its branch.
            let made = landed(&report, branch).to_string();
            fixture.git(["merge-base", "--is-ancestor", &made, branch]);
        }
        assert_eq!(fixture.at_remote(["show", "b:theirs.txt"]), "theirs\n");
        assert_eq!(report.pushes(), 1);
        let merges = fixture.at_remote(["rev-list", "--count", "--merges", "b"]);
        assert_eq!(merges.trim(), if on_moved == OnMoved::Merge { "1" } else { "0" });
        fixture.assert_sound();
    }
}

/// An operation of no group has its commit in what the group pushes.
#[test]
fn what_is_pushed_by_a_group_has_landed_also_where_it_is_made_again() {
    for on_moved in [OnMoved::Rebase, OnMoved::Merge] {
        let fixture = Fixture::new();
        fixture.move_remote("main", "theirs.txt", "theirs\n");
        let mut operations = pair("g", ["a", "b"]);
        let commit = Commit::new("main", "m").write("m.txt", "m\n");
        operations.push(Operation::commit("m", commit));
        operations.push(Operation::push("push m", "main").in_group("g"));
        let report = with(&fixture, on_moved).apply(operations).unwrap();
        for (id, _) in &report.outcomes {
            landed(&report, id);
        }
        assert_eq!(fixture.at_remote(["show", "main:m.txt", "main:theirs.txt"]), "m\ntheirs\n");
        // What it is said to have made is there.
        let made = landed(&report, "m").to_string();
        fixture.at_remote(["merge-base", "--is-ancestor", &made, "main"]);
        fixture.assert_sound();
    }
}

#[test]
fn a_group_that_cannot_be_brought_together_is_not_pushed_in_part() {
    for (on_moved, path) in [(OnMoved::Fail, "theirs.txt"), (OnMoved::Merge, "more")] {
        let fixture = moved(path);
        let mut operations = pair("g", ["a", "new"]);
        let commit = Commit::new("b", "m").write("more", "ours\n");
        operations.push(Operation::commit("b", commit).in_group("g"));
        operations.push(Operation::push("push b", "b").in_group("g"));
        let before = fixture.at_remote(["for-each-ref"]);
        let here = fixture.git(["for-each-ref", "refs/heads"]);
        let report = with(&fixture, on_moved).apply(operations).unwrap();
        match (on_moved, report.get("push b")) {
            (OnMoved::Fail, Some(Outcome::Rejected { class: Class::Transient, .. }))
            | (OnMoved::Merge, Some(Outcome::Conflict { .. })) => {}
            other => panic!("{other:?}"),
        }
        for id in ["a", "push a", "new", "push new", "b"] {
            assert_eq!(because(report.get(id)), Some("push b"), "{id}");
        }
        assert_eq!(fixture.at_remote(["for-each-ref"]), before);
        assert_eq!(fixture.git(["for-each-ref", "refs/heads"]), here);
    }
}

/// Somebody holds the lock of a ref at the remote for a moment.
#[test]
fn a_group_that_finds_a_ref_locked_is_pushed_again() {
    let fixture = moved("theirs.txt");
    fixture.hook(
        "pre-receive",
        "if test -e once; then rm -f refs/heads/a.lock; else touch once refs/heads/a.lock; fi",
    );
    let mut operations = pair("g", ["a", "c"]);
    operations[0] = Operation::commit("a", Commit::new("a", "m").write("more", "x")).in_group("g");
    let report = fixture.open().apply(operations).unwrap();
    for id in ["a", "push a", "c", "push c"] {
        landed(&report, id);
    }
    assert_eq!((report.pushes(), entries(&fixture, "a")), (2, 1));
}

/// A name that can never be made at the remote is not tried again, and the culprit is named.
#[test]
fn a_group_with_a_name_that_clashes_at_the_remote_is_refused_at_once() {
    let fixture = Fixture::new();
    fixture.git(["push", "-q", "origin", "main:refs/heads/b/deep"]);
    let report = fixture.open().apply(pair("g", ["a", "b"])).unwrap();
    let Some(Outcome::Rejected { class: Class::Permanent, reason }) = report.get("push b") else {
        panic!("{report:?}");
    };
    assert!(reason.contains("b/deep"), "{reason}");
    assert_eq!(because(report.get("push a")), Some("push b"));
    assert_eq!((report.pushes(), branches(&fixture).as_str()), (1, "main\n"));
}

/// The remote has all of the group when somebody moves one of its branches here.
#[test]
fn a_branch_that_moves_between_the_push_and_the_local_move_leaves_no_half_group() {
    let fixture = moved("theirs.txt");
    let other = fixture.id("main");
    let work = fixture.work();
    fixture.hook(
        "post-receive",
        &format!("unset GIT_DIR; git -C '{}' update-ref refs/heads/a {other}", work.display()),
    );
    let mut operations = pair("g", ["a", "c"]);
    operations[0] = Operation::commit("a", Commit::new("a", "m").write("more", "x")).in_group("g");
    let report = fixture.open().apply(operations).unwrap();
    for id in ["a", "push a", "c", "push c"] {
        landed(&report, id);
    }
    assert_eq!(fixture.at_remote(["rev-parse", "a"]).trim(), landed(&report, "a").to_string());
    // What somebody else has done stays.
    assert_eq!(fixture.id("a"), other);
    assert_eq!(fixture.id("c"), landed(&report, "c"));
}
