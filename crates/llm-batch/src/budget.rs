//! What a pass may cost.

use crate::engine::Engine;
use crate::error::Error;
use crate::lane::Lane;
use crate::table::Table;

/// What may still be spent on sending once more what may have been paid for already. What was not
/// paid for costs nothing more: it was counted when the pass began.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Dollars; none where there is no limit.
    left: Option<f64>,
}

impl Budget {
    /// Takes so much out, if it is there.
    pub(crate) fn take(&mut self, dollars: f64) -> bool {
        match &mut self.left {
            None => true,
            Some(left) if *left >= dollars => {
                *left -= dollars;
                true
            }
            Some(_) => false,
        }
    }
}

impl Engine {
    /// Refuses a pass that may cost more than it must: what its requests have cost, and what those
    /// may cost that have no answer yet. One that sends nothing new costs nothing new.
    pub(crate) fn budget(&self, table: &Table) -> Result<Budget, Error> {
        let Some(max) = self.settings.max_cost else { return Ok(Budget { left: None }) };
        let prices = &self.settings.prices;
        let (mut total, mut sends) = (0.0, false);
        for (index, item) in table.items().iter().enumerate() {
            if table.invalid(index).is_some() {
                continue;
            }
            let model = &table.group(index).model;
            let no_price = || Error::NoPrice { model: model.clone() };
            let (is_unsent, delivered, is_doubted, lane) = {
                let state = self.state();
                let known = state.find(&item.id).filter(|known| known.digest == item.digest);
                let lane = known.map(|known| state.record(known.at).intent.lane);
                let delivered = known.and_then(|_| state.delivered(&item.id));
                let is_unsent = known.is_none_or(|known| state.record(known.at).is_unsent());
                (is_unsent, delivered, state.is_doubted(&item.id), lane)
            };
            total += match (delivered, lane) {
                (Some(delivered), Some(lane)) => prices
                    .cost(model, lane, delivered.usage.unwrap_or_default())
                    .ok_or_else(no_price)?,
                _ => self.estimate(table, index, lane)?,
            };
            if is_doubted {
                total += self.estimate(table, index, lane)?;
            }
            sends |= is_unsent && delivered.is_none();
        }
        // No number at all is no permission.
        let is_within = total <= max;
        if sends && !is_within {
            return Err(Error::OverBudget { estimate: total, max });
        }
        Ok(Budget { left: Some((max - total).max(0.0)) })
    }

    /// Returns what a request may cost in dollars, by the dearer of the lanes that it may take.
    pub(crate) fn estimate(
        &self,
        table: &Table,
        index: usize,
        lane: Option<Lane>,
    ) -> Result<f64, Error> {
        let model = &table.group(index).model;
        let lane = lane.unwrap_or_default().max(self.settings.lane.dearest());
        let longest = table
            .longest_answer(index)?
            .ok_or_else(|| Error::NoLongestAnswer { id: table.id(index).to_string() })?;
        let bytes = table.items()[index].bytes;
        let estimate = self.settings.prices.estimate(model, lane, bytes, longest);
        estimate.ok_or_else(|| Error::NoPrice { model: model.clone() })
    }
}
