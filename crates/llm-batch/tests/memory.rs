//! How much memory a large run takes, both ways. Linux only: the peak is read from `/proc`.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]
#![allow(clippy::print_stdout, reason = "the child tells its parent what it measured")]

mod common;

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use common::{Place, builder};
use llm_batch::Request;
use llm_simulator::{Said, Simulator};

const BODY: usize = 2_400;
/// What it is on the wire: four of thirty bytes are escaped, and there is an envelope.
const ON_THE_WIRE: usize = BODY / 30 * 34 + 200;

/// The most memory that this process ever had, in KiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Not a test by itself: the process that is measured.
#[test]
fn child() {
    let (Some(url), Some(state)) = (env::var_os("CHILD_URL"), env::var_os("CHILD_STATE")) else {
        return;
    };
    let count: usize = env::var("CHILD_COUNT").unwrap().parse().unwrap();
    let llm = builder(url.to_str().unwrap(), &PathBuf::from(state))
        .timeout(std::time::Duration::from_mins(20))
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
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{said} {}", String::from_utf8_lossy(&child.stderr));
    let (_, rest) = said.split_once("peak ").unwrap();
    let kib: usize = rest.split_once(" KiB").unwrap().0.parse().unwrap();
    println!("{count} requests, {megabytes} MB each way: {kib} KiB above idle");
    // A fixed part, and so much a request that 256 MB each way stay below 48 MiB.
    let most = 10 * 1024 + megabytes * 150;
    assert!(kib <= most, "{kib} KiB for {count} requests; {most} KiB are the most");
}
