//! What git would take and is most likely a mistake, and runs that only try.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use git_batch::{Commit, GitBatch, Guard, OpErrorKind, Operation, Outcome, Settings, Strategy};
use support::{Fixture, kind, landed};

fn allowing(fixture: &Fixture, guard: Guard) -> GitBatch {
    GitBatch::open(fixture.work(), Settings::default().allowing(guard)).unwrap()
}

fn one(commit: Commit) -> Vec<Operation> {
    vec![Operation::commit("c", commit)]
}

#[test]
fn most_files_are_not_deleted_at_once() {
    let fixture = Fixture::new();
    for n in 0..40 {
        fixture.write(&format!("files/{n}"), "x\n");
    }
    fixture.git(["add", "-A"]);
    fixture.git(["commit", "-qm", "Many"]);
    let commit = || Commit::new("x", "m").with_base("main").delete("files");
    let report = fixture.open().apply(one(commit())).unwrap();
    assert_eq!(kind(report.get("c")), Some(OpErrorKind::MassDeletion));
    let few = Commit::new("y", "m").with_base("main");
    let few = (0..19).fold(few, |few, n| few.delete(format!("files/{n}")));
    landed(&fixture.open().apply(one(few)).unwrap(), "c");
    landed(&allowing(&fixture, Guard::MassDeletion).apply(one(commit())).unwrap(), "c");
}

#[test]
fn a_folder_that_moves_is_no_deletion_of_most_files() {
    let fixture = Fixture::new();
    for n in 0..40 {
        fixture.write(&format!("files/{n}"), "x\n");
    }
    fixture.git(["add", "-A"]);
    fixture.git(["commit", "-qm", "Many"]);
    let copy = git_batch::Change::new("moved", git_batch::Action::Copy { from: "files".into() });
    let commit = Commit::new("x", "m").with_base("main").delete("files").change(copy);
    landed(&fixture.open().apply(one(commit)).unwrap(), "c");
    assert_eq!(fixture.git(["ls-tree", "-r", "--name-only", "x", "moved/"]).lines().count(), 40);
}

#[test]
fn new_secrets_and_large_contents_are_refused() {
    let fixture = Fixture::new();
    fixture.write("tracked/.env", "SHARED=1\n");
    fixture.git(["add", "-A"]);
    fixture.git(["commit", "-qm", "More"]);
    fixture.git(["push", "-q", "origin", "main"]);
    let key = "-----BEGIN PRIVATE KEY-----\nabc\n";
    for (path, content) in [(".env", "TOKEN=1\n"), ("deploy", key), ("a/id_rsa", "x")] {
        let commit = || Commit::new("x", "m").write(path, content);
        let report = fixture.open().apply(one(commit())).unwrap();
        assert_eq!(kind(report.get("c")), Some(OpErrorKind::Secret), "{path}");
        landed(&allowing(&fixture, Guard::Secrets).apply(one(commit())).unwrap(), "c");
    }
    let known = Commit::new("y", "m").write("tracked/.env", "SHARED=2\n");
    landed(&fixture.open().apply(one(known)).unwrap(), "c");

    let settings = Settings::default().with_max_file_bytes(10);
    let git = GitBatch::open(fixture.work(), settings).unwrap();
    let report = git.apply(one(Commit::new("z", "m").write("a", "12345678901"))).unwrap();
    assert_eq!(kind(report.get("c")), Some(OpErrorKind::TooLarge));
    landed(&git.apply(one(Commit::new("z", "m").write("a", "1234567890"))).unwrap(), "c");
}

#[test]
fn names_that_differ_in_case_only_are_refused() {
    let fixture = Fixture::new();
    for path in ["readme.md", "SRC/new.rs", "src/LIB.rs"] {
        let commit = || Commit::new("x", "m").write(path, "x\n");
        let report = fixture.open().apply(one(commit())).unwrap();
        assert_eq!(kind(report.get("c")), Some(OpErrorKind::PathClash), "{path}");
    }
    let both = Commit::new("x", "m").write("größe", "1").write("GRÖSSE", "2").write("GRÖßE", "3");
    let report = fixture.open().apply(one(both)).unwrap();
    assert_eq!(kind(report.get("c")), Some(OpErrorKind::PathClash));
    // One in the place of the other is a rename.
    let renamed = Commit::new("x", "m").write("readme.md", "x\n").delete("README.md");
    landed(&fixture.open().apply(one(renamed)).unwrap(), "c");
    let allowed = allowing(&fixture, Guard::CaseClashes);
    landed(&allowed.apply(one(Commit::new("y", "m").write("readme.md", "x\n"))).unwrap(), "c");
}

#[test]
fn branches_that_differ_in_case_only_are_refused() {
    let fixture = Fixture::new();
    let commit =
        |id: &str, branch: &str| Operation::commit(id, Commit::new(branch, "m").write("a", "a"));
    let operations =
        vec![commit("1", "agent/a"), commit("2", "Agent/A"), commit("3", "MAIN"), commit("4", "b")];
    let report = fixture.open().apply(operations).unwrap();
    landed(&report, "1");
    landed(&report, "4");
    for id in ["2", "3"] {
        assert_eq!(kind(report.get(id)), Some(OpErrorKind::BranchClash), "{id}");
    }
}

#[test]
fn a_preview_says_what_would_be_and_does_nothing() {
    let fixture = Fixture::new();
    let operations = vec![
        Operation::commit("a", Commit::new("x", "m").write("a", "a\n")),
        Operation::push("p", "x"),
        Operation::commit("later", Commit::new("x", "m").write("b", "b\n")).after("p"),
        Operation::merge("m", "x", "x2"),
        Operation::commit("bad", Commit::new("y", "m").write("../a", "a\n")),
    ];
    let before = fixture.git(["for-each-ref"]);
    let objects = fixture.git(["count-objects", "-v"]);
    let report = fixture.open().preview(&operations).unwrap();
    for id in ["a", "p", "later"] {
        landed(&report, id);
    }
    assert_eq!(kind(report.get("m")), Some(OpErrorKind::UnknownBranch));
    assert_eq!(kind(report.get("bad")), Some(OpErrorKind::InvalidPath));
    assert_eq!(report.pushes(), 0);
    assert_eq!(fixture.received(), 0);
    assert_eq!(fixture.git(["for-each-ref"]), before);
    assert_eq!(fixture.git(["count-objects", "-v"]), objects);
}

#[test]
fn commits_land_one_by_one_on_what_the_remote_has() {
    let fixture = Fixture::new();
    let commit = |id: &str, branch: &str, path: &str| {
        let author = git_batch::Author::new("Agent", "agent@example.com");
        let commit = Commit::new(branch, format!("Add {path}")).with_author(author);
        Operation::commit(id, commit.write(path, "x\n"))
    };
    let operations = vec![
        commit("1", "a", "a1"),
        commit("2", "a", "a2"),
        commit("3", "b", "b1"),
        commit("4", "clash", "theirs.txt"),
    ];
    fixture.open().apply(operations).unwrap();
    fixture.move_remote("main", "theirs.txt", "theirs\n");
    let branches = ["a", "b", "clash"].map(str::to_owned);
    let preview = fixture.open().preview_land("main", &branches, Strategy::Rebase).unwrap();
    landed(&preview, "a");
    assert_eq!(preview.pushes(), 0);
    let report = fixture.open().land("main", &branches, Strategy::Rebase).unwrap();
    landed(&report, "a");
    landed(&report, "b");
    assert!(
        matches!(report.get("clash"), Some(Outcome::Conflict { paths, .. }) if paths == &["theirs.txt"])
    );
    let log = fixture.at_remote(["log", "--format=%s (%an)", "main"]);
    let want = "Add b1 (Agent)\nAdd a2 (Agent)\nAdd a1 (Agent)\nOther (Other)\nStart (A U Thor)\n";
    assert_eq!(log, want);
    assert_eq!(report.pushes(), 1);
    let again = fixture.open().land("main", &["a".to_owned()], Strategy::Rebase).unwrap();
    assert!(matches!(again.get("a"), Some(Outcome::NoChange { .. })), "{again:?}");
    fixture.assert_sound();
}
