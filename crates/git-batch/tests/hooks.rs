//! Hooks and signatures, by the user's own settings.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use git_batch::{
    Action, Change, Commit, Gate, GitBatch, Guard, Hook, Mode, ObjectId, OpErrorKind, Operation,
    Settings, Strategy,
};
use support::worktree::{capture, linked, put, status};
use support::{Fixture, kind, landed, make_executable, run};

fn hook(fixture: &Fixture, name: &str, script: &str) {
    let path = fixture.work().join(".git/hooks").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    make_executable(&path);
}

fn open(fixture: &Fixture, settings: Settings) -> GitBatch {
    GitBatch::open(fixture.work(), settings).unwrap()
}

#[test]
fn commit_msg_runs_for_each_commit_where_it_is_asked_for() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "agent");
    put(&dir, "new.txt", "new\n");
    hook(
        &fixture,
        "commit-msg",
        "grep -q bad \"$1\" && { echo 'no bad messages' >&2; exit 1; }\n\
         echo \"Change-Id: $(git rev-parse --abbrev-ref HEAD)\" >> \"$1\"",
    );
    let operations = || {
        vec![
            Operation::commit("good", Commit::new("x", "Good").write("a", "b")),
            Operation::commit("bad", Commit::new("y", "bad").write("a", "b")),
            capture("agent", "agent", &dir),
        ]
    };
    let git = open(&fixture, Settings::default().with_hook(Hook::CommitMsg));
    let tried = git.preview(&operations()).unwrap();
    landed(&tried, "bad");
    let report = git.apply(operations()).unwrap();
    assert_eq!(kind(report.get("bad")), Some(OpErrorKind::Hook), "{report:?}");
    assert!(format!("{:?}", report.get("bad")).contains("no bad messages"));
    let body = |commit: ObjectId| fixture.git(["log", "-1", "--format=%B", &commit.to_string()]);
    assert_eq!(body(landed(&report, "good")).trim(), "Good\nChange-Id: main");
    // It stands in the worktree that the commit is from.
    assert_eq!(body(landed(&report, "agent")).trim(), "Agent's work\nChange-Id: agent");
    assert_eq!(status(&dir), "");

    let without = open(&fixture, Settings::default());
    let report = without.apply(vec![operations().remove(1)]).unwrap();
    assert_eq!(body(landed(&report, "bad")).trim(), "bad");
}

#[test]
fn pre_push_runs_once_with_all_refs() {
    let fixture = Fixture::new();
    hook(&fixture, "pre-push", "echo call >> .git/calls; cat >> .git/calls");
    let mut operations = Vec::new();
    for n in 0..5 {
        let branch = format!("b{n}");
        operations.push(Operation::commit(&branch, Commit::new(&branch, "m").write("a", "b")));
        operations.push(Operation::push(format!("p{n}"), branch));
    }
    open(&fixture, Settings::default()).apply(operations).unwrap();
    let calls = fs::read_to_string(fixture.work().join(".git/calls")).unwrap();
    assert_eq!(calls.lines().filter(|line| *line == "call").count(), 1, "{calls}");
    assert_eq!(calls.lines().count(), 6, "{calls}");
}

/// Without anybody at a terminal, commits go out unsigned or are lost (marc0der/ralph#19).
fn assert_signed(fixture: &Fixture) {
    let git = fixture.open();
    let report = git
        .apply(vec![
            Operation::commit("a", Commit::new("x", "One").write("a", "1")),
            Operation::commit("b", Commit::new("y", "Two").with_base("main").write("b", "2")),
            Operation::merge("m", "y", "x"),
            Operation::push("p", "x"),
        ])
        .unwrap();
    for id in ["a", "b", "m"] {
        fixture.git(["verify-commit", &landed(&report, id).to_string()]);
    }
    assert_eq!(fixture.at_remote(["rev-parse", "x"]).trim(), landed(&report, "p").to_string());
    fixture.assert_sound();
    // The same again gives the same commits, though no two signatures need be the same.
    let again = git
        .apply(vec![
            Operation::commit("a", Commit::new("x", "One").write("a", "1")),
            Operation::commit("b", Commit::new("y", "Two").with_base("main").write("b", "2")),
            Operation::merge("m", "y", "x"),
            Operation::push("p", "x"),
        ])
        .unwrap();
    assert_eq!(again.outcomes, report.outcomes);
    assert_eq!(again.replayed.len(), 4);
}

/// Lets commits be signed with a new key, by a program that counts how often; both are beside.
fn sign_with_ssh(fixture: &Fixture) {
    let key = fixture.beside("key");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "a", "-f"])
        .arg(&key)
        .status()
        .unwrap();
    assert!(made.success());
    let public = fs::read_to_string(key.with_extension("pub")).unwrap();
    let (allowed, program) = (fixture.beside("allowed"), fixture.beside("signer"));
    fs::write(&allowed, format!("author@example.com {public}")).unwrap();
    let count = fixture.beside("signed");
    let script = format!("#!/bin/sh\necho x >> '{}'\nexec ssh-keygen \"$@\"\n", count.display());
    fs::write(&program, script).unwrap();
    make_executable(&program);
    for (name, value) in [
        ("gpg.format", "ssh"),
        ("commit.gpgSign", "true"),
        ("user.signingKey", key.to_str().unwrap()),
        ("gpg.ssh.program", program.to_str().unwrap()),
        ("gpg.ssh.allowedSignersFile", allowed.to_str().unwrap()),
    ] {
        fixture.git(["config", name, value]);
    }
}

/// How often something was signed since this was asked last.
fn signed(fixture: &Fixture) -> usize {
    let count = fixture.beside("signed");
    let text = fs::read_to_string(&count).unwrap_or_default();
    fs::write(count, "").unwrap();
    text.lines().count()
}

/// The gate asks seven times, and what comes before the culprit is what it was.
#[test]
fn a_batch_that_is_built_again_is_not_signed_again() {
    let fixture = Fixture::new();
    let branches: Vec<String> = (0..8).map(|n| format!("b{n}")).collect();
    let commits = branches.iter().map(|name| {
        let content = if name == "b4" { "bad" } else { "good" };
        Operation::commit(name, Commit::new(name, "m").write(name.as_str(), content))
    });
    fixture.open().apply(commits.collect()).unwrap();
    sign_with_ssh(&fixture);
    let gate = Gate::new("sh").with_args(["-c", "! grep -q bad b*"]);
    let gate = gate.in_folder(fixture.beside(""));
    let git = GitBatch::open(fixture.work(), Settings::default().with_gate(gate)).unwrap();
    let report = git.land("main", &branches, Strategy::Merge).unwrap();
    assert_eq!(kind(report.get("b4")), Some(OpErrorKind::Gate));
    landed(&report, "b7");
    assert!(report.receipt().gate_runs >= 4);
    // Eight merges, and three again without the culprit.
    assert_eq!(signed(&fixture), 11);
    fixture.git(["verify-commit", &landed(&report, "b7").to_string()]);
}

#[test]
fn commits_are_signed_with_ssh() {
    let fixture = Fixture::new();
    sign_with_ssh(&fixture);
    assert_signed(&fixture);

    fs::remove_file(fixture.beside("key")).unwrap();
    let commit = Commit::new("z", "m").write("a", "1");
    let report = fixture.open().apply(vec![Operation::commit("z", commit)]).unwrap();
    assert_eq!(kind(report.get("z")), Some(OpErrorKind::Repository));
    assert_eq!(fixture.git(["branch", "--list", "z"]), "");
}

#[test]
fn commits_are_signed_with_gpg() {
    // Where gpg is not installed, the test with ssh has to do.
    if Command::new("gpg").arg("--version").output().is_err() {
        return;
    }
    let fixture = Fixture::new();
    // Short: the socket of its agent is in there.
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let gpg = |args: &[&str]| {
        let mut command = Command::new("gpg");
        command.env("GNUPGHOME", home.path()).args(["--batch", "--quiet"]).args(args);
        assert!(command.status().unwrap().success(), "{args:?}");
    };
    gpg(&["--passphrase", "", "--quick-gen-key", "author@example.com", "ed25519", "sign"]);
    let program = fixture.beside("gpg");
    let script = format!("#!/bin/sh\nGNUPGHOME='{}' exec gpg \"$@\"\n", home.path().display());
    fs::write(&program, script).unwrap();
    make_executable(&program);
    for (name, value) in [
        ("commit.gpgSign", "true"),
        ("user.signingKey", "author@example.com"),
        ("gpg.program", program.to_str().unwrap()),
    ] {
        fixture.git(["config", name, value]);
    }
    assert_signed(&fixture);
    let ended = Command::new("gpgconf")
        .env("GNUPGHOME", home.path())
        .args(["--kill", "all"])
        .status()
        .unwrap();
    assert!(ended.success());
}

/// A submodule's commit that was never pushed dangles for all others
/// (gsd-build/get-shit-done#2137).
#[test]
fn a_commit_of_a_submodule_that_was_not_pushed_is_refused() {
    let fixture = Fixture::new();
    let library = Fixture::new();
    let url = library.remote();
    fixture.git([
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        url.to_str().unwrap(),
        "lib",
    ]);
    fixture.git(["commit", "-qm", "Add lib"]);
    fixture.git(["push", "-q", "origin", "main"]);
    let inner = fixture.work().join("lib");
    let head =
        |dir: &Path| ObjectId::from_hex(run(dir, ["rev-parse", "HEAD"]).trim().as_bytes()).unwrap();
    let pushed = head(&inner);
    for (key, value) in [("user.name", "A"), ("user.email", "a@b")] {
        run(&inner, ["config", key, value]);
    }
    run(&inner, ["commit", "-q", "--allow-empty", "-m", "Only here"]);
    let unpushed = head(&inner);
    let operation = |id: &str, oid: ObjectId| {
        let action = Action::Object { oid, mode: Mode::Submodule };
        Operation::commit(
            id,
            Commit::new(id, "m").with_base("main").change(Change::new("lib", action)),
        )
    };
    let missing = ObjectId::from_hex(&[b'1'; 40]).unwrap();
    let operations = || vec![operation("unpushed", unpushed), operation("missing", missing)];
    let report = fixture.open().apply(operations()).unwrap();
    for id in ["unpushed", "missing"] {
        assert_eq!(kind(report.get(id)), Some(OpErrorKind::Submodule), "{report:?}");
    }
    let allowing = Settings::default().allowing(Guard::Submodules);
    landed(&open(&fixture, allowing).apply(operations()).unwrap(), "unpushed");
    run(&inner, ["push", "-q", "origin", "HEAD:main"]);
    let after = vec![operation("now", unpushed), operation("before", pushed)];
    let report = fixture.open().apply(after).unwrap();
    landed(&report, "now");
    assert!(report.get("before").unwrap().is_success());
}
