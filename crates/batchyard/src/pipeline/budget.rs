//! What a run may cost.

use llm_batch::{Builder, Error, Lane, Prices, Usage};

use super::prompts::Study;
use crate::exit::{Stop, not_run};
use crate::plan::Plan;
use crate::provider;
use crate::wire::requests;

/// How many bytes of a prompt are taken for one token: fewer than in plain text, as in [`Builder::max_cost`].
const BYTES_PER_TOKEN: u64 = 3;

/// The prices that a run counts with, and what it must cost at most.
#[derive(Debug)]
pub(crate) struct Budget {
    prices: Prices,
    /// Dollars.
    max: Option<f64>,
}

impl Budget {
    /// Returns the budget of a plan; `max`, in dollars, takes the place of the plan's own.
    ///
    /// # Errors
    ///
    /// The table of prices cannot be read.
    pub(crate) fn new(plan: &Plan, max: Option<f64>) -> Result<Budget, Stop> {
        let prices = plan.prices.as_deref().map(provider::prices).transpose()?;
        Ok(Budget { prices: prices.unwrap_or_default(), max: max.or(plan.max_cost) })
    }

    /// Refuses a run that may cost more than it must.
    ///
    /// # Errors
    ///
    /// It may cost too much, or there is a limit and a price is not known.
    pub(crate) fn check(&self, plan: &Plan, study: &Study) -> Result<(), Stop> {
        let Some(max) = self.max else { return Ok(()) };
        let estimate = self.estimate(plan, study)?;
        // No number at all is no permission.
        if estimate <= max {
            return Ok(());
        }
        Err(not_run(&Error::OverBudget { estimate, max }))
    }

    /// Returns what a run may cost, in dollars, rather too high: each prompt with all answers that it is
    /// given, and the longest answer to it, at the price of a batch.
    ///
    /// # Errors
    ///
    /// The price of a model is not known, or a prompt cannot be made.
    pub(crate) fn estimate(&self, plan: &Plan, study: &Study) -> Result<f64, Stop> {
        let mut dollars = 0.0;
        for task in &plan.tasks {
            let answers = task.after.iter().map(|at| (plan.tasks[*at].id.as_str(), ""));
            let request = study.request(task, answers).map_err(Stop::refused)?;
            let line = requests::to_json(&request).map_err(Stop::refused)?;
            let prompt = (line.to_string().len() as u64).div_ceil(BYTES_PER_TOKEN);
            let given = task.after.iter().map(|at| u64::from(plan.tasks[*at].max_tokens));
            let input_tokens = prompt + given.sum::<u64>();
            let output_tokens = task.max_tokens.into();
            let usage = Usage { input_tokens, output_tokens, ..Usage::default() };
            let cost = self.prices.cost(&task.model, Lane::Batch, usage);
            dollars += cost.ok_or_else(|| {
                not_run(&Error::NoPrice { model: task.model.clone() })
                    .help("name a table that has it with `prices` in the plan, or set no limit")
            })?;
        }
        Ok(dollars)
    }

    /// Keeps what is asked of a provider within the limit, and counts with the prices.
    pub(crate) fn limit(&self, llm: Builder) -> Builder {
        let llm = llm.prices(self.prices.clone());
        match self.max {
            Some(max) => llm.max_cost(max),
            None => llm,
        }
    }
}
