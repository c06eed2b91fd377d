//! A process that is killed at any point of a batch: the next one finishes it, once.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use git_batch::{Commit, ExecutorKind, GitBatch, OnMoved, Operation, Settings, Strategy, stops};
use support::worktree::{capture, linked, put, status};
use support::{Fixture, landed, run};

/// The points at which a batch can be killed, in their order, and how often it comes there at least.
const STOPS: [(&str, u32); 19] = [
    ("keep written", 1),
    ("pack part written", 2),
    ("pack in place", 1),
    ("record written", 1),
    ("record in place", 1),
    ("built", 1),
    ("before push", 3),
    ("pushed", 3),
    ("refs locked", 2),
    ("index prepared", 2),
    ("reflogs written", 2),
    ("packed refs moved", 2),
    ("ref moved", 4),
    ("group moved", 1),
    ("index moved", 1),
    ("refs moved", 3),
    ("caught up", 1),
    ("before done", 1),
    ("done", 1),
];

/// A batch with all there is: new and old branches, one that is loose, a worktree, a group with a branch
/// that it does not push, a branch that is checked out and only moves at the remote, and one that has moved at the remote.
struct Yard {
    fixture: Fixture,
    worktree: PathBuf,
    settings: Settings,
}

/// How a batch is done.
fn settings(moved: &str, executor: &str) -> Settings {
    let on_moved = if moved == "rebase" { OnMoved::Rebase } else { OnMoved::Merge };
    let executor = if executor == "git" { ExecutorKind::GitProgram } else { ExecutorKind::Auto };
    Settings::default().with_on_moved(on_moved).with_executor(executor)
}

impl Yard {
    /// The same as another one that nothing has happened in yet.
    fn copy(&self) -> Yard {
        let fixture = self.fixture.copy();
        let worktree = fixture.beside("agent");
        // Git would look for the one that it is a copy of.
        let own = fixture.work().join(".git/worktrees/agent");
        fs::write(worktree.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
        let dot_git = worktree.join(".git");
        fs::write(own.join("gitdir"), format!("{}\n", dot_git.display())).unwrap();
        Yard { fixture, worktree, settings: self.settings.clone() }
    }

    fn new() -> Yard {
        let fixture = Fixture::new();
        fixture.branch("loose", "main", "loose.txt", "1\n");
        fixture.branch("moved", "main", "moved.txt", "1\n");
        fixture.git(["push", "-q", "origin", "loose", "moved"]);
        fixture.git(["pack-refs", "--all"]);
        let moved = fixture.id("moved");
        fixture.git(["update-ref", "refs/heads/loose", &fixture.id("main").to_string()]);
        fixture.git(["update-ref", "refs/heads/loose", &fixture.id("origin/loose").to_string()]);
        fixture.move_remote("moved", "other.txt", "other\n");
        assert_eq!(fixture.id("moved"), moved);
        let worktree = linked(&fixture, "agent");
        put(&worktree, "README.md", "agent\n");
        put(&worktree, "new.txt", "new\n");
        fs::remove_file(worktree.join("old/kept.txt")).unwrap();
        // What the fixture itself has sent does not count.
        fixture.at_remote(["reflog", "expire", "--expire=now", "--all"]);
        Yard { fixture, worktree, settings: Settings::default() }
    }

    fn operations(&self) -> Vec<Operation> {
        operations(&self.worktree)
    }

    /// Runs the batch in a process that is killed at the `nth` time it comes to `stop`; tells whether
    /// it was.
    fn killed(&self, stop: &str, nth: u32) -> bool {
        let status = child(&self.fixture, &self.worktree)
            .env("CRASH_STOP", stop)
            .env("CRASH_NTH", nth.to_string())
            .status()
            .unwrap();
        assert!(status.success() || status.code().is_none(), "{status}");
        !status.success()
    }

    /// Runs the batch again and looks at all that it must have left behind.
    fn finish(&self, what: &str) {
        let fixture = &self.fixture;
        let git = GitBatch::open(fixture.work(), self.settings.clone()).unwrap();
        let report = git.apply(self.operations()).unwrap();
        for (id, outcome) in &report.outcomes {
            assert!(outcome.is_success(), "{what}: {id} {outcome:?}");
        }
        let landed_as = |id: &str| landed(&report, id).to_string();
        let (here, there) = (tips(&fixture.work()), tips(&fixture.remote()));
        let both = [
            ("c0", "new/0"),
            ("c1", "new/1"),
            ("c2", "new/2"),
            ("loose", "loose"),
            ("agent", "agent"),
            ("g1", "group/1"),
            ("g2", "group/2"),
        ];
        // Each commit stands on its branch, here and at the remote, which took it in one move.
        for (id, branch) in both {
            assert_eq!(here.get(branch), Some(&landed_as(id)), "{what}: {branch}");
            assert_eq!(there.get(branch), Some(&landed_as(id)), "{what}: {branch}");
            assert_eq!(entries(fixture, branch), 1, "{what}: {branch}");
        }
        assert_eq!(here.get("group/kept"), Some(&landed_as("kept")), "{what}");
        assert_eq!(there.get("main"), Some(&landed_as("main")), "{what}");
        assert_eq!(entries(fixture, "main"), 1, "{what}");
        // And there is no other one like it.
        let mut made: BTreeSet<String> = both.iter().map(|(id, _)| landed_as(id)).collect();
        made.insert(landed_as("kept"));
        assert_eq!(once(&fixture.work()), made, "{what}");
        made.remove(&landed_as("kept"));
        made.insert(landed_as("main"));
        assert_eq!(once(&fixture.remote()), made, "{what}");
        // Its remote had moved, so a merge went there.
        assert_eq!(fixture.at_remote(["rev-list", "--count", "--no-merges", "moved"]).trim(), "4");
        assert_eq!(entries(fixture, "moved"), 1, "{what}");
        assert_eq!(fixture.at_remote(["show", "moved:more.txt"]), "more\n", "{what}");

        assert_eq!(status(&self.worktree), "", "{what}");
        assert_eq!(run(&self.worktree, ["show", "HEAD:new.txt"]), "new\n");
        let git_dir = fixture.work().join(".git");
        assert_eq!(locks(&git_dir), Vec::<PathBuf>::new(), "{what}");
        assert_eq!(fs::read_dir(git_dir.join("batchyard/open")).unwrap().count(), 0, "{what}");
        let packs = fs::read_dir(git_dir.join("objects/pack")).unwrap().flatten();
        let left: Vec<PathBuf> = packs
            .map(|entry| entry.path())
            .filter(|path| {
                let name = path.file_name().unwrap().as_encoded_bytes();
                path.extension().is_some_and(|end| end == "keep") || name.starts_with(b"batchyard")
            })
            .collect();
        assert_eq!(left, Vec::<PathBuf>::new(), "{what}");
        fixture.assert_sound();

        let again = git.apply(self.operations()).unwrap();
        assert_eq!(again.outcomes, report.outcomes, "{what}");
        assert_eq!((again.replayed.len(), again.pushes()), (again.outcomes.len(), 0), "{what}");
    }
}

/// The tips of all branches.
fn tips(dir: &Path) -> BTreeMap<String, String> {
    let said =
        run(dir, ["for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads"]);
    let split =
        |line: &str| line.split_once(' ').map(|(name, id)| (name.to_owned(), id.to_owned()));
    said.lines().filter_map(split).collect()
}

/// The commits on branches that a batch was to make once.
fn once(dir: &Path) -> BTreeSet<String> {
    let said = run(dir, ["log", "--branches", "--grep=^Once", "--format=%H"]);
    said.lines().map(str::to_owned).collect()
}

fn operations(worktree: &Path) -> Vec<Operation> {
    let once =
        |branch: &str, path: &str| Commit::new(branch, format!("Once {path}")).write(path, "x");
    let mut operations = Vec::new();
    for n in 0..3 {
        let branch = format!("new/{n}");
        operations.push(Operation::commit(format!("c{n}"), once(&branch, "new.txt")));
        operations.push(Operation::push(format!("p{n}"), branch));
    }
    operations.push(Operation::commit("loose", once("loose", "more.txt")));
    operations.push(Operation::push("push loose", "loose"));
    for n in [1, 2] {
        let branch = format!("group/{n}");
        let commit = once(&branch, "group.txt").with_base("main");
        operations.push(Operation::commit(format!("g{n}"), commit).in_group("g"));
        operations.push(Operation::push(format!("push g{n}"), branch).in_group("g"));
    }
    let kept = Operation::commit("kept", once("group/kept", "kept.txt").with_base("main"));
    operations.push(kept.in_group("g"));
    let mut agent = capture("agent", "agent", worktree);
    let git_batch::OperationKind::Commit(commit) = &mut agent.kind else { unreachable!() };
    commit.message = "Once agent".into();
    operations.push(agent);
    operations.push(Operation::push("push agent", "agent"));
    operations.push(Operation::commit("main", once("main", "main.txt")));
    operations.push(Operation::push("push main", "main"));
    let moved = Commit::new("moved", "More").write("more.txt", "more\n");
    operations.push(Operation::commit("moved", moved));
    operations.push(Operation::push("push moved", "moved"));
    operations
}

fn entries(fixture: &Fixture, branch: &str) -> usize {
    let log = fixture.remote().join("logs/refs/heads").join(branch);
    fs::read_to_string(log).unwrap_or_default().lines().count()
}

/// Every lock below the git directory but the one that belongs to the writer.
fn locks(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(locks(&path));
        } else if path.extension().is_some_and(|end| end == "lock") {
            found.push(path);
        }
    }
    found
}

fn child(fixture: &Fixture, worktree: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "runs_a_batch_and_is_killed"])
        .env("CRASH_WORK", fixture.work())
        .env("CRASH_WORKTREE", worktree)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// The process that is killed, in a test of its own.
#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn runs_a_batch_and_is_killed() {
    let Some(work) = std::env::var_os("CRASH_WORK") else { return };
    if let Ok(stop) = std::env::var("CRASH_STOP") {
        stops::kill_at(&stop, std::env::var("CRASH_NTH").unwrap().parse().unwrap());
    }
    let way = |name| std::env::var(name).unwrap_or_default();
    let settings = settings(&way("CRASH_MOVED"), &way("CRASH_EXECUTOR"));
    let git = GitBatch::open(work, settings).unwrap();
    if std::env::var_os("CRASH_LAND").is_some() {
        let branches = ["a".to_owned(), "b".to_owned()];
        git.land("main", &branches, Strategy::Merge).unwrap();
        return;
    }
    let worktree = PathBuf::from(std::env::var_os("CRASH_WORKTREE").unwrap());
    let operations = match std::env::var("CRASH_ROUND") {
        Ok(round) => random(round.parse().unwrap(), &worktree),
        Err(_) => operations(&worktree),
    };
    let report = git.apply(operations).unwrap();
    assert!(report.outcomes.iter().all(|(_, outcome)| outcome.is_success()), "{report:?}");
}

/// No point is forgotten.
#[test]
fn the_points_are_those_that_the_source_has() {
    fn collect(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, found);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let names = text.split("reach(\"").skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(names.map(str::to_owned));
        }
    }
    let mut found = BTreeSet::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    let known: BTreeSet<String> = STOPS.iter().map(|(stop, _)| (*stop).to_owned()).collect();
    assert_eq!(found, known);
}

/// Kills at every fourth of all points, counted from `first`.
fn kill_at(first: usize) {
    let all = STOPS.iter().flat_map(|(stop, times)| (1..=*times).map(move |nth| (*stop, nth)));
    let new = Yard::new();
    for (stop, nth) in all.skip(first).step_by(4) {
        let yard = new.copy();
        assert!(yard.killed(stop, nth), "{stop:?} was not reached {nth} times");
        yard.finish(&format!("killed at {stop:?}, {nth}"));
    }
}

#[test]
fn killed_at_every_point_each_operation_lands_once_1() {
    kill_at(0);
}

#[test]
fn killed_at_every_point_each_operation_lands_once_2() {
    kill_at(1);
}

#[test]
fn killed_at_every_point_each_operation_lands_once_3() {
    kill_at(2);
}

#[test]
fn killed_at_every_point_each_operation_lands_once_4() {
    kill_at(3);
}

/// The remote's hook kills the process in the middle of the push, and the push goes on by itself.
#[test]
fn killed_while_the_push_runs_each_operation_lands_once() {
    let yard = Yard::new();
    let fixture = &yard.fixture;
    let (pid, gone) = (fixture.beside("pid"), fixture.beside("gone"));
    fixture.hook(
        "pre-receive",
        &format!(
            "test -e '{1}' && exit 0; for n in $(seq 6000); do test -s '{0}' && break; sleep 0.01; \
             done; kill -9 $(cat '{0}'); touch '{1}'",
            pid.display(),
            gone.display()
        ),
    );
    let mut killed = child(fixture, &yard.worktree).spawn().unwrap();
    let written = fixture.beside("pid.new");
    fs::write(&written, killed.id().to_string()).unwrap();
    fs::rename(&written, &pid).unwrap();
    assert_eq!(killed.wait().unwrap().code(), None, "it was not killed");
    yard.finish("killed in the middle of a push");
}

/// The commit is all that there is of the work then.
#[test]
fn a_worktree_that_is_removed_before_its_batch_is_finished_loses_nothing() {
    for executor in ["", "git"] {
        let yard = Yard { settings: settings("merge", executor), ..Yard::new() };
        let fixture = &yard.fixture;
        assert!(yard.killed("built", 1));
        fixture.git(["worktree", "remove", "--force", yard.worktree.to_str().unwrap()]);
        let git = GitBatch::open(fixture.work(), yard.settings.clone()).unwrap();
        let other = Commit::new("other", "m").with_base("main").write("other.txt", "x");
        landed(&git.apply(vec![Operation::commit("other", other)]).unwrap(), "other");
        let ours = fixture.git(["show", "agent:new.txt"]);
        assert_eq!(
            (ours.as_str(), fixture.at_remote(["show", "agent:new.txt"])),
            ("new\n", ours.clone())
        );
        assert!(!fixture.work().join(".git/worktrees/agent").exists());
        fixture.assert_sound();
    }
}

/// The same where branches are rebased, and where the git program does the work.
#[test]
fn killed_in_other_ways_of_working_each_operation_lands_once() {
    let new = Yard::new();
    let ways = [("rebase", ""), ("merge", "git")];
    for (moved, executor) in ways {
        for (stop, nth) in [("caught up", 1), ("pushed", 3), ("refs moved", 2), ("before done", 1)]
        {
            let yard = Yard { settings: settings(moved, executor), ..new.copy() };
            let status = child(&yard.fixture, &yard.worktree)
                .env("CRASH_STOP", stop)
                .env("CRASH_NTH", nth.to_string())
                .env("CRASH_MOVED", moved)
                .env("CRASH_EXECUTOR", executor)
                .status()
                .unwrap();
            assert_eq!(status.code(), None, "{stop:?} was not reached {nth} times");
            yard.finish(&format!("{moved} {executor}: killed at {stop:?}, {nth}"));
        }
    }
}

/// Whoever writes next finishes the batch of another, and then does its own.
#[test]
fn another_input_finishes_what_was_begun() {
    let yard = Yard::new();
    assert!(yard.killed("built", 1));
    let other = Commit::new("new/0", "Other").write("other.txt", "x");
    let report = yard.fixture.open().apply(vec![Operation::commit("other", other)]).unwrap();
    assert_eq!(report.receipts.len(), 1);
    let other = landed(&report, "other");
    assert_eq!(status(&yard.worktree), "");
    let again = yard.fixture.open().apply(yard.operations()).unwrap();
    assert_eq!((again.pushes(), again.replayed.len()), (0, again.outcomes.len()));
    // On top of what was begun before it.
    assert_eq!(yard.fixture.id("new/0~1"), landed(&again, "c0"));
    assert_eq!(yard.fixture.id("new/0"), other);
    assert_eq!(entries(&yard.fixture, "new/0"), 1);
}

/// What others have built on what was pushed before the process was killed.
#[test]
fn what_others_built_on_a_push_of_a_killed_process_stays() {
    for stop in ["pushed", "before done"] {
        let yard = Yard::new();
        // The first push is that of the group, the second one has the rest.
        assert!(yard.killed(stop, if stop == "pushed" { 2 } else { 1 }));
        let fixture = &yard.fixture;
        for branch in ["new/1", "group/1"] {
            fixture.move_remote(branch, "theirs.txt", "theirs\n");
        }
        let report = fixture.open().apply(yard.operations()).unwrap();
        for (id, outcome) in &report.outcomes {
            assert!(outcome.is_success(), "{stop}: {id} {outcome:?}");
        }
        for (branch, id) in [("new/1", "c1"), ("group/1", "g1")] {
            let at_remote = fixture.at_remote(["rev-parse", &format!("{branch}~1")]);
            assert_eq!(at_remote.trim(), landed(&report, id).to_string());
            assert_eq!(entries(fixture, branch), 2);
        }
    }
}

#[test]
fn a_killed_landing_is_finished_once() {
    for stop in ["built", "before push", "pushed", "before done"] {
        let fixture = Fixture::new();
        fixture.branch("a", "main", "a.txt", "a\n");
        fixture.branch("b", "main", "b.txt", "b\n");
        fixture.git(["checkout", "-q", "-b", "side"]);
        fixture.at_remote(["reflog", "expire", "--expire=now", "--all"]);
        let status = child(&fixture, Path::new(""))
            .env("CRASH_LAND", "1")
            .env("CRASH_STOP", stop)
            .env("CRASH_NTH", "1")
            .status()
            .unwrap();
        assert_eq!(status.code(), None);
        let branches = ["a".to_owned(), "b".to_owned()];
        let report = fixture.open().land("main", &branches, Strategy::Merge).unwrap();
        assert!(report.outcomes.iter().all(|(_, end)| end.is_success()), "{stop}: {report:?}");
        assert_eq!(fixture.at_remote(["rev-list", "--count", "--merges", "main"]).trim(), "2");
        assert_eq!(entries(&fixture, "main"), 1, "{stop}");
        let landed = fixture.at_remote(["rev-parse", "main"]);
        assert_eq!(fixture.git(["rev-parse", "main"]), landed, "{stop}: main does not follow");
        fixture.assert_sound();
    }
}

/// Killed at any moment, again and again, in one repository.
#[test]
fn fifty_random_kills_lose_nothing_and_double_nothing() {
    let fixture = Fixture::new();
    let worktree = linked(&fixture, "agent");
    let mut spread = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
    let mut killed = 0;
    for round in 0..50 {
        put(&worktree, "work.txt", &format!("{round}\n"));
        let mut process =
            child(&fixture, &worktree).env("CRASH_ROUND", round.to_string()).spawn().unwrap();
        // A moment at random: there is nothing to wait for.
        spread = spread.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::park_timeout(Duration::from_micros((spread >> 32) % 150_000));
        let _ = process.kill();
        killed += usize::from(process.wait().unwrap().code().is_none());
        let report = fixture.open().apply(random(round, &worktree)).unwrap();
        for (id, outcome) in &report.outcomes {
            assert!(outcome.is_success(), "round {round}: {id} {outcome:?}");
        }
        assert_eq!(status(&worktree), "", "round {round}");
        assert_eq!(locks(&fixture.work().join(".git")), Vec::<PathBuf>::new(), "round {round}");
    }
    assert!(killed > 0);
    assert_eq!(fixture.git(["rev-list", "--count", "main..agent"]).trim(), "50");
    assert_eq!(fixture.at_remote(["rev-list", "--count", "main..agent"]).trim(), "50");
    assert_eq!(entries(&fixture, "agent"), 50);
    let format = "--format=%(refname:lstrip=2) %(ahead-behind:main)";
    let ahead = fixture.at_remote(["for-each-ref", format, "refs/heads/r*/*"]);
    assert_eq!(ahead.lines().count(), 100);
    for line in ahead.lines() {
        let branch = line.strip_suffix(" 1 0").unwrap_or_else(|| panic!("{line}"));
        assert_eq!(entries(&fixture, branch), 1, "{branch}");
    }
    fixture.assert_sound();
}

fn random(round: u32, worktree: &Path) -> Vec<Operation> {
    let mut operations =
        vec![capture("agent", "agent", worktree), Operation::push("push", "agent")];
    for name in ["a", "b"] {
        let branch = format!("r{round}/{name}");
        let commit = Commit::new(&branch, "Once").with_base("main").write("new.txt", "x");
        operations.push(Operation::commit(format!("c{name}"), commit));
        operations.push(Operation::push(format!("p{name}"), branch));
    }
    operations
}
