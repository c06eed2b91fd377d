//! Faults of other tools that run agents on git, one test each. They do not exist here.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use git_batch::{Commit, OpErrorKind, Operation, Outcome, Strategy};
use support::{Fixture, kind, landed, no_change, run, try_run};

fn commit(id: &str, branch: &str, path: &str) -> Operation {
    Operation::commit(id, Commit::new(branch, "m").with_base("main").write(path, id))
}

/// Every lock file below a git directory, our own writer's lock left out.
fn locks(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(locks(&path));
        } else if path.extension().is_some_and(|extension| extension == "lock") {
            found.push(path);
        }
    }
    found
}

/// A killed git leaves `index.lock`, and every agent after it fails (anomalyco/opencode#48848).
#[test]
fn index_and_config_locks_of_others_block_nothing() {
    let fixture = Fixture::new();
    let git_dir = fixture.work().join(".git");
    for name in ["index.lock", "config.lock", "HEAD.lock"] {
        fs::write(git_dir.join(name), "").unwrap();
    }
    let report =
        fixture.open().apply(vec![commit("a", "x", "f"), Operation::push("p", "x")]).unwrap();
    landed(&report, "p");
    assert_eq!(locks(&git_dir).len(), 3, "and they are not ours to remove");
}

/// One branch that is locked by somebody else fails alone, with all that builds on it.
#[test]
fn a_locked_branch_fails_with_what_needs_it_and_nothing_else() {
    let fixture = Fixture::new();
    fixture.git(["branch", "trunk", "main"]);
    let git_dir = fixture.work().join(".git");
    let lock = git_dir.join("refs/heads/held.lock");
    fs::write(&lock, "").unwrap();
    let before = fixture.git(["for-each-ref"]);
    let report = fixture
        .open()
        .apply(vec![
            commit("held", "held", "a"),
            commit("free", "free", "b"),
            Operation::push("push held", "held"),
            Operation::push("push free", "free"),
            commit("after", "later", "c").after("held"),
            commit("behind after", "later", "d"),
            Operation::merge("merge", "held", "trunk"),
        ])
        .unwrap();
    assert_eq!(kind(report.get("held")), Some(OpErrorKind::BranchMoved));
    for id in ["push held", "after", "merge"] {
        assert_eq!(report.get(id), Some(&Outcome::Skipped { because: "held".into() }), "{id}");
    }
    assert!(matches!(report.get("behind after"), Some(Outcome::Skipped { .. })));
    landed(&report, "push free");
    assert_eq!(locks(&git_dir), [lock]);
    let free = format!("{} commit\trefs/heads/free\n", landed(&report, "free"));
    assert_eq!(fixture.git(["for-each-ref"]), free + &before);
}

/// A second try collides with what the first one pushed (defilantech/LLMKube#934).
#[test]
fn the_same_input_again_changes_nothing() {
    let fixture = Fixture::new();
    let git = fixture.open();
    let input = || vec![commit("a", "x", "f"), Operation::push("p", "x").after("a")];
    let first = git.apply(input()).unwrap();
    let again = git.apply(input()).unwrap();
    assert_eq!(again.outcomes, first.outcomes);
    assert_eq!(again.replayed.len(), 2);
    // Nor does it under another name.
    let anew = git.apply_as("again", input()).unwrap();
    assert_eq!(anew.get("a"), Some(&no_change(landed(&first, "a"))));
    assert_eq!(landed(&anew, "p"), landed(&first, "p"));
    assert_eq!(fixture.received(), 1);
}

/// `git gc` takes objects that no ref names yet (microsoft/vscode#314631).
#[test]
fn garbage_collection_beside_batches_loses_nothing() {
    let fixture = Fixture::new();
    let is_done = AtomicBool::new(false);
    let reports: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                // It may find a lock of ours and give up; it must never do harm.
                let _ = try_run(&fixture.work(), ["gc", "-q", "--prune=now"]);
            }
        });
        let git = fixture.open();
        let reports = (0..8).map(|n| git.apply(vec![commit("a", &format!("x{n}"), "f")])).collect();
        is_done.store(true, Ordering::Relaxed);
        reports
    });
    for report in reports {
        let report = report.unwrap();
        // A branch may be refused while `packed-refs` is being rewritten.
        if kind(report.get("a")) != Some(OpErrorKind::BranchMoved) {
            landed(&report, "a");
        }
    }
    fixture.assert_sound();
}

/// A fetch for one task moves `origin/main` and `FETCH_HEAD` under another (objectstack#10743).
#[test]
fn shared_refs_stay_as_they_are() {
    let fixture = Fixture::new();
    fs::write(fixture.work().join(".git/FETCH_HEAD"), "somebody's\n").unwrap();
    fixture.branch("x", "main", "x.txt", "x\n");
    fixture.move_remote("main", "ahead.txt", "ahead\n");
    let before =
        (fixture.untouchable(), fixture.git(["for-each-ref", "refs/remotes", "refs/tags"]));
    let report = fixture.open().land("main", &["x".to_owned()], Strategy::Merge).unwrap();
    landed(&report, "x");
    let after = (fixture.untouchable(), fixture.git(["for-each-ref", "refs/remotes", "refs/tags"]));
    assert_eq!(after, before);
}

/// The branch of another worktree is moved, and its files look reverted (claude-squad#207).
#[test]
fn a_branch_that_is_being_rebased_counts_as_checked_out() {
    let fixture = Fixture::new();
    fixture.branch("topic", "main", "README.md", "theirs\n");
    fixture.write("README.md", "ours\n");
    fixture.git(["commit", "-qam", "ours"]);
    let linked = fixture.beside("linked");
    fixture.git(["worktree", "add", "-q", linked.to_str().unwrap(), "topic"]);
    assert_ne!(try_run(&linked, ["rebase", "main"]).0, Some(0), "it stops in a conflict");
    let tip = fixture.id("topic");
    let report = fixture
        .open()
        .apply(vec![Operation::commit("a", Commit::new("topic", "m").write("f", "f"))])
        .unwrap();
    assert_eq!(kind(report.get("a")), Some(OpErrorKind::CheckedOut));
    assert_eq!(fixture.id("topic"), tip);
    run(&linked, ["rebase", "--abort"]);
}

/// A library push that runs no hook of the server lands what the server refuses (libgit2#2007).
#[test]
fn the_servers_hooks_have_their_say() {
    let fixture = Fixture::new();
    fixture.hook("pre-receive", "exit 1");
    let report =
        fixture.open().apply(vec![commit("a", "x", "f"), Operation::push("p", "x")]).unwrap();
    assert!(matches!(report.get("p"), Some(Outcome::Rejected { .. })));
    assert_eq!(fixture.at_remote(["for-each-ref", "refs/heads/x"]), "");
    // The commit stays, for another try.
    assert_eq!(landed(&report, "a"), fixture.id("x"));
}

/// Leftovers of killed processes pile up until the disk is full (Abilityai/trinity#1595).
#[test]
fn what_an_interrupted_batch_left_is_removed_and_nothing_of_others() {
    let fixture = Fixture::new();
    fixture.git(["gc", "-q"]);
    let packs = fixture.work().join(".git/objects/pack");
    let file = |name: &str, content: &str| {
        let path = packs.join(name);
        fs::write(&path, content).expect("it can be written");
        path
    };
    let ours = [
        file("batchyard_pack_1", "PACK"),
        file("batchyard_idx_1", ""),
        file("pack-1.keep", "git-batch\n"),
    ];
    let theirs = [file("tmp_pack_abc", "PACK"), file("pack-2.keep", "by hand\n")];
    let quarantine = fixture.work().join(".git/batchyard/quarantine");
    fs::create_dir_all(quarantine.join("objects")).unwrap();
    let report = fixture.open().apply(vec![commit("a", "x", "f")]).unwrap();
    landed(&report, "a");
    assert!(ours.iter().all(|path| !path.exists()), "{ours:?}");
    assert!(theirs.iter().all(|path| path.exists()), "{theirs:?}");
    assert!(!quarantine.exists());
    let left = fs::read_dir(&packs).unwrap().flatten().map(|entry| entry.path());
    let keeps = left.filter(|path| path.extension().is_some_and(|e| e == "keep")).count();
    assert_eq!(keeps, 1, "the one of somebody else");
}

/// The locks of a killed writer, and of a git that was killed beside it, stay for ever and every
/// commit after it fails. Ours are told from those of others by what they are, not by their age.
#[test]
fn locks_that_a_killed_writer_left_are_removed_and_nothing_of_others() {
    let fixture = Fixture::new();
    let git_dir = fixture.work().join(".git");
    fixture.open().apply(vec![commit("a", "loose", "f"), commit("b", "other", "f")]).unwrap();
    let held = git_dir.join("batchyard/held");
    let ours = ["packed-refs.lock", "refs/heads/loose.lock", "refs/heads/new/x.lock"];
    let theirs = "refs/heads/other.lock";
    fs::write(&held, [&ours[..], &[theirs]].concat().join("\0")).unwrap();
    fs::create_dir(git_dir.join("refs/heads/new")).unwrap();
    for lock in ours {
        fs::hard_link(&held, git_dir.join(lock)).unwrap();
    }
    fs::write(git_dir.join(theirs), "").unwrap();

    let report = fixture
        .open()
        .apply(vec![
            commit("loose", "loose", "g"),
            commit("other", "other", "g"),
            commit("new", "new", "g"),
        ])
        .unwrap();
    landed(&report, "loose");
    landed(&report, "new");
    assert_eq!(kind(report.get("other")), Some(OpErrorKind::BranchMoved));
    assert_eq!(locks(&git_dir), [git_dir.join(theirs)]);
    assert_eq!(fs::metadata(&held).unwrap().len(), 0);
}

/// Reflogs are kept where git would keep them, in folders that gone branches have left too.
#[test]
fn reflogs_are_those_that_git_would_write() {
    let fixture = Fixture::new();
    let logs = fixture.work().join(".git/logs/refs/heads");
    fs::create_dir_all(logs.join("a/b/c")).unwrap();
    fixture.open().apply(vec![commit("1", "a", "f"), commit("2", "b/c", "f")]).unwrap();
    fixture.open().apply(vec![commit("3", "a", "g")]).unwrap();
    let entries = fixture.git(["reflog", "show", "--format=%gd %gs %gn <%ge>", "a"]);
    let who = "A U Thor <author@example.com>";
    assert_eq!(entries, format!("a@{{0}} commit: m {who}\na@{{1}} commit: m {who}\n"));
    assert_eq!(fixture.git(["rev-parse", "a@{1}"]), fixture.git(["rev-parse", "a~1"]));

    fixture.git(["config", "core.logAllRefUpdates", "false"]);
    fixture.open().apply(vec![commit("4", "a", "h"), commit("5", "quiet", "h")]).unwrap();
    assert_eq!(fixture.git(["reflog", "show", "--format=%gd", "a"]).lines().count(), 3);
    assert!(!logs.join("quiet").exists());
}

/// A tool that rewrites `packed-refs` loses what it does not know.
#[test]
fn packed_refs_keep_tags_and_what_they_point_to() {
    let fixture = Fixture::new();
    fixture.git(["tag", "-a", "-m", "t", "v1"]);
    fixture.git(["tag", "light"]);
    fixture.git(["branch", "zzz"]);
    fixture.git(["pack-refs", "--all"]);
    let before = fs::read_to_string(fixture.work().join(".git/packed-refs")).unwrap();
    let report =
        fixture.open().apply(vec![commit("a", "mmm", "f"), commit("b", "zzz", "f")]).unwrap();
    let after = fs::read_to_string(fixture.work().join(".git/packed-refs")).unwrap();
    let other = |line: &&str| !line.ends_with("/mmm") && !line.ends_with("/zzz");
    assert!(before.lines().filter(other).eq(after.lines().filter(other)), "{after}");
    assert_eq!(landed(&report, "b"), fixture.id("zzz"));
    fixture.git(["pack-refs", "--all"]);
    fixture.assert_sound();
}

/// A power cut can take the list of the locks away, but not what they are.
#[test]
fn locks_without_their_list_are_found_and_removed() {
    let fixture = Fixture::new();
    let git_dir = fixture.work().join(".git");
    fixture.open().apply(vec![commit("first", "first", "1")]).unwrap();
    let held = git_dir.join("batchyard/held");
    std::fs::write(&held, "").unwrap();
    std::fs::create_dir_all(git_dir.join("refs/heads/deep")).unwrap();
    let ours = ["refs/heads/deep/a.lock", "packed-refs.lock"].map(|lock| git_dir.join(lock));
    for lock in &ours {
        std::fs::hard_link(&held, lock).unwrap();
    }
    let foreign = git_dir.join("refs/heads/foreign.lock");
    std::fs::write(&foreign, "").unwrap();
    let report = fixture.open().apply(vec![commit("a", "deep/a", "1")]).unwrap();
    landed(&report, "a");
    assert!(ours.iter().all(|lock| !lock.exists()));
    assert!(foreign.exists());
}

/// Clocks differ between machines, and a batch has one time for all: a commit need not be older than what
/// was made on top of it.
#[test]
fn what_a_branch_contains_is_known_whatever_the_clocks_said() {
    let fixture = Fixture::new();
    let tree = fixture.git(["rev-parse", "main^{tree}"]);
    let make = |seconds: u32, parents: &[&str]| {
        let date = format!("1700000{seconds:03} +0000");
        let mut command = Command::new("git");
        command.args(["commit-tree", "-m", "m", tree.trim()]).current_dir(fixture.work());
        command.args(parents.iter().flat_map(|parent| ["-p", parent]));
        command.env("GIT_AUTHOR_DATE", &date).env("GIT_COMMITTER_DATE", &date);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let start = make(10, &[]);
    let (side, other) = (make(60, &[&start]), make(20, &[&start]));
    let merge = make(70, &[&other, &side]);
    let contained = make(80, &[&merge]);
    // Older than what it stands on.
    let on_top = make(50, &[&contained]);
    let tip = make(100, &[&make(90, &[&start, &side]), &on_top]);
    fixture.git(["branch", "contained", &contained]);
    fixture.git(["branch", "all", &tip]);
    fixture.git(["push", "-q", "origin", "contained:all"]);
    let report = fixture
        .open()
        .apply(vec![Operation::merge("merge", "contained", "all"), Operation::push("push", "all")])
        .unwrap();
    assert_eq!(report.get("merge"), Some(&no_change(fixture.id("all"))));
    landed(&report, "push");
    assert_eq!(fixture.at_remote(["rev-parse", "all"]).trim(), tip);
    assert_eq!(report.pushes(), 1);
}
