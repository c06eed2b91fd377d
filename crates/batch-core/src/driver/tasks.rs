//! Tasks on the executor of the user's choice.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::engine::{Engine, Turn, Watch};
use crate::processor::BatchProcessor;
use crate::sync::Arc;

/// A future without an output that an executor can run on any thread.
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs the batches in tasks of an executor, whose means to spawn and to sleep it is given.
///
/// No runtime is a dependency: on tokio it is
/// `Tasks::new(|task| drop(tokio::spawn(task)), tokio::time::sleep)`, on smol
/// `Tasks::new(|task| smol::spawn(task).detach(), |time| async move { smol::Timer::after(time).await; })`.
/// `process` is called inside a task, so it must not block for long: a processor that awaits
/// something spawns it and gives it the batch. The tasks end with the batcher.
///
/// # Examples
/// ```
/// use std::thread;
/// use std::time::Duration;
/// use batch_core::{Batcher, Tasks, batch_fn};
///
/// # fn block_on(task: impl Future<Output = ()>) { pollster(task); }
/// # fn pollster<F: Future>(future: F) -> F::Output {
/// #     use std::{pin::pin, sync::Arc, task::{Context, Poll, Wake, Waker}, thread::Thread};
/// #     struct Unpark(Thread);
/// #     impl Wake for Unpark { fn wake(self: Arc<Self>) { self.0.unpark() } }
/// #     let mut future = pin!(future);
/// #     let waker = Waker::from(Arc::new(Unpark(thread::current())));
/// #     loop {
/// #         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
/// #             Poll::Ready(output) => return output,
/// #             Poll::Pending => thread::park(),
/// #         }
/// #     }
/// # }
/// // An executor that gives each task a thread, and sleeps on none: there is no timer here.
/// let spawn = |task| drop(thread::spawn(move || block_on(task)));
/// let sleep = |_: Duration| std::future::pending();
/// let double = batch_fn(|items: &[u32]| items.iter().map(|n| Ok::<_, String>(n * 2)).collect());
/// let batcher = Batcher::builder(double).tasks(Tasks::new(spawn, sleep)).build()?;
/// assert_eq!(batcher.submit(21)?.wait()?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Tasks {
    spawn: Box<dyn Fn(Task) + Send + Sync>,
    sleep: Box<dyn Fn(Duration) -> Task + Send + Sync>,
    workers: usize,
}

impl Tasks {
    /// Takes the means to spawn a task and to sleep. It runs one batch at a time.
    pub fn new<S>(
        spawn: impl Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync + 'static,
        sleep: impl Fn(Duration) -> S + Send + Sync + 'static,
    ) -> Self
    where
        S: Future<Output = ()> + Send + 'static,
    {
        let sleep = move |time| -> Task { Box::pin(sleep(time)) };
        Self { spawn: Box::new(spawn), sleep: Box::new(sleep), workers: 1 }
    }

    /// Sets the number of tasks that call the processor, at least 1, and so how many of its calls
    /// run at the same time.
    #[must_use]
    pub fn workers(mut self, tasks: usize) -> Self {
        self.workers = tasks.max(1);
        self
    }

    pub(crate) fn count(&self) -> usize {
        self.workers
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("workers", &self.workers).finish_non_exhaustive()
    }
}

/// Spawns the workers of an engine, and the one that looks after its timers: later there may be no
/// executor at hand to spawn it on.
pub(crate) fn start<P: BatchProcessor>(engine: &Arc<Engine<P>>, tasks: &Arc<Tasks>) {
    if engine.wants_keeper() {
        let engine = Arc::clone(engine);
        let keeper = KeeperTask { engine, tasks: Arc::clone(tasks), sleep: None, has_ended: false };
        (tasks.spawn)(Box::pin(keeper));
    }
    for worker in 0..tasks.workers {
        (tasks.spawn)(Box::pin(WorkerTask { engine: Arc::clone(engine), worker }));
    }
}

struct WorkerTask<P: BatchProcessor> {
    engine: Arc<Engine<P>>,
    worker: usize,
}

impl<P: BatchProcessor> Future for WorkerTask<P> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let waker: Waker = context.waker().clone();
        match self.engine.turn(self.worker, &waker) {
            Turn::Run(job) => {
                self.engine.run(job);
                // One batch a turn: the executor has other tasks.
                waker.wake();
                Poll::Pending
            }
            Turn::Rest => Poll::Pending,
            Turn::End => Poll::Ready(()),
        }
    }
}

impl<P: BatchProcessor> Drop for WorkerTask<P> {
    fn drop(&mut self) {
        self.engine.lose_worker(self.worker);
    }
}

struct KeeperTask<P: BatchProcessor> {
    engine: Arc<Engine<P>>,
    tasks: Arc<Tasks>,
    sleep: Option<Task>,
    has_ended: bool,
}

impl<P: BatchProcessor> Future for KeeperTask<P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.engine.watch(context.waker()) {
                Watch::End => {
                    self.has_ended = true;
                    return Poll::Ready(());
                }
                Watch::Sleep(None) => {
                    self.sleep = None;
                    return Poll::Pending;
                }
                Watch::Sleep(Some(time)) => {
                    let mut sleep = (self.tasks.sleep)(time);
                    if sleep.as_mut().poll(context).is_pending() {
                        self.sleep = Some(sleep);
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl<P: BatchProcessor> Drop for KeeperTask<P> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.engine.lose_keeper();
        }
    }
}
