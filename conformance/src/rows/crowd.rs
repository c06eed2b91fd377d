//! More than there is room for.

use std::sync::Arc;
use std::time::Duration;

use super::{ask_all, in_runtime};
use crate::candidate::{Candidate, Part};
use crate::engine::{Call, Setup};
use crate::script::{Act, Script, answer};
use crate::verdict::Verdict;

/// Batches that may run together: a small multiple of what a machine has.
const MOST: usize = 16;

/// T12: each key has a batch of its own, and none of them ends before all are submitted.
pub(super) fn keys(engine: &Candidate) -> Verdict {
    if engine.lacks(Part::Keys) {
        return Verdict::absent("no keys");
    }
    in_runtime(async {
        let script = Script::new(Act::Hold);
        let running = engine.start(Setup::default(), &script);
        let calls: Vec<Call> = (0..500).map(|key| running.call(key, key)).collect();
        open_later(&script);
        let replies = ask_all(calls).await;
        let right = (0..).zip(&replies).all(|(item, reply)| *reply == Ok(answer(item)));
        let peak = script.peak();
        Verdict::of(right && peak <= MOST, format!("{peak} at once"))
    })
}

/// T13: a slow key, and callers that would rather wait than be refused.
pub(super) fn full(engine: &Candidate) -> Verdict {
    if engine.lacks(Part::Bound) {
        return Verdict::absent("no bound");
    }
    in_runtime(async {
        let script = Script::new(Act::Hold);
        let setup = Setup { capacity: 30, ..Setup::default() };
        let running = engine.start(setup, &script);
        let calls: Vec<Call> = (0..200).map(|item| running.call(0, item)).collect();
        open_later(&script);
        let replies = ask_all(calls).await;
        let refused = replies.iter().filter(|reply| reply.is_err()).count();
        let right =
            (0..).zip(&replies).all(|(item, reply)| reply.is_err() || *reply == Ok(answer(item)));
        let seen = if refused == 0 { String::new() } else { format!("{refused} rejected") };
        Verdict::of(right && refused == 0, seen)
    })
}

/// Lets the batches go on after several lingers.
fn open_later(script: &Arc<Script>) {
    let script = Arc::clone(script);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(600)).await;
        script.open();
    });
}
