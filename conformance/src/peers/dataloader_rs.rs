//! dataloader-rs (the crate `dataloader`): its loader without a cache, on tokio.

use std::collections::HashMap;
use std::sync::Arc;

use dataloader::BatchFn;
use dataloader::non_cached::Loader;

use crate::engine::{Call, Engine, Setup};
use crate::script::Script;

struct Loads(Arc<Script>);

impl BatchFn<u64, u64> for Loads {
    async fn load(&mut self, keys: &[u64]) -> HashMap<u64, u64> {
        self.0.run(keys).await.unwrap_or_default().into_iter().collect()
    }
}

struct Peer(Loader<u64, u64, Loads>);

pub(super) fn start(setup: Setup, script: Arc<Script>) -> Arc<dyn Engine> {
    Arc::new(Peer(Loader::new(Loads(script)).with_max_batch_size(setup.max_items)))
}

impl Engine for Peer {
    fn call(&self, _key: u64, item: u64) -> Call {
        let loader = self.0.clone();
        Box::pin(async move { loader.try_load(item).await.map_err(|error| error.to_string()) })
    }

    fn call_bulk(&self, items: Vec<u64>) -> Option<Call<Result<Vec<u64>, String>>> {
        let loader = self.0.clone();
        Some(Box::pin(async move {
            let answers = loader.try_load_many(items.clone()).await;
            let answers = answers.map_err(|error| error.to_string())?;
            Ok(items.iter().filter_map(|item| answers.get(item)).copied().collect())
        }))
    }
}
