//! batch-core, with its driver of threads and with its inline driver.

mod planned;

use std::sync::Arc;

use batch_core::{Batch, BatchOf, BatchProcessor, Batcher, Outcome, Ticket};
use tokio::task::spawn_blocking;

use crate::candidate::Candidate;
use crate::engine::{Call, Engine, Reply, Setup};
use crate::script::Script;

/// Threads that run batches, and so the most batches that run at the same time.
const WORKERS: usize = 4;

pub(crate) fn candidates() -> Vec<Candidate> {
    vec![
        Candidate { name: "ours (threads)", starts: threads, lacks: planned::LACKS },
        Candidate { name: "ours (inline)", starts: inline, lacks: planned::INLINE_LACKS },
    ]
}

fn threads(setup: Setup, script: Arc<Script>) -> Arc<dyn Engine> {
    let builder = Batcher::builder(Processor(script)).workers(WORKERS).linger(setup.linger);
    let builder = builder.max_batch_items(setup.max_items).capacity(setup.capacity);
    Arc::new(Ours { batcher: builder.build().expect("threads can be started"), awaits: true })
}

fn inline(setup: Setup, script: Arc<Script>) -> Arc<dyn Engine> {
    let builder = Batcher::builder(Processor(script)).inline();
    let builder = builder.max_batch_items(setup.max_items).capacity(setup.capacity);
    Arc::new(Ours { batcher: builder.build().expect("the settings are valid"), awaits: false })
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
        match self.0.run_blocking(&items) {
            // One in the middle is missing: by position, as where peers shift the results.
            Ok(answers) if answers.len() < items.len() && last(&answers) == items.last() => {
                batch.resolve_all(answers.into_iter().map(|(_, answer)| Ok(answer)).collect());
            }
            Ok(answers) => resolve_by_slot(&batch, &answers),
            Err(error) => batch.fail_all(error),
        }
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
    /// The callers await their tickets; else they block.
    awaits: bool,
}

fn reply(outcome: Outcome<u64, String>) -> Reply {
    outcome.map_err(|error| error.to_string())
}

async fn get(ticket: Ticket<u64, String>, awaits: bool) -> Reply {
    if awaits {
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
        let (batcher, awaits) = (self.batcher.clone(), self.awaits);
        // A submit may block: for room, and inline for the batch.
        let submitted = spawn_blocking(move || batcher.submit((key, item)));
        Box::pin(async move {
            let ticket = submitted.await.map_err(|error| error.to_string())?;
            get(ticket.map_err(|error| error.to_string())?, awaits).await
        })
    }

    fn call_together(&self, items: Vec<u64>) -> Vec<Call> {
        let tickets = self.batcher.submit_all(items.into_iter().map(|item| (0, item)));
        let (tickets, refused) = match tickets {
            Ok(tickets) => (tickets, Vec::new()),
            Err(partial) => (partial.accepted, partial.rest),
        };
        let awaits = self.awaits;
        let calls = tickets.into_iter().map(|ticket| Box::pin(get(ticket, awaits)) as Call);
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

    fn call_and_cancel(&self, item: u64) -> Option<Call<()>> {
        let batcher = self.batcher.clone();
        planned::CANCELS.then(|| -> Call<()> {
            Box::pin(async move {
                let submitted = spawn_blocking(move || batcher.submit((0, item))).await;
                if let Ok(Ok(ticket)) = submitted {
                    planned::cancel(&ticket);
                }
            })
        })
    }
}
