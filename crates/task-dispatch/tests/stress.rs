//! Many tasks that end in every way there is: exactly one outcome each.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use proptest::prelude::*;
use task_dispatch::{CancelToken, Dispatcher, Outcome, Policy, Task};

#[test]
fn a_hundred_thousand_tasks_have_one_outcome_each() {
    const TASKS: usize = 100_000;
    const CANCEL_AT: usize = 90_000;
    let cancel = CancelToken::new();
    let runs: Vec<AtomicU32> = (0..TASKS).map(|_| AtomicU32::new(0)).collect();
    let (now, peak) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let tasks = (0..TASKS).map(|n| {
        let (cancel, runs, now, peak) = (&cancel, &runs, &now, &peak);
        Task::new(n.to_string(), move |_| {
            runs[n].fetch_add(1, Ordering::Relaxed);
            peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            if n == CANCEL_AT {
                cancel.cancel();
            }
            now.fetch_sub(1, Ordering::SeqCst);
            match n % 100 {
                // Without the panic hook, which would print a thousand messages.
                0 => std::panic::resume_unwind(Box::new(n.to_string())),
                1 => Err(n),
                _ => Ok(n),
            }
        })
    });
    let dispatcher = Dispatcher::builder().max_concurrency(8).build();
    let report = dispatcher.run(tasks.collect(), &cancel).unwrap();

    assert!(peak.into_inner() <= 8);
    assert_eq!(report.records().len(), TASKS);
    let mut early = 0;
    for (n, record) in report.records().iter().enumerate() {
        assert_eq!(record.id, n.to_string());
        let ran = runs[n].load(Ordering::Relaxed);
        assert_eq!(ran, u32::from(record.outcome.has_run()));
        match &record.outcome {
            Outcome::Cancelled => early += usize::from(n < CANCEL_AT),
            Outcome::Panicked(message) => assert_eq!((message, n % 100), (&n.to_string(), 0)),
            Outcome::Err(value) => assert_eq!((*value, n % 100), (n, 1)),
            Outcome::Ok(value) => assert!(*value == n && n % 100 > 1),
            other => panic!("unexpected: {other:?}"),
        }
    }
    assert!(early < 8, "tasks are taken in order, so at most one for each other worker");
    let stats = report.stats();
    assert_eq!(stats.completed() + stats.cancelled, TASKS);
    assert!(stats.cancelled > 0 && stats.panicked > 0 && stats.failed > 0);
}

#[derive(Clone, Copy, Debug)]
enum Plan {
    Succeed,
    Fail,
    Panic,
    Cancel,
    CancelAndFail,
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// One worker takes tasks in order, so a plain loop predicts every outcome.
    #[test]
    fn one_worker_agrees_with_a_loop(
        plans in proptest::collection::vec(
            prop_oneof![
                6 => Just(Plan::Succeed), 1 => Just(Plan::Fail),
                1 => Just(Plan::Panic), 1 => Just(Plan::Cancel), 1 => Just(Plan::CancelAndFail),
            ],
            0..40,
        ),
        fail_fast: bool,
    ) {
        let cancel = CancelToken::new();
        let tasks = plans.iter().enumerate().map(|(n, &plan)| {
            let cancel = &cancel;
            Task::new(n.to_string(), move |_| match plan {
                Plan::Succeed => Ok(n),
                Plan::Fail => Err(n),
                Plan::Panic => std::panic::resume_unwind(Box::new("oh")),
                Plan::Cancel => { cancel.cancel(); Ok(n) }
                Plan::CancelAndFail => { cancel.cancel(); Err(n) }
            })
        });
        let policy = if fail_fast { Policy::FailFast } else { Policy::Continue };
        let dispatcher = Dispatcher::builder().max_concurrency(1).policy(policy).build();
        let report = dispatcher.run(tasks.collect(), &cancel).unwrap();

        let (mut cancelled, mut culprit) = (false, None);
        for (n, (plan, record)) in plans.iter().zip(report.records()).enumerate() {
            let expected = match (&culprit, cancelled, plan) {
                (Some(id), _, _) => Outcome::Skipped { because: String::clone(id) },
                (None, true, _) => Outcome::Cancelled,
                (None, false, Plan::Succeed | Plan::Cancel) => Outcome::Ok(n),
                (None, false, Plan::Fail | Plan::CancelAndFail) => Outcome::Err(n),
                (None, false, Plan::Panic) => Outcome::Panicked("oh".to_owned()),
            };
            prop_assert_eq!(&record.outcome, &expected);
            cancelled |=
                matches!(plan, Plan::Cancel | Plan::CancelAndFail) && expected.has_run();
            if fail_fast && !cancelled && culprit.is_none() && expected.has_run() && !expected.is_ok() {
                culprit = Some(n.to_string());
            }
        }
    }
}
