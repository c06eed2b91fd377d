//! Worktrees in which somebody is at work while they are committed.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;
use std::time::Duration;

use git_batch::{Commit, GitBatch, OpErrorKind, Operation, Outcome, Settings};
use support::worktree::{apply, capture, capture_files, linked, put, status};
use support::{Fixture, kind, landed, run, try_run};

#[test]
fn two_operations_on_one_worktree_are_two_commits() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "x");
    put(&dir, "a.txt", "a\n");
    put(&dir, "b.txt", "b\n");
    let operations = vec![
        capture_files("a", "x", &dir, &["a.txt"]),
        capture("rest", "x", &dir),
        capture("nothing", "x", &dir),
        Operation::push("p", "x"),
    ];
    let report = fixture.open().apply(operations).unwrap();
    let (a, rest) = (landed(&report, "a"), landed(&report, "rest"));
    assert_eq!(report.get("nothing"), Some(&support::no_change(rest)));
    assert_eq!(fixture.id("x^"), a);
    assert_eq!(fixture.git(["show", "--name-only", "--format=", "x"]), "b.txt\n");
    assert_eq!(status(&dir), "");
    assert_eq!(report.pushes(), 1);
}

#[test]
fn another_operation_does_not_move_the_branch_under_the_worktree() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "x");
    put(&dir, "a.txt", "a\n");
    let operations = vec![
        capture("capture", "x", &dir),
        Operation::commit("write", Commit::new("x", "Write").write("b.txt", "b\n")),
        Operation::push("p", "x"),
    ];
    let report = fixture.open().apply(operations).unwrap();
    landed(&report, "capture");
    assert_eq!(kind(report.get("write")), Some(OpErrorKind::CheckedOut));
    assert_eq!(status(&dir), "");

    put(&dir, "c.txt", "c\n");
    let operations = vec![
        Operation::commit("write", Commit::new("x", "Write").write("b.txt", "b\n")),
        capture("capture", "x", &dir),
        Operation::push("p", "x"),
    ];
    let report = fixture.open().apply(operations).unwrap();
    assert_eq!(kind(report.get("capture")), Some(OpErrorKind::CheckedOut));
    assert_eq!(status(&dir), "?? c.txt\n");
}

#[test]
fn a_merge_that_is_not_finished_is_left_alone() {
    let fixture = Fixture::new();
    fixture.branch("theirs", "main", "README.md", "theirs\n");
    let dir = linked(&fixture, "x");
    put(&dir, "README.md", "ours\n");
    run(&dir, ["commit", "-qam", "Ours"]);
    let (code, _) = try_run(&dir, ["merge", "-q", "theirs"]);
    assert_eq!(code, Some(1));
    let before = status(&dir);
    let report = apply(&fixture, capture("c", "x", &dir));
    assert_eq!(kind(report.get("c")), Some(OpErrorKind::WorktreeBusy));
    assert_eq!(status(&dir), before);
}

#[test]
fn a_locked_index_fails_its_operation_alone() {
    let fixture = Fixture::new();
    let (held, free) = (linked(&fixture, "held"), linked(&fixture, "free"));
    put(&held, "a.txt", "a\n");
    put(&free, "a.txt", "a\n");
    let lock = fixture.work().join(".git/worktrees/held/index.lock");
    fs::write(&lock, "").unwrap();
    let settings = Settings::default().with_worktree_wait(Duration::from_millis(20));
    let git = GitBatch::open(fixture.work(), settings).unwrap();
    let operations = || {
        vec![
            capture("held", "held", &held),
            capture("free", "free", &free),
            Operation::push("p", "free"),
        ]
    };
    let report = git.apply(operations()).unwrap();
    assert_eq!(kind(report.get("held")), Some(OpErrorKind::WorktreeBusy));
    let Some(Outcome::Failed(error)) = report.get("held") else { unreachable!() };
    assert!(error.message.contains("index.lock"), "{error}");
    landed(&report, "free");
    landed(&report, "p");
    assert!(lock.exists(), "the lock of another is not ours to remove");
    fs::remove_file(&lock).unwrap();
    let report = git.apply(operations()).unwrap();
    landed(&report, "held");
    assert_eq!(status(&held), "");
}

#[test]
fn a_locked_index_is_waited_for() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "x");
    put(&dir, "a.txt", "a\n");
    let lock = fixture.work().join(".git/worktrees/x/index.lock");
    // A git that holds the index until it is told to go on.
    let mut child = std::process::Command::new("sh")
        .args(["-c", ": > \"$1\"; echo held; read -r _; rm \"$1\"", "sh"])
        .arg(&lock)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut held = [0; 5];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut held).unwrap();
    let git = fixture.open();
    let report = std::thread::scope(|scope| {
        let apply = scope.spawn(|| git.apply(vec![capture("c", "x", &dir)]).unwrap());
        drop(child.stdin.take());
        apply.join().unwrap()
    });
    child.wait().unwrap();
    landed(&report, "c");
    assert_eq!(status(&dir), "");
}

#[test]
fn an_agent_that_goes_on_meanwhile_loses_nothing() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "x");
    put(&dir, "a.txt", "captured\n");
    put(&dir, "b.txt", "captured\n");
    put(&dir, "c.txt", "captured\n");
    // Between the push and the answer, long after the worktree was read.
    let script = format!(
        "cat >/dev/null; cd '{}' && unset GIT_DIR GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY \
         GIT_ALTERNATE_OBJECT_DIRECTORIES && echo later > a.txt && echo later > b.txt && git add \
         b.txt && echo new > d.txt",
        dir.display()
    );
    fixture.hook("pre-receive", &script);
    let report =
        fixture.open().apply(vec![capture("c", "x", &dir), Operation::push("p", "x")]).unwrap();
    landed(&report, "p");
    assert_eq!(status(&dir), " M a.txt\nM  b.txt\n?? d.txt\n");
    assert_eq!(fixture.git(["show", "x:a.txt"]), "captured\n");
}

#[test]
fn an_agent_that_commits_meanwhile_loses_nothing() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "x");
    let git_dir = fixture.work().join(".git/worktrees/x");
    // The filter runs while the worktree is read.
    let script = fixture.beside("commit-once");
    let body = format!(
        "#!/bin/sh\nunset $(env | sed -n 's/^\\(GIT_[A-Z_]*\\)=.*/\\1/p')\nif mkdir '{marker}' \
         2>/dev/null; then cd '{dir}' && echo agent > agent.txt && git add agent.txt && git commit \
         -qm Agent >/dev/null; fi\nexec cat\n",
        marker = fixture.beside("marker").display(),
        dir = dir.display(),
    );
    fs::write(&script, body).unwrap();
    support::make_executable(&script);
    fixture.git(["config", "filter.race.clean", script.to_str().unwrap()]);
    put(&dir, ".gitattributes", "*.bin filter=race\n");
    put(&dir, "a.bin", "a\n");
    let report = apply(&fixture, capture("c", "x", &dir));
    landed(&report, "c");
    assert!(git_dir.join("index").exists());
    assert_eq!(run(&dir, ["log", "--format=%s", "main..x"]), "Agent's work\nAgent\n");
    let changed = run(&dir, ["diff-tree", "-r", "--name-only", "--no-commit-id", "x"]);
    assert_eq!(changed, ".gitattributes\na.bin\n");
    assert_eq!(status(&dir), "");
}

#[test]
fn the_lock_that_a_killed_run_left_is_removed() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "x");
    put(&dir, "a.txt", "a\n");
    let state = fixture.work().join(".git/batchyard");
    fs::create_dir(&state).unwrap();
    fs::write(state.join("held"), b"worktrees/x/index.lock\0").unwrap();
    fs::write(state.join("index-x"), "half").unwrap();
    let lock = fixture.work().join(".git/worktrees/x/index.lock");
    fs::hard_link(state.join("held"), &lock).unwrap();
    landed(&apply(&fixture, capture("c", "x", &dir)), "c");
    assert_eq!(status(&dir), "");
    assert!(!lock.exists() && !state.join("index-x").exists());
    assert_eq!(fs::metadata(state.join("held")).unwrap().len(), 0);
}

#[test]
fn a_branch_that_two_worktrees_are_on_is_not_moved() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "x");
    let second = fixture.beside("second");
    fixture.git(["worktree", "add", "-q", "--detach", second.to_str().unwrap(), "x"]);
    run(&second, ["checkout", "-q", "--ignore-other-worktrees", "x"]);
    put(&dir, "a.txt", "a\n");
    let report = apply(&fixture, capture("c", "x", &dir));
    assert_eq!(kind(report.get("c")), Some(OpErrorKind::CheckedOut));
    assert_eq!((status(&dir).as_str(), status(&second).as_str()), ("?? a.txt\n", ""));
}

/// Whoever removes a file and makes it anew a moment later has not deleted it.
#[test]
fn what_is_put_back_while_the_worktree_is_read_is_no_deletion() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "x");
    put(&dir, ".gitattributes", "a.slow filter=slow\n");
    put(&dir, "a.slow", "x\n");
    // The top has been listed when this file is read.
    let back = format!(
        "cd '{}'; mkdir -p old; echo new > README.md; echo kept > old/kept.txt; cat",
        dir.display()
    );
    fixture.git(["config", "filter.slow.clean", &back]);
    fs::remove_file(dir.join("README.md")).unwrap();
    fs::remove_dir_all(dir.join("old")).unwrap();
    // This one is gone.
    fs::remove_file(dir.join("src/lib.rs")).unwrap();
    let report = apply(&fixture, capture("c", "x", &dir));
    landed(&report, "c");
    let there = fixture.git(["ls-tree", "-r", "--name-only", "x"]);
    assert_eq!(there, ".gitattributes\nREADME.md\na.slow\nold/kept.txt\n");
    assert_eq!(fixture.git(["show", "x:README.md"]), "new\n");
    assert_eq!(status(&dir), "");
}

/// A link stands in for another spelling of the name, which a file system without case answers to.
#[test]
fn another_name_of_a_new_file_is_not_what_the_index_has() {
    for (command, is_there) in [("ln", false), ("mv", true)] {
        let fixture = Fixture::new();
        let dir = linked(&fixture, "x");
        put(&dir, ".gitattributes", "a.slow filter=slow\n");
        put(&dir, "a.slow", "x\n");
        // The top has been listed when this file is read.
        let again = format!("cd '{}'; {command} a.slow README.md; cat", dir.display());
        fixture.git(["config", "filter.slow.clean", &again]);
        fs::remove_file(dir.join("README.md")).unwrap();
        landed(&apply(&fixture, capture("c", "x", &dir)), "c");
        let there = fixture.git(["ls-tree", "-r", "--name-only", "x"]);
        assert_eq!(there.contains("README.md"), is_there, "{command}: {there}");
        assert_eq!(fixture.git(["show", "x:a.slow"]), "x\n");
    }
}

/// The file system answers to both names and lists one.
#[cfg(target_os = "macos")]
#[test]
fn a_change_of_case_alone_is_a_rename() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "x");
    fs::rename(dir.join("README.md"), dir.join("readme.md")).unwrap();
    fs::rename(dir.join("src"), dir.join("Src")).unwrap();
    landed(&apply(&fixture, capture("c", "x", &dir)), "c");
    let there = fixture.git(["ls-tree", "-r", "--name-only", "x"]);
    let is_there = |path: &str| there.lines().any(|line| line == path);
    assert!(is_there("readme.md") && is_there("Src/lib.rs"), "{there}");
    assert!(!is_there("README.md") && !is_there("src/lib.rs"), "{there}");
}
