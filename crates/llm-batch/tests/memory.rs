//! How much memory a large run takes, both ways, and what tickets take that are waited for. Linux only: the
//! peak is read from `/proc`.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]
#![allow(clippy::print_stdout, reason = "the child tells its parent what it measured")]

mod common;

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::stub::{Stub, stub};
use common::{Place, builder, wait_until};
use llm_batch::{
    Body, CallError, CreateError, Created, Draft, LlmBatch, Progress, Request, RequestError,
};
use llm_simulator::{Said, Simulator};
use serde_json::value::{RawValue, to_raw_value};

const BODY: usize = 2_400;
/// What it is on the wire: four of thirty bytes are escaped, and there is an envelope.
const ON_THE_WIRE: usize = BODY / 30 * 34 + 200;

/// The most memory that this process ever had, in KiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Returns what a process that ended well has measured.
fn kib_above_idle(child: &Output) -> usize {
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said} {}", String::from_utf8_lossy(&child.stderr));
    let (_, rest) = said.split_once("peak ").unwrap();
    rest.split_once(" KiB").unwrap().0.parse().unwrap()
}

/// Not a test by itself: the process that is measured.
#[test]
fn child() {
    let (Some(url), Some(state)) = (env::var_os("CHILD_URL"), env::var_os("CHILD_STATE")) else {
        return;
    };
    let count: usize = env::var("CHILD_COUNT").unwrap().parse().unwrap();
    let llm = builder(url.to_str().unwrap(), &PathBuf::from(state))
        .timeout(Duration::from_mins(20))
        .build()
        .unwrap();
    let idle = peak();
    let text = "fn main() { println!(\"\\n\"); }\n".repeat(BODY / 30);
    let requests = (0..count).map(|n| Request::prompt(n.to_string(), "m", format!("{n} {text}")));
    let mut answered = 0;
    let run = llm.run(requests, |id, outcome| {
        let answer = outcome.unwrap();
        assert!(answer.text.unwrap().starts_with(&format!("{id} ")));
        answered += 1;
    });
    assert_eq!((answered, run.unwrap().accounting.failed), (count, 0));
    println!("peak {} KiB above {idle} KiB", peak() - idle);
}

/// The bodies and the answers are `MEMORY_MB` each way (24 unless said otherwise), and what is kept
/// of them is a fraction.
#[test]
fn a_large_run_takes_a_fraction_of_its_bodies_in_memory() {
    let megabytes: usize =
        env::var("MEMORY_MB").ok().map_or(24, |megabytes| megabytes.parse().unwrap());
    let count = megabytes * 1_000_000 / ON_THE_WIRE;
    let simulator = Simulator::builder()
        .limits(usize::MAX, usize::MAX)
        .model(|question| Said::text(question.text.clone()))
        .start()
        .unwrap();
    simulator.server().forget_bodies();
    let place = Place::new();
    let child = Command::new(env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env("CHILD_URL", simulator.url())
        .env("CHILD_STATE", place.state())
        .env("CHILD_COUNT", count.to_string())
        .output()
        .unwrap();
    let kib = kib_above_idle(&child);
    println!("{count} requests, {megabytes} MB each way: {kib} KiB above idle");
    // A fixed part, and so much a request that 256 MB each way stay below 48 MiB.
    let most = 10 * 1024 + megabytes * 150;
    assert!(kib <= most, "{kib} KiB for {count} requests; {most} KiB are the most");
}

/// Takes batches whose bodies begin with the ids, and has them run on until it is told to end.
#[derive(Debug, Default)]
struct Waits {
    sent: AtomicUsize,
    has_ended: AtomicBool,
}

impl Stub for Waits {
    fn encode(&self, request: &Request) -> Result<Box<RawValue>, RequestError> {
        let Body::Prompt(text) = &request.body else { panic!("{request:?}") };
        Ok(to_raw_value(text).unwrap())
    }

    fn create(&self, draft: &Draft<'_>) -> Result<Created, CreateError> {
        for entry in draft.entries() {
            assert!(entry.body().unwrap().get().starts_with(&format!("\"{} ", entry.id)));
            self.sent.fetch_add(1, Ordering::SeqCst);
        }
        Ok(Created { batch_id: "b".to_owned(), progress: Progress::Running })
    }

    fn poll(&self, _: &str) -> Result<Progress, CallError> {
        let has_ended = self.has_ended.load(Ordering::SeqCst);
        Ok(if has_ended { Progress::Ended } else { Progress::Running })
    }
}

/// 2,000 unless `TICKETS` says otherwise.
fn count_of_tickets() -> usize {
    env::var("TICKETS").ok().map_or(2_000, |count| count.parse().unwrap())
}

const TICKET_BODY: usize = 20_000;

/// Not a test by itself: the process that is measured.
#[test]
fn child_of_tickets() {
    let Some(state) = env::var_os("CHILD_OF_TICKETS") else { return };
    let provider = stub(Waits::default());
    let llm = LlmBatch::builder(Arc::clone(&provider) as _)
        .state(PathBuf::from(state))
        .linger(Duration::ZERO)
        .poll_interval(Duration::from_millis(100))
        .build()
        .unwrap();
    let idle = peak();
    let text = "x".repeat(TICKET_BODY);
    let mut tickets = Vec::new();
    while tickets.len() < count_of_tickets() {
        let n = tickets.len();
        let request = Request::prompt(n.to_string(), "m", format!("{n} {text}"));
        tickets.push(llm.submit(request).unwrap());
        if tickets.len() % 100 == 0 {
            wait_until(|| provider.sent.load(Ordering::SeqCst) == tickets.len());
        }
    }
    println!("peak {} KiB above {idle} KiB", peak() - idle);
    provider.has_ended.store(true, Ordering::SeqCst);
    for (n, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(ticket.wait().unwrap().response.get(), format!("\"{n}\""));
    }
}

/// They were in memory as a whole until they had an answer, which may take a day.
#[test]
fn tickets_that_are_waited_for_have_their_bodies_in_the_state_folder() {
    let place = Place::quick_with(64 << 20);
    let child = Command::new(env::current_exe().unwrap())
        .args(["child_of_tickets", "--exact", "--nocapture"])
        .env("CHILD_OF_TICKETS", place.state())
        .output()
        .unwrap();
    let kib = kib_above_idle(&child);
    let count = count_of_tickets();
    println!("{count} tickets of {TICKET_BODY} bytes: {kib} KiB above idle");
    let most = count * TICKET_BODY / 1024 / 2;
    assert!(kib <= most, "{kib} KiB; {most} KiB are the most");
    let left = fs::read_dir(place.state()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().contains("bodies")));
}
