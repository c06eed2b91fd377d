use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Instant;

use crate::{CancelToken, DispatchError, Outcome, Record, Report, Stats, Task};

/// Tasks at a time, unless the builder says otherwise.
const DEFAULT_MAX_CONCURRENCY: usize = 10;

/// What the failure of a task means for the others. A panic is a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// The others run all the same.
    #[default]
    Continue,
    /// No further task starts, and the tasks that run see their token cancelled.
    FailFast,
}

/// Settings of a [`Dispatcher`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    max_concurrency: usize,
    policy: Policy,
}

impl Builder {
    /// Sets how many tasks may run at a time. The default, also for 0, is 10.
    pub fn max_concurrency(mut self, tasks: usize) -> Self {
        self.max_concurrency = if tasks == 0 { DEFAULT_MAX_CONCURRENCY } else { tasks };
        self
    }

    /// Sets what the failure of a task means for the others. The default is [`Policy::Continue`].
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Returns the dispatcher. Nothing is started.
    pub fn build(self) -> Dispatcher {
        Dispatcher { max_concurrency: self.max_concurrency, policy: self.policy }
    }
}

/// Runs lists of tasks on a bounded number of threads.
///
/// It holds nothing but its settings: each run has threads of its own, and runs do not disturb each
/// other.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    max_concurrency: usize,
    policy: Policy,
}

impl Default for Dispatcher {
    fn default() -> Self {
        Self::builder().build()
    }
}

impl Dispatcher {
    /// Returns a builder with the defaults: ten tasks at a time, [`Policy::Continue`].
    pub fn builder() -> Builder {
        Builder { max_concurrency: DEFAULT_MAX_CONCURRENCY, policy: Policy::default() }
    }

    /// Returns how many tasks may run at a time.
    pub fn max_concurrency(&self) -> usize {
        self.max_concurrency
    }

    /// Runs all tasks and returns how each of them ended.
    ///
    /// Blocks until every task that was started has returned. Tasks start in the order of the input;
    /// the calling thread works too, so a run with one worker starts no thread at all. If the system
    /// refuses a thread, the run goes on with those it has; [`Stats::workers`] tells how many.
    ///
    /// After `cancel` no task is taken from the queue any more; what was queued is
    /// [`Outcome::Cancelled`], unless the run had failed fast before, and what runs sees the token and
    /// decides for itself: that it fails then is no reason why others are skipped.
    ///
    /// # Errors
    ///
    /// Two tasks have the same id. Nothing has run, and the error carries all tasks.
    ///
    /// # Examples
    ///
    /// ```
    /// use task_dispatch::{CancelToken, Dispatcher, Policy, Task};
    ///
    /// let words = vec!["one".to_owned(), "three".to_owned()];
    /// let tasks = words.iter().map(|word| Task::new(word, |_| Ok::<_, ()>(word.len()))).collect();
    /// let dispatcher = Dispatcher::builder().max_concurrency(2).policy(Policy::FailFast).build();
    /// let report = dispatcher.run(tasks, &CancelToken::new()).expect("the ids differ");
    /// let lengths: Vec<_> = report.records().iter().map(|r| r.outcome.as_ok()).collect();
    /// assert_eq!(lengths, [Some(&3), Some(&5)]);
    /// ```
    pub fn run<'a, T, E>(
        &self,
        tasks: Vec<Task<'a, T, E>>,
        cancel: &CancelToken,
    ) -> Result<Report<T, E>, DispatchError<'a, T, E>>
    where
        T: Send,
        E: Send,
    {
        let mut by_id = HashMap::with_capacity(tasks.len());
        for (index, task) in tasks.iter().enumerate() {
            if by_id.insert(task.id.clone(), index).is_some() {
                return Err(DispatchError::duplicate(task.id.clone(), tasks));
            }
        }

        let start = Instant::now();
        let run = Run::new(tasks, self.policy, cancel);
        let workers = thread::scope(|scope| {
            let wanted = self.max_concurrency.min(run.slots.len());
            let spawn = |_| thread::Builder::new().spawn_scoped(scope, || run.work()).is_ok();
            let spawned = (1..wanted).take_while(|n| spawn(*n)).count();
            run.work();
            spawned + usize::from(wanted > 0)
        });
        let records = run.into_records();
        let stats = Stats::of(&records, workers, start.elapsed());
        Ok(Report::new(records, by_id, stats))
    }
}

/// What the workers of one run share.
struct Run<'a, T, E> {
    slots: Vec<Mutex<Slot<'a, T, E>>>,
    /// The index of the next task that nobody has taken.
    next: AtomicUsize,
    policy: Policy,
    cancel: CancelToken,
    /// Child of `cancel`: the token that tasks see. Cancelled as well when the run fails fast.
    stop: CancelToken,
    /// The id of the task that made the run fail.
    culprit: OnceLock<String>,
}

enum Slot<'a, T, E> {
    Queued(Task<'a, T, E>),
    Taken,
    Done(Record<T, E>),
}

impl<'a, T, E> Run<'a, T, E> {
    fn new(tasks: Vec<Task<'a, T, E>>, policy: Policy, cancel: &CancelToken) -> Self {
        Self {
            slots: tasks.into_iter().map(|task| Mutex::new(Slot::Queued(task))).collect(),
            next: AtomicUsize::new(0),
            policy,
            cancel: cancel.clone(),
            stop: cancel.child(),
            culprit: OnceLock::new(),
        }
    }

    /// Takes tasks until there are none.
    fn work(&self) {
        // The cursor hands each index to one worker; only the slot's lock orders what is in the slot.
        while let Some(slot) = self.slots.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let lock = || slot.lock().unwrap_or_else(PoisonError::into_inner);
            let taken = std::mem::replace(&mut *lock(), Slot::Taken);
            if let Slot::Queued(task) = taken {
                // No user code under the lock.
                let record = self.finish(task);
                *lock() = Slot::Done(record);
            }
        }
    }

    /// Runs a task, or does not, and says how it ended.
    fn finish(&self, task: Task<'a, T, E>) -> Record<T, E> {
        let Task { id, timeout, run } = task;
        // A run that failed fast before it was cancelled has a culprit; one that was cancelled first has
        // none, however its tasks end.
        if let Some(because) = self.culprit.get().cloned() {
            discard(run);
            return Record { id, outcome: Outcome::Skipped { because }, span: None };
        }
        if self.cancel.is_cancelled() {
            discard(run);
            return Record { id, outcome: Outcome::Cancelled, span: None };
        }

        let token = timeout.map_or_else(|| self.stop.clone(), |t| self.stop.with_timeout(t));
        let start = Instant::now();
        // A closure that panicked is gone, and what it borrowed is the caller's to judge.
        let result = catch_unwind(AssertUnwindSafe(|| run(&token)));
        let span = Some((start, Instant::now()));
        let outcome = match result {
            Ok(Ok(value)) => Outcome::Ok(value),
            Ok(Err(error)) => Outcome::Err(error),
            Err(payload) => Outcome::Panicked(message(payload)),
        };
        if self.policy == Policy::FailFast && !outcome.is_ok() && !self.cancel.is_cancelled() {
            // The first failure names the run; the culprit is known before anyone sees the token.
            self.culprit.get_or_init(|| id.clone());
            self.stop.cancel();
        }
        Record { id, outcome, span }
    }

    fn into_records(self) -> Vec<Record<T, E>> {
        let done = |slot: Mutex<Slot<'a, T, E>>| match slot.into_inner() {
            Ok(Slot::Done(record)) => record,
            _ => unreachable!("workers return only when every slot has been handed out and filled"),
        };
        self.slots.into_iter().map(done).collect()
    }
}

/// Returns what a panic said.
fn message(payload: Box<dyn Any + Send>) -> String {
    let text = match payload.downcast_ref::<&'static str>() {
        Some(text) => (*text).to_owned(),
        None => payload.downcast_ref::<String>().cloned().unwrap_or_else(|| "(no message)".into()),
    };
    discard(payload);
    text
}

/// Drops a value of the user's; a panic in its destructor stays here, as it would end the run.
fn discard<V>(value: V) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        std::mem::forget(again);
    }
}
