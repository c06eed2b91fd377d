//! One batch on repositories of every kind: it works as anywhere else, or it is refused by name before
//! anything is written.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use git_batch::{Commit, GitBatch, OpErrorKind, OpenError, Operation, Settings};
use support::worktree::{capture, files, linked, put, status};
use support::{Fixture, kind, landed, run, try_run};

fn operations(base: Option<&str>) -> Vec<Operation> {
    let on = |branch: &str| {
        let commit = Commit::new(branch, "Work").write("src/new.txt", "new\n");
        base.map_or(commit.clone(), |base| commit.with_base(base))
    };
    vec![
        Operation::commit("a", on("zoo/a")),
        Operation::commit("b", on("zoo/b")),
        Operation::merge("m", "zoo/a", "zoo/b"),
        Operation::push("pa", "zoo/a"),
        Operation::push("pb", "zoo/b"),
    ]
}

/// Runs the batch, twice: both sides are sound, the remote has what was made, the second run does
/// nothing, and what git keeps in that repository is as it was.
#[track_caller]
fn works(dir: &Path, remote: &Path) {
    let git = GitBatch::open(dir, Settings::default()).unwrap();
    let head = fs::read(git_dir(dir).join("HEAD")).unwrap();
    let report = git.apply(operations(None)).unwrap();
    for (id, outcome) in &report.outcomes {
        assert!(outcome.is_success(), "{id}: {outcome:?}");
    }
    for (id, branch) in [("pa", "zoo/a"), ("pb", "zoo/b")] {
        let commit = landed(&report, id).to_string();
        assert_eq!(run(dir, ["rev-parse", branch]).trim(), commit);
        assert_eq!(run(remote, ["rev-parse", branch]).trim(), commit);
        assert_eq!(run(remote, ["show", &format!("{branch}:src/new.txt")]), "new\n");
    }
    assert_eq!(report.pushes(), 1);
    assert_eq!(fs::read(git_dir(dir).join("HEAD")).unwrap(), head);
    let again = git.apply(operations(None)).unwrap();
    assert_eq!(again.outcomes, report.outcomes);
    assert_eq!((again.replayed.len(), again.pushes()), (5, 0));
    run(dir, ["fsck", "--strict"]);
    run(remote, ["fsck", "--strict"]);
}

/// Opening fails, says `why`, and writes nothing.
#[track_caller]
fn is_refused(dir: &Path, why: &str) {
    let before = files(&git_dir(dir));
    let error = GitBatch::open(dir, Settings::default()).unwrap_err();
    assert!(matches!(error, OpenError::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains(why), "{error}");
    assert_eq!(files(&git_dir(dir)), before);
}

fn git_dir(dir: &Path) -> PathBuf {
    run(dir, ["rev-parse", "--absolute-git-dir"]).trim().into()
}

fn clone(fixture: &Fixture, args: &[&str]) -> PathBuf {
    let url = format!("file://{}", fixture.remote().display());
    let dir = fixture.beside("clone");
    let mut all = vec!["clone", "-q"];
    all.extend_from_slice(args);
    all.extend([url.as_str(), dir.to_str().unwrap()]);
    run(&fixture.work(), all);
    for (key, value) in [("user.name", "A"), ("user.email", "a@b")] {
        run(&dir, ["config", key, value]);
    }
    dir
}

#[test]
fn bare_linked_shallow_and_borrowing_repositories_work() {
    for args in [&["--bare"][..], &["--depth=1"], &["--shared"], &["--no-checkout"], &["--sparse"]]
    {
        let fixture = Fixture::new();
        // So that a shallow clone has something to lack.
        fixture.write("README.md", "changed\n");
        fixture.git(["commit", "-qam", "Second"]);
        fixture.git(["push", "-q", "origin", "main"]);
        let dir = clone(&fixture, args);
        works(&dir, &fixture.remote());
    }
    let fixture = Fixture::new();
    let dir = linked(&fixture, "elsewhere");
    works(&dir, &fixture.remote());
    let fixture = Fixture::new();
    let borrowed = fixture.beside("borrowed.git");
    run(&fixture.work(), ["clone", "-q", "--bare", ".", borrowed.to_str().unwrap()]);
    let dir = clone(&fixture, &["--reference", borrowed.to_str().unwrap()]);
    works(&dir, &fixture.remote());
}

#[test]
fn a_sha256_repository_works() {
    let fixture = Fixture::new();
    let (work, remote) = (fixture.beside("work256"), fixture.beside("remote256.git"));
    let top = fixture.work();
    run(
        &top,
        ["init", "-q", "--bare", "-b", "main", "--object-format=sha256", remote.to_str().unwrap()],
    );
    run(&top, ["init", "-q", "-b", "main", "--object-format=sha256", work.to_str().unwrap()]);
    for (key, value) in [("user.name", "A"), ("user.email", "a@b")] {
        run(&work, ["config", key, value]);
    }
    run(&work, ["remote", "add", "origin", remote.to_str().unwrap()]);
    run(&work, ["commit", "-q", "--allow-empty", "-m", "Start"]);
    run(&work, ["push", "-q", "origin", "main"]);
    works(&work, &remote);
}

#[test]
fn a_detached_and_an_unborn_head_work() {
    let fixture = Fixture::new();
    fixture.git(["checkout", "-q", "--detach"]);
    works(&fixture.work(), &fixture.remote());
    let fixture = Fixture::new();
    fixture.git(["symbolic-ref", "HEAD", "refs/heads/not-yet"]);
    works(&fixture.work(), &fixture.remote());
}

#[test]
fn settings_for_line_ends_and_case_change_nothing_that_is_given_as_bytes() {
    for (key, value) in
        [("core.autocrlf", "true"), ("core.eol", "crlf"), ("core.ignoreCase", "true")]
    {
        let fixture = Fixture::new();
        fixture.git(["config", key, value]);
        works(&fixture.work(), &fixture.remote());
    }
}

/// What only the git program can do is done by the git program.
#[test]
fn reftable_and_partial_clones_work() {
    let fixture = Fixture::new();
    fixture.at_remote(["config", "uploadpack.allowFilter", "true"]);
    for args in [&["--ref-format=reftable"][..], &["--filter=blob:none", "--no-checkout"]] {
        let fixture = Fixture::new();
        fixture.at_remote(["config", "uploadpack.allowFilter", "true"]);
        // Git has reftable since 2.45.
        if args[0].contains("reftable") && !has_reftable(&fixture) {
            continue;
        }
        let dir = clone(&fixture, args);
        works(&dir, &fixture.remote());
    }
    // Without trees there is nothing to build on.
    let dir = clone(&fixture, &["--filter=tree:0", "--no-checkout"]);
    is_refused(&dir, "partial clone that lacks more than blobs");
}

fn has_reftable(fixture: &Fixture) -> bool {
    let dir = fixture.beside("table");
    try_run(&fixture.work(), ["init", "-q", "--ref-format=reftable", dir.to_str().unwrap()]).0
        == Some(0)
}

#[test]
fn hooks_in_another_folder_run_from_there() {
    let fixture = Fixture::new();
    let hooks = fixture.work().join(".husky");
    fs::create_dir(&hooks).unwrap();
    fs::write(hooks.join("pre-push"), "#!/bin/sh\necho ran >> .git/ran\n").unwrap();
    support::make_executable(&hooks.join("pre-push"));
    fixture.git(["config", "core.hooksPath", ".husky"]);
    works(&fixture.work(), &fixture.remote());
    assert_eq!(fs::read_to_string(fixture.work().join(".git/ran")).unwrap(), "ran\n");
}

#[test]
fn submodules_and_filters_of_large_files_stay_what_they_are() {
    let fixture = Fixture::new();
    let library = Fixture::new();
    let url = library.remote();
    fixture.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    fixture.git(["add", "-A"]);
    let allow = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add"];
    fixture.git(allow.into_iter().chain([url.to_str().unwrap(), "lib"]));
    fixture.git(["commit", "-qm", "Add lib"]);
    fixture.git(["push", "-q", "origin", "main"]);
    works(&fixture.work(), &fixture.remote());
    let links = fixture.git(["ls-tree", "zoo/b", "lib"]);
    assert_eq!(links, fixture.git(["ls-tree", "main", "lib"]));
    let raw = Commit::new("raw", "m").with_base("main").write("large.bin", "raw");
    let report = fixture.open().apply(vec![Operation::commit("raw", raw)]).unwrap();
    assert_eq!(kind(report.get("raw")), Some(OpErrorKind::Filtered));

    let dir = linked(&fixture, "agent");
    put(&dir, "new.txt", "new\n");
    landed(&fixture.open().apply(vec![capture("c", "agent", &dir)]).unwrap(), "c");
    assert_eq!(fixture.git(["ls-tree", "agent", "lib"]), links);
    assert_eq!(status(&dir), "");
}

#[test]
fn a_hundred_thousand_files_work() {
    let fixture = Fixture::new();
    let mut stream = "commit refs/heads/main\ncommitter A <a@b> 1700000000 +0000\ndata 4\nMany\n\
                      from refs/heads/main^0\n"
        .to_owned();
    for n in 0..100_000 {
        write!(stream, "M 100644 inline d{}/e{}/f{n}\ndata 2\nx\n", n % 100, n % 1000).unwrap();
    }
    let mut import = Command::new("git")
        .args(["fast-import", "--quiet"])
        .current_dir(fixture.work())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    import.stdin.take().unwrap().write_all(stream.as_bytes()).unwrap();
    assert!(import.wait().unwrap().success());
    fixture.git(["push", "-q", "origin", "main"]);
    works(&fixture.work(), &fixture.remote());
    assert_eq!(fixture.git(["diff", "--name-only", "main", "zoo/a"]), "src/new.txt\n");
}

#[test]
fn a_git_directory_behind_a_symlink_or_a_file_works() {
    for is_file in [false, true] {
        let fixture = Fixture::new();
        let (dot_git, elsewhere) = (fixture.work().join(".git"), fixture.beside("elsewhere.git"));
        fs::rename(&dot_git, &elsewhere).unwrap();
        if is_file {
            fs::write(&dot_git, format!("gitdir: {}\n", elsewhere.display())).unwrap();
        } else {
            std::os::unix::fs::symlink(&elsewhere, &dot_git).unwrap();
        }
        works(&fixture.work(), &fixture.remote());
        assert!(elsewhere.join("batchyard/lock").exists());
        put(&fixture.work(), "README.md", "changed\n");
        let report = fixture.open().apply(vec![capture("c", "main", &fixture.work())]).unwrap();
        landed(&report, "c");
        assert_eq!(status(&fixture.work()), "");
    }
}
