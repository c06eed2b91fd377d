//! Groups with branches that they do not push: those land with the push, or not at all.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;

use git_batch::{
    Commit, ExecutorKind, GitBatch, Merge, OpErrorKind, Operation, OperationKind, Outcome, Report,
    Settings, Strategy,
};
use support::worktree::{capture, files, linked, put, status};
use support::{Fixture, kind, landed, run};

const EXECUTORS: [ExecutorKind; 2] = [ExecutorKind::Gix, ExecutorKind::GitProgram];

fn commit(id: &str, branch: &str) -> Operation {
    Operation::commit(id, Commit::new(branch, "m").write(format!("{id}.txt"), "x\n"))
}

/// A commit that stays here, and one that is pushed.
fn group(here: &str) -> Vec<Operation> {
    vec![
        commit("here", here).in_group("g"),
        commit("there", "there").in_group("g"),
        Operation::push("push", "there").in_group("g"),
    ]
}

fn apply(fixture: &Fixture, executor: ExecutorKind, operations: Vec<Operation>) -> Report {
    let settings = Settings::default().with_executor(executor);
    GitBatch::open(fixture.work(), settings).unwrap().apply(operations).unwrap()
}

fn branches(fixture: &Fixture) -> String {
    fixture.git(["for-each-ref", "--format=%(refname:short)", "refs/heads"])
}

fn branches_there(fixture: &Fixture) -> String {
    fixture.at_remote(["for-each-ref", "--format=%(refname:short)", "refs/heads"])
}

fn is_skipped(report: &Report, id: &str) -> bool {
    matches!(report.get(id), Some(Outcome::Skipped { .. }))
}

/// Somebody holds its lock: known before the push, so there is no push.
#[test]
fn a_branch_that_cannot_move_here_keeps_the_push_back() {
    for executor in EXECUTORS {
        let fixture = Fixture::new();
        fixture.git(["branch", "held"]);
        fs::write(fixture.work().join(".git/refs/heads/held.lock"), "").unwrap();
        let mut operations = group("held");
        operations.insert(0, commit("free", "free").in_group("g"));
        let report = apply(&fixture, executor, operations);
        assert_eq!(kind(report.get("here")), Some(OpErrorKind::BranchMoved), "{report:?}");
        for id in ["free", "there", "push"] {
            assert!(is_skipped(&report, id), "{id}: {report:?}");
        }
        assert_eq!((report.pushes(), branches_there(&fixture).as_str()), (0, "main\n"));
        assert_eq!(branches(&fixture), "held\nmain\n");
    }
}

/// Whatever somebody does with it while the push runs, the commit was on the branch.
#[test]
fn a_branch_that_somebody_moves_during_the_push_has_landed_with_its_group() {
    for executor in EXECUTORS {
        let fixture = Fixture::new();
        fixture.git(["branch", "here"]);
        let (work, main) = (fixture.work(), fixture.id("main"));
        fixture.hook(
            "post-receive",
            &format!(
                "unset GIT_DIR; git -C '{}' update-ref refs/heads/here {main}",
                work.display()
            ),
        );
        let report = apply(&fixture, executor, group("here"));
        for id in ["here", "there", "push"] {
            landed(&report, id);
        }
        assert_eq!(fixture.id("here"), main);
    }
}

/// A new branch is gone again, one that was there is where it was, and so is the index of a worktree.
#[test]
fn a_refused_push_takes_back_what_moved_before_it() {
    for executor in EXECUTORS {
        let fixture = Fixture::new();
        fixture.git(["branch", "old"]);
        fixture.git(["branch", "packed"]);
        fixture.git(["pack-refs", "--all"]);
        fixture.git(["branch", "loose"]);
        let dir = linked(&fixture, "agent");
        put(&dir, "README.md", "staged\n");
        run(&dir, ["add", "-A"]);
        put(&dir, "README.md", "edited\n");
        put(&dir, "new.txt", "new\n");
        fs::remove_file(dir.join("old/kept.txt")).unwrap();
        let before = (fixture.git(["for-each-ref"]), status(&dir), files(&dir));
        let staged = run(&dir, ["write-tree"]);
        fixture.hook("update", "exit 1");
        let mut operations = group("new/one");
        for branch in ["old", "packed", "loose"] {
            operations.push(commit(branch, branch).in_group("g"));
        }
        operations.push(capture("agent", "agent", &dir).in_group("g"));
        operations.push(commit("alone", "alone"));
        let report = apply(&fixture, executor, operations);
        assert!(matches!(report.get("push"), Some(Outcome::Rejected { .. })), "{report:?}");
        for id in ["here", "there", "old", "packed", "loose", "agent"] {
            assert!(is_skipped(&report, id), "{id}: {report:?}");
        }
        landed(&report, "alone");
        fixture.git(["update-ref", "-d", "refs/heads/alone"]);
        assert_eq!((fixture.git(["for-each-ref"]), status(&dir), files(&dir)), before);
        assert_eq!(run(&dir, ["write-tree"]), staged);
        assert!(!fixture.work().join(".git/refs/heads/new").exists());
        assert_eq!(branches_there(&fixture), "main\n");
        fixture.assert_sound();
    }
}

/// Its commit cannot be taken from under others, and is said to be there.
#[test]
fn a_branch_that_others_have_built_on_is_not_moved_back() {
    for executor in EXECUTORS {
        let fixture = Fixture::new();
        let work = fixture.work();
        let on_top = "git commit-tree -p here -m more here^{tree}";
        fixture.hook(
            "pre-receive",
            &format!(
                "unset GIT_DIR GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY \
                 GIT_ALTERNATE_OBJECT_DIRECTORIES; cd '{}'; git config user.name A; \
                 git update-ref refs/heads/here $({on_top}) || exit 0; exit 1",
                work.display()
            ),
        );
        let report = apply(&fixture, executor, group("here"));
        let Some(Outcome::Failed(error)) = report.get("here") else { panic!("{report:?}") };
        assert_eq!(error.kind, OpErrorKind::BranchMoved);
        assert!(error.message.contains("keeps the commit"), "{error}");
        assert_eq!(fixture.git(["log", "--format=%s", "main..here"]), "more\nm\n");
        assert!(is_skipped(&report, "there"), "{report:?}");
        assert_eq!(branches_there(&fixture), "main\n");
    }
}

/// The branch moves as a whole, so neither can be done without the other.
#[test]
fn groups_that_change_one_branch_land_together_or_not_at_all() {
    let operations = || {
        let mut operations = group("shared");
        operations.push(commit("other", "shared").in_group("h"));
        operations.push(commit("more", "more").in_group("h"));
        operations.push(Operation::push("push more", "more").in_group("h"));
        operations
    };
    let all = ["here", "there", "push", "other", "more", "push more"];
    let fixture = Fixture::new();
    let report = apply(&fixture, ExecutorKind::Gix, operations());
    for id in all {
        landed(&report, id);
    }
    assert_eq!(report.pushes(), 1);

    let fixture = Fixture::new();
    fixture.hook("update", "case $1 in refs/heads/more) exit 1;; esac");
    let report = apply(&fixture, ExecutorKind::Gix, operations());
    assert!(report.outcomes.iter().all(|(_, outcome)| !outcome.is_success()), "{report:?}");
    assert_eq!(branches(&fixture), "main\n");
    assert_eq!(branches_there(&fixture), "main\n");
}

/// `main` is checked out, so what a group does to it is done by whoever pushes it.
#[test]
fn a_group_waits_for_the_push_that_brings_its_branch_to_the_remote() {
    let operations = || {
        let mut operations = group("main");
        operations.push(Operation::push("push main", "main"));
        operations
    };
    let fixture = Fixture::new();
    fixture.hook("update", "case $1 in refs/heads/main) exit 1;; esac");
    let report = apply(&fixture, ExecutorKind::Gix, operations());
    assert!(report.outcomes.iter().all(|(_, outcome)| !outcome.is_success()), "{report:?}");
    assert_eq!(branches_there(&fixture), "main\n");

    let fixture = Fixture::new();
    let report = apply(&fixture, ExecutorKind::Gix, operations());
    assert!(report.outcomes.iter().all(|(_, outcome)| outcome.is_success()), "{report:?}");
    assert_eq!(report.pushes(), 1);
}

/// The commit before it is in what the group has pushed.
#[test]
fn a_commit_of_nobody_under_a_group_lands_with_its_push() {
    let fixture = Fixture::new();
    let mut operations = vec![commit("before", "main")];
    operations.extend(group("main"));
    operations.push(Operation::push("push main", "main").in_group("g"));
    let report = apply(&fixture, ExecutorKind::Gix, operations);
    for id in ["before", "here", "there", "push", "push main"] {
        landed(&report, id);
    }
    let before = landed(&report, "before").to_string();
    fixture.at_remote(["merge-base", "--is-ancestor", &before, "main"]);
}

/// A branch that stays here and the one it is merged into, which is pushed.
#[test]
fn a_merged_branch_of_a_group_lands_with_the_push_of_the_other() {
    let fixture = Fixture::new();
    let merge = Merge {
        source: "feature".to_owned(),
        into: "main".to_owned(),
        strategy: Strategy::Merge,
        message: None,
    };
    let operations = vec![
        commit("feature", "feature").in_group("g"),
        Operation::new("merge", OperationKind::Merge(merge)).in_group("g"),
        Operation::push("push", "main").in_group("g"),
    ];
    let refused = Fixture::new();
    refused.hook("pre-receive", "exit 1");
    let report = apply(&refused, ExecutorKind::Gix, operations.clone());
    assert!(is_skipped(&report, "feature"), "{report:?}");
    assert_eq!(branches(&refused), "main\n");

    let report = apply(&fixture, ExecutorKind::Gix, operations);
    let feature = landed(&report, "feature");
    assert_eq!(fixture.id("feature"), feature);
    fixture.at_remote(["merge-base", "--is-ancestor", &feature.to_string(), "main"]);
}
