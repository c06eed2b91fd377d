//! One batcher, three executors: tokio with one thread and with several, and smol.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::future::{Future, IntoFuture, poll_fn};
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use batch_core::{
    BatchError, BatchOf, BatchProcessor, Batcher, Builder, Close, Refusal, Tasks, Ticket, TicketSet,
};
use smol::Executor;

/// Never comes in a test that passes.
const LONG: Duration = Duration::from_mins(10);

#[derive(Clone, Copy, Debug)]
enum Kind {
    CurrentThread,
    MultiThread,
    Smol,
}

enum Runtime {
    Tokio(tokio::runtime::Runtime),
    Smol(Arc<Executor<'static>>),
}

impl Runtime {
    fn new(kind: Kind) -> Self {
        use tokio::runtime::Builder;
        match kind {
            Kind::CurrentThread => {
                Self::Tokio(Builder::new_current_thread().enable_time().build().unwrap())
            }
            Kind::MultiThread => {
                let mut builder = Builder::new_multi_thread();
                Self::Tokio(builder.worker_threads(2).enable_time().build().unwrap())
            }
            Kind::Smol => Self::Smol(Arc::new(Executor::new())),
        }
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        match self {
            Self::Tokio(runtime) => runtime.block_on(future),
            Self::Smol(executor) => smol::block_on(executor.run(future)),
        }
    }

    fn tasks(&self) -> Tasks {
        match self {
            Self::Tokio(_) => Tasks::new(|task| drop(tokio::spawn(task)), tokio::time::sleep),
            Self::Smol(executor) => {
                // The executor holds the tasks, and they the means to spawn.
                let executor: Weak<Executor<'static>> = Arc::downgrade(executor);
                let spawn = move |task| {
                    if let Some(executor) = executor.upgrade() {
                        executor.spawn(task).detach();
                    }
                };
                Tasks::new(spawn, |time| async move { _ = smol::Timer::after(time).await })
            }
        }
    }
}

/// Doubles each item.
struct Doubles;

impl BatchProcessor for Doubles {
    type Key = u32;
    type Item = u32;
    type Output = u32;
    type Error = Infallible;

    fn key(&self, item: &u32) -> u32 {
        item % 2
    }

    fn process(&self, _: &u32, batch: BatchOf<Self>) {
        batch.resolve_all(batch.items().iter().map(|item| Ok(item * 2)).collect());
    }
}

/// Does all that a caller can await.
async fn use_everything(start: impl Fn() -> Builder<Doubles>) {
    let batcher = start().linger(LONG).capacity(8).max_block(None).build().unwrap();
    let mut tickets = Vec::new();
    for item in 0..100 {
        // It waits for room, and what lingers goes when it does.
        tickets.push(batcher.submit_async(item).await.unwrap());
    }
    batcher.flush().await.unwrap();
    assert!(tickets.iter().all(Ticket::is_done));
    let outputs = tickets.into_iter().collect::<TicketSet<_, _>>().await;
    assert!(outputs.into_iter().map(Result::unwrap).eq((0..100).map(|item| item * 2)));

    let waiting = batcher.submit_async(7).await.unwrap();
    let report = batcher.close_async(Close::Drain, LONG).await;
    assert!(report.leftovers.is_empty() && report.in_flight.is_empty());
    assert_eq!(waiting.await.unwrap(), 14);
    let refused = batcher.submit_async(8).await.unwrap_err();
    assert_eq!(refused.into_parts(), (8, Refusal::Closed));

    // Nothing but the timer sends this one.
    let batcher = start().linger(Duration::from_millis(2)).build().unwrap();
    assert_eq!(batcher.submit_async(21).await.unwrap().await.unwrap(), 42);
    // The next closes before it is sent.
    let batcher = start().linger(LONG).build().unwrap();
    let waiting = batcher.submit_async(1).await.unwrap();
    let report = batcher.close_async(Close::Abort, LONG).await;
    assert!(report.leftovers.into_iter().map(|(_, item)| item).eq([1]));
    assert!(matches!(waiting.await, Err(BatchError::Closed)));
}

/// In tasks of the runtime, and with threads of the batcher's own; twice, each time in a runtime
/// that is gone before the next starts.
fn works(kind: Kind) {
    let kept = Batcher::builder(Doubles).linger(LONG).build().unwrap();
    let mut left: Option<Ticket<u32, Infallible>> = None;
    for _ in 0..2 {
        let runtime = Runtime::new(kind);
        runtime.block_on(async {
            use_everything(|| Batcher::builder(Doubles).tasks(runtime.tasks().workers(2))).await;
            use_everything(|| Batcher::builder(Doubles).workers(2)).await;
            // A ticket goes from one runtime to the next.
            if let Some(ticket) = left.take() {
                kept.flush().await.unwrap();
                assert_eq!(ticket.await.unwrap(), 10);
            } else {
                left = Some(kept.submit_async(5).await.unwrap());
            }
        });
    }
    assert!(left.is_none());
}

/// Keeps its batches.
#[derive(Clone, Default)]
struct Keeps(Arc<Mutex<Vec<BatchOf<Keeps>>>>);

impl BatchProcessor for Keeps {
    type Key = ();
    type Item = u32;
    type Output = u32;
    type Error = Infallible;

    fn key(&self, _: &u32) {}

    fn process(&self, (): &(), batch: BatchOf<Self>) {
        self.0.lock().unwrap().push(batch);
    }
}

impl Keeps {
    /// Lets other tasks run until a batch is here, or there will be none.
    async fn has_one_or(&self, ticket: &Ticket<u32, Infallible>) {
        while self.0.lock().unwrap().is_empty() && !ticket.is_done() {
            let mut is_over = false;
            poll_fn(|context| {
                context.waker().wake_by_ref();
                if std::mem::replace(&mut is_over, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }
}

/// One item is with the processor, one waits, one waits for room; then the runtime is gone.
fn ends_with_its_runtime(kind: Kind) {
    let (keeps, runtime) = (Keeps::default(), Runtime::new(kind));
    let (batcher, running, waiting) = runtime.block_on(async {
        let batcher = Batcher::builder(keeps.clone()).max_batch_items(1).capacity(2);
        let batcher = batcher.max_block(None).tasks(runtime.tasks()).build().unwrap();
        let running = batcher.submit_async(1).await.unwrap();
        keeps.has_one_or(&running).await;
        let waiting = batcher.submit_async(2).await.unwrap();
        (batcher, running, waiting)
    });
    let outside = {
        let batcher = batcher.clone();
        thread::spawn(move || batcher.submit(3).unwrap_err().into_parts())
    };
    let flush = batcher.flush();
    drop(runtime);
    assert!(matches!(waiting.wait(), Err(BatchError::Closed)));
    assert_eq!(outside.join().unwrap(), (3, Refusal::Closed));
    // What is with the processor is still its own to answer.
    let batch = keeps.0.lock().unwrap().pop().unwrap();
    batch.slot(0).resolve(Ok(7));
    assert_eq!(running.wait().unwrap(), 7);
    flush.wait().unwrap();
    let report = batcher.close(Close::Drain, LONG);
    assert!(report.leftovers.into_iter().map(|(_, item)| item).eq([2]));
}

/// The timers go on without the runtime that ran them.
fn times_out_without_its_runtime(kind: Kind) {
    let (keeps, runtime) = (Keeps::default(), Runtime::new(kind));
    let (batcher, ticket) = runtime.block_on(async {
        let batcher = Batcher::builder(keeps.clone()).tasks(runtime.tasks());
        let batcher = batcher.delivery_timeout(Some(Duration::from_millis(200))).build().unwrap();
        let ticket = batcher.submit_async(1).await.unwrap();
        keeps.has_one_or(&ticket).await;
        (batcher, ticket)
    });
    drop(runtime);
    // On a busy machine its time may be over before it is sent.
    assert!(matches!(ticket.wait(), Err(BatchError::TimedOut | BatchError::Expired)));
    let closing = batcher.close_async(Close::Drain, Duration::from_millis(5));
    assert!(smol::block_on(closing).leftovers.is_empty());
}

/// A caller outside of the runtime whose item needs a timer.
fn is_used_from_outside(kind: Kind) {
    let runtime = Runtime::new(kind);
    let batcher = runtime.block_on(async {
        let batcher = Batcher::builder(Doubles).tasks(runtime.tasks());
        batcher.linger(Duration::from_millis(2)).build().unwrap()
    });
    let outside = batcher.clone();
    let ticket = thread::spawn(move || outside.submit(21).unwrap()).join().unwrap();
    assert_eq!(runtime.block_on(ticket.into_future()).unwrap(), 42);
    drop(batcher);
}

macro_rules! on_each_runtime {
    ($($test:ident: $check:ident),* $(,)?) => {
        mod tokio_current_thread {
            $(#[test] fn $test() { super::$check(super::Kind::CurrentThread); })*
        }
        mod tokio_multi_thread {
            $(#[test] fn $test() { super::$check(super::Kind::MultiThread); })*
        }
        mod smol_executor {
            $(#[test] fn $test() { super::$check(super::Kind::Smol); })*
        }
    };
}

on_each_runtime! {
    all_that_can_be_awaited_works_in_one_runtime_after_the_other: works,
    a_runtime_that_is_dropped_leaves_nobody_waiting: ends_with_its_runtime,
    a_batch_times_out_without_the_runtime: times_out_without_its_runtime,
    a_thread_outside_of_the_runtime_is_served: is_used_from_outside,
}

#[test]
fn runtimes_of_all_kinds_follow_each_other() {
    for kind in [Kind::Smol, Kind::CurrentThread, Kind::MultiThread, Kind::Smol] {
        works(kind);
    }
}
