//! A processor that leaves a result out.

use super::{PANICKED, ask_all, in_runtime};
use crate::candidate::{Candidate, Part};
use crate::engine::Setup;
use crate::script::{Act, Script, answer};
use crate::verdict::Verdict;

const ITEMS: u64 = 5;

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
    in_runtime(async {
        let script = Script::new(Act::Forget(forgotten));
        let running = engine.start(Setup::default(), &script);
        let replies = ask_all(running.call_together((0..ITEMS).collect())).await;
        if script.ran().len() != 1 {
            return Verdict::of(false, format!("{} batches for {ITEMS} items", script.ran().len()));
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
        if seen.is_empty() {
            return Verdict::of(true, format!("{served} served, {} told", ITEMS - served));
        }
        Verdict::of(false, seen.join(", "))
    })
}
