//! The git program when it is missing, old, slow, talkative, or leaves something behind.
#![cfg(unix)]

mod bare;

use std::time::Duration;

use bare::Fixture;
use git_batch::program::{Git, GitError};
use git_batch::publish::{Class, PublishError, remote_refs};

#[test]
fn a_missing_or_old_git_is_an_error_that_says_so() {
    let fix = Fixture::new();
    let open = |program: &str| Git::open_with(program.as_ref(), fix.git.git_dir());
    let error = open("/no/such/git").expect_err("no program");
    assert_eq!(
        error.to_string(),
        r#"cannot run the program "/no/such/git"; is git installed and on PATH?"#
    );
    let old = fix.script("old-git", "echo git version 2.20.1");
    let error = open(old.to_str().expect("UTF-8")).expect_err("too old");
    assert!(error.to_string().ends_with(r#"is "git version 2.20.1"; install git 2.41 or newer"#));
    let error = Git::open(&fix.work.join("nothing")).expect_err("no folder");
    assert!(matches!(error, GitError::NotAFolder { .. }), "{error}");
}

#[test]
fn a_git_that_hangs_is_ended_when_time_is_up() {
    let fix = Fixture::new();
    let git = fix
        .git_through(r#"case "$*" in *ls-remote*) exec sleep 600;; *) exec "$REAL" "$@";; esac"#);
    let git = git.with_time_limit(Some(Duration::from_millis(50)));
    let error = remote_refs(&git, "origin").expect_err("no answer");
    assert!(matches!(error, PublishError::Git(GitError::TimedOut { .. })), "{error}");
    assert_eq!(error.class(), Class::Transient);
}

/// As by a hook that reads from the terminal, where git is in the background.
#[test]
fn a_git_that_is_stopped_is_ended_at_once() {
    let fix = Fixture::new();
    let git =
        fix.git_through(r#"case "$*" in *ls-remote*) kill -TTIN $$;; *) exec "$REAL" "$@";; esac"#);
    let error = remote_refs(&git, "origin").expect_err("no answer");
    let PublishError::Git(error @ GitError::Stopped { .. }) = error else { panic!("{error}") };
    assert!(error.to_string().contains("asked for something on the terminal"), "{error}");
}

#[test]
fn output_without_end_is_cut_off() {
    let fix = Fixture::new();
    let git =
        fix.git_through(r#"case "$*" in *ls-remote*) exec yes;; *) exec "$REAL" "$@";; esac"#);
    let error = git.with_max_stdout(1 << 20).run(["ls-remote"], None).expect_err("too much");
    assert!(matches!(error, GitError::TooMuchOutput { limit: 1_048_576, .. }), "{error}");

    // Of standard error the beginning is kept; the rest is read, so that git is not held up.
    let git = fix.git_through(r#"case "$*" in *ls-remote*) yes | head -c 1000000 >&2; echo done;; *) exec "$REAL" "$@";; esac"#);
    let output = git.run(["ls-remote"], None).expect("an end");
    assert_eq!((output.stdout.as_slice(), output.stderr.len()), (b"done\n".as_slice(), 64 << 10));
}

/// As an SSH connection that is kept open for the next call.
#[test]
fn a_process_left_behind_does_not_hold_up_the_answer() {
    let fix = Fixture::new();
    let git = fix.git_through(
        r#"case "$*" in *ls-remote*) sleep 600 >/dev/null & echo $!;; *) exec "$REAL" "$@";; esac"#,
    );
    let output = git.run(["ls-remote"], None).expect("an answer");
    let pid = String::from_utf8(output.stdout).expect("a number");
    let ended = std::process::Command::new("kill").arg(pid.trim()).status().expect("kill runs");
    assert!(ended.success(), "process {pid} had ended: it was waited for");
}

#[test]
fn input_that_is_not_read_is_no_failure() {
    let fix = Fixture::new();
    let big = vec![b'x'; 1 << 20];
    let output = fix.git.run(["rev-parse", "--is-bare-repository"], Some(&big)).expect("an end");
    assert_eq!(output.stdout, b"false\n");
    let output = fix.git.run(["hash-object", "--stdin"], Some(&big)).expect("an end");
    assert_eq!(output.stdout.len(), 41);
}
