//! What is `after` another operation comes when that has come, and not before.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use git_batch::{Commit, Gate, GitBatch, Operation, Outcome, Report, Settings, stops};
use support::{Fixture, landed};

fn commit(id: &str, branch: &str, base: &str) -> Operation {
    Operation::commit(id, Commit::new(branch, id).with_base(base).write(id, "x"))
}

/// `main` is checked out, so it moves at the remote only.
fn after_the_remote() -> Vec<Operation> {
    vec![
        commit("m", "main", "main"),
        Operation::push("push m", "main"),
        commit("y", "y", "main~0").after("m"),
        Operation::push("push y", "y"),
        // They stand on it, although they do not say so.
        commit("z", "z", "main"),
        Operation::merge("merge", "z", "w"),
        Operation::push("push w", "w"),
        commit("alone", "alone", "main~0"),
        Operation::push("push alone", "alone"),
    ]
}

fn names(fixture: &Fixture) -> [String; 2] {
    let args = ["branch", "--format=%(refname:short)"];
    [fixture.git(args), fixture.at_remote(args)]
}

fn is_skipped(report: &Report, id: &str) -> bool {
    matches!(report.get(id), Some(Outcome::Skipped { .. }))
}

#[test]
fn what_needs_a_commit_that_the_remote_refuses_does_not_come() {
    let fixture = Fixture::new();
    fixture.git(["branch", "w"]);
    fixture.hook("update", "test $1 != refs/heads/main");
    let report = fixture.open().apply(after_the_remote()).unwrap();
    assert!(matches!(report.get("m"), Some(Outcome::Rejected { .. })), "{report:?}");
    for id in ["y", "push y", "z", "merge", "push w"] {
        assert!(is_skipped(&report, id), "{id}: {report:?}");
    }
    landed(&report, "push alone");
    assert_eq!(names(&fixture), ["alone\nmain\nw\n", "alone\nmain\n"]);
    assert_eq!((report.pushes(), fixture.id("w")), (1, fixture.id("main")));
    // Asked for again, all of it comes, with one push for what the first one has to come before.
    fixture.hook("update", "exit 0");
    let again = fixture.open().apply(after_the_remote()).unwrap();
    all_landed(&again);
    assert_eq!((again.pushes(), again.replayed.len()), (2, 2));
    fixture.assert_sound();
}

/// The process that is killed, in a test of its own.
#[test]
#[ignore = "run by the next test, in a process of its own"]
fn runs_a_batch_and_is_killed() {
    let Some(work) = std::env::var_os("AFTER_WORK") else { return };
    stops::kill_at("pushed", 1);
    GitBatch::open(work, Settings::default()).unwrap().apply(after_the_remote()).unwrap();
}

#[test]
fn nor_where_another_process_goes_on_with_the_rest() {
    for is_refused in [true, false] {
        let fixture = Fixture::new();
        fixture.git(["branch", "w"]);
        if is_refused {
            fixture.hook("update", "test $1 != refs/heads/main");
        }
        let mut killed = Command::new(std::env::current_exe().unwrap());
        killed.args(["--ignored", "--exact", "runs_a_batch_and_is_killed"]);
        killed.env("AFTER_WORK", fixture.work()).stdout(Stdio::null()).stderr(Stdio::null());
        assert_eq!(killed.status().unwrap().code(), None, "it was not killed");
        assert_eq!(fixture.git(["branch", "--list", "y", "z"]), "");
        let report = fixture.open().apply(after_the_remote()).unwrap();
        for id in ["m", "y", "push y", "z", "merge", "push w"] {
            let has_landed = matches!(report.get(id), Some(Outcome::Landed { .. }));
            assert_eq!(has_landed, !is_refused, "{id}: {report:?}");
        }
        landed(&report, "push alone");
        fixture.assert_sound();
    }
}

#[test]
fn what_is_pushed_twice_has_passed_a_gate_twice() {
    let fixture = Fixture::new();
    let gate = Gate::new("true").in_folder(fixture.beside(""));
    let git = GitBatch::open(fixture.work(), Settings::default().with_gate(gate)).unwrap();
    let report = git.apply(pushed_twice()).unwrap();
    all_landed(&report);
    assert_eq!((report.pushes(), report.receipt().gate_runs), (2, 2));
    fixture.assert_sound();
}

/// `main` is pushed twice, as what comes in between keeps the two apart.
fn pushed_twice() -> Vec<Operation> {
    vec![
        commit("m1", "main", "main"),
        Operation::push("p1", "main"),
        commit("y", "y", "main~0").after("m1"),
        Operation::commit("m2", Commit::new("main", "m2").write("m1", "changed")).after("y"),
        Operation::push("p2", "main"),
    ]
}

/// Somebody holds a branch.
fn lock(fixture: &Fixture, branch: &str) -> PathBuf {
    let lock = fixture.work().join(format!(".git/refs/heads/{branch}.lock"));
    fs::write(&lock, "").unwrap();
    lock
}

fn all_landed(report: &Report) {
    for (id, _) in &report.outcomes {
        landed(report, id);
    }
}

#[test]
fn what_has_lost_its_push_goes_with_the_next_one() {
    let fixture = Fixture::new();
    let operations = || {
        let mut operations = pushed_twice();
        operations[1].after.push("c".to_owned());
        operations.insert(0, commit("c", "x", "main~0"));
        operations
    };
    let lock = lock(&fixture, "x");
    let report = fixture.open().apply(operations()).unwrap();
    assert!(is_skipped(&report, "p1"), "{report:?}");
    for id in ["m1", "y", "m2", "p2"] {
        landed(&report, id);
    }
    assert_eq!(report.pushes(), 1);
    fs::remove_file(&lock).unwrap();
    let report = fixture.open().apply(operations()).unwrap();
    all_landed(&report);
    assert_eq!((report.pushes(), report.replayed.len()), (0, 4));
    assert_eq!(fixture.at_remote(["log", "--format=%s", "-2", "main"]), "m2\nm1\n");
    fixture.assert_sound();
}

/// Here `main` is without it, as it is checked out.
#[test]
fn what_comes_later_stands_on_what_has_landed_at_the_remote() {
    let fixture = Fixture::new();
    let lock = lock(&fixture, "y");
    let report = fixture.open().apply(pushed_twice()).unwrap();
    landed(&report, "p1");
    assert!(is_skipped(&report, "m2") && is_skipped(&report, "p2"), "{report:?}");
    fs::remove_file(&lock).unwrap();
    let report = fixture.open().apply(pushed_twice()).unwrap();
    all_landed(&report);
    // The same where it says that it comes after the push.
    let fixture_too = Fixture::new();
    let mut operations = pushed_twice();
    operations[3].after = vec!["p1".to_owned()];
    all_landed(&fixture_too.open().apply(operations).unwrap());
    for fixture in [fixture, fixture_too] {
        assert_eq!(fixture.at_remote(["log", "--format=%s", "-2", "main"]), "m2\nm1\n");
        assert_eq!(fixture.at_remote(["show", "main:m1"]), "changed");
        fixture.assert_sound();
    }
}

/// What the remote does not have any more is not taken back to it.
#[test]
fn but_not_where_somebody_has_taken_that_back() {
    let fixture = Fixture::new();
    let lock = lock(&fixture, "y");
    landed(&fixture.open().apply(pushed_twice()).unwrap(), "p1");
    fs::remove_file(&lock).unwrap();
    fixture.git(["push", "-qf", "origin", "main"]);
    let report = fixture.open().apply(pushed_twice()).unwrap();
    for id in ["y", "m2", "p2"] {
        landed(&report, id);
    }
    assert_eq!(fixture.at_remote(["log", "--format=%s", "main"]), "m2\nStart\n");
}

/// What an input has only pushed is what its user has made, and may have undone.
#[test]
fn nor_where_the_branch_was_only_pushed() {
    let fixture = Fixture::new();
    fixture.git(["commit", "-q", "--allow-empty", "-m", "More"]);
    let operations = || vec![Operation::push("p", "main"), commit("x", "x", "main")];
    let lock = lock(&fixture, "x");
    landed(&fixture.open().apply_as("n", operations()).unwrap(), "p");
    fs::remove_file(&lock).unwrap();
    fixture.git(["reset", "-q", "--hard", "main~1"]);
    let report = fixture.open().apply_as("n", operations()).unwrap();
    assert!(report.replayed.contains("p"), "{report:?}");
    landed(&report, "x");
    assert_eq!(fixture.id("x~1"), fixture.id("main"));
}

/// The remote gets more between the two pushes, and the gate has to look at that first.
#[test]
fn nor_is_it_lost_while_a_gate_looks_at_the_rest() {
    let fixture = Fixture::new();
    let script = "test -e once && exit 0; touch once; export GIT_INDEX_FILE=$PWD/theirs
        git read-tree main; blob=$(echo theirs | git hash-object -w --stdin)
        git update-index --add --cacheinfo 100644,$blob,theirs.txt
        export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@b
        git update-ref refs/heads/main $(git commit-tree -p main -m Theirs $(git write-tree))";
    fixture.hook("post-receive", script);
    let gate = Gate::new("true").in_folder(fixture.beside(""));
    let git = GitBatch::open(fixture.work(), Settings::default().with_gate(gate)).unwrap();
    let report = git.apply(pushed_twice()).unwrap();
    all_landed(&report);
    assert_eq!(report.receipt().gate_runs, 3);
    assert_eq!(fixture.at_remote(["show", "main:m1", "main:theirs.txt"]), "changedtheirs\n");
    fixture.assert_sound();
}

/// Its local branches move before what a group has to come before, and after what it comes after.
#[test]
fn a_group_comes_after_what_is_none_of_it() {
    let operations = || {
        vec![
            commit("before", "before", "main"),
            commit("here", "here", "main").in_group("g").after("before"),
            commit("there", "there", "main").in_group("g"),
            Operation::push("push", "there").in_group("g"),
        ]
    };
    let fixture = Fixture::new();
    let lock = lock(&fixture, "before");
    let report = fixture.open().apply(operations()).unwrap();
    for id in ["here", "there", "push"] {
        assert!(is_skipped(&report, id), "{id}: {report:?}");
    }
    assert_eq!(names(&fixture), ["main\n", "main\n"]);
    fs::remove_file(&lock).unwrap();
    let report = fixture.open().apply(operations()).unwrap();
    all_landed(&report);
}

/// The first operation of the later group comes before the other one in the input.
#[test]
fn a_group_comes_after_another_one() {
    let group = |name: &str| {
        [commit(name, name, "main"), Operation::push(format!("push {name}"), name)]
            .map(|operation| operation.in_group(name))
    };
    let [one, push_one] = group("one");
    let [two, push_two] = group("two");
    let fixture = Fixture::new();
    fixture.hook("update", "test $1 != refs/heads/two");
    let more = commit("more", "more", "main").in_group("one").after("two");
    let report = fixture.open().apply(vec![one, push_one, two, push_two, more]).unwrap();
    assert!(matches!(report.get("push two"), Some(Outcome::Rejected { .. })), "{report:?}");
    for id in ["one", "push one", "more"] {
        assert!(is_skipped(&report, id), "{id}: {report:?}");
    }
    assert_eq!(names(&fixture), ["main\n", "main\n"]);
}

/// Neither can be first: what is merged to the remote's branch is gone on from after that.
fn needs_itself() -> Vec<Operation> {
    vec![
        commit("x1", "x", "main"),
        Operation::merge("m", "x", "main"),
        Operation::push("push m", "main"),
        commit("x2", "x", "main~0").after("m"),
    ]
}

#[test]
fn what_is_after_something_that_needs_itself_comes_after_it() {
    let fixture = Fixture::new();
    fixture.hook("update", "test $1 != refs/heads/main");
    let mut operations = needs_itself();
    operations.push(commit("z", "z", "main~0").after("m"));
    let report = fixture.open().apply(operations).unwrap();
    assert!(matches!(report.get("m"), Some(Outcome::Rejected { .. })), "{report:?}");
    assert!(is_skipped(&report, "z"), "{report:?}");
    assert_eq!(fixture.git(["branch", "--list", "z"]), "");
}

#[test]
fn what_needs_itself_is_done_at_once() {
    let fixture = Fixture::new();
    let report = fixture.open().apply(needs_itself()).unwrap();
    all_landed(&report);
    assert_eq!(report.pushes(), 1);
}

/// A circle that goes through a group: the push of `main` waits for it, and it waits for what is made on
/// top of that.
fn circle_through_a_group() -> Vec<Operation> {
    vec![
        commit("g1", "a", "main~0").in_group("g"),
        commit("m1", "main", "main"),
        Operation::push("p1", "main").after("g1"),
        Operation::push("p2", "main"),
        commit("z", "z", "main~0").after("m1"),
        commit("m2", "main", "main").after("z"),
        Operation::push("p3", "main"),
        commit("g2", "b", "main~0").in_group("g").after("m2"),
        Operation::push("g3", "b").in_group("g"),
    ]
}

#[test]
fn a_circle_through_a_group_comes_to_an_end() {
    let fixture = Fixture::new();
    all_landed(&fixture.open().apply(circle_through_a_group()).unwrap());
    fixture.assert_sound();

    // The remote does not take what all of it waits for.
    for refused in ["main", "b"] {
        let fixture = Fixture::new();
        fixture.hook("update", &format!("test $1 != refs/heads/{refused}"));
        let report = fixture.open().apply(circle_through_a_group()).unwrap();
        assert_eq!(report.outcomes.len(), 9, "{report:?}");
        let has_come = |id: &&str| report.get(id).is_some_and(Outcome::is_success);
        let of_group = ["g1", "g2", "g3"].iter().filter(|id| has_come(id)).count();
        assert!(of_group == 0 || of_group == 3, "{report:?}");
        // What a report says is so, here and there.
        let [here, there] = names(&fixture);
        for (id, branch) in [("g1", "a"), ("g2", "b"), ("z", "z")] {
            let is_here = here.lines().any(|name| name == branch);
            assert_eq!(is_here, has_come(&id), "{id}: {report:?}");
        }
        assert_eq!(there.lines().any(|name| name == "b"), has_come(&"g3"), "{report:?}");
        let on_main = fixture.at_remote(["log", "--format=%s", "main"]);
        for id in ["m1", "m2"] {
            assert_eq!(on_main.lines().any(|subject| subject == id), has_come(&id), "{report:?}");
        }
        fixture.hook("update", "exit 0");
        all_landed(&fixture.open().apply(circle_through_a_group()).unwrap());
        fixture.assert_sound();
    }
}

/// What closes the circle does not come, so there are two steps, and the gate looks at both.
#[test]
fn a_gate_looks_at_what_is_left_of_a_circle() {
    let fixture = Fixture::new();
    let gate = Gate::new("true").in_folder(fixture.beside(""));
    let git = GitBatch::open(fixture.work(), Settings::default().with_gate(gate)).unwrap();
    let mut operations = circle_through_a_group();
    let broken = Commit::new("c", "c").with_base("main~0").delete("missing");
    operations.push(Operation::commit("g4", broken).in_group("g"));
    let report = git.apply(operations).unwrap();
    for id in ["m1", "p2", "z", "m2", "p3"] {
        landed(&report, id);
    }
    for id in ["g1", "g2", "g3", "p1"] {
        assert!(is_skipped(&report, id), "{id}: {report:?}");
    }
    assert_eq!((report.pushes(), report.receipt().gate_runs), (2, 2));
}
