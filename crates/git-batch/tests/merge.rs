//! Merges in memory, conflicts by name, and landing onto the remote.

mod support;

use git_batch::{
    Class, Commit, GitBatch, Merge, OpErrorKind, Operation, OperationKind, Outcome, Place, Strategy,
};
use support::{Fixture, kind, landed, no_change, try_run};

fn merge(id: &str, source: &str, into: &str, strategy: Strategy) -> Operation {
    let merge = Merge { source: source.into(), into: into.into(), strategy, message: None };
    Operation::new(id, OperationKind::Merge(merge))
}

/// A branch `trunk` at main that is checked out nowhere.
fn with_trunk() -> (Fixture, GitBatch) {
    let fixture = Fixture::new();
    fixture.git(["branch", "trunk", "main"]);
    let git = fixture.open();
    (fixture, git)
}

#[test]
fn commits_of_the_batch_are_merged_and_pushed_at_once() {
    let (fixture, git) = with_trunk();
    let report = git
        .apply(vec![
            Operation::commit("a", Commit::new("x", "X").write("x", "x")),
            Operation::commit("b", Commit::new("y", "Y").write("y", "y")),
            Operation::merge("ma", "x", "trunk"),
            Operation::merge("mb", "y", "trunk"),
            Operation::push("p", "trunk"),
        ])
        .unwrap();
    let tip = landed(&report, "p");
    assert_eq!(landed(&report, "mb"), tip);
    assert_eq!(fixture.at_remote(["rev-parse", "trunk"]).trim(), tip.to_string());
    assert_eq!(
        fixture.git(["log", "--format=%s|%p", "--first-parent", "main..trunk"]).lines().count(),
        2
    );
    assert_eq!(
        fixture.git(["log", "--format=%s", "-1", "trunk"]).trim(),
        "Merge branch 'y' into trunk"
    );
    assert_eq!(fixture.git(["rev-parse", "trunk^2"]).trim(), landed(&report, "b").to_string());
    assert_eq!(fixture.received(), 1);
    fixture.assert_sound();
}

#[test]
fn a_conflict_names_the_paths_and_the_operation_and_fails_alone() {
    let (fixture, git) = with_trunk();
    let edit = |branch: &str, text: &str| {
        Commit::new(branch, "m").with_base("main").write("README.md", text)
    };
    let report = git
        .apply(vec![
            Operation::commit("a", edit("x", "ONE\ntwo\nthree\n")),
            Operation::commit("b", edit("y", "UNO\ntwo\nthree\n")),
            Operation::commit("c", edit("z", "one\ntwo\nTHREE\n")),
            Operation::merge("ma", "x", "trunk"),
            Operation::merge("mb", "y", "trunk"),
            Operation::merge("mc", "z", "trunk"),
            Operation::push("p", "trunk"),
        ])
        .unwrap();
    assert_eq!(
        report.get("mb"),
        Some(&Outcome::Conflict { paths: vec!["README.md".into()], with: vec!["ma".into()] })
    );
    landed(&report, "ma");
    landed(&report, "mc");
    landed(&report, "p");
    assert_eq!(fixture.at_remote(["show", "trunk:README.md"]), "ONE\ntwo\nTHREE\n");
    assert!(!fixture.work().join(".git/batchyard/quarantine").exists());
    fixture.assert_sound();
}

#[test]
fn strategies_record_what_their_names_say() {
    let (fixture, git) = with_trunk();
    fixture.branch("x", "main", "x.txt", "x\n");
    fixture.branch("y", "main", "y.txt", "y\n");
    let report = git
        .apply(vec![
            merge("ff", "x", "trunk", Strategy::FastForward),
            merge("again", "x", "trunk", Strategy::Merge),
            merge("not ff", "y", "trunk", Strategy::FastForward),
            merge("squash", "y", "trunk", Strategy::Squash),
            merge("squash again", "y", "trunk", Strategy::Squash),
        ])
        .unwrap();
    assert_eq!(landed(&report, "ff"), fixture.id("x"));
    assert_eq!(report.get("again"), Some(&no_change(fixture.id("x"))));
    assert_eq!(kind(report.get("not ff")), Some(OpErrorKind::NotFastForward));
    let squashed = landed(&report, "squash");
    assert_eq!(report.get("squash again"), Some(&no_change(squashed)));
    assert_eq!(fixture.id("trunk"), squashed);
    assert_eq!(fixture.git(["rev-list", "--parents", "-1", "trunk"]).split(' ').count(), 2);
    assert_eq!(fixture.git(["show", "trunk:y.txt"]), "y\n");
}

#[test]
fn renames_are_followed_as_git_follows_them() {
    let (fixture, git) = with_trunk();
    let long = (0..30).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n");
    let edited = long.replace("line 20", "line twenty");
    let base = Commit::new("base", "m").with_base("main").write("dir/a.txt", long.clone());
    let moved = Commit::new("x", "m").with_base("base").delete("dir/a.txt").write("b.txt", long);
    let report = git
        .apply(vec![
            Operation::commit("0", base),
            Operation::commit("1", moved),
            Operation::commit(
                "2",
                Commit::new("y", "m").with_base("base").write("dir/a.txt", edited.clone()),
            ),
            // Both sides exist only in memory when git is asked.
            Operation::merge("m", "y", "x"),
        ])
        .unwrap();
    landed(&report, "m");
    assert_eq!(fixture.git(["show", "x:b.txt"]), edited);
    assert_eq!(try_run(&fixture.work(), ["cat-file", "-e", "x:dir/a.txt"]).0, Some(128));
    fixture.assert_sound();
}

#[test]
fn attributes_count_as_they_stand_in_the_commits() {
    let (fixture, git) = with_trunk();
    let list = |branch: &str, line: &str| {
        Commit::new(branch, "m").with_base("base").write("dir/list.txt", format!("a\n{line}\n"))
    };
    let attributed = Commit::new("base", "m")
        .write("dir/.gitattributes", "*.txt merge=union\n")
        .write("dir/list.txt", "a\n");
    // The same line of the work tree and the index concerns what is checked out only.
    fixture.write(".gitattributes", "*.md merge=union\n");
    fixture.git(["add", ".gitattributes"]);
    let readme = |branch: &str, line: &str| {
        Commit::new(branch, "m").with_base("main").write("README.md", format!("{line}\n"))
    };
    let report = git
        .apply(vec![
            Operation::commit("0", attributed),
            Operation::commit("1", list("x", "b")),
            Operation::commit("2", list("y", "c")),
            Operation::merge("union", "y", "x"),
            Operation::commit("3", readme("p", "b")),
            Operation::commit("4", readme("q", "c")),
            Operation::merge("plain", "q", "p"),
        ])
        .unwrap();
    landed(&report, "union");
    assert_eq!(fixture.git(["show", "x:dir/list.txt"]), "a\nb\nc\n");
    assert_eq!(
        report.get("plain"),
        Some(&Outcome::Conflict { paths: vec!["README.md".into()], with: vec!["3".into()] })
    );
}

#[test]
fn histories_without_a_common_commit_are_refused() {
    let (fixture, git) = with_trunk();
    let tree = fixture.git(["rev-parse", "main^{tree}"]);
    let root = fixture.git(["commit-tree", "-m", "root", tree.trim()]);
    fixture.git(["branch", "alone", root.trim()]);
    let report = git.apply(vec![Operation::merge("m", "alone", "trunk")]).unwrap();
    assert_eq!(kind(report.get("m")), Some(OpErrorKind::UnrelatedHistories));
}

#[test]
fn a_checked_out_branch_is_never_moved() {
    let fixture = Fixture::new();
    fixture.branch("x", "main", "x.txt", "x\n");
    let linked = fixture.beside("linked");
    fixture.git(["worktree", "add", "-q", "-b", "held", linked.to_str().unwrap(), "main"]);
    let before = (fixture.id("main"), fixture.id("held"), fixture.untouchable());
    let report = fixture
        .open()
        .apply(vec![
            Operation::commit("a", Commit::new("main", "m").write("a", "a")),
            Operation::merge("b", "x", "held"),
        ])
        .unwrap();
    assert_eq!(kind(report.get("a")), Some(OpErrorKind::CheckedOut));
    assert_eq!(kind(report.get("b")), Some(OpErrorKind::CheckedOut));
    assert_eq!((fixture.id("main"), fixture.id("held"), fixture.untouchable()), before);
}

#[test]
fn a_checked_out_branch_that_is_pushed_moves_at_the_remote_only() {
    let fixture = Fixture::new();
    fixture.branch("x", "main", "x.txt", "x\n");
    let before = (fixture.id("main"), fixture.untouchable());
    let report = fixture
        .open()
        .apply(vec![Operation::merge("m", "x", "main"), Operation::push("p", "main")])
        .unwrap();
    let tip = landed(&report, "p");
    assert_eq!(landed(&report, "m"), tip);
    assert_eq!(fixture.at_remote(["rev-parse", "main"]).trim(), tip.to_string());
    assert_eq!((fixture.id("main"), fixture.untouchable()), before);
    let places: Vec<Place> = report.receipts[0].refs.iter().map(|change| change.place).collect();
    assert_eq!(places, [Place::Remote]);
    fixture.assert_sound();
}

#[test]
fn landing_goes_onto_what_the_remote_has_now() {
    let fixture = Fixture::new();
    fixture.branch("x", "main", "x.txt", "x\n");
    fixture.branch("y", "main", "x.txt", "y\n");
    fixture.branch("z", "main", "z.txt", "z\n");
    // The remote is ahead of everything here.
    fixture.move_remote("main", "ahead.txt", "ahead\n");
    let (received, before) = (fixture.received(), fixture.untouchable());
    let branches = ["x", "y", "no-such", "z"].map(String::from);
    let report = fixture.open().land("main", &branches, Strategy::Merge).unwrap();

    let ids: Vec<&str> = report.outcomes.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["x", "y", "no-such", "z"]);
    landed(&report, "x");
    let tip = landed(&report, "z");
    assert_eq!(
        report.get("y"),
        Some(&Outcome::Conflict { paths: vec!["x.txt".into()], with: vec!["x".into()] })
    );
    assert_eq!(kind(report.get("no-such")), Some(OpErrorKind::UnknownBranch));
    assert_eq!(fixture.received(), received + 1);
    assert_eq!(report.pushes(), 1);
    assert_eq!(fixture.at_remote(["rev-parse", "main"]).trim(), tip.to_string());
    assert_eq!(fixture.at_remote(["show", "main:ahead.txt"]), "ahead\n");
    assert_eq!(fixture.at_remote(["show", "main:x.txt"]), "x\n");
    assert_eq!(fixture.at_remote(["show", "main:z.txt"]), "z\n");
    assert_eq!(fixture.untouchable(), before);
    fixture.assert_sound();

    let again = fixture.open().land("main", &branches[..1], Strategy::Merge).unwrap();
    assert_eq!(again.get("x"), Some(&no_change(tip)));
    assert_eq!(again.pushes(), 0);
}

#[test]
fn the_local_branch_follows_a_landing_if_nobody_stands_on_it() {
    let (fixture, git) = with_trunk();
    fixture.git(["push", "-q", "origin", "trunk"]);
    fixture.branch("x", "main", "x.txt", "x\n");
    let report = git.land("trunk", &["x".to_owned()], Strategy::Squash).unwrap();
    assert_eq!(fixture.id("trunk"), landed(&report, "x"));

    // With commits of its own it stays.
    fixture.branch("trunk", "trunk", "own.txt", "own\n");
    let own = fixture.id("trunk");
    fixture.branch("y", "main", "y.txt", "y\n");
    let report = git.land("trunk", &["y".to_owned()], Strategy::Merge).unwrap();
    landed(&report, "y");
    assert_eq!(fixture.id("trunk"), own);
}

#[test]
fn landing_onto_nothing_fails_every_branch() {
    let fixture = Fixture::new();
    fixture.branch("x", "main", "x.txt", "x\n");
    let git = fixture.open();
    let report = git.land("no-such", &["x".to_owned()], Strategy::Merge).unwrap();
    assert_eq!(kind(report.get("x")), Some(OpErrorKind::UnknownBranch));
    assert!(git.land("-x", &["x".to_owned()], Strategy::Merge).is_err());
    assert!(git.land("main", &["x".to_owned(), "x".to_owned()], Strategy::Merge).is_err());
}

#[test]
fn a_remote_that_moves_during_a_landing_is_merged_again() {
    let fixture = Fixture::new();
    fixture.branch("x", "main", "x.txt", "x\n");
    // The first push finds that somebody was faster: a commit appears before the lease is checked.
    fixture.move_remote("main", "late.txt", "late\n");
    let late = fixture.at_remote(["rev-parse", "main"]);
    fixture.at_remote(["update-ref", "refs/heads/main", fixture.git(["rev-parse", "main"]).trim()]);
    let hook = fixture.work().join(".git/hooks/pre-push");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let script = format!(
        "#!/bin/sh\ncat >/dev/null\ntest -e moved && exit 0\n: > moved\n\
         env -u GIT_DIR git --git-dir {:?} update-ref refs/heads/main {}\n",
        fixture.remote(),
        late.trim()
    );
    std::fs::write(&hook, script).unwrap();
    support::make_executable(&hook);

    let report = fixture.open().land("main", &["x".to_owned()], Strategy::Merge).unwrap();
    let tip = landed(&report, "x");
    assert_eq!(report.receipts.len(), 2);
    assert_eq!(fixture.at_remote(["rev-parse", "main"]).trim(), tip.to_string());
    assert_eq!(fixture.at_remote(["show", "main:late.txt"]), "late\n");
    assert_eq!(fixture.at_remote(["show", "main:x.txt"]), "x\n");
}

#[test]
fn a_policy_refusal_of_a_landing_is_final() {
    let fixture = Fixture::new();
    fixture.hook("pre-receive", "echo frozen; exit 1");
    fixture.branch("x", "main", "x.txt", "x\n");
    let report = fixture.open().land("main", &["x".to_owned()], Strategy::Merge).unwrap();
    assert!(matches!(report.get("x"), Some(Outcome::Rejected { class: Class::Permanent, .. })));
    assert_eq!(report.pushes(), 1);
}
