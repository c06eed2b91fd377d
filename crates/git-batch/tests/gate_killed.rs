//! A process with a gate that is killed: what it leaves, and what of its batch the next one pushes.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use git_batch::{Commit, Gate, GitBatch, Operation, Settings, stops};
#[cfg(target_os = "linux")]
use support::wait_until;
use support::{Fixture, landed};

fn open(fixture: &Fixture, gate: Gate) -> GitBatch {
    GitBatch::open(fixture.work(), Settings::default().with_gate(gate)).unwrap()
}

/// The first commit breaks `main` and the second one repairs it, but only if `l` gets its commit too.
fn repaired() -> Vec<Operation> {
    let commit = |id: &str, branch: &str, content: &str| {
        let commit = Commit::new(branch, id).with_base("main").write("state.txt", content);
        Operation::commit(id, commit)
    };
    vec![
        commit("l", "l", "good\n"),
        commit("a", "main", "bad\n"),
        Operation::push("p1", "main"),
        commit("b", "main", "good\n").after("l"),
        Operation::push("p2", "main"),
    ]
}

/// The process that is killed, in a test of its own.
#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn runs_a_batch_and_is_killed() {
    let Some(work) = std::env::var_os("GATE_WORK") else { return };
    stops::kill_at("built", 1);
    let gate = Gate::new("sh").with_args(["-c", "! grep -rq bad ."]);
    let gate = gate.in_folder(std::env::var_os("GATE_FOLDER").unwrap());
    let git = GitBatch::open(work, Settings::default().with_gate(gate)).unwrap();
    git.apply(repaired()).unwrap();
}

/// Runs another test of this file in a process of its own.
fn start(fixture: &Fixture, test: &str, folder: &Path) -> Child {
    fs::create_dir_all(folder).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test])
        .env("GATE_WORK", fixture.work())
        .env("GATE_FOLDER", folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Whoever goes on, with a gate or without, the gate has seen what is pushed.
#[test]
fn what_the_gate_has_not_seen_is_not_pushed_by_who_goes_on() {
    for has_gate in [true, false] {
        let fixture = Fixture::new();
        fixture.git(["branch", "l"]);
        let before = fixture.at_remote(["rev-parse", "main"]);
        let scratch = fixture.beside("scratch");
        let mut killed = start(&fixture, "runs_a_batch_and_is_killed", &scratch);
        assert_eq!(killed.wait().unwrap().code(), None, "it was not killed");
        // So that the second commit cannot come.
        fixture.branch("l", "main", "theirs.txt", "theirs\n");
        let git = if has_gate {
            open(&fixture, Gate::new("true").in_folder(&scratch))
        } else {
            fixture.open()
        };
        landed(&git.apply(vec![Operation::push("other", "l")]).unwrap(), "other");
        assert_eq!(fixture.at_remote(["rev-parse", "main"]), before, "{has_gate}");
        // Asked for once more, all of it comes.
        let report = git.apply(repaired()).unwrap();
        for (id, _) in &report.outcomes {
            landed(&report, id);
        }
        assert_eq!(fixture.at_remote(["show", "main:state.txt"]), "good\n");
        fixture.assert_sound();
    }
}

/// The process that is killed while its gate runs, in a test of its own.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn asks_a_gate_that_leaves_processes() {
    let Some(work) = std::env::var_os("GATE_WORK") else { return };
    let folder = std::env::var_os("GATE_FOLDER").unwrap();
    // One that set itself apart, as a server of builds does, and one of its own.
    let script = "setsid sleep 1000 & daemon=$!; sleep 1000 & echo $daemon $! > ../begun; wait";
    let gate = Gate::new("sh").with_args(["-c", script]).in_folder(folder);
    let git = GitBatch::open(work, Settings::default().with_gate(gate)).unwrap();
    let commit = Commit::new("x", "m").with_base("main").write("x.txt", "x");
    git.apply(vec![Operation::commit("c", commit), Operation::push("p", "x")]).unwrap();
}

#[cfg(target_os = "linux")]
fn is_running(pid: &str) -> bool {
    let state = Command::new("ps").args(["-o", "stat=", "-p", pid]).output().unwrap();
    let state = String::from_utf8_lossy(&state.stdout).trim().to_owned();
    !state.is_empty() && !state.starts_with('Z')
}

/// Others may use it by now, and when a gate ends by itself it stays too.
#[cfg(target_os = "linux")]
#[test]
fn a_process_that_a_gate_has_set_apart_outlives_a_killed_run() {
    let fixture = Fixture::new();
    let scratch = fixture.beside("scratch");
    let mut killed = start(&fixture, "asks_a_gate_that_leaves_processes", &scratch);
    let begun = || {
        let folder = fs::read_dir(&scratch).unwrap().flatten().next()?;
        let said = fs::read_to_string(folder.path().join("begun")).ok()?;
        let (daemon, member) = said.strip_suffix('\n')?.split_once(' ')?;
        Some([daemon, member].map(str::to_owned))
    };
    wait_until(|| begun().is_some());
    let [daemon, member] = begun().unwrap();
    // It is apart when it is the first of its session.
    let session = || Command::new("ps").args(["-o", "sid=", "-p", &daemon]).output().unwrap();
    wait_until(|| String::from_utf8_lossy(&session().stdout).trim() == daemon);
    killed.kill().unwrap();
    killed.wait().unwrap();
    landed(&fixture.open().apply(vec![Operation::push("p", "main")]).unwrap(), "p");
    wait_until(|| !is_running(&member));
    let outlived = is_running(&daemon);
    Command::new("kill").arg(&daemon).status().unwrap();
    assert!(outlived);
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
}
