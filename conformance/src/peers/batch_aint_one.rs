//! batch-aint-one: a worker task, a queue a key.

use std::sync::Arc;

use batch_aint_one::{Batcher, BatchingPolicy, Limits, OnFull};

use crate::engine::{Call, Engine, Setup};
use crate::script::Script;

#[derive(Clone)]
struct Processor(Arc<Script>);

impl batch_aint_one::Processor for Processor {
    type Key = u64;
    type Input = u64;
    type Output = u64;
    type Error = String;
    type Resources = ();

    async fn acquire_resources(&self, _key: u64) -> Result<(), String> {
        Ok(())
    }

    async fn process(
        &self,
        _key: u64,
        inputs: impl Iterator<Item = u64> + Send,
        _resources: (),
    ) -> Result<Vec<u64>, String> {
        let items: Vec<u64> = inputs.collect();
        let answers = self.0.run(&items).await?;
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }
}

struct Peer(Batcher<Processor>);

pub(super) fn start(setup: Setup, script: Arc<Script>) -> Arc<dyn Engine> {
    // One batch of a key at a time, as with ours; what is not running may queue.
    let limits = Limits::builder()
        .max_batch_size(setup.max_items)
        .max_key_concurrency(1)
        .max_key_queued_items(setup.capacity.saturating_sub(setup.max_items).max(1))
        .build();
    let batcher = Batcher::builder()
        .name("conformance")
        .processor(Processor(script))
        .limits(limits)
        .batching_policy(BatchingPolicy::Duration(setup.linger, OnFull::Process))
        .build();
    Arc::new(Peer(batcher))
}

impl Engine for Peer {
    fn call(&self, key: u64, item: u64) -> Call {
        let batcher = self.0.clone();
        Box::pin(async move { batcher.add(key, item).await.map_err(|error| error.to_string()) })
    }
}
