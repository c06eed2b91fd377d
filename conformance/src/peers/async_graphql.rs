//! async-graphql: its `DataLoader`, without a cache.

use std::collections::HashMap;
use std::sync::Arc;

use async_graphql::dataloader::{DataLoader, Loader};

use crate::engine::{Call, Engine, Setup};
use crate::script::Script;

struct Loads(Arc<Script>);

impl Loader<u64> for Loads {
    type Value = u64;
    type Error = String;

    async fn load(&self, keys: &[u64]) -> Result<HashMap<u64, u64>, String> {
        Ok(self.0.run(keys).await?.into_iter().collect())
    }
}

struct Peer(Arc<DataLoader<Loads>>);

pub(super) fn start(setup: Setup, script: Arc<Script>) -> Arc<dyn Engine> {
    let loader = DataLoader::new(Loads(script), tokio::spawn);
    Arc::new(Peer(Arc::new(loader.delay(setup.linger).max_batch_size(setup.max_items))))
}

impl Engine for Peer {
    fn call(&self, _key: u64, item: u64) -> Call {
        let loader = Arc::clone(&self.0);
        Box::pin(async move { loader.load_one(item).await?.ok_or_else(|| "no answer".to_owned()) })
    }

    fn call_bulk(&self, items: Vec<u64>) -> Option<Call<Result<Vec<u64>, String>>> {
        let loader = Arc::clone(&self.0);
        Some(Box::pin(async move {
            let answers = loader.load_many(items.iter().copied()).await?;
            Ok(items.iter().filter_map(|item| answers.get(item)).copied().collect())
        }))
    }
}
