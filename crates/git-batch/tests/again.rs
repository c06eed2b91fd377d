//! What the same input does when some of it was not done the last time.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;

use git_batch::{
    ApplyError, Class, Commit, GitBatch, Hook, OpErrorKind, Operation, Outcome, Settings, Strategy,
};
use support::{Fixture, kind, landed, make_executable, no_change};

fn commit(id: &str, branch: &str) -> Operation {
    let commit = Commit::new(branch, format!("Add {id}")).with_base("main");
    Operation::commit(id, commit.write(format!("{id}.txt"), "x\n"))
}

/// Refuses the message of a commit until the file `allow` is there.
fn refuse(fixture: &Fixture, id: &str) -> GitBatch {
    let hook = fixture.work().join(".git/hooks/commit-msg");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let script = format!(
        "#!/bin/sh\ntest -e '{}' && exit 0; ! grep -q 'Add {id}' \"$1\"\n",
        fixture.beside("allow").display()
    );
    fs::write(&hook, script).unwrap();
    make_executable(&hook);
    let settings = Settings::default().with_hook(Hook::CommitMsg);
    GitBatch::open(fixture.work(), settings).unwrap()
}

#[test]
fn a_commit_that_is_made_later_is_pushed_and_merged_too() {
    let fixture = Fixture::new();
    let git = refuse(&fixture, "second");
    let operations = || {
        vec![
            commit("first", "x"),
            commit("second", "x"),
            Operation::push("push x", "x"),
            commit("base", "y"),
            Operation::merge("merge", "x", "y"),
            Operation::push("push y", "y"),
            commit("alone", "z"),
            Operation::push("push z", "z"),
        ]
    };
    let first = git.apply(operations()).unwrap();
    assert_eq!(kind(first.get("second")), Some(OpErrorKind::Hook));
    landed(&first, "push y");
    fs::write(fixture.beside("allow"), "").unwrap();
    let again = git.apply(operations()).unwrap();
    let second = landed(&again, "second");
    assert_eq!(landed(&again, "push x"), second);
    for branch in ["x", "y"] {
        assert_eq!(fixture.at_remote(["show", &format!("{branch}:second.txt")]), "x\n");
    }
    let mut replayed: Vec<&String> = again.replayed.iter().collect();
    replayed.sort();
    assert_eq!(replayed, ["alone", "base", "first", "push z"]);
    assert_eq!(fixture.at_remote(["rev-list", "--count", "main..x"]).trim(), "2");
    fixture.assert_sound();
}

#[test]
fn a_push_that_a_rule_refused_is_tried_when_it_is_asked_for_again() {
    let fixture = Fixture::new();
    fixture.hook("update", "exit 1");
    let operations = || vec![commit("c", "x"), Operation::push("p", "x")];
    let first = fixture.open().apply(operations()).unwrap();
    assert!(matches!(first.get("p"), Some(Outcome::Rejected { class: Class::Permanent, .. })));
    fixture.hook("update", "exit 0");
    let again = fixture.open().apply(operations()).unwrap();
    assert_eq!(landed(&again, "p"), landed(&first, "c"));
    assert!(again.replayed.contains("c") && !again.replayed.contains("p"));
}

/// More batches than records are kept: those of one input are kept together.
#[test]
fn an_input_of_many_batches_is_known_as_a_whole() {
    let fixture = Fixture::new();
    let settings = Settings::default().with_max_items(1);
    let git = GitBatch::open(fixture.work(), settings).unwrap();
    let write = |id: &str, content: &str| {
        Operation::commit(id, Commit::new("x", "m").with_base("main").write("f", content))
    };
    let operations = || vec![write("1", "1\n"), write("2", "2\n"), write("3", "3\n")];
    let first = git.apply(operations()).unwrap();
    assert_eq!(first.receipts.len(), 3);
    let done = fixture.work().join(".git/batchyard/done");
    let mut records: Vec<_> =
        fs::read_dir(&done).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(records.len(), 3);
    // So many younger ones that two of the three would go.
    records.sort();
    let text = fs::read(&records[0]).unwrap();
    for n in 0..999 {
        fs::write(done.join(format!("{n:064x}")), &text).unwrap();
    }
    let again = git.apply(operations()).unwrap();
    assert_eq!(again.outcomes, first.outcomes);
    assert_eq!(again.replayed.len(), 3);
    assert_eq!(fixture.git(["show", "x:f"]), "3\n");
    // And they go together.
    fs::write(done.join(format!("{:064x}", 999)), &text).unwrap();
    fs::write(done.join(format!("{:064x}", 1000)), &text).unwrap();
    fixture.open().apply(vec![Operation::push("p", "main")]).unwrap();
    assert_eq!(records.iter().filter(|path| path.exists()).count(), 0);
}

#[test]
fn another_input_of_the_same_name_is_refused_before_any_of_it_is_done() {
    let fixture = Fixture::new();
    let operations = |last: &str| {
        vec![
            commit("a", "a"),
            Operation::push("push a", "a"),
            commit(last, "b").after("push a"),
            Operation::push("push b", "b"),
        ]
    };
    fixture.hook("update", "case $1 in refs/heads/a) exit 1;; esac");
    fixture.open().apply_as("n", operations("b")).unwrap();
    fixture.hook("update", "exit 0");
    let before = fixture.at_remote(["for-each-ref"]);
    for other in [operations("other"), operations("b")[..2].to_vec()] {
        let error = fixture.open().apply_as("n", other).unwrap_err();
        assert!(matches!(&error, ApplyError::OtherInput { id } if id == "n"), "{error}");
        assert_eq!(fixture.at_remote(["for-each-ref"]), before);
    }
    let again = fixture.open().apply_as("n", operations("b")).unwrap();
    assert!(again.outcomes.iter().all(|(_, outcome)| outcome.is_success()), "{again:?}");
}

/// However it is cut now: it is known by the batches that it had.
#[test]
fn an_input_that_is_cut_in_another_way_is_the_same_input() {
    let fixture = Fixture::new();
    let write = |id: &str| Operation::commit(id, Commit::new("x", id).write("f", id));
    let operations = || {
        let delete = Commit::new("x", "d").delete("README.md");
        vec![write("1"), Operation::commit("d", delete), write("2"), Operation::push("p", "x")]
    };
    let with = |max| {
        let settings = Settings::default().with_max_items(max);
        GitBatch::open(fixture.work(), settings).unwrap()
    };
    for (name, first, then) in [(None, 100, 1), (Some("n"), 1, 3)] {
        let apply = |git: &GitBatch| match name {
            Some(name) => git.apply_as(name, operations()).unwrap(),
            None => git.apply(operations()).unwrap(),
        };
        let made = apply(&with(first));
        let before = fixture.git(["for-each-ref"]);
        let again = apply(&with(then));
        assert_eq!(again.outcomes, made.outcomes);
        assert_eq!((again.replayed.len(), again.pushes()), (4, 0));
        assert_eq!(fixture.git(["for-each-ref"]), before);
        fixture.git(["update-ref", "-d", "refs/heads/x"]);
        fixture.at_remote(["update-ref", "-d", "refs/heads/x"]);
    }
    // It was cut off after the second batch.
    assert_eq!(with(1).apply_as("cut", operations()).unwrap().receipts.len(), 4);
    let done = fixture.work().join(".git/batchyard/done");
    for entry in fs::read_dir(done).unwrap() {
        let path = entry.unwrap().path();
        if path.to_str().unwrap().ends_with(['2', '3']) && path.to_str().unwrap().contains('-') {
            fs::remove_file(path).unwrap();
        }
    }
    let report = with(100).apply_as("cut", operations()).unwrap();
    assert_eq!(report.replayed, ["1", "d"].map(str::to_owned).into());
    assert!(report.outcomes.iter().all(|(_, outcome)| outcome.is_success()), "{report:?}");
    assert_eq!(report.receipts.len(), 1);
}

/// The remote has it already, by a process that was killed.
#[test]
fn a_local_branch_follows_what_an_earlier_process_has_landed() {
    let fixture = Fixture::new();
    fixture.branch("a", "main", "a.txt", "a\n");
    fixture.git(["checkout", "-q", "-b", "side"]);
    let land = || fixture.open().land("main", &["a".to_owned()], Strategy::Merge).unwrap();
    let old = fixture.id("main");
    let merged = landed(&land(), "a");
    assert_eq!(fixture.id("main"), merged);
    fixture.git(["update-ref", "refs/heads/main", &old.to_string()]);
    assert_eq!(land().get("a"), Some(&no_change(merged)));
    assert_eq!(fixture.id("main"), merged);
}

/// What was fetched long ago keeps nothing from being collected.
#[test]
fn refs_of_old_fetches_are_removed() {
    let fixture = Fixture::new();
    fixture.at_remote(["branch", "theirs", "main"]);
    fixture.move_remote("theirs", "theirs.txt", "x\n");
    let operation =
        |id: &str| Operation::commit(id, Commit::new(id, "m").with_base("theirs").write(id, "x"));
    let first = fixture.open().apply(vec![operation("a")]).unwrap();
    let fetched = fixture.git(["for-each-ref", "--format=%(refname)", "refs/batchyard/fetched"]);
    assert_eq!(fetched.lines().count(), 1);
    let path = fixture.work().join(".git").join(fetched.trim());
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_hours(8 * 24);
    fs::File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
    let second = fixture.open().apply(vec![operation("b")]).unwrap();
    // One asks the remote, and one removes it.
    assert_eq!(second.receipt().processes, 2);
    assert_eq!(fixture.git(["for-each-ref", "refs/batchyard/fetched"]), "");
    // The branch that was made of it has it.
    fixture.git(["merge-base", "--is-ancestor", "a~1", &landed(&first, "a").to_string()]);
    fixture.assert_sound();
}
