//! The engine of batch-core, one case a driver and a way to wait.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use batch_core::{BatchError, BatchProcessor, Batcher, Builder, Ticket, batch_fn};
use tokio::runtime::Runtime;

use super::Fallible;
use super::clients::{self, BATCH, LINGER, OUTSTANDING, WAVES, answer, wave};
use super::rounds::{Case, per_item};

pub(super) const SUBMIT: &str = "ours, submit, full batches";
pub(super) const SUBMIT_NATURAL: &str = "ours, submit, natural batches";
pub(super) const SUBMIT_ALL: &str = "ours, submit_all(500)";
pub(super) const TICKET_SET_AWAIT: &str = "ours, submit_all(500).await on tokio";
pub(super) const INLINE_ROUND_TRIP: &str = "ours, inline, one item";
pub(super) const THREAD_ROUND_TRIP: &str = "ours, thread, one item";
pub(super) const THREAD_ROUND_TRIP_ASLEEP: &str = "ours, thread, one item, the client asleep";

type Failed = BatchError<Infallible>;

fn processor() -> impl BatchProcessor<Key = (), Item = u64, Output = u64, Error = Infallible> {
    batch_fn(|items: &[u64]| items.iter().map(|item| Ok(answer(*item))).collect())
}

pub(super) fn builder()
-> Builder<impl BatchProcessor<Key = (), Item = u64, Output = u64, Error = Infallible>> {
    Batcher::builder(processor()).max_batch_items(BATCH as usize)
}

/// Waits for single tickets, in their order.
pub(super) fn submit_and_wait<P>(batcher: &Batcher<P>) -> Fallible<u64>
where
    P: BatchProcessor<Item = u64, Output = u64, Error = Infallible>,
{
    let mut tickets = Vec::with_capacity(OUTSTANDING as usize);
    let mut sum = 0;
    for _ in 0..WAVES {
        for item in wave() {
            tickets.push(batcher.submit(item)?);
        }
        for ticket in tickets.drain(..) {
            sum += ticket.wait()?;
        }
    }
    Ok(sum)
}

pub(super) fn submit() -> Fallible<Case> {
    let batcher = builder().linger(LINGER).build()?;
    Ok(Case::new(SUBMIT, move || clients::run(|| submit_and_wait(&batcher))))
}

/// With the default dispatch, where an idle worker takes what is there.
pub(super) fn submit_natural() -> Fallible<Case> {
    let batcher = builder().build()?;
    Ok(Case::new(SUBMIT_NATURAL, move || clients::run(|| submit_and_wait(&batcher))))
}

pub(super) fn submit_all() -> Fallible<Case> {
    let batcher = builder().linger(LINGER).build()?;
    Ok(Case::new(SUBMIT_ALL, move || {
        clients::run(|| {
            let mut sum = 0;
            for _ in 0..WAVES {
                for outcome in batcher.submit_all(wave())?.wait() {
                    sum += outcome?;
                }
            }
            Ok(sum)
        })
    }))
}

/// The clients are tasks; each waits for its whole set as one future.
pub(super) fn ticket_set_await(runtime: &Arc<Runtime>) -> Fallible<Case> {
    let batcher = builder().linger(LINGER).build()?;
    let runtime = Arc::clone(runtime);
    Ok(Case::new(TICKET_SET_AWAIT, move || {
        super::peers::run(&runtime, || {
            let batcher = batcher.clone();
            async move {
                let mut sum = 0;
                for _ in 0..WAVES {
                    let tickets = batcher.submit_all(wave()).map_err(|error| error.to_string())?;
                    for outcome in tickets.await {
                        sum += outcome.map_err(|error: Failed| error.to_string())?;
                    }
                }
                Ok(sum)
            }
        })
    }))
}

pub(super) fn inline_round_trip() -> Fallible<Case> {
    let batcher = builder().inline().build()?;
    Ok(Case::new(INLINE_ROUND_TRIP, move || round_trips(&batcher, 1_000, Ticket::wait)))
}

pub(super) fn thread_round_trip() -> Fallible<Case> {
    let batcher = builder().build()?;
    Ok(Case::new(THREAD_ROUND_TRIP, move || round_trips(&batcher, 500, Ticket::wait)))
}

/// A thread that waits stays awake for a moment; one that polls a ticket sleeps at once.
pub(super) fn thread_round_trip_asleep() -> Fallible<Case> {
    let batcher = builder().build()?;
    Ok(Case::new(THREAD_ROUND_TRIP_ASLEEP, move || round_trips(&batcher, 500, asleep)))
}

struct Caller(Thread);

impl Wake for Caller {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn asleep<F: IntoFuture>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Caller(thread::current())));
    let (mut future, mut context) = (pin!(future.into_future()), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// One item after the other through an idle engine.
fn round_trips<P>(
    batcher: &Batcher<P>,
    items: u32,
    wait: fn(Ticket<u64, Infallible>) -> Result<u64, Failed>,
) -> Fallible<f64>
where
    P: BatchProcessor<Item = u64, Output = u64, Error = Infallible>,
{
    let started = Instant::now();
    let mut sum = 0;
    for item in 0..items {
        sum += wait(batcher.submit(u64::from(item))?)?;
    }
    per_item(started.elapsed(), items, sum, (0..items).map(|item| answer(u64::from(item))).sum())
}
