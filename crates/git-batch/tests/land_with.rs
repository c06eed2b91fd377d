//! Landings of operations of any kind.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;

use git_batch::{
    ApplyError, Commit, Extent, Gate, GitBatch, OpErrorKind, Operation, Outcome, Report, Settings,
};
use support::{Fixture, kind, landed, try_run};

/// A task: its commit, its merge onto `main`, its push.
fn task(name: &str, commit: Commit) -> Vec<Operation> {
    vec![
        Operation::commit(format!("{name}/commit"), commit),
        Operation::merge(format!("{name}/merge"), name, "main").after(format!("{name}/commit")),
        Operation::push(format!("{name}/push"), name).after(format!("{name}/merge")),
    ]
}

fn tasks(fixture: &Fixture) -> Vec<Operation> {
    let base = fixture.id("main").to_string();
    let mut operations = Vec::new();
    for name in ["a", "b"] {
        let commit = Commit::new(name, "Work").with_base(&base).write(format!("{name}.txt"), "x");
        operations.extend(task(name, commit));
    }
    let delete = Commit::new("c", "Delete").with_base(&base).delete("old/kept.txt");
    operations.extend(task("c", delete));
    operations.push(Operation::push("base", "main"));
    operations
}

fn all_landed(report: &Report) {
    for (id, _) in &report.outcomes {
        landed(report, id);
    }
}

#[test]
fn commits_merges_and_pushes_leave_in_one_push() {
    let fixture = Fixture::new();
    fixture.move_remote("main", "theirs.txt", "theirs\n");
    let report = fixture.open().land_with("main", &tasks(&fixture), Extent::All).unwrap();
    all_landed(&report);
    assert_eq!((report.pushes(), fixture.received()), (1, 2));
    assert_eq!(fixture.at_remote(["branch", "--format=%(refname:short)"]), "a\nb\nc\nmain\n");
    assert_eq!(fixture.at_remote(["rev-list", "--count", "--merges", "main"]).trim(), "3");
    let (code, _) = try_run(&fixture.remote(), ["cat-file", "-e", "main:old/kept.txt"]);
    assert_ne!(code, Some(0));
    fixture.assert_sound();
}

/// A commit is made once, also where it deletes what it cannot find a second time.
#[test]
fn a_base_that_moves_during_the_push_costs_no_second_commit() {
    let fixture = Fixture::new();
    fixture.move_remote("main", "theirs.txt", "first\n");
    let other = fixture.beside("other");
    // The first push finds that the base has moved.
    let script = format!(
        "test -e once && exit 0; touch once; unset GIT_DIR GIT_QUARANTINE_PATH \
         GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES; cd '{}'; echo > moved; \
         git add moved; git commit -qm moved; git push -q origin main >/dev/null 2>&1; exit 0",
        other.display()
    );
    fixture.hook("pre-receive", &script);
    let report = fixture.open().land_with("main", &tasks(&fixture), Extent::All).unwrap();
    all_landed(&report);
    for name in ["a", "b", "c"] {
        assert_eq!(fixture.git(["rev-list", "--count", &format!("main..{name}")]).trim(), "1");
        assert_eq!(fixture.at_remote(["rev-list", "--count", name]).trim(), "2");
        let commit = landed(&report, &format!("{name}/commit"));
        fixture.at_remote(["merge-base", "--is-ancestor", &commit.to_string(), "main"]);
    }
    assert_eq!(fixture.at_remote(["show", "main:moved"]), "\n");
    fixture.assert_sound();
}

#[test]
fn what_is_to_stay_here_moves_the_branches_of_tasks_and_nothing_else() {
    let fixture = Fixture::new();
    let mut operations = tasks(&fixture);
    let clash =
        Commit::new("d", "Clash").with_base(fixture.id("main").to_string()).write("a.txt", "y");
    operations.splice(9..9, task("d", clash));
    let report = fixture.open().land_with("main", &operations, Extent::Local).unwrap();
    for id in ["a/commit", "a/merge", "a/push", "d/commit", "base"] {
        landed(&report, id);
    }
    assert!(matches!(report.get("d/merge"), Some(Outcome::Conflict { .. })), "{report:?}");
    assert!(matches!(report.get("d/push"), Some(Outcome::Skipped { .. })), "{report:?}");
    assert_eq!((report.pushes(), fixture.received()), (0, 0));
    assert_eq!(fixture.id("a"), landed(&report, "a/commit"));
    assert_eq!(fixture.git(["rev-list", "--count", "main"]).trim(), "1");
    // What cannot move here is missed by what was to come after it.
    std::fs::write(fixture.work().join(".git/refs/heads/e.lock"), "").unwrap();
    let commit = Commit::new("e", "Locked").with_base("main").write("e.txt", "x");
    let mut operations = task("e", commit);
    operations.push(Operation::push("base", "main"));
    let report = fixture.open().land_with("main", &operations, Extent::Local).unwrap();
    assert_eq!(kind(report.get("e/commit")), Some(OpErrorKind::BranchMoved));
    assert!(matches!(report.get("e/merge"), Some(Outcome::Skipped { .. })), "{report:?}");
}

#[test]
fn the_gate_leaves_the_merge_of_a_culprit_out_and_keeps_its_commit_here() {
    let fixture = Fixture::new();
    let gate = Gate::new("test").with_args(["!", "-e", "b.txt"]);
    let settings = Settings::default().with_gate(gate.in_folder(fixture.beside("")));
    let git = GitBatch::open(fixture.work(), settings).unwrap();
    let report = git.land_with("main", &tasks(&fixture), Extent::All).unwrap();
    landed(&report, "b/commit");
    assert_eq!(kind(report.get("b/merge")), Some(OpErrorKind::Gate));
    assert!(matches!(report.get("b/push"), Some(Outcome::Skipped { .. })), "{report:?}");
    for id in ["a/push", "c/push", "base"] {
        landed(&report, id);
    }
    assert_eq!(fixture.at_remote(["branch", "--format=%(refname:short)"]), "a\nc\nmain\n");
}

#[test]
fn nothing_comes_after_the_push_of_a_landing() {
    let fixture = Fixture::new();
    let mut operations = tasks(&fixture);
    let late = Commit::new("late", "m").with_base("main").write("late.txt", "x");
    operations.push(Operation::commit("late", late).after("base"));
    let report = fixture.open().land_with("main", &operations, Extent::All).unwrap();
    assert_eq!(kind(report.get("late")), Some(OpErrorKind::UnknownDependency));
    landed(&report, "base");
    operations.push(Operation::push("base", "main"));
    let error = fixture.open().land_with("main", &operations, Extent::All).unwrap_err();
    assert!(matches!(error, ApplyError::DuplicateId { .. }));
}

/// A branch that stays here waits for the base; one that is pushed leaves with it, whatever comes of that.
#[test]
fn what_stays_here_does_not_come_where_the_base_is_refused() {
    let operations = |fixture: &Fixture| {
        let mut operations = tasks(fixture);
        for name in ["late", "too"] {
            let commit = Commit::new(name, "m").with_base("main~0").write("late.txt", "x");
            operations.push(Operation::commit(name, commit).after("a/merge"));
        }
        operations.push(Operation::push("too/push", "too"));
        operations
    };
    let fixture = Fixture::new();
    fixture.hook("update", "test $1 != refs/heads/main");
    let report = fixture.open().land_with("main", &operations(&fixture), Extent::All).unwrap();
    assert!(matches!(report.get("base"), Some(Outcome::Rejected { .. })), "{report:?}");
    assert!(matches!(report.get("late"), Some(Outcome::Skipped { .. })), "{report:?}");
    assert_eq!(fixture.git(["branch", "--list", "late"]), "");
    landed(&report, "too/push");
    fixture.hook("update", "exit 0");
    let report = fixture.open().land_with("main", &operations(&fixture), Extent::All).unwrap();
    landed(&report, "base");
    assert_eq!(fixture.id("late"), landed(&report, "late"));
}

/// It is known also when the rest is done again, because the remote has moved.
#[test]
fn a_new_branch_without_a_change_is_merged_again() {
    let fixture = Fixture::new();
    fixture.at_remote(["branch", "theirs", "main"]);
    fixture.move_remote("theirs", "theirs.txt", "x\n");
    let hook = fixture.work().join(".git/hooks/pre-push");
    let script = format!(
        "#!/bin/sh\ntest -e '{0}' && exit 0\ntouch '{0}'\nunset GIT_DIR\n\
         cd '{1}' && git update-ref refs/heads/main theirs\n",
        fixture.beside("overtaken").display(),
        fixture.remote().display()
    );
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, script).unwrap();
    support::make_executable(&hook);
    let same = Commit::new("f", "m").with_base("main").write("README.md", "one\ntwo\nthree\n");
    let operations = [
        Operation::commit("same", same),
        Operation::merge("merge", "f", "main"),
        Operation::commit("more", Commit::new("main", "m").write("more.txt", "x")),
        Operation::push("push", "main"),
    ];
    let report = fixture.open().land_with("main", &operations, Extent::All).unwrap();
    for id in ["same", "merge"] {
        let outcome = report.get(id);
        assert!(matches!(outcome, Some(Outcome::NoChange { .. })), "{id}: {report:?}");
    }
    landed(&report, "push");
    assert_eq!(fixture.at_remote(["show", "main:more.txt", "main:theirs.txt"]), "xx\n");
}
