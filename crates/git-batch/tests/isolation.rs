//! What is wrong with one operation fails that one alone.

mod support;

use git_batch::{
    Action, Author, Change, Commit, GitBatch, Mode, ObjectId, OnMoved, OpErrorKind, Operation,
    Outcome, Settings,
};
use support::{Fixture, kind, landed};

#[test]
fn one_bad_operation_fails_alone() {
    let fixture = Fixture::new();
    let good = |branch: &str| Commit::new(branch, "Good").write("file", branch);
    let report = fixture
        .open()
        .apply(vec![
            Operation::commit("ok1", good("b1")),
            Operation::commit("path", Commit::new("b2", "m").write("../up", "x")),
            Operation::commit("dotgit", Commit::new("b2", "m").write("a/.GIT/config", "x")),
            Operation::commit("absolute", Commit::new("b2", "m").write("/etc/passwd", "x")),
            Operation::commit("name", good("-x")),
            Operation::commit("empty name", good("")),
            Operation::commit("message", Commit::new("b2", "  \n").write("a", "x")),
            Operation::commit("nul", Commit::new("b2", "a\0b").write("a", "x")),
            Operation::commit("base", good("b3").with_base("no-such")),
            Operation::commit("gone", Commit::new("b2", "m").delete("no/such")),
            Operation::commit("twice", Commit::new("b2", "m").write("a", "1").write("a", "2")),
            Operation::commit("both", Commit::new("b2", "m").write("a", "1").write("a/b", "2")),
            Operation::commit("author", good("b2").with_author(Author::new("a<b", "c"))),
            Operation::merge("merge", "no-such", "main"),
            Operation::push("push", "no-such"),
            Operation::commit("ok3", good("b4")),
            Operation::push("needs bad", "b2"),
            Operation::commit("skipped", good("b5")).after("path"),
            Operation::commit("lost", good("b6")).after("nobody"),
            Operation::commit("folder", good("b1/inner")),
            Operation::commit("ok2", good("b9")),
            Operation::push("push ok", "b9"),
        ])
        .unwrap();
    let expect = [
        ("path", OpErrorKind::InvalidPath),
        ("dotgit", OpErrorKind::InvalidPath),
        ("absolute", OpErrorKind::InvalidPath),
        ("name", OpErrorKind::InvalidBranch),
        ("empty name", OpErrorKind::InvalidBranch),
        ("message", OpErrorKind::InvalidMessage),
        ("nul", OpErrorKind::InvalidMessage),
        ("base", OpErrorKind::UnknownBase),
        ("gone", OpErrorKind::UnknownPath),
        ("twice", OpErrorKind::InvalidPath),
        ("both", OpErrorKind::InvalidPath),
        ("author", OpErrorKind::InvalidIdentity),
        ("push", OpErrorKind::UnknownBranch),
        ("lost", OpErrorKind::UnknownDependency),
        ("folder", OpErrorKind::BranchClash),
    ];
    for (id, wanted) in expect {
        assert_eq!(kind(report.get(id)), Some(wanted), "{id}: {:?}", report.get(id));
    }
    assert_eq!(report.get("skipped"), Some(&Outcome::Skipped { because: "path".to_owned() }));
    assert!(matches!(report.get("needs bad"), Some(Outcome::Skipped { .. })));
    for id in ["ok1", "ok2", "ok3", "push ok"] {
        landed(&report, id);
    }
    let branches = fixture.git(["for-each-ref", "--format=%(refname:short)", "refs/heads"]);
    assert_eq!(branches.lines().collect::<Vec<_>>(), ["b1", "b4", "b9", "main"]);
    assert_eq!(fixture.received(), 1);
    fixture.assert_sound();
}

#[test]
fn expect_refuses_old_knowledge_and_names_who_was_first() {
    let fixture = Fixture::new();
    let old = fixture.id("main:README.md");
    let edit = |content: &str| {
        let action = Action::Write { content: content.into(), mode: Mode::File };
        Commit::new("shared", "Edit").change(Change::new("README.md", action).with_expect(old))
    };
    let action = Action::Write { content: "x".into(), mode: Mode::File };
    let null = ObjectId::null(old.kind());
    let fresh = Change::new("src/lib.rs", action).with_expect(null);
    let report = fixture
        .open()
        .apply(vec![
            Operation::commit("first", edit("1\n")),
            Operation::commit("second", edit("2\n")),
            Operation::commit("new only", Commit::new("shared", "m").change(fresh)),
        ])
        .unwrap();
    landed(&report, "first");
    assert_eq!(
        report.get("second"),
        Some(&Outcome::Conflict { paths: vec!["README.md".into()], with: vec!["first".into()] })
    );
    assert_eq!(
        report.get("new only"),
        Some(&Outcome::Conflict { paths: vec!["src/lib.rs".into()], with: vec![] })
    );
}

#[test]
fn content_that_a_filter_would_change_is_refused() {
    let fixture = Fixture::new();
    let write = |path: &str| Commit::new("lfs", "m").write(path, "raw");
    let attributes = Commit::new("lfs", "m")
        .write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
        .write("plain/.gitattributes", "*.bin -filter\n")
        .write("own/.gitattributes", "[attr]big filter=other\n/a big\n");
    let report = fixture
        .open()
        .apply(vec![
            Operation::commit("attributes", attributes),
            Operation::commit("root", write("a.bin")),
            Operation::commit("deep", write("x/y/a.bin")),
            Operation::commit("own", write("own/a")),
            Operation::commit("unset", write("plain/a.bin")),
            Operation::commit("text", write("a.txt")),
        ])
        .unwrap();
    for id in ["root", "deep"] {
        assert_eq!(kind(report.get(id)), Some(OpErrorKind::Filtered), "{id}");
    }
    for id in ["attributes", "own", "unset", "text"] {
        landed(&report, id);
    }
    // As git sees it, which knows macros at the top only.
    let paths = ["a.bin", "x/y/a.bin", "plain/a.bin", "own/a"];
    let seen = fixture.git(["check-attr", "--source=lfs", "filter", "--"].iter().chain(&paths));
    let values: Vec<&str> = seen.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(values, ["lfs", "lfs", "unset", "unspecified"]);
}

#[test]
fn a_lost_lease_rejects_that_push_alone() {
    let fixture = Fixture::new();
    let settings = Settings::default().with_on_moved(OnMoved::Fail);
    let git = GitBatch::open(fixture.work(), settings).unwrap();
    let commit = |branch: &str, n: u32| Commit::new(branch, "m").write("n", n.to_string());
    git.apply(vec![
        Operation::commit("a", commit("x", 1)),
        Operation::commit("b", commit("y", 1)),
        Operation::push("c", "x"),
        Operation::push("d", "y"),
    ])
    .unwrap();
    fixture.move_remote("x", "theirs.txt", "theirs\n");
    let theirs = fixture.at_remote(["rev-parse", "x"]);
    let report = git
        .apply(vec![
            Operation::commit("a", commit("x", 2)),
            Operation::commit("b", commit("y", 2)),
            Operation::push("c", "x"),
            Operation::push("d", "y"),
        ])
        .unwrap();
    landed(&report, "a");
    assert_eq!(landed(&report, "b"), landed(&report, "d"));
    assert!(matches!(
        report.get("c"),
        Some(Outcome::Rejected { class: git_batch::Class::Transient, .. })
    ));
    assert_eq!(fixture.at_remote(["rev-parse", "x"]), theirs);
}

#[test]
fn a_hook_that_refuses_one_ref_refuses_it_alone_and_for_good() {
    let fixture = Fixture::new();
    fixture.hook("update", "test \"$1\" != refs/heads/bad || { echo no; exit 1; }");
    let commit = |branch: &str| Commit::new(branch, "m").write("n", branch);
    let report = fixture
        .open()
        .apply(vec![
            Operation::commit("a", commit("bad")),
            Operation::commit("b", commit("good")),
            Operation::push("pa", "bad"),
            Operation::push("pb", "good"),
        ])
        .unwrap();
    landed(&report, "a");
    landed(&report, "pb");
    assert!(matches!(
        report.get("pa"),
        Some(Outcome::Rejected { class: git_batch::Class::Permanent, .. })
    ));
    assert_eq!(fixture.received(), 1);
}

#[test]
fn an_unreachable_remote_leaves_the_commits() {
    let fixture = Fixture::new();
    let git = fixture.open();
    std::fs::rename(fixture.remote(), fixture.beside("gone")).unwrap();
    let report = git
        .apply(vec![
            Operation::commit("a", Commit::new("x", "m").with_base("main").write("a", "a")),
            Operation::push("p", "x"),
        ])
        .unwrap();
    assert_eq!(landed(&report, "a"), fixture.id("x"));
    assert_eq!(kind(report.get("p")), Some(OpErrorKind::Remote));
}

#[test]
fn the_same_id_twice_is_refused_before_anything_is_done() {
    let fixture = Fixture::new();
    let before = fixture.git(["for-each-ref"]);
    let operation = || Operation::commit("a", Commit::new("x", "m").write("a", "a"));
    let error = fixture.open().apply(vec![operation(), operation()]).unwrap_err();
    assert_eq!(error.to_string(), "two operations have the id \"a\"; give each its own");
    assert_eq!(fixture.git(["for-each-ref"]), before);
    assert!(!fixture.work().join(".git/batchyard").exists());
}
