//! The queue in front of a repository: what waits, what runs, what came of it.

mod support;

use std::fs::File;
use std::time::Duration;

use batch_core::{BatchError, Close, DispatchReason};
use git_batch::{ApplyError, Commit, GitBatch, OpErrorKind, Operation, Outcome, Settings};
use support::Fixture;

const LONG: Duration = Duration::from_hours(1);

fn queue(fixture: &Fixture, max_items: usize) -> GitBatch {
    let settings = Settings::default().with_max_items(max_items).with_linger(LONG);
    GitBatch::open(fixture.work(), settings).expect("it opens")
}

fn commit(n: usize) -> Operation {
    let commit = Commit::new("queue", format!("Commit {n}")).write("n", n.to_string());
    Operation::commit(n.to_string(), commit)
}

/// Keeps every batch waiting until it is dropped.
fn hold_the_lock(fixture: &Fixture) -> File {
    fixture.open().apply(vec![Operation::push("p", "main")]).expect("it makes the lock");
    let lock = File::open(fixture.work().join(".git/batchyard/lock")).expect("the lock is there");
    lock.lock().expect("nobody holds it");
    lock
}

#[test]
fn a_new_queue_is_empty() {
    let fixture = Fixture::new();
    let git = fixture.open();
    let stats = git.batcher().stats();
    assert_eq!((stats.accepted, stats.queued, stats.calls), (0, 0, 0));
    assert!(git.batcher().history().is_empty());
    assert!(!git.batcher().should_flush(Duration::ZERO));
}

#[test]
fn operations_wait_for_company_until_the_oldest_has_waited_long_enough() {
    let fixture = Fixture::new();
    let git = queue(&fixture, 10);
    let tickets: Vec<_> = (0..5).map(|n| git.submit(commit(n)).unwrap()).collect();
    assert_eq!(git.batcher().stats().queued, 5);
    assert!(git.batcher().should_flush(Duration::ZERO));
    assert!(!git.batcher().should_flush(LONG));
    git.flush().wait().unwrap();
    assert_eq!(git.batcher().stats().queued, 0);
    assert!(git.batcher().time_since_last_flush() < LONG);
    for ticket in tickets {
        assert!(ticket.wait().unwrap().is_success());
    }
    assert_eq!(fixture.git(["log", "--format=%s", "-2", "queue"]), "Commit 4\nCommit 3\n");
    let history = git.batcher().history();
    assert_eq!((history.len(), history[0].items), (1, 5));
    assert_eq!(history[0].reason, DispatchReason::Flush);
    assert_eq!(history[0].key.1, "origin");
}

#[test]
fn ten_operations_go_together_by_default() {
    let fixture = Fixture::new();
    let git = GitBatch::open(fixture.work(), Settings::default().with_linger(LONG)).unwrap();
    let tickets: Vec<_> = (0..10).map(|n| git.submit(commit(n)).unwrap()).collect();
    for ticket in tickets {
        assert!(ticket.wait().unwrap().is_success());
    }
    assert_eq!(git.batcher().stats().calls, 1);
}

#[test]
fn full_batches_leave_one_after_the_other() {
    let fixture = Fixture::new();
    let git = queue(&fixture, 3);
    let lock = hold_the_lock(&fixture);
    let tickets: Vec<_> = (0..9).map(|n| git.submit(commit(n)).unwrap()).collect();
    // Three batches: one waits for the writer's lock, two wait for the one before.
    let stats = git.batcher().stats();
    assert_eq!((stats.queued + stats.in_flight, stats.completed), (9, 0));
    assert!(git.batcher().history().is_empty());
    lock.unlock().unwrap();
    for ticket in tickets {
        assert!(ticket.wait().unwrap().is_success());
    }
    let stats = git.batcher().stats();
    assert_eq!((stats.completed, stats.calls, stats.calls_saved()), (9, 3, 6));
    assert_eq!(stats.items_per_call(), Some(3.0));
    let history = git.batcher().history();
    assert_eq!(history.iter().map(|batch| batch.items).collect::<Vec<_>>(), [3, 3, 3]);
    assert!(history.iter().all(|batch| batch.reason == DispatchReason::Full));
    assert!(history.iter().all(|batch| (batch.completed, batch.failed) == (3, 0)));
    // In order, whatever batch they were in.
    let subjects = fixture.git(["log", "--reverse", "--format=%s", "main..queue"]);
    let expect: Vec<String> = (0..9).map(|n| format!("Commit {n}")).collect();
    assert_eq!(subjects.lines().collect::<Vec<_>>(), expect);
}

#[test]
fn a_batch_that_cannot_run_tells_every_caller() {
    let fixture = Fixture::new();
    let settings = Settings::default().with_max_items(2).with_wait(Duration::ZERO);
    let git = GitBatch::open(fixture.work(), settings).unwrap();
    let lock = hold_the_lock(&fixture);
    let tickets: Vec<_> = (0..2).map(|n| git.submit(commit(n)).unwrap()).collect();
    for ticket in tickets {
        match ticket.wait() {
            Err(BatchError::Failed(error)) => assert!(matches!(*error, ApplyError::Busy { .. })),
            other => panic!("{other:?}"),
        }
    }
    let stats = git.batcher().stats();
    assert_eq!((stats.failed, stats.completed), (2, 0));
    assert_eq!(git.batcher().history()[0].failed, 2);
    // The next ones are not held up by it.
    lock.unlock().unwrap();
    let ticket = git.submit(commit(3)).unwrap();
    git.flush().wait().unwrap();
    assert!(ticket.wait().unwrap().is_success());
}

#[test]
fn after_reaches_back_over_the_cuts_between_batches() {
    let fixture = Fixture::new();
    let git = queue(&fixture, 1);
    let bad = Operation::commit("bad", Commit::new("", "m"));
    let tickets: Vec<_> = [
        commit(1),
        bad,
        commit(2).after("1"),
        commit(3).after("bad"),
        commit(4).after("never seen"),
    ]
    .into_iter()
    .map(|operation| git.submit(operation).unwrap())
    .collect();
    let outcomes: Vec<Outcome> = tickets.into_iter().map(|t| t.wait().unwrap()).collect();
    assert!(outcomes[0].is_success() && outcomes[2].is_success(), "{outcomes:?}");
    assert_eq!(outcomes[3], Outcome::Skipped { because: "bad".to_owned() });
    assert!(matches!(
        &outcomes[4],
        Outcome::Failed(error) if error.kind == OpErrorKind::UnknownDependency
    ));
}

#[test]
fn what_is_not_sent_comes_back() {
    let fixture = Fixture::new();
    let git = queue(&fixture, 10);
    let tickets: Vec<_> = (1..=3).map(|n| git.submit(commit(n)).unwrap()).collect();
    let report = git.batcher().close(Close::Abort, LONG);
    let back: Vec<Operation> = report.leftovers.into_iter().map(|(_, op)| op).collect();
    assert_eq!(back, (1..=3).map(commit).collect::<Vec<_>>());
    for ticket in tickets {
        assert!(matches!(ticket.wait(), Err(BatchError::Closed)));
    }
    assert_eq!(git.batcher().stats().queued, 0);
    assert_eq!(git.submit(commit(4)).unwrap_err().into_parts().0, commit(4));
    assert_eq!(fixture.git(["branch", "--list", "queue"]), "");
}

#[test]
fn an_operation_that_says_nothing_fails_alone() {
    let fixture = Fixture::new();
    let git = queue(&fixture, 2);
    let empty = git.submit(Operation::commit("", Commit::default())).unwrap();
    let good = git.submit(commit(1)).unwrap();
    assert!(matches!(
        empty.wait().unwrap(),
        Outcome::Failed(error) if error.kind == OpErrorKind::InvalidBranch
    ));
    assert!(good.wait().unwrap().is_success());
}
