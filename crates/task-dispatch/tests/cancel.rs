//! What cancelling promises: nothing more starts, what runs is told, everything is accounted for.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::Meeting;
use task_dispatch::{CancelToken, Dispatcher, Outcome, Task};

const LONG: Duration = Duration::from_mins(1);

fn at_most(tasks: usize) -> Dispatcher {
    Dispatcher::builder().max_concurrency(tasks).build()
}

#[test]
fn after_cancel_no_queued_task_starts() {
    let cancel = CancelToken::new();
    let (meeting, started) = (Meeting::of(3), AtomicUsize::new(0));
    let tasks = (0..1000).map(|n| {
        let (cancel, meeting, started) = (&cancel, &meeting, &started);
        Task::new(n.to_string(), move |token: &CancelToken| {
            started.fetch_add(1, Ordering::SeqCst);
            meeting.join();
            if n == 0 {
                cancel.cancel();
            }
            token.wait_timeout(LONG).then_some(()).ok_or("not told")
        })
    });
    let report = at_most(3).run(tasks.collect(), &cancel).unwrap();
    assert_eq!(started.into_inner(), 3, "the three that had met");
    assert_eq!((report.stats().succeeded, report.stats().cancelled), (3, 997));
    assert_eq!(report.records()[999].outcome, Outcome::Cancelled);
    assert_eq!(report.records()[999].span, None);
}

#[test]
fn nothing_starts_under_a_cancelled_token() {
    let cancel = CancelToken::new();
    cancel.cancel();
    let task = Task::new("a", |_| -> Result<(), ()> { unreachable!("it must not start") });
    let report = at_most(2).run(vec![task], &cancel).unwrap();
    assert_eq!(report.records()[0].outcome, Outcome::Cancelled);
    assert!(!report.records()[0].outcome.has_run());
}

#[test]
fn another_thread_can_cancel_a_run() {
    let cancel = CancelToken::new();
    let meeting = Meeting::of(3);
    let tasks = (0..10).map(|n| {
        let meeting = &meeting;
        Task::new(n.to_string(), move |token: &CancelToken| {
            meeting.join();
            token.wait_timeout(LONG).then_some(()).ok_or("not told")
        })
    });
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            meeting.join();
            cancel.cancel();
        });
        at_most(2).run(tasks.collect(), &cancel).unwrap()
    });
    assert_eq!((report.stats().succeeded, report.stats().cancelled), (2, 8));
}

#[test]
fn a_deadline_in_the_past_starts_nothing() {
    let cancel = CancelToken::new().with_deadline(Instant::now());
    let report = at_most(1).run(vec![Task::new("a", |_| Ok::<_, ()>(()))], &cancel).unwrap();
    assert_eq!(report.stats().cancelled, 1);
}

#[test]
fn a_time_out_belongs_to_its_task_alone() {
    let tasks = vec![
        Task::new("short", |token: &CancelToken| Ok::<_, ()>(token.wait_timeout(LONG)))
            .with_timeout(Duration::from_millis(5)),
        Task::new("other", |token: &CancelToken| Ok(token.is_cancelled())),
        Task::new("endless", |token: &CancelToken| Ok(token.deadline().is_some()))
            .with_timeout(Duration::MAX),
    ];
    let cancel = CancelToken::new();
    let report = at_most(1).run(tasks, &cancel).unwrap();
    assert_eq!(report.get("short").unwrap().outcome, Outcome::Ok(true));
    assert_eq!(report.get("other").unwrap().outcome, Outcome::Ok(false));
    assert_eq!(report.get("endless").unwrap().outcome, Outcome::Ok(false));
    assert!(!cancel.is_cancelled());
}

#[test]
fn what_a_cancelled_task_returns_is_kept() {
    let cancel = CancelToken::new();
    let task = Task::new("a", |token: &CancelToken| {
        cancel.cancel();
        assert!(token.is_cancelled());
        Ok::<_, ()>("half of it")
    });
    let report = at_most(1).run(vec![task], &cancel).unwrap();
    assert_eq!(report.records()[0].outcome, Outcome::Ok("half of it"));
}

#[test]
fn children_follow_their_parent_and_not_the_other_way() {
    let parent = CancelToken::new();
    let same = parent.clone();
    let (child, sibling) = (parent.child(), parent.child());
    let grandchild = child.child();
    child.cancel();
    assert!(child.is_cancelled() && grandchild.is_cancelled());
    assert!(!parent.is_cancelled() && !sibling.is_cancelled());
    same.cancel();
    assert!(parent.is_cancelled());
    assert!(sibling.is_cancelled());
    assert!(parent.child().is_cancelled(), "a child is born cancelled");
}

#[test]
fn a_deadline_only_comes_closer() {
    let now = Instant::now();
    let near = CancelToken::new().with_deadline(now + LONG);
    assert_eq!(near.with_deadline(now + 2 * LONG).deadline(), Some(now + LONG));
    assert_eq!(near.with_deadline(now).deadline(), Some(now));
    assert_eq!(near.child().deadline(), Some(now + LONG));
    assert!(near.with_deadline(now).wait_timeout(LONG));
}

#[test]
fn a_long_chain_of_children_is_cancelled_without_recursion() {
    let root = CancelToken::new();
    let mut chain = vec![root.child()];
    for _ in 0..100_000 {
        chain.push(chain[chain.len() - 1].child());
    }
    root.cancel();
    assert!(chain.iter().all(CancelToken::is_cancelled));
}
