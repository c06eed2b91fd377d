//! What is left of keys that came and went.

use std::convert::Infallible;

use batch_core::{Batch, BatchProcessor, Batcher, keyed_fn};

use super::Fallible;
use super::clients::answer;
use crate::alloc;

/// Distinct keys of one item each.
pub(super) const KEYS: u32 = 1_000_000;

/// Keys before those that are counted, so that what is kept for reuse is there.
const WARM_UP: u32 = 20_000;

/// Keys that are there at the same time.
const TOGETHER: u32 = 1_000;

/// Returns the bytes that the engine holds after [`KEYS`] more than before; 0 if it is fewer.
pub(super) fn kept_bytes() -> Fallible<f64> {
    let processor = keyed_fn(
        |key: &u64| *key,
        |_: &u64, batch: Batch<u64, u64, Infallible>| {
            for slot in batch.slots() {
                slot.resolve(Ok(answer(*slot.item())));
            }
        },
    );
    let batcher = Batcher::builder(processor).build()?;
    come_and_go(&batcher, 0..WARM_UP)?;
    let (process, done) = alloc::count_all(|| come_and_go(&batcher, WARM_UP..WARM_UP + KEYS));
    done?;
    Ok(f64::from(i32::try_from(process.kept_bytes.max(0)).unwrap_or(i32::MAX)))
}

fn come_and_go<P>(batcher: &Batcher<P>, keys: std::ops::Range<u32>) -> Fallible
where
    P: BatchProcessor<Item = u64, Output = u64, Error = Infallible>,
{
    for first in keys.step_by(TOGETHER as usize) {
        let items = (first..first + TOGETHER).map(u64::from);
        for (item, outcome) in items.clone().zip(batcher.submit_all(items)?.wait()) {
            if outcome? != answer(item) {
                return Err(format!("a wrong answer for the key {item}").into());
            }
        }
    }
    Ok(())
}
