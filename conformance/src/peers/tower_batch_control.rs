//! tower-batch-control: a tower service that is told its items one by one, then to flush.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::broadcast;
use tower::{Service, ServiceExt};
use tower_batch_control::{Batch, BatchControl, RequestWeight};

use crate::engine::{Call, Engine, Setup};
use crate::script::Script;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answers = Result<Arc<Vec<(u64, u64)>>, String>;

struct Item(u64);

impl RequestWeight for Item {}

/// The service keeps the open batch itself; on a flush all that wait are told all answers, which
/// is how the crate's own users do it.
struct Verifies {
    script: Arc<Script>,
    items: Vec<u64>,
    answers: broadcast::Sender<Answers>,
}

impl Service<BatchControl<Item>> for Verifies {
    type Response = Option<u64>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Option<u64>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: BatchControl<Item>) -> Self::Future {
        match request {
            BatchControl::Item(Item(item)) => {
                self.items.push(item);
                let mut answers = self.answers.subscribe();
                Box::pin(async move {
                    let answers = answers.recv().await.map_err(|error| error.to_string())??;
                    Ok(answers.iter().find(|answer| answer.0 == item).map(|answer| answer.1))
                })
            }
            BatchControl::Flush => {
                let items = std::mem::take(&mut self.items);
                let answers = std::mem::replace(&mut self.answers, broadcast::channel(1).0);
                let script = Arc::clone(&self.script);
                Box::pin(async move {
                    let _ = answers.send(script.run(&items).await.map(Arc::new));
                    Ok(None)
                })
            }
        }
    }
}

struct Peer(Batch<Verifies, Item>);

pub(super) fn start(setup: Setup, script: Arc<Script>) -> Arc<dyn Engine> {
    let service = Verifies { script, items: Vec::new(), answers: broadcast::channel(1).0 };
    Arc::new(Peer(Batch::new(service, setup.max_items, 1, setup.linger)))
}

impl Engine for Peer {
    fn call(&self, _key: u64, item: u64) -> Call {
        let mut service = self.0.clone();
        Box::pin(async move {
            let response = {
                let ready = service.ready().await.map_err(|error| error.to_string())?;
                ready.call(Item(item))
            };
            drop(service);
            let answer = response.await.map_err(|error| error.to_string())?;
            answer.ok_or_else(|| "no answer".to_owned())
        })
    }
}
