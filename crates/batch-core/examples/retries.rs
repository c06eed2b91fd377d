//! A service that is busy at first and chokes on one item: what is retried, and what is split.
#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use batch_core::{BatchOf, BatchProcessor, Batcher, Disposition, Retry};

#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("the service is busy")]
    Busy,
    #[error("the service does not take the batch")]
    Rejected,
}

#[derive(Default)]
struct Service {
    calls: AtomicU32,
}

impl BatchProcessor for Service {
    type Key = ();
    type Item = u32;
    type Output = u32;
    type Error = Fault;

    fn key(&self, _: &u32) {}

    fn process(&self, (): &(), batch: BatchOf<Self>) {
        if self.calls.fetch_add(1, Ordering::Relaxed) == 0 {
            batch.fail_all(Fault::Busy);
        } else if batch.items().contains(&13) {
            batch.fail_all(Fault::Rejected);
        } else {
            batch.resolve_all(batch.items().iter().map(|item| Ok(item * 10)).collect());
        }
    }

    fn classify(&self, fault: &Fault) -> Disposition {
        match fault {
            Fault::Busy => Disposition::Retry { after: None },
            Fault::Rejected => Disposition::Split,
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let retry = Retry::default().base(Duration::from_millis(10)).max_attempts(5);
    let batcher = Batcher::builder(Service::default()).full_only().retry(retry).build()?;

    let outcomes = batcher.submit_all(0..100)?.wait();
    let failed: Vec<_> = (0..).zip(&outcomes).filter(|(_, outcome)| outcome.is_err()).collect();
    for (item, outcome) in &failed {
        println!("item {item}: {outcome:?}");
    }
    let stats = batcher.stats();
    println!("{} calls: {} retries, {} halves", stats.calls, stats.retries, stats.splits);
    assert!(matches!(failed[..], [(13, _)]));
    assert_eq!(stats.completed, 99);
    // The first call, its retry, and at most two for each of the seven halvings of a hundred.
    assert!(stats.calls <= 16);
    Ok(())
}
