//! A processor that panics, hangs on itself, or is given an item it cannot do.

use std::sync::Arc;

use super::{PANICKED, ask, ask_all, in_runtime};
use crate::candidate::Candidate;
use crate::engine::{Reply, Setup};
use crate::script::{Act, Script, answer};
use crate::verdict::Verdict;

/// T2: a panic ends the batch, neither its callers nor the engine.
pub(super) fn panic(engine: &Candidate) -> Verdict {
    in_runtime(async {
        let script = Script::new(Act::PanicOver(0));
        let running = engine.start(Setup::default(), &script);
        let first = ask_all(running.call_together((0..3).collect())).await;
        let second = ask(running.call(0, 7)).await;
        let mut seen = Vec::new();
        if first.iter().any(is_panic) {
            seen.push("callers panic");
        }
        if first.iter().any(Result::is_ok) {
            seen.push("an answer that nobody gave");
        }
        match second {
            Ok(value) if value == answer(7) => {}
            reply if is_panic(&reply) => seen.push("engine dead, the next caller panics"),
            _ => seen.push("engine dead"),
        }
        Verdict::of(seen.is_empty(), seen.join(", "))
    })
}

fn is_panic(reply: &Reply) -> bool {
    reply.as_ref().is_err_and(|error| error == PANICKED)
}

/// T10: whether it is answered or refused does not matter, as long as it ends.
pub(super) fn reentry(engine: &Candidate) -> Verdict {
    in_runtime(async {
        let script = Script::new(Act::Reenter);
        let running = engine.start(Setup::default(), &script);
        script.reenter_into(Arc::clone(&running));
        let outer = ask(running.call(0, 1)).await;
        let inner = match script.inner() {
            Some(Ok(value)) if value == answer(2) => "answered",
            Some(Err(_)) => "refused",
            _ => "wrong",
        };
        Verdict::of(outer == Ok(answer(1)) && inner != "wrong", inner)
    })
}

/// T11: seven good items need not fail with one bad.
pub(super) fn poison(engine: &Candidate) -> Verdict {
    in_runtime(async {
        let script = Script::new(Act::FailOver(3));
        let running = engine.start(Setup::default(), &script);
        let replies = ask_all(running.call_together((0..8).collect())).await;
        let good = (0..).zip(&replies).filter(|(item, reply)| **reply == Ok(answer(*item))).count();
        let calls = script.ran().len();
        let seen = format!("{good} of 7 survive, calls: {calls}");
        Verdict::of(good == 7 && replies[3].is_err(), seen)
    })
}
