//! The cap on the items of a batch.

use super::{ask_all, in_runtime};
use crate::candidate::Candidate;
use crate::engine::{Call, Setup};
use crate::script::{Act, Script, answer};
use crate::verdict::Verdict;

const ITEMS: u64 = 53;

/// T6: single calls, all at once.
pub(super) fn single_calls(engine: &Candidate) -> Verdict {
    in_runtime(async {
        let script = Script::new(Act::Answer);
        let running = engine.start(Setup::default(), &script);
        let calls: Vec<Call> = (0..ITEMS).map(|item| running.call(0, item)).collect();
        let replies = ask_all(calls).await;
        let right = (0..).zip(&replies).all(|(item, reply)| *reply == Ok(answer(item)));
        sizes(&script, right)
    })
}

/// T6b: one call of the API with all of them.
pub(super) fn bulk_call(engine: &Candidate) -> Verdict {
    in_runtime(async {
        let script = Script::new(Act::Answer);
        let running = engine.start(Setup::default(), &script);
        let Some(call) = running.call_bulk((0..ITEMS).collect()) else {
            return Verdict::absent("no bulk call");
        };
        let answers = call.await;
        sizes(&script, answers == Ok((0..ITEMS).map(answer).collect()))
    })
}

fn sizes(script: &Script, right: bool) -> Verdict {
    let cap = Setup::default().max_items;
    let largest = script.ran().iter().map(|ran| ran.items.len()).max().unwrap_or(0);
    match (right, largest > cap) {
        (false, _) => Verdict::of(false, "wrong answers"),
        (true, true) => Verdict::of(false, format!("a batch of {largest}")),
        (true, false) => Verdict::of(true, ""),
    }
}
