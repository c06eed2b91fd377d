//! Many batches of tickets that are waited for: no thread each, and no call too many.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use common::{Place, answer_with_ids, ask, plain_provider};
use llm_batch::{
    BatchError, Builder, Call, CallError, Collected, CreateError, Created, Draft, Entry,
    LaneChoice, LlmBatch, Progress, Provider, RequestError, Sink, Stop,
};
use serde_json::value::{RawValue, to_raw_value};

const BATCHES: usize = 1_000;

/// Takes every batch, and has its results once it is let go on; answers at once who is asked alone,
/// when enough are.
#[derive(Debug, Default)]
struct Slow {
    created: Mutex<usize>,
    changed: Condvar,
    has_ended: AtomicBool,
    polls: AtomicUsize,
    /// Calls that are being made, and the most there were.
    calls: AtomicUsize,
    most: AtomicUsize,
}

impl Slow {
    fn during<R>(&self, call: impl FnOnce() -> R) -> R {
        let calls = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(calls, Ordering::SeqCst);
        let returned = call();
        self.calls.fetch_sub(1, Ordering::SeqCst);
        returned
    }

    /// Counts a create or an ask; returns how many there were before.
    fn count(&self) -> usize {
        let mut created = self.created.lock().unwrap();
        *created += 1;
        self.changed.notify_all();
        *created - 1
    }

    fn wait_for(&self, count: usize) {
        let created = self.created.lock().unwrap();
        drop(self.changed.wait_while(created, |created| *created < count).unwrap());
    }
}

impl Provider for Slow {
    plain_provider!("slow");

    fn create(&self, _: &Draft<'_>, _: &str, _: &Call<'_>) -> Result<Created, CreateError> {
        self.during(|| {
            let batch_id = self.count().to_string();
            Ok(Created { batch_id, progress: Progress::Running })
        })
    }

    fn poll(&self, _: &str, _: &Call<'_>) -> Result<Progress, CallError> {
        self.during(|| {
            self.polls.fetch_add(1, Ordering::SeqCst);
            let has_ended = self.has_ended.load(Ordering::SeqCst);
            Ok(if has_ended { Progress::Ended } else { Progress::Running })
        })
    }

    fn results(
        &self,
        _: &str,
        draft: &Draft<'_>,
        _: &Call<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<Collected, CallError> {
        self.during(|| {
            answer_with_ids(draft, sink);
            Ok(Collected::default())
        })
    }

    fn answers_at_once(&self) -> bool {
        true
    }

    fn ask(&self, entry: &Entry<'_>, _: &Call<'_>) -> Result<Box<RawValue>, CreateError> {
        self.during(|| {
            // Each goes on when somebody comes after it, so that they are there together.
            let nth = self.count();
            let created = self.created.lock().unwrap();
            let patience = Duration::from_millis(20);
            let alone = |created: &mut usize| *created <= nth + 1;
            drop(self.changed.wait_timeout_while(created, patience, alone).unwrap());
            Ok(to_raw_value(entry.id).unwrap())
        })
    }
}

fn settings(provider: &Arc<Slow>, place: &Place) -> Builder {
    LlmBatch::builder(Arc::clone(provider) as _)
        .state(place.state())
        .max_items(1)
        .linger(Duration::ZERO)
        .timeout(Duration::from_mins(5))
}

/// Returns the names of the threads of this process that are the batcher's.
fn threads() -> usize {
    let name = |task: std::io::Result<fs::DirEntry>| {
        fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    let names = fs::read_dir("/proc/self/task").unwrap().filter_map(name);
    names.filter(|name| name.starts_with("llm-batch") || name.starts_with("batch-core")).count()
}

#[cfg(target_os = "linux")]
#[test]
fn a_thousand_open_batches_take_no_thread_each_and_are_polled_ever_less() {
    let (provider, place) = (Arc::new(Slow::default()), Place::quick());
    let llm = settings(&provider, &place).max_in_flight(4).build().unwrap();
    let submit = |n: usize| llm.submit(ask(&n.to_string())).unwrap();
    let tickets: Vec<_> = (0..BATCHES).map(submit).collect();
    provider.wait_for(BATCHES);
    let before = threads();
    assert!((1..=8).contains(&before), "{before}");
    let counts = llm.accounting();
    assert_eq!(counts.submissions, BATCHES as u64);
    provider.has_ended.store(true, Ordering::SeqCst);
    for (n, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(ticket.wait().unwrap().response.get(), format!("\"{n}\""));
    }
    // Each waits for two seconds at first, and half as long again each time.
    let polls = provider.polls.load(Ordering::SeqCst);
    assert!((BATCHES..=4 * BATCHES).contains(&polls), "{polls}");
    assert!(provider.most.load(Ordering::SeqCst) <= 4);
    assert_eq!(llm.accounting().succeeded, BATCHES as u64);
}

#[test]
fn batches_that_are_waited_for_end_when_somebody_says_stop() {
    let (provider, place, stop) = (Arc::new(Slow::default()), Place::quick(), Stop::new());
    // Nothing is due meanwhile.
    let settings = settings(&provider, &place).poll_interval(Duration::from_hours(1));
    let llm = settings.timeout(Duration::from_hours(2)).stop(stop.clone()).build().unwrap();
    let tickets: Vec<_> = (0..50).map(|n| llm.submit(ask(&n.to_string())).unwrap()).collect();
    provider.wait_for(50);
    stop.stop();
    for ticket in tickets {
        let ended = ticket.wait_timeout(Duration::from_mins(1)).unwrap();
        let Err(BatchError::Failed(error)) = ended else { panic!("an answer") };
        assert!(matches!(*error, RequestError::Pending { .. }), "{error}");
    }
}

#[test]
fn batches_are_waited_for_when_nobody_has_the_batcher_any_more() {
    let (provider, place) = (Arc::new(Slow::default()), Place::quick());
    let settings = settings(&provider, &place).poll_interval(Duration::from_millis(1));
    let llm = settings.build().unwrap();
    let tickets: Vec<_> = (0..20).map(|n| llm.submit(ask(&n.to_string())).unwrap()).collect();
    provider.wait_for(20);
    drop(llm);
    provider.has_ended.store(true, Ordering::SeqCst);
    for ticket in tickets {
        ticket.wait().unwrap();
    }
}

/// Each batch had as many of its own.
#[test]
fn no_more_are_asked_alone_at_a_time_than_was_set_whatever_their_batches() {
    let (provider, place) = (Arc::new(Slow::default()), Place::quick());
    let settings = settings(&provider, &place).lane(LaneChoice::Sync).max_concurrent(3);
    let llm = settings.build().unwrap();
    let tickets: Vec<_> = (0..60).map(|n| llm.submit(ask(&n.to_string())).unwrap()).collect();
    for (n, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(ticket.wait().unwrap().response.get(), format!("\"{n}\""));
    }
    let most = provider.most.load(Ordering::SeqCst);
    assert!((2..=3).contains(&most), "{most}");
}
