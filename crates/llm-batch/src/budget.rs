//! What a pass may cost.

use crate::accounting::Delivered;
use crate::answer::{RequestError, Status};
use crate::engine::{Engine, Mode};
use crate::error::{Error, PendingReason};
use crate::lane::Lane;
use crate::session::{Session, Tell};
use crate::table::Table;

/// What may still be spent on sending once more what may have been paid for already. What was not
/// paid for costs nothing more: it was counted when the pass began.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Dollars; none where there is no limit.
    left: Option<f64>,
    /// Where the limit was passed before the pass began, and the pass sends nothing by itself: what
    /// it may cost, and the limit. Then nothing that comes back is sent again either.
    over: Option<(f64, f64)>,
}

impl Budget {
    /// Takes so much out, if it is there.
    fn take(&mut self, dollars: f64) -> bool {
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

impl<T: Tell> Session<'_, T> {
    /// Tells whether a request may be sent by its own budget, with what it may have cost in so many
    /// creates before; ends it where not. This is asked before every record that is begun: a budget
    /// may have been lowered since the last one.
    pub(crate) fn is_within_budget(&mut self, index: usize, doubts: u32) -> Result<bool, Error> {
        let Some(over) = self.over_budget(index, doubts)? else { return Ok(true) };
        if doubts > 0 {
            // With a larger budget it goes on.
            self.mark_ambiguous(index, &format!("it may have been paid for; {over}"));
        } else {
            self.hand_over(index, Err(over))?;
        }
        Ok(false)
    }

    /// Returns why a request is not sent that may cost more than its own budget, with what it may
    /// have cost in so many creates before.
    fn over_budget(&self, index: usize, doubts: u32) -> Result<Option<RequestError>, Error> {
        let Some(budget) = self.table.budget(index) else { return Ok(None) };
        match self.engine.estimate(&self.table, index, None) {
            Ok(estimate) => {
                let estimate = estimate * f64::from(doubts.saturating_add(1));
                // No number at all is no permission.
                let is_within = estimate <= budget;
                Ok((!is_within).then_some(RequestError::OverBudget { estimate, budget }))
            }
            Err(error @ (Error::NoPrice { .. } | Error::NoLongestAnswer { .. })) => {
                Ok(Some(RequestError::invalid(error.to_string())))
            }
            Err(error) => Err(error),
        }
    }

    /// Tells whether requests of a create may be sent once more although that may be paid for, by
    /// their own budgets and that of the pass, and takes what it may cost out of the latter.
    pub(crate) fn afford(
        &mut self,
        at: usize,
        members: impl IntoIterator<Item = u32>,
    ) -> Result<bool, Error> {
        let doubts = {
            let state = self.engine.state();
            state.doubts(at) + u32::from(!state.record(at).is_doubted())
        };
        let mut dollars = 0.0;
        for member in members {
            if self.over_budget(member as usize, doubts)?.is_some() {
                return Ok(false);
            }
            if self.engine.settings.max_cost.is_some() {
                dollars += self.engine.estimate(&self.table, member as usize, None)?;
            }
        }
        Ok(self.budget.take(dollars))
    }

    /// Tells whether nothing may be sent because of what it has cost already, and sets the requests aside
    /// then.
    pub(crate) fn is_over_budget(&mut self, members: &[u32]) -> bool {
        let Some((estimate, max)) = self.budget.over else { return false };
        let problem = Error::OverBudget { estimate, max }.to_string();
        self.set_aside(members, PendingReason::OverBudget { problem });
        true
    }
}

impl Engine {
    /// Refuses a pass that may cost more than it must: what its requests have cost, and what those
    /// may cost that have no answer yet. One that sends nothing new costs nothing new, and where
    /// there is something to bring home, only the sending is refused.
    pub(crate) fn budget(&self, table: &Table, mode: Mode) -> Result<Budget, Error> {
        let Some(max) = self.settings.max_cost else {
            return Ok(Budget { left: None, over: None });
        };
        let prices = &self.settings.prices;
        let (mut total, mut sends, mut is_open) = (0.0, false, false);
        for (index, item) in table.items().iter().enumerate() {
            if table.invalid(index).is_some() {
                continue;
            }
            let model = &table.group(index).model;
            let (delivered, told, lane, is_unsent, doubts) = {
                let state = self.state();
                let known = state.known(item);
                let lane = known.map(|known| state.record(known.at).intent.lane);
                let is_unsent = known.is_none_or(|known| state.record(known.at).is_unsent());
                let doubts = known.map_or(0, |known| state.doubts(known.at));
                (self.delivered(&state, item, mode), state.told(item), lane, is_unsent, doubts)
            };
            let may_be_paid = told.is_some_and(|told| told.may_be_paid);
            // What was told before and is not to be sent has cost what it has cost.
            let told = told.map(|told| told.delivered).filter(|_| !is_unsent);
            total += match delivered.or(told) {
                Some(Delivered { usage: Some(usage), .. }) => prices
                    .cost(model, lane.unwrap_or_default(), usage)
                    .ok_or_else(|| Error::NoPrice { model: model.clone() })?,
                // Without a count of its tokens it has cost what it may cost.
                Some(Delivered { status, .. }) if status != Status::Succeeded && !may_be_paid => {
                    0.0
                }
                _ => self.estimate(table, index, lane)?,
            };
            if doubts > 0 {
                total += f64::from(doubts) * self.estimate(table, index, lane)?;
            }
            sends |= is_unsent && delivered.is_none();
            is_open |= !is_unsent && delivered.is_none();
        }
        // No number at all is no permission.
        let is_within = total <= max;
        if sends && !is_within && !is_open {
            return Err(Error::OverBudget { estimate: total, max });
        }
        let over = (!is_within).then_some((total, max));
        Ok(Budget { left: Some((max - total).max(0.0)), over })
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
        let extent = table.extent(index)?;
        if extent.answer_tokens.is_none() {
            return Err(Error::NoLongestAnswer { id: table.id(index).to_string() });
        }
        let estimate = self.settings.prices.estimate(model, lane, extent);
        estimate.ok_or_else(|| Error::NoPrice { model: model.clone() })
    }
}
