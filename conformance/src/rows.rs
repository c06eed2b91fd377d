//! The tests, by the names that they have in the table.

mod cancel;
mod crowd;
mod failure;
mod limits;
mod results;
mod runtime;
mod timer;

use std::future::Future;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::candidate::Candidate;
use crate::engine::{Call, Reply};
use crate::verdict::Verdict;

/// One test: a row of the table.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// What has to hold.
    pub(crate) title: &'static str,
    pub(crate) run: fn(&Candidate) -> Verdict,
    /// When a test that has not ended is taken for a deadlock.
    pub(crate) patience: Duration,
}

const PATIENCE: Duration = Duration::from_secs(10);

const fn row(name: &'static str, title: &'static str, run: fn(&Candidate) -> Verdict) -> Row {
    Row { name, title, run, patience: PATIENCE }
}

/// T8 is not used.
pub(crate) const ALL: [Row; 15] = [
    row("T1", "a trickle of items does not put off the linger of 100 ms", timer::trickle),
    row("T2", "a panic of the processor is an error, and the engine lives on", failure::panic),
    row("T3", "an item cancelled in time is not executed", cancel::cancel),
    row("T4", "what is pending is done when the last handle is dropped", cancel::last_handle),
    row("T5", "an item after a full batch gets its own linger of 100 ms", timer::stale_timer),
    row("T6", "53 single calls keep a cap of 10", limits::single_calls),
    row("T6b", "one bulk call of 53 keeps a cap of 10", limits::bulk_call),
    row("T7", "the last result of 5 is missing: nobody gets another's", results::last_missing),
    row("T7b", "one in the middle is missing: nobody gets another's", results::middle_missing),
    row("T9", "it works in a second runtime of the process", runtime::second_runtime),
    row("T10", "a processor that submits to its own engine does not hang", failure::reentry),
    row("T11", "one poison item among 8 fails alone", failure::poison),
    row("T12", "500 keys at once: a bound on batches that run together", crowd::keys),
    row("T13", "200 calls at once with room for 30: none is lost", crowd::full),
    Row {
        name: "L1",
        title: "memory does not grow over 200,000 calls",
        run: runtime::memory,
        patience: Duration::from_mins(2),
    },
];

/// Makes a runtime with few threads for tasks and many for callers that block.
fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(1_024)
        .enable_time()
        .build()
        .expect("a runtime can be started")
}

/// Runs a test in a runtime of its own; does not wait for what still hangs in it.
fn in_runtime<T>(test: impl Future<Output = T>) -> T {
    let runtime = runtime();
    let value = runtime.block_on(test);
    runtime.shutdown_background();
    value
}

/// Waits for a call in a task of its own: its panic is a reply.
async fn ask(call: Call) -> Reply {
    match tokio::spawn(call).await {
        Ok(reply) => reply,
        Err(error) if error.is_panic() => Err(PANICKED.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

const PANICKED: &str = "caller panics";

/// Asks all calls at once; the replies are in their order.
async fn ask_all(calls: Vec<Call>) -> Vec<Reply> {
    let tasks: Vec<_> = calls.into_iter().map(|call| tokio::spawn(ask(call))).collect();
    let mut replies = Vec::with_capacity(tasks.len());
    for task in tasks {
        replies.push(task.await.unwrap_or_else(|error| Err(error.to_string())));
    }
    replies
}

/// Waits until the condition holds; the watchdog ends it otherwise.
async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
