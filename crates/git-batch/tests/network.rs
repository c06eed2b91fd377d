//! Remotes behind a network that fails, or never answers.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use git_batch::{Commit, GitBatch, OpErrorKind, Operation, Settings};
use support::{Fixture, kind, landed, make_executable};

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
