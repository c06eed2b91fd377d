//! What open batches take of a process: few threads, which end, and no files.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::fs;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use common::slow::{Slow, settings};
use common::stub::{Stub, stub};
use common::{Place, Simulator, ask, wait_until};
use llm_batch::{CallError, LaneChoice, LlmBatch, Progress, Request};

const BATCHES: usize = 1_000;

/// Lets one test at a time count what the process has.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns how many threads of this process are a batcher's.
fn threads() -> usize {
    let name = |task: std::io::Result<fs::DirEntry>| {
        fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    let names = fs::read_dir("/proc/self/task").unwrap().filter_map(name);
    names.filter(|name| name.starts_with("llm-batch") || name.starts_with("batch-core")).count()
}

#[test]
fn a_thousand_open_batches_take_no_thread_each() {
    let _alone = alone();
    let (provider, place) = (stub(Slow::default()), Place::quick());
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
    assert!(provider.most.load(Ordering::SeqCst) <= 4);
    assert_eq!(llm.accounting().succeeded, BATCHES as u64);
}

/// Each had one for as long as it was waited for, and a machine has some hundreds.
#[test]
fn open_batches_with_large_requests_have_no_file_each() {
    let _alone = alone();
    let simulator = Simulator::builder().running(usize::MAX).start().unwrap();
    let place = Place::quick_with(16 << 20);
    let llm = common::builder(simulator.url(), &place.state()).max_items(2);
    let llm = llm.poll_interval(Duration::from_millis(20)).build().unwrap();
    let text = |n: usize| format!("{n} {}", "x".repeat(600_000));
    let submit = |n: usize| llm.submit(Request::prompt(n.to_string(), "m", text(n))).unwrap();
    let tickets: Vec<_> = (0..8).map(submit).collect();
    wait_until(|| llm.accounting().batches == 4);
    // What is written at the moment is open too, and not for long.
    wait_until(|| {
        let files = fs::read_dir("/proc/self/fd").unwrap().map(|file| file.unwrap().path());
        let mut names = files.filter_map(|file| fs::read_link(file).ok());
        names.all(|name| {
            let stays = name.ends_with("lock") || name.ends_with("delivered.jsonl");
            stays || !name.starts_with(place.path())
        })
    });
    simulator.end_batches();
    for (n, ticket) in tickets.into_iter().enumerate() {
        let answer = ticket.wait().unwrap().text.unwrap();
        assert!(answer == format!("answer to {}", text(n)), "{n}: {} bytes", answer.len());
    }
}

/// A desk that nobody closed would pass all other tests.
#[test]
fn all_threads_end_once_the_batcher_is_dropped_and_the_last_ticket_has_its_answer() {
    let _alone = alone();
    let (provider, place) = (stub(Slow::default()), Place::quick());
    let settings = || settings(&provider, &place).poll_interval(Duration::from_millis(1));
    // With none open.
    let llm = settings().build().unwrap();
    wait_until(|| threads() > 0);
    drop(llm);
    wait_until(|| threads() == 0);
    // With some that are waited for, and some that are asked alone.
    let llm = settings().lane(LaneChoice::Auto).build().unwrap();
    let soon = SystemTime::now() + Duration::from_mins(5);
    let open: Vec<_> = (0..20).map(|n| llm.submit(ask(&n.to_string())).unwrap()).collect();
    let urgent = |n: usize| ask(&format!("urgent {n}")).with_deadline(soon);
    let asked: Vec<_> = (0..20).map(|n| llm.submit(urgent(n)).unwrap()).collect();
    provider.wait_for(40);
    drop(llm);
    assert!(threads() > 0);
    provider.has_ended.store(true, Ordering::SeqCst);
    for ticket in open.into_iter().chain(asked) {
        ticket.wait().unwrap();
    }
    wait_until(|| threads() == 0);
}

/// Takes batches and panics when it is asked how far they are.
#[derive(Debug)]
struct Panics;

impl Stub for Panics {
    fn poll(&self, batch_id: &str) -> Result<Progress, CallError> {
        assert!(batch_id != "panics", "the provider's");
        Ok(Progress::Ended)
    }
}

/// With one thread: it works on after the panic, and ends all the same.
#[test]
fn a_panic_in_one_batch_leaves_the_others_going_and_no_thread_behind() {
    let _alone = alone();
    let place = Place::quick();
    let llm = LlmBatch::builder(stub(Panics))
        .state(place.state())
        .max_items(1)
        .max_in_flight(1)
        .linger(Duration::ZERO)
        .poll_interval(Duration::from_millis(1))
        .build()
        .unwrap();
    let submit = |id: &str| llm.submit(ask(id)).unwrap();
    let tickets = ["one", "panics", "two", "three"].map(|id| (id, submit(id)));
    drop(llm);
    for (id, ticket) in tickets {
        let ended = ticket.wait_timeout(Duration::from_mins(1)).unwrap();
        assert_eq!(ended.is_err(), id == "panics", "{id}: {ended:?}");
    }
    wait_until(|| threads() == 0);
}
