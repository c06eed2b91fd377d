//! What was asked, what it took, and what a run came to.

use serde::Serialize;

use crate::answer::{Answer, RequestError, Status, Usage};

/// Counts of a run, or of everything a batcher did.
///
/// `requests = succeeded + failed + pending` always holds. Submissions are counted for the
/// requests at hand whichever run made them, so a run that only goes on with what an earlier one
/// began shows the same figures as one that was never cut; `http_calls` are this run's own.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct Accounting {
    /// Requests asked.
    pub requests: u64,
    /// Requests answered.
    pub succeeded: u64,
    /// Requests that ended without an answer: errored, expired, cancelled.
    pub failed: u64,
    /// Requests that are not finished, the ambiguous ones included.
    pub pending: u64,
    /// Batches that the provider is known to have taken.
    pub batches: u64,
    /// Creates that were attempted, whatever came of them.
    pub submissions: u64,
    /// `requests` minus `submissions`; negative is possible.
    pub calls_saved: i64,
    /// HTTP calls of every sort: creates, polls, results.
    pub http_calls: u64,
    /// Tokens read, as far as the provider told.
    pub input_tokens: u64,
    /// Tokens written, as far as the provider told.
    pub output_tokens: u64,
    /// What it cost in dollars; `None` where no price is known.
    pub cost: Option<f64>,
    /// Requests that may have been paid for twice. This version never sends a create twice.
    pub possibly_paid_twice: u64,
}

impl Accounting {
    pub(crate) fn count(&mut self, status: Status, usage: Option<Usage>) {
        self.requests += 1;
        match status {
            Status::Succeeded => self.succeeded += 1,
            Status::Pending | Status::Ambiguous => self.pending += 1,
            Status::Errored | Status::Expired | Status::Canceled => self.failed += 1,
        }
        let usage = usage.unwrap_or_default();
        self.input_tokens = self.input_tokens.saturating_add(usage.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(usage.output_tokens);
        self.settle();
    }

    pub(crate) fn settle(&mut self) {
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.calls_saved = signed(self.requests) - signed(self.submissions);
    }
}

/// What a run came to, request by request.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Run {
    /// Every request of the run with where it stands, in the order they were given.
    pub outcomes: Vec<(String, Status)>,
    /// The counts.
    pub accounting: Accounting,
    /// Result lines that belonged to nobody: foreign or repeated ids, lines that were no JSON or
    /// over the cap. They were left out, and nobody was handed them.
    pub stray_results: u64,
}

/// What is known of a request that has its outcome already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// How it ended.
    pub status: Status,
    /// The tokens it took, where known.
    pub usage: Option<Usage>,
}

impl Delivered {
    pub(crate) fn of(outcome: &Result<Answer, RequestError>) -> Delivered {
        match outcome {
            Ok(answer) => Delivered { status: Status::Succeeded, usage: answer.usage },
            Err(error) => Delivered { status: error.status(), usage: None },
        }
    }
}
