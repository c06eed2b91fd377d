//! ultra-batch: `BatchExecutor`, one task, a channel of one request.

use std::sync::Arc;

use ultra_batch::{BatchExecutor, Executor};

use crate::engine::{Call, Engine, Setup};
use crate::script::Script;

struct Runs(Arc<Script>);

impl Executor for Runs {
    type Value = u64;
    type Result = u64;
    type Error = String;

    async fn execute(&self, values: Vec<u64>) -> Result<Vec<u64>, String> {
        let answers = self.0.run(&values).await?;
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }
}

struct Peer(BatchExecutor<Runs>);

pub(super) fn start(setup: Setup, script: Arc<Script>) -> Arc<dyn Engine> {
    let executor = BatchExecutor::build(Runs(script))
        .eager_batch_size(Some(setup.max_items))
        .delay_duration(setup.linger)
        .finish();
    Arc::new(Peer(executor))
}

impl Engine for Peer {
    fn call(&self, _key: u64, item: u64) -> Call {
        let executor = self.0.clone();
        Box::pin(async move {
            let answer = executor.execute(item).await.map_err(|error| error.to_string())?;
            answer.ok_or_else(|| "no answer".to_owned())
        })
    }

    fn call_bulk(&self, items: Vec<u64>) -> Option<Call<Result<Vec<u64>, String>>> {
        let executor = self.0.clone();
        Some(Box::pin(async move {
            executor.execute_many(items).await.map_err(|error| error.to_string())
        }))
    }
}
