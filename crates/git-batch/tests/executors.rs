//! The same operations through both executors: the same commits, the same refs, sound objects.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;
use std::path::Path;

use git_batch::{
    Action, Author, Change, Commit, ExecutorKind, GitBatch, Guard, Merge, Mode, OnMoved,
    OpErrorKind, Operation, OperationKind, Outcome, Report, Settings, Strategy, stops,
};
use support::worktree::{capture, linked, put, status};
use support::{Fixture, kind, landed, make_executable, run, try_run};

/// What is done, in a repository that a fixture has.
type Job<'a> = &'a dyn Fn(&Fixture, Settings) -> Report;

fn settings(executor: ExecutorKind) -> Settings {
    Settings::default().with_executor(executor)
}

/// Outcomes without the words of the errors, which are those of whoever found them.
fn outcomes(report: &Report) -> Vec<(String, String)> {
    let plain = |outcome: &Outcome| match outcome {
        Outcome::Failed(error) => format!("{:?}", error.kind),
        Outcome::Rejected { class, .. } => format!("{class:?}"),
        other => format!("{other:?}"),
    };
    report.outcomes.iter().map(|(id, outcome)| (id.clone(), plain(outcome))).collect()
}

fn refs(dir: &Path) -> String {
    run(dir, ["for-each-ref", "--format=%(refname) %(objectname)"])
}

/// Moves the refs of a repository into a reftable; false where git cannot.
fn to_reftable(fixture: &Fixture) -> bool {
    let args = ["refs", "migrate", "--ref-format=reftable"];
    try_run(&fixture.work(), args).0 == Some(0)
}

/// Does the same through both executors and, where git can, in a reftable.
#[track_caller]
fn same_both_ways(fixture: &Fixture, job: Job<'_>) -> Report {
    stops::fix_time(1_700_000_000);
    let (by_git, in_table) = (fixture.copy(), fixture.copy());
    let expected = job(fixture, settings(ExecutorKind::Gix));
    let mut others = vec![(by_git, ExecutorKind::GitProgram)];
    if !fixture.work().join(".git/worktrees").exists() && to_reftable(&in_table) {
        others.push((in_table, ExecutorKind::Auto));
    }
    for (other, executor) in &others {
        let report = job(other, settings(*executor));
        assert_eq!(outcomes(&report), outcomes(&expected), "{executor:?}");
        assert_eq!(refs(&other.work()), refs(&fixture.work()), "{executor:?}");
        assert_eq!(refs(&other.remote()), refs(&fixture.remote()), "{executor:?}");
        assert_eq!(report.pushes(), expected.pushes(), "{executor:?}");
        let moved = |report: &Report| report.receipt().refs;
        assert_eq!(moved(&report), moved(&expected), "{executor:?}");
        other.assert_sound();
        let git_dir = other.work().join(".git");
        assert_eq!(fs::read_dir(git_dir.join("batchyard/open")).unwrap().count(), 0);
    }
    fixture.assert_sound();
    expected
}

fn apply(operations: &[Operation]) -> impl Fn(&Fixture, Settings) -> Report {
    let operations = operations.to_vec();
    move |fixture, settings| {
        GitBatch::open(fixture.work(), settings).unwrap().apply(operations.clone()).unwrap()
    }
}

fn write(path: &str, content: &str, mode: Mode) -> Change {
    Change::new(path, Action::Write { content: content.into(), mode })
}

#[test]
fn changes_of_every_kind_on_branches_of_every_kind() {
    let fixture = Fixture::new();
    fixture.branch("packed", "main", "packed.txt", "1\n");
    fixture.branch("deep/loose", "main", "loose.txt", "1\n");
    fixture.git(["pack-refs", "--all"]);
    fixture.git(["update-ref", "refs/heads/deep/loose", "main"]);
    let submodule = fixture.id("main");
    let blob = fixture.id("main:README.md");
    let all = Commit::new("new/all", "All\n\nof it")
        .with_author(Author::new("\u{e9}mile", "e@example.com"))
        .write("a/b/c", "deep\n")
        .write("a.txt", "beside a folder\n")
        .write("src", "a folder became a file\n")
        .change(write("run.sh", "#!/bin/sh\n", Mode::Executable))
        .change(write("link", "a.txt", Mode::Symlink))
        .change(Change::new("same", Action::Object { oid: blob, mode: Mode::File }))
        .change(Change::new("sub", Action::Object { oid: submodule, mode: Mode::Submodule }))
        .change(Change::new("moved/kept.txt", Action::Copy { from: "old/kept.txt".into() }))
        .delete("old");
    let stale = Change::new("README.md", Action::Delete).with_expect(submodule);
    let operations = [
        Operation::commit("all", all),
        Operation::commit("on top", Commit::new("new/all", "Top").write("top", "1")),
        Operation::commit(
            "from",
            Commit::new("new/from", "m").with_base("new/all").write("x", "x"),
        ),
        Operation::commit("packed", Commit::new("packed", "m").write("more", "1")),
        Operation::commit("loose", Commit::new("deep/loose", "m").write("more", "1")),
        Operation::commit(
            "again",
            Commit::new("again", "m").write("README.md", "one\ntwo\nthree\n"),
        ),
        Operation::commit("stale", Commit::new("stale", "m").change(stale)),
        Operation::commit("clash", Commit::new("packed/below", "m").write("x", "x")),
        Operation::commit("above", Commit::new("deep", "m").write("x", "x")),
        Operation::commit("bad", Commit::new("bad", "m").write("../x", "x")),
        Operation::commit("base", Commit::new("base", "m").with_base("nowhere").write("x", "x")),
        Operation::push("p1", "new/all"),
        Operation::push("p2", "packed"),
        Operation::push("p3", "deep/loose"),
        Operation::push("p4", "new/from"),
        Operation::push("none", "bad"),
    ];
    let report = same_both_ways(&fixture, &apply(&operations));
    for id in ["all", "on top", "from", "packed", "loose", "p1", "p2", "p3", "p4"] {
        landed(&report, id);
    }
    assert_eq!(kind(report.get("clash")), Some(OpErrorKind::BranchClash));
}

/// Git itself, with an index and `commit-tree`, makes the very same commit of such changes.
#[test]
fn git_by_hand_makes_the_same_commit() {
    let fixture = Fixture::new();
    stops::fix_time(1_700_000_000);
    let commit = Commit::new("made", "Made")
        .write("a/b/c", "deep\n")
        .write("a.txt", "beside\n")
        .write("a-b", "between\n")
        .write("src", "file\n")
        .change(write("run", "x\n", Mode::Executable))
        .delete("old");
    let report = fixture.open().apply(vec![Operation::commit("c", commit)]).unwrap();
    let index = fixture.beside("index");
    let git = |args: &[&str]| -> String {
        let output = std::process::Command::new("git")
            .current_dir(fixture.work())
            .args(args)
            .env("GIT_INDEX_FILE", &index)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_AUTHOR_DATE", "1700000000 +0100")
            .env("GIT_COMMITTER_DATE", "1700000000 +0100")
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    git(&["read-tree", "main"]);
    git(&["rm", "-q", "-r", "--cached", "old", "src"]);
    for (path, content, mode) in [
        ("a/b/c", "deep\n", "100644"),
        ("a.txt", "beside\n", "100644"),
        ("a-b", "between\n", "100644"),
        ("src", "file\n", "100644"),
        ("run", "x\n", "100755"),
    ] {
        let file = fixture.beside("content");
        fs::write(&file, content).unwrap();
        let blob = git(&["hash-object", "-w", file.to_str().unwrap()]);
        git(&["update-index", "--add", "--cacheinfo", mode, &blob, path]);
    }
    let tree = git(&["write-tree"]);
    let by_hand = git(&["commit-tree", &tree, "-p", "main", "-m", "Made"]);
    assert_eq!(landed(&report, "c").to_string(), by_hand);
}

#[test]
fn merges_of_every_kind() {
    let fixture = Fixture::new();
    fixture.git(["branch", "trunk", "main"]);
    let on = |branch: &str, path: &str, content: &str| {
        Operation::commit(
            format!("c {branch} {path}"),
            Commit::new(branch, "m").write(path, content),
        )
    };
    let merge = |id: &str, source: &str, strategy| {
        let merge =
            Merge { source: source.into(), into: "trunk".into(), strategy, ..Merge::default() };
        Operation::new(id, OperationKind::Merge(merge))
    };
    let renamed = Commit::new("renames", "m")
        .change(Change::new("src/moved.rs", Action::Copy { from: "src/lib.rs".into() }))
        .delete("src/lib.rs");
    let operations = [
        on("ahead", "ahead.txt", "1\n"),
        on("top", "README.md", "ONE\ntwo\nthree\n"),
        on("bottom", "README.md", "one\ntwo\nTHREE\n"),
        on("clash", "README.md", "other\ntwo\nthree\n"),
        on("steps", "step-1", "1"),
        on("steps", "step-2", "2"),
        Operation::commit("renamed", renamed),
        on("edits", "src/lib.rs", "fn a() {}\nfn b() {}\n"),
        merge("ff", "ahead", Strategy::FastForward),
        merge("top", "top", Strategy::Merge),
        merge("bottom", "bottom", Strategy::Squash),
        merge("clash", "clash", Strategy::Merge),
        merge("steps", "steps", Strategy::Rebase),
        merge("renames", "renames", Strategy::Merge),
        merge("edits", "edits", Strategy::Merge),
        merge("again", "top", Strategy::Merge),
        merge("unknown", "nowhere", Strategy::Merge),
        merge("no ff", "clash", Strategy::FastForward),
        Operation::push("p", "trunk"),
    ];
    let report = same_both_ways(&fixture, &apply(&operations));
    for id in ["ff", "top", "bottom", "steps", "renames", "edits", "p"] {
        landed(&report, id);
    }
    assert!(matches!(report.get("clash"), Some(Outcome::Conflict { with, .. }) if with.len() == 2));
}

#[test]
fn groups_orders_and_branches_that_are_checked_out() {
    let fixture = Fixture::new();
    fixture.hook("update", "test \"$1\" != refs/heads/refused");
    let on =
        |id: &str, branch: &str| Operation::commit(id, Commit::new(branch, "m").write(id, "x"));
    let operations = [
        on("g1", "g/1").in_group("good"),
        on("g2", "g/2").in_group("good"),
        Operation::push("pg1", "g/1").in_group("good"),
        Operation::push("pg2", "g/2").in_group("good"),
        on("b1", "b/1").in_group("bad"),
        on("b2", "refused").in_group("bad"),
        Operation::push("pb1", "b/1").in_group("bad"),
        Operation::push("pb2", "refused").in_group("bad"),
        on("main", "main"),
        Operation::push("pm", "main"),
        on("later", "later").after("pm"),
        on("never", "never").after("pb1"),
        Operation::push("pl", "later"),
    ];
    let report = same_both_ways(&fixture, &apply(&operations));
    for id in ["g1", "pg2", "main", "pm", "later", "pl"] {
        landed(&report, id);
    }
    assert_eq!(fixture.git(["branch", "--list", "b/*", "refused", "never"]), "");
    assert_eq!(fixture.git(["status", "--porcelain"]), "");
}

#[test]
fn remotes_that_moved() {
    for on_moved in [OnMoved::Merge, OnMoved::Rebase, OnMoved::Fail] {
        let fixture = Fixture::new();
        fixture.branch("shared", "main", "ours.txt", "ours\n");
        fixture.git(["push", "-q", "origin", "shared"]);
        fixture.move_remote("shared", "theirs.txt", "theirs\n");
        let operations = [
            Operation::commit("c", Commit::new("shared", "m").write("more", "x")),
            Operation::push("p", "shared"),
            Operation::commit("d", Commit::new("new", "m").write("more", "x")),
            Operation::push("q", "new"),
        ];
        let job = |fixture: &Fixture, settings: Settings| {
            apply(&operations)(fixture, settings.with_on_moved(on_moved))
        };
        let report = same_both_ways(&fixture, &job);
        landed(&report, "q");
    }
}

#[test]
fn landings() {
    for strategy in [Strategy::Merge, Strategy::Squash, Strategy::Rebase] {
        let fixture = Fixture::new();
        fixture.branch("a", "main", "a.txt", "a\n");
        fixture.branch("b", "main", "README.md", "b\n");
        fixture.branch("c", "main", "README.md", "c\n");
        fixture.move_remote("main", "theirs.txt", "theirs\n");
        let job = |fixture: &Fixture, settings: Settings| {
            let git = GitBatch::open(fixture.work(), settings).unwrap();
            git.land("main", &["a", "b", "c", "d"].map(str::to_owned), strategy).unwrap()
        };
        let report = same_both_ways(&fixture, &job);
        landed(&report, "a");
        landed(&report, "b");
        assert!(matches!(report.get("c"), Some(Outcome::Conflict { .. })));
    }
}

#[test]
fn worktrees() {
    stops::fix_time(1_700_000_000);
    let job = |fixture: &Fixture, executor| {
        let dirs = ["one", "two"].map(|name| {
            let dir = linked(fixture, name);
            put(&dir, "README.md", name);
            put(&dir, "new/file", name);
            fs::remove_file(dir.join("old/kept.txt")).unwrap();
            dir
        });
        put(&fixture.work(), "README.md", "main\n");
        let operations = vec![
            capture("c1", "one", &dirs[0]),
            capture("c2", "two", &dirs[1]),
            capture("c3", "main", &fixture.work()),
            Operation::push("p1", "one"),
            Operation::push("p2", "two"),
            Operation::push("p3", "main"),
        ];
        let git = GitBatch::open(fixture.work(), settings(executor)).unwrap();
        let report = git.apply(operations).unwrap();
        for dir in dirs.iter().chain([&fixture.work()]) {
            assert_eq!(status(dir), "", "{executor:?}");
            let log = run(dir, ["reflog", "-1", "--format=%H"]);
            assert_eq!(log, run(dir, ["rev-parse", "HEAD"]), "{executor:?}");
        }
        fixture.assert_sound();
        report
    };
    let fixture = Fixture::new();
    let copy = fixture.copy();
    let (ours, theirs) = (job(&fixture, ExecutorKind::Gix), job(&copy, ExecutorKind::GitProgram));
    assert_eq!(outcomes(&ours), outcomes(&theirs));
    assert_eq!(refs(&fixture.work()), refs(&copy.work()));
    assert_eq!(refs(&fixture.remote()), refs(&copy.remote()));
    landed(&ours, "p3");
}

/// A worktree of a repository whose refs are in a table cannot be committed from, and says so.
#[test]
fn worktrees_in_a_reftable_are_refused_by_name() {
    let fixture = Fixture::new();
    if !to_reftable(&fixture) {
        return;
    }
    put(&fixture.work(), "README.md", "changed\n");
    let report = fixture.open().apply(vec![capture("c", "main", &fixture.work())]).unwrap();
    let Some(Outcome::Failed(error)) = report.get("c") else { panic!("{report:?}") };
    assert_eq!(error.kind, OpErrorKind::InvalidWorktree);
    assert!(error.message.contains("reftable"), "{error}");
    // And its branch is known to be checked out.
    let commit = Commit::new("main", "m").write("x", "x");
    let report = fixture.open().apply(vec![Operation::commit("c", commit)]).unwrap();
    assert_eq!(kind(report.get("c")), Some(OpErrorKind::CheckedOut));
}

#[test]
fn repositories_of_sha256() {
    let fixture = Fixture::new();
    let (remote, work) = (fixture.remote(), fixture.work());
    fs::remove_dir_all(&remote).unwrap();
    fs::remove_dir_all(work.join(".git")).unwrap();
    let dir = fixture.beside("");
    run(&dir, ["init", "-q", "--bare", "--object-format=sha256", "-b", "main", "remote.git"]);
    run(&work, ["init", "-q", "--object-format=sha256", "-b", "main"]);
    fixture.git(["config", "user.name", "A"]);
    fixture.git(["config", "user.email", "a@b"]);
    fixture.git(["remote", "add", "origin", remote.to_str().unwrap()]);
    fixture.git(["add", "-A"]);
    fixture.git(["commit", "-qm", "Start"]);
    fixture.git(["push", "-q", "origin", "main"]);
    let operations = [
        Operation::commit("a", Commit::new("a", "m").write("a", "x")),
        Operation::commit("b", Commit::new("b", "m").write("b", "x").delete("src/lib.rs")),
        Operation::merge("m", "a", "b"),
        Operation::push("p", "b"),
    ];
    let report = same_both_ways(&fixture, &apply(&operations));
    landed(&report, "p");
}

/// A hook that has a say in every move of a ref is asked, where it was refused before.
#[test]
fn a_reference_transaction_hook_is_heard() {
    let fixture = Fixture::new();
    let hook = fixture.work().join(".git/hooks/reference-transaction");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let text = "#!/bin/sh\nwhile read old new ref; do case $1,$ref in prepared,*/forbidden) exit 1;; \
                committed,refs/heads/*) echo $ref >> moved;; esac; done\n";
    fs::write(&hook, text).unwrap();
    make_executable(&hook);
    let commit = |branch: &str| Operation::commit(branch, Commit::new(branch, "m").write("x", "x"));
    let report = fixture.open().apply(vec![commit("free"), Operation::push("p", "free")]).unwrap();
    landed(&report, "p");
    let moved = fs::read_to_string(fixture.work().join("moved"))
        .or_else(|_| fs::read_to_string(fixture.work().join(".git/moved")));
    assert!(moved.unwrap().contains("refs/heads/free"));
    let report = fixture.open().apply(vec![commit("forbidden")]).unwrap();
    assert_eq!(kind(report.get("forbidden")), Some(OpErrorKind::Hook));
    assert_eq!(fixture.git(["branch", "--list", "forbidden"]), "");
    let by_gix = GitBatch::open(fixture.work(), settings(ExecutorKind::Gix)).unwrap_err();
    assert!(by_gix.to_string().contains("reference-transaction hook"), "{by_gix}");
}

/// Somebody who moves or locks a branch fails that one alone.
#[test]
fn a_branch_that_is_locked_fails_alone() {
    let fixture = Fixture::new();
    fixture.branch("locked", "main", "a.txt", "a\n");
    fs::write(fixture.work().join(".git/refs/heads/locked.lock"), "").unwrap();
    let operations = vec![
        Operation::commit("c", Commit::new("locked", "m").write("x", "x")),
        Operation::commit("d", Commit::new("free", "m").write("x", "x")),
    ];
    let git = GitBatch::open(fixture.work(), settings(ExecutorKind::GitProgram)).unwrap();
    let report = git.apply(operations).unwrap();
    assert_eq!(kind(report.get("c")), Some(OpErrorKind::BranchMoved));
    landed(&report, "d");
}

/// The contents that a merge needs are fetched; those of other files are not.
#[test]
fn partial_clones_work() {
    for executor in [ExecutorKind::Auto, ExecutorKind::GitProgram] {
        let fixture = Fixture::new();
        fixture.write("big.bin", "never needed\n");
        fixture.write(".gitattributes", "*.txt text\n");
        fixture.git(["add", "-A"]);
        fixture.git(["commit", "-qm", "Big"]);
        fixture.branch("top", "main", "README.md", "ONE\ntwo\nthree\n");
        fixture.branch("bottom", "main", "README.md", "one\ntwo\nTHREE\n");
        fixture.git(["push", "-q", "origin", "main", "top", "bottom"]);
        fixture.at_remote(["config", "uploadpack.allowFilter", "true"]);
        fixture.at_remote(["config", "uploadpack.allowAnySHA1InWant", "true"]);
        let dir = fixture.beside("partial");
        let url = format!("file://{}", fixture.remote().display());
        let args =
            ["clone", "-q", "--filter=blob:none", "--no-checkout", &url, dir.to_str().unwrap()];
        run(&fixture.work(), args);
        run(&dir, ["config", "user.name", "A"]);
        run(&dir, ["config", "user.email", "a@b"]);
        for branch in ["top", "bottom"] {
            run(&dir, ["branch", "-q", branch, &format!("origin/{branch}")]);
        }
        let big = fixture.id("main:big.bin").to_string();
        let is_here = |id: &str| {
            let args = ["rev-list", "--objects", "--all", "--missing=print"];
            !run(&dir, args).lines().any(|line| line == format!("?{id}"))
        };
        assert!(!is_here(&big));
        let renamed = Commit::new("renamed", "m")
            .with_base("top")
            .change(Change::new("moved.md", Action::Copy { from: "README.md".into() }))
            .delete("README.md");
        let operations = vec![
            Operation::commit("c", Commit::new("new", "m").write("notes.txt", "x\n")),
            Operation::commit("r", renamed),
            Operation::merge("m", "top", "bottom"),
            Operation::merge("n", "renamed", "bottom"),
            Operation::push("pc", "new"),
            Operation::push("pm", "bottom"),
        ];
        let allowing = settings(executor).allowing(Guard::MassDeletion);
        let report = GitBatch::open(&dir, allowing).unwrap().apply(operations).unwrap();
        for (id, outcome) in &report.outcomes {
            assert!(outcome.is_success(), "{executor:?}: {id} {outcome:?}");
        }
        assert_eq!(fixture.at_remote(["show", "bottom:moved.md"]), "ONE\ntwo\nTHREE\n");
        assert!(!is_here(&big), "{executor:?}: what nobody needs was fetched");
        run(&dir, ["fsck", "--strict"]);
        fixture.assert_sound();
    }
}
