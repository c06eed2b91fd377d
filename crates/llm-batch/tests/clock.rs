//! A clock that jumps while requests are under way.
//!
//! A library that is loaded before all others moves the clock of a child process, so that nothing of the
//! machine is changed.
#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};
use std::{env, fs};

use common::{Place, ask, builder, run};
use jiff::{Timestamp, ToSpan};
use llm_simulator::{Endpoint, Reply, Simulator};

/// Adds what stands in a file, in seconds, to the time of day.
const SHIM: &str = r#"
#include <stdlib.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *at) {
    long failed = syscall(SYS_clock_gettime, id, at);
    const char *path = getenv("CLOCK_OFFSET");
    FILE *file = failed || id != CLOCK_REALTIME || !path ? NULL : fopen(path, "r");
    long seconds;
    if (file) {
        if (fscanf(file, "%ld", &seconds) == 1) at->tv_sec += seconds;
        fclose(file);
    }
    return (int)failed;
}
"#;

fn compiled(dir: &Path) -> PathBuf {
    let (source, library) = (dir.join("shim.c"), dir.join("shim.so"));
    fs::write(&source, SHIM).unwrap();
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let done = Command::new(compiler)
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status()
        .unwrap();
    assert!(done.success());
    library
}

/// Not a test by itself: what the process does whose clock jumps.
#[test]
fn child() {
    let Some(url) = env::var_os("CHILD_URL") else { return };
    let state = PathBuf::from(env::var_os("CHILD_STATE").unwrap());
    let began = SystemTime::now();
    let llm = builder(url.to_str().unwrap(), &state).build().unwrap();
    let due = ask("a").with_deadline(began + Duration::from_hours(1));
    let (outcomes, ended) = run(&llm, [due]);
    ended.unwrap();
    let text = outcomes[0].1.as_ref().unwrap().text.clone().unwrap();
    // By this clock; by any other less than a minute has passed.
    let back = began.duration_since(SystemTime::now()).unwrap_or_default();
    let said = format!("{text}, {} hours back", back.as_secs() / 3600);
    fs::write(env::var_os("CHILD_SAID").unwrap(), said).unwrap();
}

/// Fault 16: a day forward, past the deadline, and two days back. Waits and deadlines go by the clock that
/// does not jump, and dates of the provider by the provider's own.
#[test]
fn a_clock_that_jumps_by_a_day_either_way_changes_nothing() {
    let place = Place::new();
    let (offset, said) = (place.path().join("offset"), place.path().join("said"));
    fs::write(&offset, "0").unwrap();
    let jump = offset.clone();
    let simulator = Simulator::builder()
        .running(12)
        .before(move |call| {
            let to = |seconds: i64| fs::write(&jump, seconds.to_string()).unwrap();
            match (call.endpoint, call.nth) {
                (Endpoint::Poll, 2) => to(86_400),
                (Endpoint::Poll, 5) => to(-86_400),
                (Endpoint::Poll, 7) => {
                    let http = |at: Timestamp| at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
                    let now = Timestamp::now();
                    let busy = Reply::error(429, "rate_limit_error", "slow");
                    let busy = busy.with_header("date", &http(now));
                    return Some(busy.with_header("retry-after", &http(now + 1.second())));
                }
                _ => {}
            }
            None
        })
        .start()
        .unwrap();
    let ran = Command::new(env::current_exe().unwrap())
        .args(["child", "--exact"])
        .env("LD_PRELOAD", compiled(place.path()))
        .env("CLOCK_OFFSET", &offset)
        .env("CHILD_URL", simulator.url())
        .env("CHILD_STATE", place.state())
        .env("CHILD_SAID", &said)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    assert_eq!(fs::read_to_string(said).unwrap(), "answer to question a, 23 hours back");
    assert_eq!(simulator.count(Endpoint::Cancel), 0);
    assert_eq!((simulator.count(Endpoint::Create), simulator.paid().len()), (1, 1));
}
