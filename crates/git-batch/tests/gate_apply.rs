//! The gate in front of pushes that are no landing: what is pushed of a branch has passed.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::fs;
use std::path::PathBuf;

use git_batch::{
    Class, Commit, Gate, GitBatch, OpErrorKind, Operation, Outcome, Report, Settings, Strategy,
};
use support::worktree::{capture, linked, put};
use support::{Fixture, kind, landed, run, try_run, wait_until, waits_for};

/// A gate that counts its runs and refuses files with `bad` in them.
fn gate(fixture: &Fixture) -> Gate {
    script(fixture, "! grep -rq bad .")
}

fn script(fixture: &Fixture, text: &str) -> Gate {
    let scratch = fixture.beside("scratch");
    fs::create_dir_all(&scratch).unwrap();
    let text = format!("echo x >> '{}'; {text}", counter(fixture).display());
    Gate::new("sh").with_args(["-ec", &text]).in_folder(scratch)
}

fn counter(fixture: &Fixture) -> PathBuf {
    fixture.beside("runs")
}

fn runs(fixture: &Fixture) -> usize {
    fs::read_to_string(counter(fixture)).map_or(0, |text| text.lines().count())
}

fn open(fixture: &Fixture, gate: Gate) -> GitBatch {
    GitBatch::open(fixture.work(), Settings::default().with_gate(gate)).unwrap()
}

fn apply(fixture: &Fixture, operations: Vec<Operation>) -> Report {
    open(fixture, gate(fixture)).apply(operations).unwrap()
}

fn commit(id: &str, branch: &str, content: &str) -> Operation {
    let commit = Commit::new(branch, id).with_base("main").write(format!("{id}.txt"), content);
    Operation::commit(id, commit)
}

#[test]
fn what_a_group_pushes_first_has_passed_by_itself() {
    let fixture = Fixture::new();
    fixture.at_remote(["config", "core.logAllRefUpdates", "always"]);
    let repair = Commit::new("x", "b").delete("a.txt").write("b.txt", "good\n");
    let operations = vec![
        commit("a", "x", "bad\n").in_group("g"),
        Operation::push("p1", "x").in_group("g"),
        commit("y", "y", "good\n"),
        Operation::push("push y", "y"),
        Operation::commit("b", repair).after("a"),
        Operation::push("p2", "x"),
    ];
    let report = apply(&fixture, operations);
    assert_eq!(kind(report.get("a")), Some(OpErrorKind::Gate));
    assert!(!report.get("p1").unwrap().is_success(), "{:?}", report.get("p1"));
    landed(&report, "push y");
    let there = fixture.at_remote(["for-each-ref", "--format=%(refname)"]);
    assert!(!there.contains("refs/heads/x"), "{there}");
    let reflog = fixture.at_remote(["log", "--all", "--reflog", "--format=%s"]);
    assert!(!reflog.lines().any(|subject| subject == "a"), "{reflog}");
}

#[test]
fn only_the_operation_that_fails_is_left_out() {
    let fixture = Fixture::new();
    let operations = || {
        vec![
            commit("a1", "a", "good\n"),
            commit("a2", "a", "bad\n"),
            commit("a3", "a", "good\n"),
            Operation::push("push a", "a"),
            commit("b", "b", "good\n"),
            Operation::push("push b", "b"),
            // Nobody pushes it.
            commit("c", "c", "bad\n"),
        ]
    };
    let report = apply(&fixture, operations());
    assert_eq!(kind(report.get("a2")), Some(OpErrorKind::Gate));
    for id in ["a1", "a3", "push a", "b", "push b", "c"] {
        landed(&report, id);
    }
    assert_eq!((report.pushes(), runs(&fixture)), (1, report.receipt().gate_runs as usize));
    assert_eq!(fixture.git(["log", "--format=%s", "main..a"]), "a3\na1\n");
    assert_eq!(fixture.at_remote(["log", "--format=%s", "main..a"]), "a3\na1\n");
    assert_eq!(fs::read_dir(fixture.beside("scratch")).unwrap().count(), 0);
    let before = runs(&fixture);
    let again = apply(&fixture, operations());
    assert_eq!(kind(again.get("a2")), Some(OpErrorKind::Gate));
    assert_eq!(again.pushes(), 0);
    // On top of the others it is another tree.
    assert!(runs(&fixture) <= before + 2);
    assert_eq!(fixture.git(["log", "--format=%s", "main..a"]), "a3\na1\n");
    fixture.assert_sound();
}

#[test]
fn a_group_with_a_culprit_is_left_out_as_a_whole() {
    let fixture = Fixture::new();
    let mut operations = vec![
        commit("a", "a", "good\n"),
        Operation::push("push a", "a"),
        commit("b", "b", "bad\n"),
        Operation::push("push b", "b"),
    ];
    for operation in &mut operations {
        operation.group = Some("g".to_owned());
    }
    operations.extend([commit("c", "c", "good\n"), Operation::push("push c", "c")]);
    let report = apply(&fixture, operations);
    assert_eq!(kind(report.get("b")), Some(OpErrorKind::Gate));
    for id in ["a", "push a", "push b"] {
        assert!(matches!(report.get(id), Some(Outcome::Skipped { .. })), "{id}: {report:?}");
    }
    landed(&report, "push c");
    assert_eq!(fixture.at_remote(["branch", "--format=%(refname:short)"]), "c\nmain\n");
}

/// `main` with something bad and, with the group, what repairs it.
fn repaired_by_a_group(path: &str) -> Vec<Operation> {
    let c = Commit::new("x", "c").with_base("main~0").write(path, "x");
    vec![
        commit("a", "main", "bad\n"),
        Operation::push("p1", "main"),
        Operation::commit("b", Commit::new("main", "b").write("a.txt", "good\n")).in_group("g"),
        Operation::push("p2", "main"),
        Operation::commit("c", c).in_group("g"),
    ]
}

/// The gate has seen a branch as it was to be in the end; what comes of it without that end is not what
/// it has seen.
#[test]
fn what_the_gate_has_not_seen_alone_is_not_pushed_alone() {
    let fixture = Fixture::new();
    fs::write(fixture.work().join(".git/refs/heads/x.lock"), "").unwrap();
    let before = fixture.at_remote(["rev-parse", "main"]);
    let report = apply(&fixture, repaired_by_a_group("c.txt"));
    for id in ["a", "p1", "b", "p2", "c"] {
        assert!(!report.get(id).unwrap().is_success(), "{id}: {report:?}");
    }
    assert!(matches!(report.get("p1"), Some(Outcome::Rejected { class: Class::Transient, .. })));
    assert_eq!(report.receipt().gate_runs, 1);
    assert_eq!(fixture.at_remote(["rev-parse", "main"]), before);
    fixture.assert_sound();
}

/// What cannot be built is not in what the gate looks at.
#[test]
fn the_gate_sees_a_branch_without_what_does_not_come() {
    let fixture = Fixture::new();
    let before = fixture.at_remote(["rev-parse", "main"]);
    let report = apply(&fixture, repaired_by_a_group(".git/x"));
    assert_eq!(kind(report.get("a")), Some(OpErrorKind::Gate), "{report:?}");
    for id in ["b", "p2", "c"] {
        assert!(!report.get(id).unwrap().is_success(), "{id}: {report:?}");
    }
    assert_eq!(fixture.at_remote(["rev-parse", "main"]), before);
}

/// It fails without any of this input: the commits are nobody's fault, and nothing leaves.
#[test]
fn what_a_branch_had_before_and_fails_is_not_pushed() {
    let fixture = Fixture::new();
    fixture.branch("a", "main", "old.txt", "bad\n");
    let operations = || vec![commit("a1", "a", "good\n"), Operation::push("push a", "a")];
    let report = apply(&fixture, operations());
    landed(&report, "a1");
    assert_eq!(kind(report.get("push a")), Some(OpErrorKind::Gate));
    // A push alone is looked at too, and one of what the remote has is not.
    let report =
        apply(&fixture, vec![Operation::push("push a", "a"), Operation::push("main", "main")]);
    assert_eq!(kind(report.get("push a")), Some(OpErrorKind::Gate));
    landed(&report, "main");
    assert_eq!(fixture.received(), 0);
    // Somebody repairs it.
    let repair = Commit::new("a", "repair").write("old.txt", "good\n");
    let report =
        apply(&fixture, vec![Operation::commit("r", repair), Operation::push("push a", "a")]);
    landed(&report, "r");
    landed(&report, "push a");
}

#[test]
fn what_the_remote_has_got_meanwhile_is_looked_at_with_the_rest() {
    for (theirs, lands) in [("good\n", true), ("bad\n", false)] {
        let fixture = Fixture::new();
        fixture.branch("a", "main", "a.txt", "good\n");
        fixture.git(["push", "-q", "origin", "a"]);
        fixture.move_remote("a", "theirs.txt", theirs);
        let there = fixture.at_remote(["rev-parse", "a"]);
        let report =
            apply(&fixture, vec![commit("a1", "a", "good\n"), Operation::push("push a", "a")]);
        landed(&report, "a1");
        if lands {
            landed(&report, "push a");
            assert_eq!(fixture.at_remote(["show", "a:theirs.txt"]), theirs);
        } else {
            assert_eq!(kind(report.get("push a")), Some(OpErrorKind::Gate), "{report:?}");
            assert_eq!(fixture.at_remote(["rev-parse", "a"]), there);
        }
        assert!(runs(&fixture) >= 2);
    }
}

/// Another handle commits while the gate looks at it.
#[test]
fn others_work_while_the_gate_looks_at_what_the_remote_has_got() {
    let fixture = Fixture::new();
    fixture.branch("a", "main", "a.txt", "good\n");
    fixture.git(["push", "-q", "origin", "a"]);
    fixture.move_remote("a", "theirs.txt", "good\n");
    let (begun, go) = (fixture.beside("begun"), fixture.beside("go"));
    let wait = waits_for(&go);
    let text = format!("test -e theirs.txt || exit 0; touch '{}'; {wait}", begun.display());
    let git = open(&fixture, script(&fixture, &text));
    let here = Commit::new("here", "h").with_base("main").write("here.txt", "x\n");
    let operations = || {
        vec![
            commit("a1", "a", "good\n").in_group("g"),
            Operation::push("push a", "a").in_group("g"),
            Operation::commit("here", here.clone()).in_group("g"),
            commit("b", "b", "good\n"),
            Operation::push("push b", "b"),
        ]
    };
    let report = std::thread::scope(|scope| {
        let applied = scope.spawn(|| git.apply(operations()).unwrap());
        wait_until(|| begun.exists());
        // The others have landed, and of the group nothing.
        assert_eq!(fixture.at_remote(["branch", "--format=%(refname:short)"]), "a\nb\nmain\n");
        assert_eq!(fixture.git(["branch", "--list", "here"]), "");
        let settings = Settings::default().with_wait(std::time::Duration::ZERO);
        let other = GitBatch::open(fixture.work(), settings).unwrap();
        landed(&other.apply(vec![commit("c", "c", "good\n")]).unwrap(), "c");
        fs::write(&go, "").unwrap();
        applied.join().unwrap()
    });
    for (id, _) in &report.outcomes {
        landed(&report, id);
    }
    assert!(report.replayed.is_empty());
    assert_eq!(report.receipt().gate_runs as usize, runs(&fixture));
    // Two branches, and the first once more with what the remote had got.
    assert_eq!(runs(&fixture), 3);
    assert_eq!(fixture.at_remote(["log", "--format=%s", "-1", "a^1"]), "a1\n");
    assert_eq!(fixture.id("here"), landed(&report, "here"));
    let again = git.apply(operations()).unwrap();
    assert_eq!((again.replayed.len(), again.pushes()), (operations().len(), 0));
    fixture.assert_sound();
}

/// More than are looked at together, and one that the remote's part breaks.
#[test]
fn many_branches_that_the_remote_has_moved_are_looked_at_each_once() {
    let fixture = Fixture::new();
    let names: Vec<String> = (0..10).map(|n| format!("b{n}")).collect();
    let other = fixture.beside("other");
    fixture.move_remote("main", "theirs.txt", "good\n");
    let theirs = run(&other, ["rev-parse", "HEAD"]);
    fixture.move_remote("main", "theirs.txt", "bad\n");
    for name in &names {
        fixture.git(["branch", name, "main"]);
        let from = if name == "b3" { "main" } else { theirs.trim() };
        fixture.at_remote(["update-ref", &format!("refs/heads/{name}"), from]);
    }
    let task = |name: &String| {
        [commit(name, name, "good\n"), Operation::push(format!("push {name}"), name)]
    };
    let report = apply(&fixture, names.iter().flat_map(task).collect());
    for (id, _) in report.outcomes.iter().filter(|(id, _)| id != "push b3") {
        landed(&report, id);
    }
    assert_eq!(kind(report.get("push b3")), Some(OpErrorKind::Gate));
    // A failure is looked at twice.
    assert_eq!(runs(&fixture), 10 + 10 + 1);
    fixture.assert_sound();
}

/// Whenever the gate runs, somebody pushes.
#[test]
fn a_remote_that_never_rests_is_given_up() {
    let fixture = Fixture::new();
    fixture.branch("a", "main", "a.txt", "good\n");
    fixture.git(["push", "-q", "origin", "a"]);
    let push = format!(
        "cd '{}'; export GIT_INDEX_FILE=own; git read-tree a; git update-index --add --cacheinfo \
         100644,$(date +%N | git hash-object -w --stdin),theirs.txt; \
         git update-ref refs/heads/a $(git -c user.name=B -c user.email=b@c commit-tree -p a -m theirs $(git write-tree))",
        fixture.remote().display()
    );
    let git = open(&fixture, script(&fixture, &push));
    let report =
        git.apply(vec![commit("a1", "a", "good\n"), Operation::push("push a", "a")]).unwrap();
    landed(&report, "a1");
    match report.get("push a") {
        Some(Outcome::Rejected { class: Class::Transient, reason }) => {
            assert!(reason.contains("while the gate ran"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert!(runs(&fixture) <= 1 + 5, "{}", runs(&fixture));
}

/// A tree that cannot be checked out, for want of a filter, is as one that the gate has refused.
#[test]
fn a_tree_that_cannot_be_checked_out_keeps_no_other_back() {
    let fixture = Fixture::new();
    fixture.git(["config", "filter.secret.smudge", "false"]);
    fixture.git(["config", "filter.secret.required", "true"]);
    let filtered = |branch: &str| {
        let commit = Commit::new(branch, "f").with_base("main");
        commit.write(".gitattributes", "src/lib.rs filter=secret\n")
    };
    let operations = vec![
        commit("a", "a", "good\n"),
        Operation::push("push a", "a"),
        commit("b1", "b", "good\n"),
        Operation::commit("b2", filtered("b")),
        Operation::push("push b", "b"),
    ];
    let report = apply(&fixture, operations);
    for id in ["a", "push a", "b1", "push b"] {
        landed(&report, id);
    }
    let Some(Outcome::Failed(error)) = report.get("b2") else { panic!("{report:?}") };
    assert_eq!(error.kind, OpErrorKind::Gate);
    assert!(error.message.contains("cannot check out"), "{error}");
    // In a landing too.
    fixture.branch("ok", "main", "ok.txt", "good\n");
    let commit = filtered("bad");
    landed(&fixture.open().apply(vec![Operation::commit("f", commit)]).unwrap(), "f");
    let branches = ["bad", "ok"].map(str::to_owned);
    let report = open(&fixture, gate(&fixture)).land("main", &branches, Strategy::Merge).unwrap();
    landed(&report, "ok");
    assert_eq!(kind(report.get("bad")), Some(OpErrorKind::Gate));
}

#[test]
fn a_gate_that_cannot_run_does_nothing() {
    let fixture = Fixture::new();
    // The second commit finds all as the first one was to make it.
    let mut same = commit("a", "a", "good\n");
    same.id = "same".to_owned();
    let operations = vec![commit("a", "a", "good\n"), same, Operation::push("push a", "a")];
    let report = open(&fixture, Gate::new("no-such-program")).apply(operations).unwrap();
    for id in ["a", "same", "push a"] {
        assert_eq!(kind(report.get(id)), Some(OpErrorKind::Gate), "{report:?}");
    }
    assert_eq!(fixture.git(["branch", "--format=%(refname:short)"]), "main\n");
}

/// The gate speaks of what is asked again, and of nothing else.
#[test]
fn what_has_landed_has_landed_also_where_the_gate_cannot_run() {
    let fixture = Fixture::new();
    fixture.hook("update", "test $1 != refs/heads/b");
    let operations = || {
        vec![
            commit("a", "a", "good\n"),
            Operation::push("push a", "a"),
            commit("b", "b", "good\n"),
            Operation::push("push b", "b"),
        ]
    };
    let first = apply(&fixture, operations());
    assert!(!first.get("push b").unwrap().is_success(), "{first:?}");
    let again = open(&fixture, Gate::new("no-such-program")).apply(operations()).unwrap();
    for id in ["a", "push a"] {
        assert_eq!(landed(&again, id), landed(&first, id));
    }
    assert_eq!(kind(again.get("push b")), Some(OpErrorKind::Gate), "{again:?}");
}

#[test]
fn a_preview_asks_the_gate_and_writes_nothing() {
    let fixture = Fixture::new();
    let operations = vec![
        commit("a1", "a", "good\n"),
        commit("a2", "a", "bad\n"),
        Operation::push("push a", "a"),
    ];
    let report = open(&fixture, gate(&fixture)).preview(&operations).unwrap();
    assert_eq!(kind(report.get("a2")), Some(OpErrorKind::Gate));
    landed(&report, "push a");
    assert_eq!(fixture.git(["branch", "--format=%(refname:short)"]), "main\n");
    // What it has said is known.
    let before = runs(&fixture);
    apply(&fixture, operations);
    assert_eq!(runs(&fixture), before);
}

#[test]
fn what_is_queued_passes_the_gate_too() {
    let fixture = Fixture::new();
    let git = open(&fixture, gate(&fixture));
    let tickets = [
        commit("a", "a", "good\n"),
        Operation::push("push a", "a"),
        commit("b", "b", "bad\n"),
        Operation::push("push b", "b"),
    ]
    .map(|operation| git.submit(operation).unwrap());
    drop(git.flush());
    let outcomes = tickets.map(|ticket| ticket.wait().unwrap());
    assert!(outcomes[1].is_success(), "{outcomes:?}");
    assert_eq!(kind(Some(&outcomes[2])), Some(OpErrorKind::Gate));
    assert!(!outcomes[3].is_success(), "{outcomes:?}");
    assert_eq!(fixture.at_remote(["branch", "--format=%(refname:short)"]), "a\nmain\n");
}

/// Others commit to a branch while the gate runs: what it has not seen does not go with it.
#[test]
fn a_branch_that_moves_while_the_gate_runs_is_left_alone() {
    let fixture = Fixture::new();
    fixture.git(["branch", "a"]);
    let move_a = format!(
        "cd '{}' && git update-ref refs/heads/a $(git commit-tree -p a -m theirs a^{{tree}})",
        fixture.work().display()
    );
    let git = open(&fixture, script(&fixture, &move_a));
    let operations = vec![
        commit("a1", "a", "good\n"),
        Operation::push("push a", "a"),
        commit("b", "b", "good\n"),
        Operation::push("push b", "b"),
    ];
    let report = git.apply(operations).unwrap();
    assert_eq!(kind(report.get("a1")), Some(OpErrorKind::BranchMoved), "{report:?}");
    landed(&report, "push b");
    assert!(runs(&fixture) <= 2);
    assert_eq!(fixture.at_remote(["branch", "--format=%(refname:short)"]), "b\nmain\n");
}

/// Its worktree is written to whenever the gate runs, so that there is always something new to see.
#[test]
fn a_worktree_that_never_rests_is_given_up() {
    let fixture = Fixture::new();
    let dir = linked(&fixture, "agent");
    put(&dir, "work.txt", "0\n");
    let text = format!("date +%N >> '{}'", dir.join("work.txt").display());
    let git = open(&fixture, script(&fixture, &text));
    let report =
        git.apply(vec![capture("c", "agent", &dir), Operation::push("p", "agent")]).unwrap();
    match report.get("p") {
        Some(Outcome::Rejected { class: Class::Transient, reason }) => {
            assert!(reason.contains("while the gate ran"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert!(runs(&fixture) <= 8, "{}", runs(&fixture));
    assert_eq!(fixture.received(), 0);
}

/// The same for a branch that is landed: what was there when it began is landed.
#[test]
fn a_landing_has_an_end_while_its_branches_get_commits() {
    let fixture = Fixture::new();
    fixture.branch("a", "main", "a.txt", "good\n");
    let first = fixture.id("a");
    let move_a = format!(
        "cd '{}' && git read-tree a && git update-index --add --cacheinfo \
         100644,$(date +%N | git hash-object -w --stdin),more.txt && git update-ref refs/heads/a \
         $(git commit-tree -p a -m theirs $(git write-tree))",
        fixture.work().display()
    );
    let git = open(&fixture, script(&fixture, &format!("export GIT_INDEX_FILE=own; {move_a}")));
    let report = git.land("main", &["a".to_owned()], Strategy::Merge).unwrap();
    landed(&report, "a");
    assert_eq!(runs(&fixture), 1);
    assert_ne!(fixture.id("a"), first);
    assert_eq!(fixture.at_remote(["rev-parse", "main^2"]).trim(), first.to_string());
    let (code, _) = try_run(&fixture.remote(), ["cat-file", "-e", "main:more.txt"]);
    assert_ne!(code, Some(0));
}

/// It hiccups once.
#[test]
fn nobody_is_left_out_for_a_failure_that_was_seen_once() {
    let fixture = Fixture::new();
    let flaky = format!("test $(wc -l < '{}') != 1", counter(&fixture).display());
    let git = open(&fixture, script(&fixture, &flaky));
    let operations = vec![
        commit("a1", "a", "good\n"),
        commit("a2", "a", "good\n"),
        Operation::push("push a", "a"),
    ];
    let report = git.apply(operations).unwrap();
    for id in ["a1", "a2", "push a"] {
        landed(&report, id);
    }
}

/// The second branch repairs what the remote has.
#[test]
fn a_landing_that_repairs_the_base_is_not_stopped_by_what_fails_behind_it() {
    let fixture = Fixture::new();
    fixture.move_remote("main", "old.txt", "bad\n");
    fixture.git(["fetch", "-q"]);
    fixture.branch("one", "origin/main", "one.txt", "good\n");
    fixture.branch("repair", "origin/main", "old.txt", "good\n");
    fixture.branch("bad", "origin/main", "new.txt", "bad\n");
    let branches = ["one", "repair", "bad"].map(str::to_owned);
    let report = open(&fixture, gate(&fixture)).land("main", &branches, Strategy::Merge).unwrap();
    landed(&report, "one");
    landed(&report, "repair");
    assert_eq!(kind(report.get("bad")), Some(OpErrorKind::Gate));
}

/// A script outside of the tree that says something else now is asked again.
#[test]
fn a_gate_that_was_changed_is_asked_again() {
    let fixture = Fixture::new();
    let check = fixture.beside("check.sh");
    fs::write(&check, "exit 0\n").unwrap();
    let gate = || Gate::new("sh").with_args([&check]).in_folder(fixture.beside(""));
    let operations = || vec![commit("a", "a", "good\n"), Operation::push("push a", "a")];
    open(&fixture, gate()).preview(&operations()).unwrap();
    fs::write(&check, "exit 1 # by now\n").unwrap();
    let report = open(&fixture, gate()).apply(operations()).unwrap();
    assert!(!report.get("push a").unwrap().is_success());
    assert_eq!(fixture.received(), 0);
}

/// Another writer takes the repository while the gate looks at the second batch.
#[test]
fn what_was_done_before_the_lock_was_lost_is_reported() {
    let fixture = Fixture::new();
    let (begun, go) = (fixture.beside("begun"), fixture.beside("go"));
    let wait = waits_for(&go);
    let text = format!("test -e b.txt || exit 0; touch '{}'; {wait}", begun.display());
    let settings = Settings::default().with_gate(script(&fixture, &text));
    let settings = settings.with_wait(std::time::Duration::from_millis(50));
    let git = GitBatch::open(fixture.work(), settings).unwrap();
    let operations = || {
        vec![
            commit("a", "a", "good\n"),
            Operation::push("push a", "a"),
            commit("b", "b", "good\n").after("push a"),
            Operation::push("push b", "b"),
        ]
    };
    std::thread::scope(|scope| {
        let applied = scope.spawn(|| git.apply(operations()).unwrap());
        wait_until(|| begun.exists());
        let lock = fs::File::open(fixture.work().join(".git/batchyard/lock")).unwrap();
        lock.lock().unwrap();
        fs::write(&go, "").unwrap();
        let report = applied.join().unwrap();
        landed(&report, "push a");
        assert_eq!(kind(report.get("b")), Some(OpErrorKind::Repository));
        assert!(format!("{report:?}").contains("still locked"), "{report:?}");
        // A process that is just started by another test may have it, too.
        lock.unlock().unwrap();
    });
    let again = git.apply(operations()).unwrap();
    landed(&again, "push b");
    assert!(again.replayed.contains("push a"));
}

/// More than are looked at together.
#[test]
fn many_branches_are_looked_at_each_once() {
    let fixture = Fixture::new();
    let task = |n: usize| {
        let branch = format!("b{n}");
        let push = Operation::push(format!("push {branch}"), &branch);
        [commit(&branch, &branch, "good\n"), push]
    };
    let report = apply(&fixture, (0..60).flat_map(task).collect());
    for (id, _) in &report.outcomes {
        landed(&report, id);
    }
    assert_eq!((report.pushes(), runs(&fixture)), (1, 60));
}
