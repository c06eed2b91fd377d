//! Callers that go away.

use std::time::Duration;

use super::{ask, in_runtime, until};
use crate::candidate::{Candidate, Part};
use crate::engine::Setup;
use crate::script::{Act, Script, answer};
use crate::verdict::Verdict;

/// T3: an item that was taken back while it lingered is not executed.
pub(super) fn cancel(engine: &Candidate) -> Verdict {
    if engine.lacks(Part::Linger) {
        return Verdict::absent("no timer: sent at once");
    }
    in_runtime(async {
        let script = Script::new(Act::Answer);
        let running = engine.start(Setup::default(), &script);
        let other = tokio::spawn(ask(running.call(0, 2)));
        running.call_and_cancel(1).await;
        let replied = other.await;
        until(|| script.saw(2)).await;
        // Behind everything that was submitted before.
        let last = ask(running.call(0, 3)).await;
        let is_alive = last == Ok(answer(3)) && matches!(replied, Ok(Ok(_)));
        match (script.saw(1), is_alive) {
            (false, true) => Verdict::of(true, ""),
            (true, _) => Verdict::of(false, "executed"),
            (false, false) => Verdict::of(false, "others are lost too"),
        }
    })
}

/// T4: nobody holds the engine any more, and a caller still waits.
pub(super) fn last_handle(engine: &Candidate) -> Verdict {
    in_runtime(async {
        let script = Script::new(Act::Answer);
        let running = engine.start(Setup::default(), &script);
        let mut call = running.call(0, 1);
        // Long enough for every engine to have the item, far too short for its linger.
        let early = tokio::time::timeout(Duration::from_millis(30), &mut call).await;
        drop(running);
        let reply = match early {
            Ok(reply) => reply,
            Err(_) => ask(call).await,
        };
        match reply {
            Ok(value) => Verdict::of(value == answer(1), ""),
            Err(error) => Verdict::of(false, format!("lost: {error}")),
        }
    })
}
