//! What is opened, what is refused, and that opening writes nothing.

mod support;

use std::path::Path;

use git_batch::{Commit, GitBatch, OpenError, Operation, Settings};
use support::{Fixture, landed, run};

fn refusal(dir: &Path) -> OpenError {
    GitBatch::open(dir, Settings::default()).expect_err("it is to be refused")
}

#[test]
fn opening_writes_nothing() {
    let fixture = Fixture::new();
    let before = fixture.untouchable();
    let git = fixture.open();
    assert!(!fixture.work().join(".git/batchyard").exists());
    assert_eq!(fixture.untouchable(), before);
    drop(git);
}

#[test]
fn a_folder_a_file_and_nothing_are_no_repository() {
    let fixture = Fixture::new();
    for path in
        [fixture.beside("nothing"), fixture.work().join("src"), fixture.work().join("README.md")]
    {
        let error = refusal(&path);
        assert!(matches!(error, OpenError::NotARepository { .. }), "{path:?}: {error}");
        assert!(error.to_string().contains("is not a git repository"), "{error}");
    }
}

#[test]
fn an_unknown_remote_is_named_with_the_known_ones() {
    let fixture = Fixture::new();
    let settings = Settings::default().with_remote("upstream");
    let error = GitBatch::open(fixture.work(), settings).unwrap_err();
    let text = error.to_string();
    assert!(text.ends_with("has no remote \"upstream\"; it has [\"origin\"]"), "{text}");
}

#[test]
fn what_would_be_harmed_is_refused_by_name() {
    let table = Fixture::new();
    table.git(["config", "core.repositoryFormatVersion", "1"]);
    table.git(["config", "extensions.refStorage", "stones"]);
    assert!(refusal(&table.work()).to_string().contains("stones"));

    let partial = Fixture::new();
    partial.git(["config", "remote.origin.promisor", "true"]);
    partial.git(["config", "remote.origin.partialCloneFilter", "tree:0"]);
    assert!(refusal(&partial.work()).to_string().contains("is a partial clone"));

    let extension = Fixture::new();
    extension.git(["config", "extensions.fromTheFuture", "true"]);
    assert!(refusal(&extension.work()).to_string().contains("fromthefuture"));
}

#[test]
fn every_kind_of_repository_directory_works() {
    let fixture = Fixture::new();
    let linked = fixture.beside("linked");
    fixture.git(["worktree", "add", "-q", "-b", "held", linked.to_str().unwrap(), "main"]);
    let bare = fixture.beside("bare.git");
    run(fixture.beside("").as_path(), ["clone", "-q", "--bare", "remote.git", "bare.git"]);
    run(&bare, ["config", "user.name", "Bare"]);
    run(&bare, ["config", "user.email", "bare@example.com"]);
    for (n, dir) in [fixture.work(), fixture.work().join(".git"), linked, bare].iter().enumerate() {
        let git = GitBatch::open(dir, Settings::default()).unwrap();
        let branch = format!("from/{n}");
        let report = git
            .apply(vec![
                Operation::commit("c", Commit::new(&branch, "m").write("n", n.to_string())),
                Operation::push("p", &branch),
            ])
            .unwrap();
        assert_eq!(
            fixture.at_remote(["rev-parse", &branch]).trim(),
            landed(&report, "p").to_string()
        );
    }
    fixture.assert_sound();
}

#[test]
fn sha256_repositories_work() {
    let fixture = Fixture::new();
    let root = fixture.beside("");
    run(&root, ["init", "-q", "--bare", "-b", "main", "--object-format=sha256", "r256.git"]);
    run(&root, ["init", "-q", "-b", "main", "--object-format=sha256", "w256"]);
    let work = fixture.beside("w256");
    run(&work, ["config", "user.name", "A"]);
    run(&work, ["config", "user.email", "a@example.com"]);
    run(&work, ["remote", "add", "origin", fixture.beside("r256.git").to_str().unwrap()]);
    let git = GitBatch::open(&work, Settings::default()).unwrap();
    let report = git
        .apply(vec![
            Operation::commit("a", Commit::new("x", "m").write("d/f", "1\n2\n")),
            Operation::commit(
                "b",
                Commit::new("y", "m").with_base("x").delete("d/f").write("g", "1\n2\n"),
            ),
            Operation::commit("c", Commit::new("x", "m").write("d/f", "1\n2\n3\n")),
            // A rename, so git is asked.
            Operation::merge("m", "x", "y"),
            Operation::push("p", "y"),
        ])
        .unwrap();
    let tip = landed(&report, "p").to_string();
    assert_eq!(tip.len(), 64);
    assert_eq!(landed(&report, "m").to_string(), tip);
    run(&work, ["fsck", "--strict", "--full"]);
    run(&fixture.beside("r256.git"), ["fsck", "--strict", "--full"]);
}

#[test]
fn nobody_named_is_an_error_of_that_operation() {
    let fixture = Fixture::new();
    fixture.git(["config", "user.name", ""]);
    let git = fixture.open();
    let report =
        git.apply(vec![Operation::commit("a", Commit::new("x", "m").write("a", "a"))]).unwrap();
    let text = format!("{:?}", report.get("a"));
    assert!(text.contains("MissingIdentity"), "{text}");

    let settings =
        Settings::default().with_author(git_batch::Author::new("The Yard", "yard@example.com"));
    let git = GitBatch::open(fixture.work(), settings).unwrap();
    let report =
        git.apply(vec![Operation::commit("a", Commit::new("x", "m").write("a", "a"))]).unwrap();
    let commit = landed(&report, "a").to_string();
    assert_eq!(fixture.git(["log", "-1", "--format=%an %cn", &commit]).trim(), "The Yard The Yard");
}

#[test]
fn shallow_clones_and_borrowed_objects_work() {
    let fixture = Fixture::new();
    for n in 0..3 {
        fixture.move_remote("main", "n.txt", &n.to_string());
    }
    let root = fixture.beside("");
    let url = format!("file://{}", fixture.remote().display());
    run(&root, ["clone", "-q", "--depth", "1", &url, "shallow"]);
    run(&root, ["clone", "-q", "--shared", fixture.remote().to_str().unwrap(), "shared"]);
    for name in ["shallow", "shared"] {
        let dir = fixture.beside(name);
        run(&dir, ["config", "user.name", "A"]);
        run(&dir, ["config", "user.email", "a@example.com"]);
        let git = GitBatch::open(&dir, Settings::default()).unwrap();
        let (x, y) = (format!("{name}/x"), format!("{name}/y"));
        let report = git
            .apply(vec![
                Operation::commit("x", Commit::new(&x, "m").write(format!("x {name}"), "x")),
                Operation::commit("y", Commit::new(&y, "m").write(format!("y {name}"), "y")),
                Operation::merge("m", &y, &x),
                // A second commit on a branch that exists, with its base named.
                Operation::commit(
                    "z",
                    Commit::new(&x, "m").with_base("main").write(format!("z {name}"), "z"),
                ),
                Operation::push("p", &x),
            ])
            .unwrap();
        let tip = landed(&report, "p");
        landed(&report, "m");
        assert_eq!(landed(&report, "z"), tip);
        assert_eq!(fixture.at_remote(["rev-parse", &x]).trim(), tip.to_string());
        assert_eq!(fixture.at_remote(["rev-list", "--count", &format!("main..{x}")]).trim(), "4");
        run(&dir, ["fsck", "--strict"]);
        // On top of what is at the remote now, with the branch as it is there.
        let report = git
            .apply(vec![
                Operation::commit("w", Commit::new(&x, "m").write(format!("w {name}"), "w")),
                Operation::push("p", &x),
            ])
            .unwrap();
        landed(&report, "p");
        let report = git.land("main", &[x], git_batch::Strategy::Merge).unwrap();
        assert!(report.outcomes[0].1.is_success(), "{report:?}");
    }
    fixture.assert_sound();
}
