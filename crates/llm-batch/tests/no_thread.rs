//! A system that has no thread for a request that is to be asked alone.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::stub::{Stub, stub};
use common::{Place, ask, run};
use llm_batch::{CreateError, Entry, Error, LaneChoice, LlmBatch, PendingReason};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::value::{RawValue, to_raw_value};

#[derive(Debug, Default)]
struct Counted(AtomicUsize);

impl Stub for Counted {
    fn ask(&self, entry: &Entry<'_>) -> Result<Box<RawValue>, CreateError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(to_raw_value(entry.id).unwrap())
    }
}

/// Sets how much address space this process may have.
fn limit(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current: bytes.or(maximum), maximum }).unwrap();
}

/// Not a test by itself: the process that has no room for the stack of one more thread.
#[test]
fn child() {
    let Some(dir) = env::var_os("CHILD_DIR") else { return };
    let provider = stub(Counted::default());
    let llm = LlmBatch::builder(Arc::clone(&provider) as _)
        .state(PathBuf::from(dir))
        .lane(LaneChoice::Sync)
        .poll_interval(Duration::from_millis(1))
        .build()
        .unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let size: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    limit(Some(size * 1024 + 512 * 1024));
    let (outcomes, ended) = run(&llm, [ask("a")]);
    limit(None);
    assert!(outcomes.is_empty());
    let Err(Error::Pending { reason: PendingReason::Unreachable { reason }, .. }) = ended else {
        panic!("{ended:?}")
    };
    assert!(reason.contains("cannot start a thread"), "{reason}");
    assert_eq!(provider.0.load(Ordering::SeqCst), 0);
    let (outcomes, ended) = run(&llm, [ask("a")]);
    assert_eq!(outcomes[0].1.as_ref().unwrap().response.get(), "\"a\"");
    assert_eq!(ended.unwrap().accounting.possibly_paid_twice, 0);
    assert_eq!(provider.0.load(Ordering::SeqCst), 1);
}

/// It panicked after the intent was written: the request counted as sent, and as lost for good.
#[test]
fn a_request_for_which_there_is_no_thread_was_not_sent() {
    let place = Place::quick();
    let ended = Command::new(env::current_exe().unwrap())
        .args(["child", "--exact"])
        .env("CHILD_DIR", place.state())
        // A stack is larger than the room that is left.
        .env_remove("RUST_MIN_STACK")
        // So that what is needed besides stacks is there already.
        .env("MALLOC_ARENA_MAX", "1")
        .env("MALLOC_TOP_PAD_", "16777216")
        .output()
        .unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let state = fs::read_dir(place.state()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(state.into_iter().any(|name| name == "000001.intent.json"));
}
