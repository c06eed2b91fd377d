//! What an engine leaves behind.

use super::{ask, ask_all, in_runtime};
use crate::candidate::Candidate;
use crate::engine::Setup;
use crate::script::{Act, Script, answer};
use crate::verdict::Verdict;

/// T9: the runtime of the first engine is gone when the second starts.
pub(super) fn second_runtime(engine: &Candidate) -> Verdict {
    let works = || {
        in_runtime(async {
            let running = engine.start(Setup::default(), &Script::new(Act::Answer));
            ask(running.call(0, 1)).await
        })
    };
    let (first, second) = (works(), works());
    match (first, second) {
        (Ok(first), Ok(second)) => Verdict::of([first, second] == [answer(1); 2], ""),
        (Err(error), _) | (_, Err(error)) => Verdict::of(false, error),
    }
}

/// Calls in one batch.
const BATCH: u64 = 100;

/// Calls before the first look at the memory, so that what is kept for reuse is there.
const WARM_UP: u64 = 100_000;

const CALLS: u64 = 200_000;

/// Growth in bytes a call that says nothing: the system counts in pages, and allocators keep some.
const NOISE: u64 = 16;

/// L1: distinct items, so that a cache or a list of the failed would show.
pub(super) fn memory(engine: &Candidate) -> Verdict {
    if resident_kb().is_none() {
        return Verdict::absent("/proc/self/status is not there");
    }
    in_runtime(async {
        let setup = Setup { max_items: 100, ..Setup::default() };
        let running = engine.start(setup, &Script::without_record());
        let mut next = 0;
        let mut before = 0;
        while next < WARM_UP + CALLS {
            if next == WARM_UP {
                before = resident_kb().unwrap_or_default();
            }
            let replies = ask_all(running.call_together((next..next + BATCH).collect())).await;
            if !(next..).zip(&replies).all(|(item, reply)| *reply == Ok(answer(item))) {
                return Verdict::of(false, "wrong answers");
            }
            next += BATCH;
        }
        let grown = resident_kb().unwrap_or_default().saturating_sub(before) * 1_024 / CALLS;
        Verdict::of(grown < NOISE, format!("{grown} bytes a call"))
    })
}

/// Returns the memory of this process that is resident, where the system says so.
fn resident_kb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
