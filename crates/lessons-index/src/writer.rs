//! Adding: N concurrent calls are one locked append, one sync and one publication.

use std::io;
use std::sync::Arc;

use batch_core::{BatchError, BatchOf, BatchProcessor, Batcher};

use crate::error::{AddError, WriteError};
use crate::lesson::Lesson;
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
            .history(0)
            .build()
    }
}

impl BatchProcessor for Writer {
    type Key = ();
    type Item = Arc<Lesson>;
    type Output = ();
    type Error = WriteError;

    fn key(&self, _: &Self::Item) {}

    fn weight(&self, item: &Self::Item) -> u64 {
        item.raw().len() as u64 + 1
    }

    fn process(&self, (): &(), batch: BatchOf<Self>) {
        match self.shared.append(batch.items()) {
            Ok(()) => {
                for slot in batch.slots() {
                    slot.resolve(Ok(()));
                }
            }
            Err(error) => batch.fail_all(error),
        }
    }
}

/// Adds one lesson.
pub(crate) fn add(writer: &Batcher<Writer>, lesson: Arc<Lesson>) -> Result<Arc<Lesson>, AddError> {
    match writer.submit(Arc::clone(&lesson)) {
        Ok(ticket) => answer(lesson, ticket.wait()),
        Err(refusal) => Err(refused(&lesson, &refusal)),
    }
}

/// Adds many lessons; each gets its own answer, in order.
pub(crate) fn add_all(
    writer: &Batcher<Writer>,
    lessons: Vec<Result<Arc<Lesson>, AddError>>,
) -> Vec<Result<Arc<Lesson>, AddError>> {
    let good: Vec<_> = lessons.iter().flatten().map(Arc::clone).collect();
    let (tickets, refusal) = match writer.submit_all(good) {
        Ok(tickets) => (tickets, None),
        Err(partial) => (partial.accepted, Some(partial.reason)),
    };
    let mut outcomes = tickets.wait().into_iter();
    lessons
        .into_iter()
        .map(|lesson| {
            let lesson = lesson?;
            match (outcomes.next(), &refusal) {
                (Some(outcome), _) => answer(lesson, outcome),
                (None, Some(reason)) => Err(refused(&lesson, reason)),
                (None, None) => Err(refused(&lesson, &"the writer gave no answer")),
            }
        })
        .collect()
}

fn answer(
    lesson: Arc<Lesson>,
    outcome: Result<(), BatchError<WriteError>>,
) -> Result<Arc<Lesson>, AddError> {
    match outcome {
        Ok(()) => Ok(lesson),
        Err(BatchError::Failed(source)) => Err(AddError::Write { id: lesson.id.clone(), source }),
        Err(other) => Err(refused(&lesson, &other)),
    }
}

fn refused(lesson: &Lesson, reason: &dyn std::fmt::Display) -> AddError {
    AddError::Refused { id: lesson.id.clone(), reason: reason.to_string() }
}
