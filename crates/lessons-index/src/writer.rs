//! Adding: N concurrent calls are one locked append, one sync and one publication.

use std::io;
use std::sync::Arc;

use batch_core::{BatchError, BatchOf, BatchProcessor, Batcher};

use crate::error::{AddError, WriteError};
use crate::op::{Op, Outcome};
use crate::shared::Shared;

/// Most lessons of one append.
const MAX_BATCH_LESSONS: usize = 1_000;

/// Most bytes of one append, unless a single lesson may be longer.
const MAX_BATCH_BYTES: usize = 64 << 20;

/// Most lessons that wait; callers that bring more wait for room.
const MAX_WAITING_LESSONS: usize = 100_000;

/// Is the batch processor that appends.
pub(crate) struct Writer {
    shared: Arc<Shared>,
}

impl Writer {
    /// Starts a batcher without a thread: the first caller appends for all who come meanwhile.
    pub(crate) fn start(shared: Arc<Shared>, max_line_bytes: usize) -> io::Result<Batcher<Self>> {
        Batcher::builder(Self { shared })
            .inline()
            .max_batch_items(MAX_BATCH_LESSONS)
            .max_batch_weight(MAX_BATCH_BYTES.max(max_line_bytes.saturating_add(1)) as u64)
            .capacity(MAX_WAITING_LESSONS)
            .max_block(None)
            .delivery_timeout(None)
            .history(0)
            .build()
    }
}

impl BatchProcessor for Writer {
    type Key = ();
    type Item = Op;
    type Output = Outcome;
    type Error = WriteError;

    fn key(&self, _: &Self::Item) {}

    fn weight(&self, item: &Self::Item) -> u64 {
        item.bytes(&self.shared.current())
    }

    fn process(&self, (): &(), batch: BatchOf<Self>) {
        match self.shared.append(batch.items()) {
            Ok(outcomes) => {
                for (slot, outcome) in batch.slots().zip(outcomes) {
                    slot.resolve(Ok(outcome));
                }
                batch.publish();
                self.shared.compact_if_due();
            }
            Err(error) => batch.fail_all(error),
        }
    }
}

/// Has one change carried out.
pub(crate) fn one(writer: &Batcher<Writer>, op: Op) -> Result<Outcome, AddError> {
    let name = op.name();
    match writer.submit(op) {
        Ok(ticket) => answer(name, ticket.wait()),
        Err(refusal) => Err(refused(name, &refusal)),
    }
}

/// Has many changes carried out; each gets its own answer, in order.
pub(crate) fn all(
    writer: &Batcher<Writer>,
    ops: Vec<Result<Op, AddError>>,
) -> Vec<Result<Outcome, AddError>> {
    let mut good = Vec::with_capacity(ops.len());
    let names: Vec<Result<String, AddError>> = ops
        .into_iter()
        .map(|op| {
            op.map(|op| {
                let name = op.name();
                good.push(op);
                name
            })
        })
        .collect();
    let (tickets, refusal) = match writer.submit_all(good) {
        Ok(tickets) => (tickets, None),
        Err(partial) => (partial.accepted, Some(partial.reason)),
    };
    let mut outcomes = tickets.wait().into_iter();
    names
        .into_iter()
        .map(|name| {
            let name = name?;
            match (outcomes.next(), &refusal) {
                (Some(outcome), _) => answer(name, outcome),
                (None, Some(reason)) => Err(refused(name, reason)),
                (None, None) => Err(refused(name, &"the writer gave no answer")),
            }
        })
        .collect()
}

fn answer(
    id: String,
    outcome: Result<Outcome, BatchError<WriteError>>,
) -> Result<Outcome, AddError> {
    match outcome {
        Ok(outcome) => Ok(outcome),
        Err(BatchError::Failed(source)) => Err(AddError::Write { id, source }),
        Err(other) => Err(refused(id, &other)),
    }
}

fn refused(id: String, reason: &dyn std::fmt::Display) -> AddError {
    AddError::Refused { id, reason: reason.to_string() }
}
