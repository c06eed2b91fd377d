//! The peers, on the runtime that they need: the best in speed and the best in faults.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use batch_aint_one::{BatchingPolicy, Limits, OnFull, Processor};
use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tower::Service;
use tower_batch_control::{BatchControl, RequestWeight};

use super::Fallible;
use super::clients::{self, BATCH, CLIENTS, ITEMS, LINGER, OUTSTANDING, WAVES, answer, wave};
use super::rounds::{Case, per_item};

pub(super) const BATCH_AINT_ONE: &str = "batch-aint-one";
pub(super) const TOWER_BATCH_CONTROL: &str = "tower-batch-control";

/// A runtime of as many threads as there are clients.
pub(super) fn runtime() -> Fallible<Arc<Runtime>> {
    let mut builder = Builder::new_multi_thread();
    Ok(Arc::new(builder.worker_threads(CLIENTS as usize).enable_time().build()?))
}

/// Runs the clients as tasks of the runtime.
pub(super) fn run<F>(runtime: &Runtime, client: impl Fn() -> F) -> Fallible<f64>
where
    F: Future<Output = Result<u64, String>> + Send + 'static,
{
    let started = Instant::now();
    let tasks: Vec<_> = (0..CLIENTS).map(|_| runtime.spawn(client())).collect();
    let sum = runtime.block_on(async {
        let mut sum = 0;
        for task in tasks {
            sum += task.await.map_err(|error| error.to_string())??;
        }
        Ok::<u64, String>(sum)
    })?;
    per_item(started.elapsed(), ITEMS, sum, clients::expected())
}

#[derive(Clone)]
struct AddOne;

impl Processor for AddOne {
    type Key = ();
    type Input = u64;
    type Output = u64;
    type Error = String;
    type Resources = ();

    async fn acquire_resources(&self, (): ()) -> Result<(), String> {
        Ok(())
    }

    async fn process(
        &self,
        (): (),
        inputs: impl Iterator<Item = u64> + Send,
        (): (),
    ) -> Result<Vec<u64>, String> {
        Ok(inputs.map(answer).collect())
    }
}

pub(super) fn batch_aint_one(runtime: &Arc<Runtime>) -> Case {
    let runtime = Arc::clone(runtime);
    let entered = runtime.enter();
    let batcher = batch_aint_one::Batcher::builder()
        .name("perf-core")
        .processor(AddOne)
        .limits(Limits::builder().max_batch_size(BATCH as usize).build())
        .batching_policy(BatchingPolicy::Duration(LINGER, OnFull::Process))
        .build();
    drop(entered);
    Case::new(BATCH_AINT_ONE, move || {
        run(&runtime, || {
            let batcher = batcher.clone();
            async move {
                let mut sum = 0;
                for _ in 0..WAVES {
                    for outcome in join_all(wave().map(|item| batcher.add((), item))).await {
                        sum += outcome.map_err(|error| error.to_string())?;
                    }
                }
                Ok(sum)
            }
        })
    })
}

type Closed = watch::error::RecvError;

struct Item(u64);

impl RequestWeight for Item {}

/// Keeps the open batch as Zebra does: its items wait for one channel that the flush writes to.
struct Adds(watch::Sender<bool>);

impl Service<BatchControl<Item>> for Adds {
    type Response = u64;
    type Error = Closed;
    type Future = Pin<Box<dyn Future<Output = Result<u64, Closed>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: BatchControl<Item>) -> Self::Future {
        match request {
            BatchControl::Item(Item(item)) => {
                let mut flushed = self.0.subscribe();
                Box::pin(async move {
                    flushed.changed().await?;
                    Ok(answer(item))
                })
            }
            BatchControl::Flush => {
                std::mem::replace(&mut self.0, watch::Sender::new(false)).send_replace(true);
                Box::pin(async { Ok(0) })
            }
        }
    }
}

pub(super) fn tower_batch_control(runtime: &Arc<Runtime>) -> Case {
    let runtime = Arc::clone(runtime);
    let entered = runtime.enter();
    // Room for all that is outstanding.
    let room = (CLIENTS * OUTSTANDING / BATCH) as usize;
    let adds = Adds(watch::Sender::new(false));
    let batcher = tower_batch_control::Batch::new(adds, BATCH as usize, room, LINGER);
    drop(entered);
    Case::new(TOWER_BATCH_CONTROL, move || {
        run(&runtime, || {
            let mut batcher = batcher.clone();
            async move {
                let mut sum = 0;
                let mut calls = Vec::with_capacity(OUTSTANDING as usize);
                for _ in 0..WAVES {
                    for item in wave() {
                        let ready = poll_fn(|context| batcher.poll_ready(context)).await;
                        ready.map_err(|error| error.to_string())?;
                        calls.push(batcher.call(Item(item)));
                    }
                    for outcome in join_all(calls.drain(..)).await {
                        sum += outcome.map_err(|error| error.to_string())?;
                    }
                }
                Ok(sum)
            }
        })
    })
}
