//! What was asked, what it took, and what a run came to.

use serde::Serialize;

use crate::answer::{Answer, RequestError, Status, Usage};
use crate::lane::Lane;
use crate::prices::Prices;
use crate::table::Group;

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
    /// Creates that were attempted, whatever came of them, and calls of the lane `sync`.
    pub submissions: u64,
    /// Requests that the model is known to have run: those answered, and those that failed there
    /// during this run, each as often as it was run.
    pub inferences: u64,
    /// `requests` minus `submissions`; negative is possible.
    pub calls_saved: i64,
    /// HTTP calls of every sort: creates, uploads, polls, lists, results.
    pub http_calls: u64,
    /// Tokens read, as far as the provider told, those from a cache included.
    pub input_tokens: u64,
    /// Tokens written, as far as the provider told.
    pub output_tokens: u64,
    /// Of the tokens read, those that came out of a cache.
    pub cache_read_tokens: u64,
    /// What it cost in dollars; `None` where the price of one of the models is not known, or an answer
    /// came without a count of its tokens.
    pub cost: Option<f64>,
    /// What the same tokens would have cost one by one, at the price of the lane `sync`.
    pub cost_one_by_one: Option<f64>,
    /// Requests that may have been paid for twice: those that were sent again although the first
    /// create, or the first call of the lane `sync`, may have been taken.
    pub possibly_paid_twice: u64,
    /// The same by kind, model and lane, in the order of their names.
    pub groups: Vec<GroupAccounting>,
}

/// Counts of the requests of one kind and model that took one lane.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GroupAccounting {
    /// The kind.
    pub kind: String,
    /// The model.
    pub model: String,
    /// The lane.
    pub lane: Lane,
    /// Requests asked.
    pub requests: u64,
    /// Requests answered.
    pub succeeded: u64,
    /// Creates that were attempted, and calls of the lane `sync`.
    pub submissions: u64,
    /// Requests that the model is known to have run.
    pub inferences: u64,
    /// Tokens read, those from a cache included.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Of the tokens read, those that came out of a cache.
    pub cache_read_tokens: u64,
    /// What it cost in dollars; `None` where the price, or a count of tokens, is not known.
    pub cost: Option<f64>,
    /// What the same tokens would have cost one by one.
    pub cost_one_by_one: Option<f64>,
}

impl Accounting {
    /// Counts a request with where it stands.
    pub(crate) fn count(
        &mut self,
        group: &Group,
        lane: Lane,
        delivered: Delivered,
        prices: &Prices,
    ) {
        let usage = delivered.usage.unwrap_or_default();
        let of_group = self.group(group.kind.as_str(), &group.model, lane, prices);
        of_group.requests += 1;
        of_group.succeeded += u64::from(delivered.status == Status::Succeeded);
        let add = |total: &mut u64, tokens| *total = total.saturating_add(tokens);
        add(&mut of_group.input_tokens, usage.input_tokens);
        add(&mut of_group.output_tokens, usage.output_tokens);
        add(&mut of_group.cache_read_tokens, usage.cache_read_tokens);
        // Without a count of its tokens nobody knows what an answer has cost.
        let is_known = delivered.status != Status::Succeeded || delivered.usage.is_some();
        let pay = |total: &mut Option<f64>, lane| {
            let cost = prices.cost(&group.model, lane, usage).filter(|_| is_known);
            *total = total.zip(cost).map(|(a, b)| a + b);
        };
        pay(&mut of_group.cost, lane);
        pay(&mut of_group.cost_one_by_one, Lane::Sync);
        self.requests += 1;
        match delivered.status {
            Status::Succeeded => self.succeeded += 1,
            Status::Pending | Status::Ambiguous => self.pending += 1,
            Status::Errored | Status::Expired | Status::Canceled => self.failed += 1,
        }
        add(&mut self.input_tokens, usage.input_tokens);
        add(&mut self.output_tokens, usage.output_tokens);
        add(&mut self.cache_read_tokens, usage.cache_read_tokens);
    }

    /// Counts creates, or calls of the lane `sync`.
    pub(crate) fn submitted(
        &mut self,
        (kind, model, lane): (&str, &str, Lane),
        times: u64,
        prices: &Prices,
    ) {
        self.group(kind, model, lane, prices).submissions += times;
        self.submissions += times;
    }

    /// Counts a request that the model has run.
    pub(crate) fn ran(&mut self, group: &Group, lane: Lane, prices: &Prices) {
        self.group(group.kind.as_str(), &group.model, lane, prices).inferences += 1;
        self.inferences += 1;
    }

    fn group(
        &mut self,
        kind: &str,
        model: &str,
        lane: Lane,
        prices: &Prices,
    ) -> &mut GroupAccounting {
        let wanted = (kind, model, lane);
        let place = self
            .groups
            .binary_search_by(|g| (g.kind.as_str(), g.model.as_str(), g.lane).cmp(&wanted));
        let at = place.unwrap_or_else(|at| {
            self.groups.insert(at, GroupAccounting::new(kind, model, lane, prices));
            at
        });
        &mut self.groups[at]
    }

    pub(crate) fn settle(&mut self) {
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.calls_saved = signed(self.requests) - signed(self.submissions);
        let sum = |cost: fn(&GroupAccounting) -> Option<f64>| {
            let costs: Option<Vec<f64>> = self.groups.iter().map(cost).collect();
            costs.filter(|costs| !costs.is_empty()).map(|costs| costs.iter().sum())
        };
        let (cost, one_by_one) = (sum(|group| group.cost), sum(|group| group.cost_one_by_one));
        (self.cost, self.cost_one_by_one) = (cost, one_by_one);
    }
}

impl GroupAccounting {
    fn new(kind: &str, model: &str, lane: Lane, prices: &Prices) -> GroupAccounting {
        let nothing = prices.cost(model, lane, Usage::default());
        GroupAccounting {
            kind: kind.to_owned(),
            model: model.to_owned(),
            lane,
            requests: 0,
            succeeded: 0,
            submissions: 0,
            inferences: 0,
            input_tokens: 0,
            output_tokens: 0,
            cache_read_tokens: 0,
            cost: nothing,
            cost_one_by_one: nothing,
        }
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
