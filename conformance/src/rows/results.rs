//! A processor that leaves a result out.

use super::{PANICKED, ask_all, in_runtime};
use crate::candidate::{Candidate, Part};
use crate::engine::Setup;
use crate::script::{Act, Script, answer};
use crate::verdict::Verdict;

const ITEMS: u64 = 5;

const ATTEMPTS: usize = 20;

/// T7: the last one.
pub(super) fn last_missing(engine: &Candidate) -> Verdict {
    missing(engine, ITEMS - 1)
}

/// T7b: one in the middle, so that all behind it could move up.
pub(super) fn middle_missing(engine: &Candidate) -> Verdict {
    missing(engine, 2)
}

fn missing(engine: &Candidate, forgotten: u64) -> Verdict {
    if engine.lacks(Part::BatchResults) {
        return Verdict::absent("its service answers each item itself");
    }
    // An engine without a timer may send what it has before all is there.
    let verdict = (0..ATTEMPTS).find_map(|_| in_runtime(one_batch(engine, forgotten)));
    verdict.unwrap_or_else(|| Verdict::absent("no batch of 5"))
}

/// Returns the verdict if all items were in one batch.
async fn one_batch(engine: &Candidate, forgotten: u64) -> Option<Verdict> {
    let script = Script::new(Act::Forget(forgotten));
    let running = engine.start(Setup::default(), &script);
    let replies = ask_all(running.call_together((0..ITEMS).collect())).await;
    if script.ran().len() != 1 {
        return None;
    }
    let mut seen = Vec::new();
    let mut served = 0;
    for (item, reply) in (0..ITEMS).zip(replies) {
        match reply {
            Ok(value) if value == answer(item) && item != forgotten => served += 1,
            Ok(value) => seen.push(format!("{item} gets {}'s", value - answer(0))),
            Err(error) if error == PANICKED => seen.push(format!("caller {item} panics")),
            Err(_) => {}
        }
    }
    Some(if seen.is_empty() {
        Verdict::Pass(format!("{served} served, {} told", ITEMS - served))
    } else {
        Verdict::Fail(seen.join(", "))
    })
}
