//! A provider whose batches take as long as a test wants.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use llm_batch::{
    Builder, CallError, Collected, CreateError, Created, Draft, Entry, LlmBatch, Progress, Sink,
};
use serde_json::value::{RawValue, to_raw_value};

use super::Place;
use super::stub::{Stub, Stubbed, answer_with_ids};

/// Takes every batch, and has its results once it is let go on; answers at once who is asked alone,
/// when enough are.
#[derive(Debug, Default)]
pub struct Slow {
    pub created: Mutex<usize>,
    changed: Condvar,
    pub has_ended: AtomicBool,
    /// Calls that are being made, and the most there were.
    calls: AtomicUsize,
    pub most: AtomicUsize,
}

impl Slow {
    fn during<R>(&self, call: impl FnOnce() -> R) -> R {
        let calls = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(calls, Ordering::SeqCst);
        let returned = call();
        self.calls.fetch_sub(1, Ordering::SeqCst);
        returned
    }

    /// Counts a create or an ask; returns how many there were before.
    fn count(&self) -> usize {
        let mut created = self.created.lock().unwrap();
        *created += 1;
        self.changed.notify_all();
        *created - 1
    }

    pub fn wait_for(&self, count: usize) {
        let created = self.created.lock().unwrap();
        drop(self.changed.wait_while(created, |created| *created < count).unwrap());
    }
}

impl Stub for Slow {
    fn create(&self, _: &Draft<'_>) -> Result<Created, CreateError> {
        self.during(|| {
            let batch_id = self.count().to_string();
            Ok(Created { batch_id, progress: Progress::Running })
        })
    }

    fn poll(&self, _: &str) -> Result<Progress, CallError> {
        self.during(|| {
            let has_ended = self.has_ended.load(Ordering::SeqCst);
            Ok(if has_ended { Progress::Ended } else { Progress::Running })
        })
    }

    fn results(
        &self,
        _: &str,
        draft: &Draft<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<Collected, CallError> {
        self.during(|| {
            answer_with_ids(draft, sink);
            Ok(Collected::default())
        })
    }

    fn ask(&self, entry: &Entry<'_>) -> Result<Box<RawValue>, CreateError> {
        self.during(|| {
            // Each goes on when somebody comes after it, so that they are there together.
            let nth = self.count();
            let created = self.created.lock().unwrap();
            let patience = Duration::from_millis(20);
            let alone = |created: &mut usize| *created <= nth + 1;
            drop(self.changed.wait_timeout_while(created, patience, alone).unwrap());
            Ok(to_raw_value(entry.id).unwrap())
        })
    }
}

pub fn settings(provider: &Arc<Stubbed<Slow>>, place: &Place) -> Builder {
    LlmBatch::builder(Arc::clone(provider) as _)
        .state(place.state())
        .max_items(1)
        .linger(Duration::ZERO)
        .timeout(Duration::from_mins(5))
}
