//! What waits to be asked, model by model.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::time::Instant;

use super::Ask;
use crate::table::Table;
use crate::throttle::Place;

/// What a pass asks one by one.
#[derive(Debug, Default)]
pub(crate) struct Direct {
    by_model: BTreeMap<String, Asks>,
    pub(super) running: usize,
    /// The first deadline of what waits, or one that has gone.
    due: Option<Instant>,
}

/// What it asks of one model.
#[derive(Debug, Default)]
pub(super) struct Asks {
    queue: VecDeque<Ask>,
    /// Where the pass stands among all that want to ask this model.
    pub(super) place: Option<Place>,
    pub(super) wait: Wait,
    /// In how many rounds in a row none got through, and the latest of them.
    pub(super) failures: u32,
    round: u64,
}

/// Whether the next one may be tried.
#[derive(Debug, Default)]
pub(super) enum Wait {
    #[default]
    None,
    /// Not before there is mail, or before that moment where there is one.
    ForRoom(Option<Instant>),
}

impl Asks {
    /// Returns when the next one may be tried; `None` where nothing waits, or only mail can tell.
    fn next(&self, now: Instant) -> Option<Instant> {
        match self.wait {
            _ if self.queue.is_empty() => None,
            Wait::None => Some(now),
            Wait::ForRoom(until) => until,
        }
    }

    /// Leaves the line.
    fn leave(&mut self) {
        (self.place, self.wait) = (None, Wait::None);
    }

    /// Counts that one did not get through; returns in how many rounds in a row that was so.
    pub(super) fn failed(&mut self, round: u64) -> u32 {
        if mem::replace(&mut self.round, round) != round {
            self.failures += 1;
        }
        self.failures
    }
}

impl Direct {
    pub(crate) fn extend(&mut self, asks: impl IntoIterator<Item = Ask>, table: &Table) {
        for ask in asks {
            self.notice(&ask, table);
            self.of(table.model(ask.member)).queue.push_back(ask);
        }
    }

    pub(super) fn of(&mut self, model: &str) -> &mut Asks {
        if !self.by_model.contains_key(model) {
            self.by_model.insert(model.to_owned(), Asks::default());
        }
        self.by_model.get_mut(model).expect("it is in there")
    }

    fn notice(&mut self, ask: &Ask, table: &Table) {
        let due = table.due(ask.member as usize);
        self.due = [self.due, due].into_iter().flatten().min();
    }

    /// Puts one back at the head.
    pub(super) fn put_back(&mut self, ask: Ask, table: &Table) {
        self.notice(&ask, table);
        self.of(table.model(ask.member)).queue.push_front(ask);
    }

    /// Takes out what waits and is overdue.
    pub(crate) fn take_overdue(&mut self, table: &Table) -> Vec<Ask> {
        let now = Instant::now();
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        let due = |ask: &Ask| table.due(ask.member as usize);
        let is_over = |ask: &Ask| due(ask).is_some_and(|due| due <= now);
        let mut overdue = Vec::new();
        for asks in self.by_model.values_mut() {
            let waiting = mem::take(&mut asks.queue).into_iter();
            let (over, left): (VecDeque<Ask>, VecDeque<Ask>) = waiting.partition(is_over);
            asks.queue = left;
            overdue.extend(over);
        }
        let left = self.by_model.values().flat_map(|asks| &asks.queue);
        self.due = left.filter_map(due).min();
        overdue
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running > 0
    }

    /// Tells whether something waits, or is on its way.
    pub(crate) fn has_work(&self) -> bool {
        self.is_running() || self.by_model.values().any(|asks| !asks.queue.is_empty())
    }

    /// Returns when there is something to do: something may go out, or is overdue.
    pub(super) fn next(&self) -> Option<Instant> {
        let now = Instant::now();
        let next = self.by_model.values().filter_map(|asks| asks.next(now)).min();
        let is_idle = self.by_model.values().all(|asks| asks.queue.is_empty());
        [next, self.due.filter(|_| !is_idle)].into_iter().flatten().min()
    }

    /// Takes one that may go out out of the queue.
    pub(super) fn pop(&mut self) -> Option<Ask> {
        let now = Instant::now();
        let may_go = |asks: &&mut Asks| asks.next(now).is_some_and(|next| next <= now);
        self.by_model.values_mut().find(may_go)?.queue.pop_front()
    }

    /// Tries a model at once: the mail says that it is the turn of this pass.
    pub(crate) fn look(&mut self, model: &str) {
        self.of(model).wait = Wait::None;
    }

    /// Lets others go first while the pass is at something else, which may wait for them.
    pub(crate) fn step_aside(&mut self) {
        for asks in self.by_model.values_mut() {
            if let Some(place) = &asks.place {
                place.step_aside();
                asks.wait = Wait::None;
            }
        }
    }

    /// Leaves all lines.
    pub(crate) fn leave(&mut self) {
        self.by_model.values_mut().for_each(Asks::leave);
    }

    /// Leaves the lines that it stands in for nothing.
    pub(super) fn leave_idle(&mut self) {
        self.by_model.values_mut().filter(|asks| asks.queue.is_empty()).for_each(Asks::leave);
    }
}
