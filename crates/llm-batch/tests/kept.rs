//! An answer that is paid for is on the disk, whatever else the batcher is at.

#![allow(clippy::unwrap_used, reason = "a helper of tests is not seen as a test")]

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use common::steps::Steps;
use common::stub::{Stub, stub};
use common::{Place, ask, wait_until};
use llm_batch::{CreateError, Created, Draft, Entry, LaneChoice, LlmBatch, Progress};
use serde_json::value::{RawValue, to_raw_value};

/// Answers and creates when it is told to.
#[derive(Debug, Default)]
struct Gated(Steps);

impl Stub for Gated {
    fn create(&self, _: &Draft<'_>) -> Result<Created, CreateError> {
        self.0.reach("creates");
        self.0.wait_for("may create");
        Ok(Created { batch_id: "b".to_owned(), progress: Progress::Ended })
    }

    fn ask(&self, entry: &Entry<'_>) -> Result<Box<RawValue>, CreateError> {
        self.0.reach("asks");
        self.0.wait_for("may answer");
        Ok(to_raw_value(entry.id).unwrap())
    }
}

fn answer_files(state: &Path) -> usize {
    let names = fs::read_dir(state).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".answer.json")).count()
}

#[test]
fn an_answer_is_kept_while_every_thread_is_at_another_batch() {
    let (provider, place) = (stub(Gated::default()), Place::quick());
    let llm = LlmBatch::builder(Arc::clone(&provider) as _)
        .state(place.state())
        .lane(LaneChoice::Auto)
        .max_items(1)
        .max_in_flight(1)
        .linger(Duration::ZERO)
        .build()
        .unwrap();
    let soon = SystemTime::now() + Duration::from_mins(10);
    let urgent = llm.submit(ask("urgent").with_deadline(soon)).unwrap();
    provider.0.wait_for("asks");
    let other = llm.submit(ask("other")).unwrap();
    provider.0.wait_for("creates");
    provider.0.reach("may answer");
    // The answer waits for no thread.
    wait_until(|| answer_files(&place.state()) > 0);
    provider.0.reach("may create");
    assert_eq!(urgent.wait().unwrap().response.get(), "\"urgent\"");
    assert_eq!(other.wait().unwrap().response.get(), "\"other\"");
}
