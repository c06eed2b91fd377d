//! Which branches move: only those on which nobody stands and that nothing is in the way of, and what
//! is told about them is what happened.

mod support;

use std::fs;
use std::process::{Command, Stdio};

use git_batch::{Commit, GitBatch, OpErrorKind, Operation, Outcome, Settings, Strategy};
use support::{Fixture, kind, landed, make_executable};

fn commit(id: &str, branch: &str, base: &str) -> Operation {
    Operation::commit(id, Commit::new(branch, "m").with_base(base).write(id, id))
}

/// Runs `script` in the checkout the next time that the remote is asked for its refs: in the middle
/// of a batch, after the operations before one that needs the remote's default branch.
fn in_the_middle(fixture: &Fixture, script: &str) {
    let path = fixture.beside("upload-pack");
    let work = fixture.work();
    let text = format!(
        "#!/bin/sh\nunset $(git rev-parse --local-env-vars)\n(cd '{}' && {script}) >&2\n\
         exec git-upload-pack \"$@\"\n",
        work.display()
    );
    fs::write(&path, text).expect("it is written");
    make_executable(&path);
    fixture.git(["config", "remote.origin.uploadpack", path.to_str().expect("UTF-8")]);
}

/// Starts at the remote's default branch, so the remote is asked for it.
fn asks_the_remote(id: &str) -> Operation {
    Operation::commit(id, Commit::new(id, "m").write(id, id))
}

#[test]
fn what_was_to_move_at_the_remote_only_is_skipped_without_its_push() {
    let fixture = Fixture::new();
    let before = fixture.git(["for-each-ref"]);
    let report = fixture
        .open()
        .apply(vec![
            commit("a", "main", "main"),
            Operation::push("push a", "main").after("nothing"),
            commit("on a", "later", "main"),
        ])
        .unwrap();
    assert_eq!(kind(report.get("push a")), Some(OpErrorKind::UnknownDependency));
    assert_eq!(report.get("a"), Some(&Outcome::Skipped { because: "push a".into() }));
    assert_eq!(report.get("on a"), Some(&Outcome::Skipped { because: "a".into() }));
    assert_eq!((fixture.git(["for-each-ref"]), fixture.received()), (before, 0));
}

#[test]
fn what_comes_after_the_last_push_of_a_checked_out_branch_has_not_landed() {
    let fixture = Fixture::new();
    let report = fixture
        .open()
        .apply(vec![
            commit("a", "main", "main"),
            Operation::push("push a", "main"),
            commit("b", "main", "main"),
            Operation::push("push b", "main").after("nothing"),
        ])
        .unwrap();
    let tip = landed(&report, "a").to_string();
    assert_eq!(fixture.at_remote(["rev-parse", "main"]).trim(), tip);
    assert_eq!(report.get("b"), Some(&Outcome::Skipped { because: "push b".into() }));
}

#[test]
fn a_push_that_falls_with_a_locked_branch_takes_its_commits_along() {
    let fixture = Fixture::new();
    fs::write(fixture.work().join(".git/refs/heads/held.lock"), "").unwrap();
    let report = fixture
        .open()
        .apply(vec![
            commit("held", "held", "main"),
            commit("a", "main", "main"),
            Operation::push("push a", "main").after("held"),
        ])
        .unwrap();
    assert_eq!(kind(report.get("held")), Some(OpErrorKind::BranchMoved));
    assert_eq!(report.get("push a"), Some(&Outcome::Skipped { because: "held".into() }));
    assert_eq!(report.get("a"), Some(&Outcome::Skipped { because: "push a".into() }));
    assert_eq!(fixture.received(), 0);
}

/// Git trims the blanks that a name cannot hold, and no others.
#[test]
fn names_that_end_in_a_blank_of_another_script_are_not_shortened() {
    let fixture = Fixture::new();
    for name in ["x", "x\u{3000}", "held\u{a0}"] {
        fixture.git(["branch", name, "main"]);
    }
    fixture.git(["pack-refs", "--all"]);
    let linked = fixture.beside("linked");
    fixture.git(["worktree", "add", "-q", linked.to_str().unwrap(), "held\u{a0}"]);
    let main = fixture.id("main");
    let report = fixture
        .open()
        .apply(vec![
            commit("new", "new", "main"),
            commit("wide", "x\u{3000}", "main"),
            commit("held", "held\u{a0}", "main"),
        ])
        .unwrap();
    landed(&report, "new");
    let wide = landed(&report, "wide");
    assert_eq!(kind(report.get("held")), Some(OpErrorKind::CheckedOut));
    assert_eq!((fixture.id("refs/heads/x"), fixture.id("refs/heads/x\u{3000}")), (main, wide));
    assert_eq!(fixture.id("refs/heads/held\u{a0}"), main);
}

#[test]
fn a_branch_checked_out_under_another_name_is_never_moved() {
    let fixture = Fixture::new();
    fixture.git(["symbolic-ref", "refs/heads/master", "refs/heads/main"]);
    fixture.git(["symbolic-ref", "HEAD", "refs/heads/master"]);
    let main = fixture.id("main");
    let report = fixture
        .open()
        .apply(vec![commit("real", "main", "main"), commit("alias", "master", "main")])
        .unwrap();
    assert_eq!(kind(report.get("real")), Some(OpErrorKind::CheckedOut));
    assert_eq!(kind(report.get("alias")), Some(OpErrorKind::CheckedOut));
    assert_eq!(fixture.id("main"), main);
}

#[test]
fn a_branch_that_is_checked_out_during_a_batch_is_not_moved() {
    let fixture = Fixture::new();
    fixture.git(["branch", "x", "main"]);
    in_the_middle(&fixture, "git switch -q x");
    let report =
        fixture.open().apply(vec![commit("a", "x", "main"), asks_the_remote("b")]).unwrap();
    assert_eq!(kind(report.get("a")), Some(OpErrorKind::CheckedOut));
    assert_eq!(fixture.id("x"), fixture.id("main"));
    landed(&report, "b");
    assert_eq!(fixture.git(["status", "--porcelain"]), "");
}

#[test]
fn a_branch_that_is_made_in_the_way_during_a_batch_is_seen() {
    for pack in ["true", "git pack-refs --all"] {
        let fixture = Fixture::new();
        in_the_middle(&fixture, &format!("git branch x/y && git branch outer && {pack}"));
        let report = fixture
            .open()
            .apply(vec![
                commit("above", "x", "main"),
                commit("below", "outer/z", "main"),
                asks_the_remote("b"),
            ])
            .unwrap();
        for id in ["above", "below"] {
            let kind = kind(report.get(id));
            assert_eq!(kind, Some(OpErrorKind::BranchClash), "{id}, {pack}: {report:?}");
        }
        landed(&report, "b");
        assert_eq!(
            fixture.git(["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads"]),
            "b\nmain\nouter\nx/y\n"
        );
    }
}

/// Somebody who makes a branch in the folder has its lock there, and no ref yet.
#[test]
fn a_folder_in_use_is_in_the_way_of_a_branch() {
    let fixture = Fixture::new();
    let heads = fixture.work().join(".git/refs/heads");
    fs::create_dir_all(heads.join("left/over")).unwrap();
    fs::create_dir_all(heads.join("used")).unwrap();
    fs::write(heads.join("used/y.lock"), "").unwrap();
    let report = fixture
        .open()
        .apply(vec![commit("a", "used", "main"), commit("b", "left", "main")])
        .unwrap();
    assert_eq!(kind(report.get("a")), Some(OpErrorKind::BranchClash));
    landed(&report, "b");
}

#[test]
fn a_branch_lands_onto_its_namesake_at_the_remote() {
    let fixture = Fixture::new();
    fixture.git(["commit", "-q", "--allow-empty", "-m", "Ahead"]);
    fixture.move_remote("main", "theirs.txt", "theirs\n");
    let ahead = fixture.id("main");
    let report = fixture.open().land("main", &["main".into()], Strategy::Merge).unwrap();
    let tip = landed(&report, "main").to_string();
    assert_eq!(fixture.at_remote(["rev-parse", "main"]).trim(), tip);
    let parents = fixture.at_remote(["rev-parse", "main^2"]);
    assert_eq!(parents.trim(), ahead.to_string());
    assert_eq!(fixture.id("main"), ahead, "it is checked out here");
}

#[test]
fn a_branch_that_cannot_be_written_fails_and_stays() {
    let fixture = Fixture::new();
    fixture.git(["branch", "trunk", "main"]);
    let git = fixture.open();
    landed(&git.apply(vec![commit("0", "first", "main")]).unwrap(), "0");
    // Where loose refs are written before they take their place.
    fs::create_dir(fixture.work().join(".git/batchyard/ref")).unwrap();
    let report = git.apply(vec![commit("a", "trunk", "main")]).unwrap();
    assert_eq!(kind(report.get("a")), Some(OpErrorKind::BranchMoved));
    assert_eq!(fixture.id("trunk"), fixture.id("main"));
    fs::remove_dir(fixture.work().join(".git/batchyard/ref")).unwrap();
    landed(&git.apply(vec![commit("a", "trunk", "main")]).unwrap(), "a");
}

/// What is there already may be garbage that somebody is just collecting.
#[test]
fn objects_that_nothing_reaches_are_not_relied_on() {
    let fixture = Fixture::new();
    let found = fixture.beside("found");
    fs::write(&found, "a").unwrap();
    fixture.git(["hash-object", "-w", found.to_str().unwrap()]);
    in_the_middle(&fixture, "git prune --expire=now");
    let report =
        fixture.open().apply(vec![commit("a", "x", "main"), asks_the_remote("b")]).unwrap();
    landed(&report, "a");
    assert_eq!(fixture.git(["show", "x:a"]), "a");
    fixture.assert_sound();
}

/// Where a child process is to merge; see [`merging_in_a_process_of_its_own`].
const CHILD: &str = "GIT_BATCH_MERGING_CHILD";

#[test]
fn merging_in_a_process_of_its_own() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let git = GitBatch::open(dir, Settings::default()).unwrap();
    let report = git.apply(vec![Operation::merge("m", "other", "trunk")]).unwrap();
    landed(&report, "m");
}

/// The same merge gives the same tree, whoever makes it.
#[test]
fn settings_of_the_user_do_not_decide_a_merge() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.work().join(".git/info")).unwrap();
    fs::write(fixture.work().join(".git/info/attributes"), "*.md merge=mine\n").unwrap();
    fixture.branch("trunk", "main", "README.md", "zero\none\ntwo\nthree\n");
    fixture.branch("other", "main", "README.md", "one\ntwo\nthree\nfour\n");
    let settings = fixture.beside("user.gitconfig");
    fs::write(&settings, "[merge \"mine\"]\n\tdriver = echo driven > %A\n").unwrap();
    // Attributes of the repository count, those of the user do not.
    let attributes = fixture.beside("user/git/attributes");
    fs::create_dir_all(attributes.parent().unwrap()).unwrap();
    fs::write(attributes, "*.md merge=binary\n").unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "merging_in_a_process_of_its_own", "--quiet"])
        .env(CHILD, fixture.work())
        .env("GIT_CONFIG_GLOBAL", &settings)
        .env("XDG_CONFIG_HOME", fixture.beside("user"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    assert_eq!(fixture.git(["show", "trunk:README.md"]), "zero\none\ntwo\nthree\nfour\n");
}

#[test]
fn attributes_of_the_repository_count_where_git_decides_a_merge() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.work().join(".git/info")).unwrap();
    fs::write(fixture.work().join(".git/info/attributes"), "*.md merge=union\n").unwrap();
    let readme = |id: &str, branch: &str, line: &str| {
        let commit = Commit::new(branch, "m").with_base("main");
        Operation::commit(id, commit.write("README.md", format!("one\ntwo\nthree\n{line}\n")))
    };
    let report = fixture
        .open()
        .apply(vec![
            readme("0", "trunk", "a"),
            readme("1", "other", "b"),
            Operation::merge("m", "other", "trunk"),
        ])
        .unwrap();
    landed(&report, "m");
    assert_eq!(fixture.git(["show", "trunk:README.md"]), "one\ntwo\nthree\na\nb\n");
}

/// Names so long that not all fit on the command line of one push, which a group needs.
#[test]
fn a_group_of_any_length_is_one_push() {
    let fixture = Fixture::new();
    let long = vec!["n".repeat(240); 8].join("/");
    let branches: Vec<String> = (0..160).map(|n| format!("{long}/{n}")).collect();
    let main = fixture.id("main");
    let packed = branches.iter().map(|branch| format!("{main} refs/heads/{branch}\n"));
    fs::write(fixture.work().join(".git/packed-refs"), packed.collect::<String>()).unwrap();
    let pushes =
        branches.iter().enumerate().map(|(n, b)| Operation::push(n.to_string(), b).in_group("g"));
    let report = fixture.open().apply(pushes.collect()).unwrap();
    for n in 0..160 {
        landed(&report, &n.to_string());
    }
    assert_eq!((report.pushes(), fixture.received()), (1, 1));
}

/// The second commit would change nothing once the first one is there, but that cannot come.
#[test]
fn what_another_commit_was_to_bring_is_not_there_without_it() {
    let fixture = Fixture::new();
    fixture.git(["branch", "held"]);
    fs::write(fixture.work().join(".git/refs/heads/held.lock"), "").expect("a lock");
    let same = |id: &str| Operation::commit(id, Commit::new("held", "m").write("same.txt", "x"));
    let operations = vec![same("one"), same("two"), commit("after", "other", "main").after("two")];
    let report = fixture.open().apply(operations).expect("it runs");
    assert_eq!(kind(report.get("one")), Some(OpErrorKind::BranchMoved), "{report:?}");
    for id in ["two", "after"] {
        assert!(matches!(report.get(id), Some(Outcome::Skipped { .. })), "{id}: {report:?}");
    }
    assert_eq!(fixture.git(["branch", "--list", "other"]), "");
}

/// A process was killed, or the disk was full, before the branch had come.
#[test]
fn the_reflog_of_a_branch_that_never_came_is_in_nobody_s_way() {
    let fixture = Fixture::new();
    let logs = fixture.work().join(".git/logs/refs/heads");
    fs::write(logs.join("a"), "a line about it\n").expect("it is written");
    let report = fixture.open().apply(vec![commit("c", "a/b/c", "main")]).expect("it runs");
    landed(&report, "c");
    let text = fs::read_to_string(logs.join("a/b/c")).expect("it has one");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert_eq!(fixture.git(["reflog", "--format=%s", "a/b/c"]), "m\n");
}

#[test]
fn a_branch_that_does_not_come_leaves_no_reflog() {
    let fixture = Fixture::new();
    // In the place of the new file of all branches.
    let taken = fixture.work().join(".git/batchyard/packed-refs");
    fs::create_dir_all(&taken).expect("it is made");
    let report = fixture.open().apply(vec![commit("c", "a", "main")]).expect("it runs");
    assert_eq!(kind(report.get("c")), Some(OpErrorKind::BranchMoved), "{report:?}");
    assert!(!fixture.work().join(".git/logs/refs/heads/a").exists());
    fs::remove_dir(&taken).expect("it is removed");
    let report = fixture.open().apply(vec![commit("c", "a", "main")]).expect("it runs");
    landed(&report, "c");
    assert_eq!(fixture.git(["reflog", "--format=%s", "a"]), "m\n");
}
