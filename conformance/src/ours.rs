//! batch-core, with each of its drivers.

use std::sync::Arc;

use batch_core::{
    Batch, BatchOf, BatchProcessor, Batcher, Builder, Disposition, Outcome, Tasks, Ticket,
};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::candidate::{Candidate, Part};
use crate::engine::{Call, Engine, Reply, Setup};
use crate::script::Script;

/// Threads or tasks that run batches, and so the most batches that run at the same time.
const WORKERS: usize = 4;

pub(crate) fn candidates() -> Vec<Candidate> {
    vec![
        Candidate { name: "ours (threads)", starts: threads, lacks: &[] },
        Candidate { name: "ours (tasks)", starts: tasks, lacks: &[] },
        Candidate { name: "ours (inline)", starts: inline, lacks: &[Part::Linger] },
    ]
}

/// Who runs the batches, and so how a caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    /// Callers submit from a thread that may block, and await the ticket.
    Threads,
    /// Callers block for everything.
    Inline,
    /// Callers await everything.
    Tasks,
}

fn threads(setup: Setup, script: Arc<Script>) -> Arc<dyn Engine> {
    start(builder(setup, script).workers(WORKERS).linger(setup.linger), Driver::Threads)
}

fn tasks(setup: Setup, script: Arc<Script>) -> Arc<dyn Engine> {
    let tasks = Tasks::new(|task| drop(tokio::spawn(task)), tokio::time::sleep).workers(WORKERS);
    let builder = builder(setup, script).tasks(tasks).max_in_flight(WORKERS);
    start(builder.linger(setup.linger), Driver::Tasks)
}

fn inline(setup: Setup, script: Arc<Script>) -> Arc<dyn Engine> {
    // Each caller would run its own key at once.
    start(builder(setup, script).inline().max_in_flight(WORKERS), Driver::Inline)
}

fn builder(setup: Setup, script: Arc<Script>) -> Builder<Processor> {
    let builder = Batcher::builder(Processor(script)).max_batch_items(setup.max_items);
    builder.capacity(setup.capacity)
}

fn start(builder: Builder<Processor>, driver: Driver) -> Arc<dyn Engine> {
    Arc::new(Ours { batcher: builder.build().expect("the settings are valid"), driver })
}

/// A key and an item of it.
type Keyed = (u64, u64);

struct Processor(Arc<Script>);

impl BatchProcessor for Processor {
    type Key = u64;
    type Item = Keyed;
    type Output = u64;
    type Error = String;

    fn key(&self, item: &Keyed) -> u64 {
        item.0
    }

    fn process(&self, _key: &u64, batch: BatchOf<Self>) {
        let items: Vec<u64> = batch.items().iter().map(|item| item.1).collect();
        // In a task it would keep a thread from others that have to run.
        if self.0.waits() && Handle::try_current().is_ok() {
            let script = Arc::clone(&self.0);
            tokio::spawn(async move { resolve(&batch, &items, script.run(&items).await) });
        } else {
            resolve(&batch, &items, self.0.run_blocking(&items));
        }
    }

    fn classify(&self, _error: &String) -> Disposition {
        Disposition::Split
    }
}

fn resolve(batch: &BatchOf<Processor>, items: &[u64], run: Result<Vec<(u64, u64)>, String>) {
    match run {
        // One in the middle is missing: by position, as where peers shift the results.
        Ok(answers) if answers.len() < items.len() && last(&answers) == items.last() => {
            batch.resolve_all(answers.into_iter().map(|(_, answer)| Ok(answer)).collect());
        }
        Ok(answers) => resolve_by_slot(batch, &answers),
        Err(error) => batch.fail_all(error),
    }
}

/// Returns the last item that has an answer.
fn last(answers: &[(u64, u64)]) -> Option<&u64> {
    answers.last().map(|(item, _)| item)
}

fn resolve_by_slot(batch: &Batch<Keyed, u64, String>, answers: &[(u64, u64)]) {
    for slot in batch.slots() {
        if let Some((_, answer)) = answers.iter().find(|answer| answer.0 == slot.item().1) {
            slot.resolve(Ok(*answer));
        }
    }
}

struct Ours {
    batcher: Batcher<Processor>,
    driver: Driver,
}

fn reply(outcome: Outcome<u64, String>) -> Reply {
    outcome.map_err(|error| error.to_string())
}

/// Submits one item the way that a caller of the driver would; keeps no handle.
async fn submit(
    batcher: Batcher<Processor>,
    driver: Driver,
    item: Keyed,
) -> Result<Ticket<u64, String>, String> {
    let submitted = match driver {
        Driver::Tasks => batcher.submit_async(item).await,
        Driver::Threads | Driver::Inline => {
            let submitted = spawn_blocking(move || batcher.submit(item)).await;
            submitted.map_err(|error| error.to_string())?
        }
    };
    submitted.map_err(|error| error.to_string())
}

async fn get(ticket: Ticket<u64, String>, driver: Driver) -> Reply {
    if driver != Driver::Inline {
        return reply(ticket.await);
    }
    let ticket = match ticket.try_get() {
        Ok(outcome) => return reply(outcome),
        Err(not_ready) => not_ready.into_inner(),
    };
    match spawn_blocking(|| reply(ticket.wait())).await {
        Ok(reply) => reply,
        Err(error) => Err(error.to_string()),
    }
}

impl Engine for Ours {
    fn call(&self, key: u64, item: u64) -> Call {
        let (batcher, driver) = (self.batcher.clone(), self.driver);
        Box::pin(async move { get(submit(batcher, driver, (key, item)).await?, driver).await })
    }

    fn call_together(&self, items: Vec<u64>) -> Vec<Call> {
        let tickets = self.batcher.submit_all(items.into_iter().map(|item| (0, item)));
        let (tickets, refused) = match tickets {
            Ok(tickets) => (tickets, Vec::new()),
            Err(partial) => (partial.accepted, partial.rest),
        };
        let driver = self.driver;
        let calls = tickets.into_iter().map(|ticket| Box::pin(get(ticket, driver)) as Call);
        let refused =
            refused.into_iter().map(|_| Box::pin(async { Err("refused".to_owned()) }) as Call);
        calls.chain(refused).collect()
    }

    fn call_bulk(&self, items: Vec<u64>) -> Option<Call<Result<Vec<u64>, String>>> {
        let batcher = self.batcher.clone();
        Some(Box::pin(async move {
            let done = spawn_blocking(move || {
                let tickets = batcher.submit_all(items.into_iter().map(|item| (0, item)));
                let tickets = tickets.map_err(|error| error.to_string())?;
                tickets.wait().into_iter().map(reply).collect()
            });
            done.await.map_err(|error| error.to_string())?
        }))
    }

    fn call_inside(&self, item: u64) -> Call {
        let submitted = self.batcher.submit((0, item));
        let answer = submitted.map_err(|error| error.to_string());
        let answer = answer.and_then(|ticket| reply(ticket.wait()));
        Box::pin(async { answer })
    }

    fn call_and_cancel(&self, item: u64) -> Call<()> {
        let (batcher, driver) = (self.batcher.clone(), self.driver);
        Box::pin(async move {
            if let Ok(ticket) = submit(batcher, driver, (0, item)).await {
                ticket.cancel();
            }
        })
    }
}
