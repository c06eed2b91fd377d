//! Many processes at work in one repository at the same time.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use git_batch::{Commit, GitBatch, Operation, Settings};
use support::worktree::{capture, linked, put, status};
use support::{Fixture, run, try_run};

/// How many rounds a process of ours does: so many at least, and for so many seconds.
const ROUNDS: usize = 6;

/// What one round of a process of ours does: a commit from its worktree and one of its own, pushed.
fn round(name: &str, worktree: &Path, n: usize) -> Vec<Operation> {
    let branch = format!("{name}/{n}");
    let commit = Commit::new(&branch, "Work").with_base("main").write("work.txt", name);
    vec![
        Operation::commit("c", commit),
        Operation::push("p", branch),
        capture("w", &format!("agent-{name}"), worktree),
        Operation::push("pw", format!("agent-{name}")),
    ]
}

fn ours(fixture: &Fixture, name: &str, worktree: &Path, seconds: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "works_in_a_process_of_its_own", "--quiet"])
        .env("CONTENTION_NAME", name)
        .env("CONTENTION_WORK", fixture.work())
        .env("CONTENTION_WORKTREE", worktree)
        .env("CONTENTION_SECONDS", seconds.to_string())
        .env("CONTENTION_DONE", fixture.beside(&format!("done-{name}")))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The work of a child; in the tests' own process there is none.
#[test]
fn works_in_a_process_of_its_own() {
    let Ok(name) = std::env::var("CONTENTION_NAME") else { return };
    let worktree = std::env::var("CONTENTION_WORKTREE").unwrap();
    let worktree = Path::new(&worktree);
    let git =
        GitBatch::open(std::env::var("CONTENTION_WORK").unwrap(), Settings::default()).unwrap();
    let seconds = std::env::var("CONTENTION_SECONDS").unwrap().parse().unwrap();
    let started = Instant::now();
    let mut n = 0;
    while n < ROUNDS || started.elapsed() < Duration::from_secs(seconds) {
        put(worktree, "work.txt", &format!("{name} {n}\n"));
        let report = git.apply(round(&name, worktree, n)).unwrap();
        for (id, outcome) in &report.outcomes {
            assert!(outcome.is_success(), "round {n}: {id} {outcome:?}");
        }
        n += 1;
    }
    fs::write(std::env::var("CONTENTION_DONE").unwrap(), n.to_string()).unwrap();
}

/// Three processes of ours, and beside them git that commits in the checkout, collects garbage without
/// mercy, adds worktrees, fetches, and packs refs.
#[test]
fn eight_processes_lose_nothing_and_nobody_sees_a_lock() {
    contend(0);
}

#[test]
#[ignore = "takes over half a minute: for whoever changes locks or the order of writes"]
fn eight_processes_lose_nothing_in_thirty_seconds() {
    contend(30);
}

fn contend(seconds: u64) {
    let fixture = Fixture::new();
    let names = ["x", "y", "z"];
    let worktrees = names.map(|name| linked(&fixture, &format!("agent-{name}")));
    let work = fixture.work();
    let is_done = AtomicBool::new(false);
    // Git loses commits of its own that it makes while it prunes.
    let not_both = Mutex::new(());
    let by_hand: usize = std::thread::scope(|scope| {
        let loops: [&[&str]; 3] = [
            &["gc", "--quiet", "--prune=now"],
            &["fetch", "--quiet", "origin"],
            &["pack-refs", "--all"],
        ];
        for args in loops {
            let (work, is_done, not_both) = (&work, &is_done, &not_both);
            scope.spawn(move || {
                while !is_done.load(Ordering::Relaxed) {
                    let _held = (args[0] == "gc").then(|| not_both.lock().unwrap());
                    // It may find a lock of ours and give up; it must never do harm.
                    let _ = try_run(work, args);
                }
            });
        }
        let adder = scope.spawn(|| {
            let mut added = 0;
            while !is_done.load(Ordering::Relaxed) {
                let dir = fixture.beside(&format!("added-{added}"));
                let branch = format!("added/{added}");
                let args = ["worktree", "add", "-q", "-b", &branch, dir.to_str().unwrap(), "main"];
                if try_run(&work, args).0 == Some(0) {
                    added += 1;
                }
            }
            added
        });
        let committer = scope.spawn(|| {
            let mut commits = 0;
            while !is_done.load(Ordering::Relaxed) {
                let _held = not_both.lock().unwrap();
                fixture.write("by-hand.txt", &format!("{commits}\n"));
                let is_added = try_run(&work, ["add", "by-hand.txt"]).0 == Some(0);
                if is_added && try_run(&work, ["commit", "-qm", "By hand"]).0 == Some(0) {
                    commits += 1;
                }
            }
            commits
        });
        let children: Vec<Child> = names
            .iter()
            .zip(&worktrees)
            .map(|(name, worktree)| ours(&fixture, name, worktree, seconds))
            .collect();
        let outputs: Vec<_> =
            children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        is_done.store(true, Ordering::Relaxed);
        for output in outputs {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
        assert!(adder.join().unwrap() > 0);
        committer.join().unwrap()
    });
    assert_eq!(
        fixture.git(["rev-list", "--count", "origin/main..main"]).trim(),
        by_hand.to_string()
    );
    for (name, worktree) in names.iter().zip(&worktrees) {
        let rounds = fs::read_to_string(fixture.beside(&format!("done-{name}"))).unwrap();
        let rounds: usize = rounds.parse().unwrap();
        let branch = format!("agent-{name}");
        let count = |dir: &Path| run(dir, ["rev-list", "--count", &branch, "--grep=^Agent"]);
        assert_eq!(count(&work).trim(), rounds.to_string());
        assert_eq!(count(&fixture.remote()).trim(), rounds.to_string());
        let entries = fixture.at_remote(["reflog", "show", &branch]);
        assert_eq!(entries.lines().count(), rounds, "{entries}");
        assert_eq!(status(worktree), "");
        for n in 0..rounds {
            let pushed = fixture.at_remote(["rev-parse", &format!("{name}/{n}")]);
            assert_eq!(fixture.git(["rev-parse", &format!("{name}/{n}")]), pushed);
        }
    }
    fixture.assert_sound();
}
