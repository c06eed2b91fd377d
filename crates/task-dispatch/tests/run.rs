//! What a run promises: one outcome a task, in order, by id, within the limit.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::Meeting;
use task_dispatch::{CancelToken, Dispatcher, Outcome, Policy, Report, Task};

fn at_most(tasks: usize) -> Dispatcher {
    Dispatcher::builder().max_concurrency(tasks).build()
}

fn run<T: Send>(dispatcher: &Dispatcher, tasks: Vec<Task<'_, T, String>>) -> Report<T, String> {
    dispatcher.run(tasks, &CancelToken::new()).expect("the ids differ")
}

/// A task that answers with its own id.
fn echo(id: &str) -> Task<'_, String, String> {
    Task::new(id, move |_| Ok(format!("result-{id}")))
}

fn ids(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("task-{n}")).collect()
}

#[test]
fn the_limit_is_what_was_asked_for_and_ten_by_default() {
    assert_eq!(at_most(5).max_concurrency(), 5);
    assert_eq!(at_most(0).max_concurrency(), 10);
    assert_eq!(Dispatcher::default().max_concurrency(), 10);
}

#[test]
fn one_task_gives_one_result() {
    let report = run(&at_most(1), vec![echo("task-1")]);
    assert_eq!(report.records().len(), 1);
    assert_eq!(report.get("task-1").unwrap().outcome, Outcome::Ok("result-task-1".to_owned()));
}

#[test]
fn no_tasks_give_an_empty_report() {
    let report = run::<()>(&at_most(5), vec![]);
    assert!(report.records().is_empty());
    assert!(report.all_ok());
    assert_eq!(report.stats().workers, 0);
}

#[test]
fn results_come_in_the_order_of_the_input_however_the_tasks_end() {
    // Each task waits for the next one, so they end in reverse.
    let ids = ids(5);
    let ended = std::sync::Mutex::new(Vec::new());
    let gates: Vec<_> = (0..=5).map(|_| CancelToken::new()).collect();
    gates[5].cancel();
    let tasks = (0..5).map(|n| {
        let (gates, ended) = (&gates, &ended);
        Task::new(&ids[n], move |_| {
            let in_time = gates[n + 1].wait_timeout(Duration::from_mins(1));
            ended.lock().unwrap().push(n);
            gates[n].cancel();
            in_time.then_some(n).ok_or_else(|| "the next task did not run".to_owned())
        })
    });
    let report = run(&at_most(5), tasks.collect());
    let found: Vec<_> = report.records().iter().map(|record| record.id.as_str()).collect();
    assert_eq!(found, ids);
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(report.get(id).unwrap().outcome, Outcome::Ok(n));
    }
    assert_eq!(ended.into_inner().unwrap(), [4, 3, 2, 1, 0]);
}

#[test]
fn an_error_stops_no_other_task() {
    let tasks = vec![
        echo("task-1"),
        Task::new("task-2", |_| Err("task task-2 failed".to_owned())),
        echo("task-3"),
    ];
    let report = run(&at_most(10), tasks);
    assert_eq!(report.stats().succeeded, 2);
    assert_eq!(report.get("task-2").unwrap().outcome.as_err().unwrap(), "task task-2 failed");
    assert!(report.get("task-3").unwrap().outcome.is_ok());
    assert!(!report.all_ok());
}

#[test]
fn nine_tasks_within_the_limit_run_at_the_same_time() {
    let meeting = Meeting::of(9);
    let ids = ids(9);
    let task = |id| Task::new(id, |_| meeting.join().then_some(()).ok_or_else(String::new));
    let report = run(&at_most(10), ids.iter().map(task).collect());
    assert!(report.all_ok(), "each task met the eight others");
    assert_eq!(report.stats().workers, 9);
}

#[test]
fn never_more_tasks_at_a_time_than_the_limit() {
    for limit in [1, 2, 3] {
        let (now, peak) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let ids = ids(300);
        let task = |id| {
            Task::new(id, |_| {
                peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            })
        };
        let report = run(&at_most(limit), ids.iter().map(task).collect());
        assert_eq!(report.stats().succeeded, 300);
        assert!(peak.into_inner() <= limit);
        assert_eq!(report.stats().workers, limit);
    }
}

#[test]
fn one_at_a_time_runs_in_order_on_the_calling_thread() {
    let caller = std::thread::current().id();
    let order = std::sync::Mutex::new(Vec::new());
    let ids = ids(20);
    let task = |id| {
        let order = &order;
        Task::new(id, move |_| {
            assert_eq!(std::thread::current().id(), caller);
            order.lock().unwrap().push(id);
            Ok(())
        })
    };
    assert!(run(&at_most(1), ids.iter().map(task).collect()).all_ok());
    assert_eq!(order.into_inner().unwrap(), ids.iter().collect::<Vec<_>>());
}

#[test]
fn a_record_tells_when_its_task_ran() {
    let report = run(&at_most(1), vec![echo("a"), echo("b")]);
    let (a, b) = (report.get("a").unwrap(), report.get("b").unwrap());
    let (start, end) = a.span.unwrap();
    assert!(start <= end && end <= b.span.unwrap().0);
    assert_eq!(a.duration(), Some(end.duration_since(start)));
    assert!(report.get("c").is_none());
}

#[test]
fn stats_add_up() {
    let mut tasks = vec![echo("a"), echo("b")];
    tasks.push(Task::new("c", |_| Err("no".to_owned())));
    tasks.push(Task::new("d", |_| panic!("oh")));
    let report = run(&at_most(2), tasks);
    let stats = report.stats();
    assert_eq!((stats.tasks, stats.completed(), stats.workers), (4, 4, 2));
    assert_eq!((stats.succeeded, stats.failed, stats.panicked), (2, 1, 1));
    assert!(stats.min <= stats.avg && stats.avg <= stats.max && stats.p95 <= stats.max);
    assert_eq!(
        stats.sum,
        report.records().iter().filter_map(task_dispatch::Record::duration).sum()
    );
    // Each worker is busy for at most the whole run.
    assert!(stats.sum <= stats.wall * 2);
    assert!(stats.lower_bound() <= stats.wall);
}

#[test]
fn with_fail_fast_what_had_not_started_is_skipped_and_what_runs_is_told() {
    let ids = ids(50);
    let meeting = Meeting::of(2);
    let mut tasks = vec![
        Task::new("bad", |_| {
            meeting.join();
            Err("broken".to_owned())
        }),
        Task::new("long", |token: &CancelToken| {
            meeting.join();
            Ok(token.wait_timeout(Duration::from_mins(1)))
        }),
    ];
    tasks.extend(ids.iter().map(|id| Task::new(id, |_| Ok(false))));
    let dispatcher = Dispatcher::builder().max_concurrency(2).policy(Policy::FailFast).build();
    let cancel = CancelToken::new();
    let report = dispatcher.run(tasks, &cancel).unwrap();
    assert_eq!(report.get("long").unwrap().outcome, Outcome::Ok(true));
    assert_eq!(report.stats().skipped, 50);
    let because = "bad".to_owned();
    assert_eq!(report.get("task-1").unwrap().outcome, Outcome::Skipped { because });
    assert!(!cancel.is_cancelled(), "the caller's token is the caller's");
}

#[test]
fn a_panic_is_a_failure_to_fail_fast() {
    let dispatcher = Dispatcher::builder().max_concurrency(1).policy(Policy::FailFast).build();
    let tasks = vec![Task::new("bad", |_| panic!("oh")), echo("next")];
    let report = dispatcher.run(tasks, &CancelToken::new()).unwrap();
    assert_eq!(report.get("next").unwrap().outcome, Outcome::Skipped { because: "bad".into() });
}

#[test]
fn a_task_may_run_tasks() {
    let outer = Task::new("outer", |token: &CancelToken| {
        let inner = Dispatcher::default().run(vec![echo("inner")], token).unwrap();
        Ok::<_, String>(inner.stats().succeeded)
    });
    assert_eq!(run(&at_most(1), vec![outer]).records()[0].outcome, Outcome::Ok(1));
}
