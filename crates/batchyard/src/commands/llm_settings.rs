//! The flags of `llm run` that say how requests are sent.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use llm_batch::{Builder, LaneChoice, LlmBatch, OnAmbiguous, Provider};

use crate::cli::{dollars, duration};
use crate::exit::Stop;
use crate::provider::prices;

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Settings {
    /// Requests of one submission at most; by default what the provider takes
    #[arg(long, value_name = "N")]
    max_items: Option<NonZeroUsize>,
    /// How often to ask how far a batch is, such as 15s
    #[arg(long, value_name = "D", value_parser = duration)]
    poll_interval: Option<Duration>,
    /// How long the whole command may take, such as 26h
    #[arg(long, value_name = "D", value_parser = duration)]
    timeout: Option<Duration>,
    /// What the run must cost at most, in dollars; one that may cost more is refused
    #[arg(long, value_name = "USD", value_parser = dollars)]
    max_cost: Option<f64>,
    /// Table of prices to count with, by default the one that is built in
    #[arg(long, value_name = "FILE.json")]
    pub(crate) prices: Option<PathBuf>,
    /// batch = together, within hours, at the lower price; sync = one by one, several at a time,
    /// answered at once; auto = in batches, but one by one where a deadline is too near for that
    #[arg(long, value_name = "batch|sync|auto", default_value = "batch")]
    lane: LaneChoice,
    /// In the lane auto, how long a batch is expected to take, such as 1h; what has to be there
    /// sooner is asked one by one
    #[arg(long, value_name = "D", value_parser = duration)]
    batch_time: Option<Duration>,
    /// How long before its deadline a batch is cancelled, such as 15m
    #[arg(long, value_name = "D", value_parser = duration)]
    headroom: Option<Duration>,
    /// In the lane auto, ask one by one what a cancelled batch has not told in time; it may be paid
    /// for twice
    #[arg(long)]
    deadline_pay_twice: bool,
    /// How often a request is sent at most that failed in passing or expired, unpaid; 3 by default
    #[arg(long, value_name = "N")]
    attempts: Option<NonZeroU32>,
    /// Mark system texts that requests share for the provider's cache; writing there costs more,
    /// and reading less
    #[arg(long)]
    cache_prefixes: bool,
    /// In the lane sync, ask once more where an answer was lost; it may be paid for twice
    #[arg(long)]
    sync_retry: bool,
    /// What to do about a submission that was not answered, once the provider's list was looked at:
    /// hold = look again and send what is absent twice; fail = end its requests at once; resubmit =
    /// send what is absent at once, and count it as possibly paid twice
    #[arg(long, value_name = "hold|fail|resubmit", default_value = "hold")]
    on_ambiguous: OnAmbiguous,
    /// How far the provider's list may be behind, such as 60s
    #[arg(long, value_name = "D", value_parser = duration)]
    list_lag: Option<Duration>,
    /// Ask anew what was asked before with another content, and keep the old results beside OUT
    #[arg(long)]
    pub(crate) fresh: bool,
}

impl Settings {
    /// Returns the settings that the options name.
    pub(crate) fn builder(
        &self,
        provider: Arc<dyn Provider>,
        state: &Path,
    ) -> Result<Builder, Stop> {
        let mut builder = LlmBatch::builder(provider)
            .state(state)
            .lane(self.lane)
            .sync_retry(self.sync_retry)
            .pay_twice_for_deadlines(self.deadline_pay_twice)
            .cache_prefixes(self.cache_prefixes)
            .on_ambiguous(self.on_ambiguous)
            .fresh(self.fresh);
        if let Some(file) = &self.prices {
            builder = builder.prices(prices(file)?);
        }
        if let Some(time) = self.batch_time {
            builder = builder.batch_time(time);
        }
        if let Some(headroom) = self.headroom {
            builder = builder.headroom(headroom);
        }
        if let Some(attempts) = self.attempts {
            builder = builder.attempts(attempts.get());
        }
        if let Some(lag) = self.list_lag {
            builder = builder.list_lag(lag);
        }
        if let Some(max_items) = self.max_items {
            builder = builder.max_items(max_items.get());
        }
        if let Some(interval) = self.poll_interval {
            builder = builder.poll_interval(interval);
        }
        if let Some(timeout) = self.timeout {
            builder = builder.timeout(timeout);
        }
        if let Some(dollars) = self.max_cost {
            builder = builder.max_cost(dollars);
        }
        Ok(builder)
    }
}
