//! When a batch that is not full is sent.

use std::time::{Duration, Instant};

use super::{ask, in_runtime, until};
use crate::candidate::{Candidate, Part};
use crate::engine::Setup;
use crate::script::{Act, Script};
use crate::verdict::Verdict;

/// More items, one after the other, than fit into many lingers.
const TRICKLE: u64 = 30;

/// How far apart these are.
const APART: Duration = Duration::from_millis(60);

/// T1: items that come more often than the linger must not put off the first one.
pub(super) fn trickle(engine: &Candidate) -> Verdict {
    in_runtime(async {
        let script = Script::new(Act::Answer);
        let setup = Setup { max_items: 1_000, ..Setup::default() };
        let running = engine.start(setup, &script);
        let submitted = Instant::now();
        tokio::spawn(ask(running.call(0, 0)));
        for item in 1..TRICKLE {
            tokio::time::sleep(APART).await;
            if !script.ran().is_empty() {
                break;
            }
            tokio::spawn(ask(running.call(0, item)));
        }
        until(|| script.began(0).is_some()).await;
        // Counted in items, as a machine that is busy holds these up too: what comes in four lingers.
        let most = 1 + 4 * setup.linger.as_millis() / APART.as_millis();
        let in_time = script.ran()[0].items.len() as u128 <= most;
        let waited = script.began(0).map(|began| began - submitted).unwrap_or_default();
        if engine.lacks(Part::Linger) {
            return Verdict::Absent(format!("no timer: {} ms", waited.as_millis()));
        }
        Verdict::of(in_time, format!("{} ms", waited.as_millis()))
    })
}

/// T5: a timer that was started for a batch must not send the next one.
pub(super) fn stale_timer(engine: &Candidate) -> Verdict {
    if engine.lacks(Part::Linger) {
        return Verdict::absent("no timer");
    }
    in_runtime(async {
        let script = Script::new(Act::Answer);
        let setup = Setup::default();
        let running = engine.start(setup, &script);
        let started = Instant::now();
        for item in 0..setup.max_items as u64 {
            tokio::spawn(ask(running.call(0, item)));
        }
        until(|| !script.ran().is_empty()).await;
        tokio::time::sleep(Duration::from_millis(60).saturating_sub(started.elapsed())).await;
        let submitted = Instant::now();
        tokio::spawn(ask(running.call(0, 99)));
        until(|| script.began(99).is_some()).await;
        let waited = script.began(99).map(|began| began - submitted).unwrap_or_default();
        // A timer may be coarse, but not by a tenth.
        Verdict::of(waited >= setup.linger * 9 / 10, format!("{} ms", waited.as_millis()))
    })
}
