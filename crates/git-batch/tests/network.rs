//! Remotes behind a network that fails, or never answers.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use git_batch::{Commit, GitBatch, OpErrorKind, Operation, Settings};
use support::{Fixture, kind, landed, make_executable, waits_for};

/// Puts a program in the place of ssh.
fn behind_ssh(fixture: &Fixture, script: &str) -> PathBuf {
    let (ssh, tries) = (fixture.beside("ssh"), fixture.beside("tries"));
    let script = format!("#!/bin/sh\necho x >> '{}'\n{script}\n", tries.display());
    fs::write(&ssh, script.replace("TRIES", tries.to_str().unwrap())).unwrap();
    make_executable(&ssh);
    fixture.git(["config", "core.sshCommand", ssh.to_str().unwrap()]);
    fixture.git(["config", "ssh.variant", "simple"]);
    let url = format!("ssh://host{}", fixture.remote().display());
    fixture.git(["remote", "set-url", "origin", &url]);
    tries
}

fn operations() -> Vec<Operation> {
    let commit = Commit::new("x", "m").with_base("main").write("a", "b");
    vec![Operation::commit("c", commit), Operation::push("p", "x")]
}

#[test]
fn a_remote_that_cannot_be_reached_for_a_moment_is_asked_again() {
    let fixture = Fixture::new();
    let tries = behind_ssh(
        &fixture,
        "test $(wc -l < 'TRIES') -le 2 && { echo 'Connection reset by peer' >&2; exit 255; }\n\
         for last; do :; done; eval exec \"$last\"",
    );
    let report = fixture.open().apply(operations()).unwrap();
    landed(&report, "p");
    assert_eq!(fs::read_to_string(tries).unwrap().lines().count(), 4);
    assert_eq!(fixture.received(), 1);
}

/// After the first push nobody answers any more. What comes later on that branch needs to know what is there.
#[test]
fn a_remote_that_is_gone_in_the_middle_is_not_asked_for_each_operation() {
    let fixture = Fixture::new();
    let tries = behind_ssh(
        &fixture,
        "test $(wc -l < 'TRIES') -gt 2 && { echo 'Permission denied' >&2; exit 255; }\n\
         for last; do :; done; eval exec \"$last\"",
    );
    let on_main =
        |id: &str| Operation::commit(id, Commit::new("main", id).write(format!("{id}.txt"), "x"));
    let mut operations = vec![on_main("first"), Operation::push("push", "main")];
    let later: Vec<String> = (0..10).map(|n| format!("c{n}")).collect();
    operations.extend(later.iter().map(|id| on_main(id).after("push")));
    operations.push(Operation::push("push again", "main"));
    let report = fixture.open().apply(operations).unwrap();
    landed(&report, "push");
    assert!(!report.get("push again").unwrap().is_success());
    for id in &later {
        assert_eq!(kind(report.get(id)), Some(OpErrorKind::Remote), "{report:?}");
    }
    assert_eq!(fs::read_to_string(tries).unwrap().lines().count(), 3);
}

#[test]
fn a_remote_that_never_answers_is_given_up_when_the_time_is_over() {
    let fixture = Fixture::new();
    // It keeps the line open, and ends when git does.
    let tries = behind_ssh(&fixture, "exec cat 3>&1 > /dev/null");
    let settings = Settings::default().with_time_limit(Some(Duration::from_millis(300)));
    let report = GitBatch::open(fixture.work(), settings).unwrap().apply(operations()).unwrap();
    landed(&report, "c");
    assert_eq!(kind(report.get("p")), Some(OpErrorKind::Remote));
    assert!(format!("{:?}", report.get("p")).contains("300ms"), "{report:?}");
    assert_eq!(fs::read_to_string(tries).unwrap().lines().count(), 1);
}

/// Limits what one call of git may take.
fn within(fixture: &Fixture, limit: Duration) -> GitBatch {
    let settings = Settings::default().with_time_limit(Some(limit));
    GitBatch::open(fixture.work(), settings).unwrap()
}

/// One byte a second, from the first one on.
#[test]
fn a_remote_that_trickles_is_given_up() {
    let fixture = Fixture::new();
    behind_ssh(
        &fixture,
        "for last; do :; done; eval \"$last\" | while dd bs=1 count=1 2>/dev/null; do sleep 1; done",
    );
    let git = within(&fixture, Duration::from_millis(300));
    let report = git.apply(operations()).unwrap();
    let commit = landed(&report, "c");
    assert_eq!(kind(report.get("p")), Some(OpErrorKind::Remote));
    assert!(format!("{:?}", report.get("p")).contains("300ms"), "{report:?}");
    fixture.git(["remote", "set-url", "origin", fixture.remote().to_str().unwrap()]);
    let again = fixture.open().apply(operations()).unwrap();
    assert_eq!((landed(&again, "c"), landed(&again, "p")), (commit, commit));
    assert_eq!(fixture.at_remote(["reflog", "show", "x"]).lines().count(), 1);
}

/// Its answer to the push never ends: before it has taken the push, and after.
#[test]
fn what_an_answer_without_end_has_landed_is_found_out() {
    // Both at once, as each takes until its time is up.
    std::thread::scope(|scope| {
        scope.spawn(|| answers_without_end("pre-receive"));
        answers_without_end("post-receive");
    });
}

fn answers_without_end(hook: &str) {
    let fixture = Fixture::new();
    fixture.hook(hook, "cat > /dev/null; while printf x >&2; do sleep 1; done");
    let git = within(&fixture, Duration::from_secs(5));
    let report = git.apply(operations()).unwrap();
    let commit = landed(&report, "c");
    if hook == "post-receive" {
        // The remote says that it has it.
        assert_eq!(landed(&report, "p"), commit);
    } else {
        assert!(!report.get("p").unwrap().is_success(), "{report:?}");
        fixture.hook(hook, "exit 0");
        let again = fixture.open().apply(operations()).unwrap();
        assert_eq!((landed(&again, "c"), landed(&again, "p")), (commit, commit));
    }
    assert_eq!(fixture.at_remote(["reflog", "show", "x"]).lines().count(), 1);
}

/// It never answers, but in the end nothing is pushed to it.
#[test]
fn a_remote_that_is_not_needed_is_not_waited_for() {
    let fixture = Fixture::new();
    let go = fixture.beside("go");
    behind_ssh(&fixture, &waits_for(&go));
    let git = GitBatch::open(fixture.work(), Settings::default().with_time_limit(None)).unwrap();
    let commit = |id: &str, path: &str| {
        Operation::commit(id, Commit::new("x", "m").with_base("main").write(path, "b"))
    };
    let operations =
        vec![commit("good", "a"), commit("bad", "../a"), Operation::push("push", "x").after("bad")];
    let report = git.apply(operations).unwrap();
    landed(&report, "good");
    assert!(!report.get("push").unwrap().is_success(), "{report:?}");
    fs::write(go, "").unwrap();
}
