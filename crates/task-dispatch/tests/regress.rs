//! Faults that others had, named for what they did.

use std::sync::Mutex;

use task_dispatch::{CancelToken, Dispatcher, Outcome, Policy, Task};

fn run<T: Send, E: Send>(limit: usize, tasks: Vec<Task<'_, T, E>>) -> Vec<Outcome<T, E>> {
    let dispatcher = Dispatcher::builder().max_concurrency(limit).build();
    let report = dispatcher.run(tasks, &CancelToken::new()).expect("the ids differ");
    report.into_iter().map(|record| record.outcome).collect()
}

/// golang/go#53757 and the seed: one panic kills the process.
#[test]
fn a_panic_ends_its_own_task_only() {
    let tasks = vec![
        Task::new("str", |_| panic!("plain")),
        Task::new("string", |_| panic!("number {}", 7)),
        Task::new("other", |_| std::panic::resume_unwind(Box::new(7))),
        Task::new("fine", |_| Ok::<_, ()>(1)),
    ];
    let panicked = |text: &str| Outcome::Panicked(text.to_owned());
    let expected =
        [panicked("plain"), panicked("number 7"), panicked("(no message)"), Outcome::Ok(1)];
    assert_eq!(run(2, tasks), expected);
}

/// The seed keeps results in a map by id: the second task with an id overwrites the first.
#[test]
fn two_tasks_with_one_id_are_refused_and_given_back() {
    let ran = Mutex::new(0);
    let task = |id: &str| {
        Task::new(id, |_| {
            *ran.lock().unwrap() += 1;
            Ok::<_, ()>(())
        })
    };
    let tasks = vec![task("a"), task("b"), task("a"), task("b")];
    let error = Dispatcher::default().run(tasks, &CancelToken::new()).unwrap_err();
    assert_eq!(error.duplicate_id(), "a");
    assert_eq!(
        error.to_string(),
        "two tasks have the id 'a'; ids are unique within a run, rename one of them"
    );
    let back = error.into_tasks();
    assert_eq!(back.iter().map(Task::id).collect::<Vec<_>>(), ["a", "b", "a", "b"]);
    assert_eq!(*ran.lock().unwrap(), 0);

    // They are whole: the caller can go on with them.
    assert_eq!(run(1, back.into_iter().take(2).collect()).len(), 2);
    assert_eq!(*ran.lock().unwrap(), 2);
}

/// The seed keeps every result of every run in one dispatcher.
#[test]
fn a_second_run_knows_nothing_of_the_first() {
    let dispatcher = Dispatcher::default();
    let task = |id: &str| vec![Task::new(id, |_| Ok::<_, ()>(()))];
    dispatcher.run(task("first"), &CancelToken::new()).unwrap();
    let second = dispatcher.run(task("second"), &CancelToken::new()).unwrap();
    assert!(second.get("first").is_none());
    assert_eq!(second.stats().tasks, 1);
}

/// The seed drops tasks that a cancelled context kept from starting: no result at all.
#[test]
fn a_task_that_never_started_is_in_the_report() {
    let cancel = CancelToken::new();
    cancel.cancel();
    let task = Task::new("a", |_| Ok::<(), ()>(()));
    let report = Dispatcher::default().run(vec![task], &cancel).unwrap();
    assert_eq!(report.get("a").unwrap().outcome, Outcome::Cancelled);
}

/// The seed's minimum is the first task's, or zero, when a task took no measurable time.
#[test]
fn a_run_in_which_nothing_ran_has_no_durations() {
    let cancel = CancelToken::new();
    cancel.cancel();
    let task = Task::new("a", |_| Ok::<(), ()>(()));
    let report = Dispatcher::default().run(vec![task], &cancel).unwrap();
    assert_eq!((report.stats().min, report.stats().avg), (None, None));
}

/// aws-samples/sample-autonomous-cloud-coding-agents#331: tasks over the limit fail instead of waiting.
#[test]
fn tasks_over_the_limit_wait_their_turn() {
    let tasks = (0..11).map(|n| Task::new(n.to_string(), move |_| Ok::<_, ()>(n))).collect();
    assert!(run(10, tasks).iter().all(Outcome::is_ok));
}

/// A destructor that panics must not take the run along either.
#[test]
fn a_panicking_destructor_is_contained() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("destructor"));
        }
    }
    let armed = |id: &str| {
        let bomb = Bomb;
        Task::new(id, move |_| -> Result<(), ()> {
            let _hold = &bomb;
            Err(())
        })
    };
    // In a task that ran, in one that was skipped, and in the payload of a panic.
    let payload = Task::new("payload", |_| std::panic::resume_unwind(Box::new(Bomb)));
    let dispatcher = Dispatcher::builder().max_concurrency(1).policy(Policy::FailFast).build();
    let report = dispatcher.run(vec![payload, armed("a")], &CancelToken::new()).unwrap();
    assert_eq!(report.records()[0].outcome, Outcome::Panicked("(no message)".to_owned()));
    assert_eq!(report.records()[1].outcome, Outcome::Skipped { because: "payload".to_owned() });
    assert_eq!(run(1, vec![armed("b")]), [Outcome::Panicked("destructor".to_owned())]);
}

/// `?` into the usual error types needs an error that is `Send` and `Sync`.
#[test]
fn the_error_travels_with_the_question_mark() {
    fn refused() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let task = || Task::new("a", |_| Ok::<(), ()>(()));
        Dispatcher::default().run(vec![task(), task()], &CancelToken::new())?;
        Ok(())
    }
    assert!(refused().unwrap_err().to_string().contains("'a'"));
}

/// A task that answers to a cancelled run with an error was named as the reason why others were skipped.
#[test]
fn a_cancelled_run_has_no_culprit() {
    let cancel = CancelToken::new();
    let waits = Task::new("waits", |token: &CancelToken| {
        cancel.cancel();
        if token.is_cancelled() { Err(()) } else { Ok(()) }
    });
    let dispatcher = Dispatcher::builder().max_concurrency(1).policy(Policy::FailFast).build();
    let report = dispatcher.run(vec![waits, Task::new("next", |_| Ok(()))], &cancel).unwrap();
    assert_eq!(report.get("waits").unwrap().outcome, Outcome::Err(()));
    assert_eq!(report.get("next").unwrap().outcome, Outcome::Cancelled);
}
