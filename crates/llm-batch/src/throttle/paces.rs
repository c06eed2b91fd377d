//! What is known of all who ask alone: who is on its way, and who stands in line.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cooldown::Cooldown;
use crate::session::Mail;

/// How many of a model may be on their way at first.
pub(super) const FIRST: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Paces {
    /// Requests that are on their way, and turns that are offered.
    pub(super) running: usize,
    pub(super) by_model: BTreeMap<Arc<str>, Pace>,
    /// How many ever stood in line.
    numbers: u64,
}

/// That of one model.
#[derive(Debug)]
pub(super) struct Pace {
    pub(super) running: usize,
    /// How many may be on their way: grows by one a round of answers, and halves when the provider
    /// is busy.
    pub(super) limit: f64,
    pub(super) cooldown: Cooldown,
    /// Passes that want to ask, in the order in which they came.
    pub(super) line: BTreeMap<u64, Waiter>,
}

/// A pass that stands in line.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) mail: Mail,
    pub(super) turn: Turn,
    /// Whether it looks again by itself, when the wait that there is for all is over.
    pub(super) is_timed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is at something else; others go before it meanwhile.
    Aside,
    Awaited,
    /// It is its turn: one may go out.
    Offered,
}

/// A pass that is to look whether it is its turn: its number, the model, and its mail.
pub(super) type Call = (u64, Arc<str>, Mail);

impl Paces {
    /// Returns the name of a model as it is kept here.
    pub(super) fn named(
        &mut self,
        model: &str,
        max: usize,
        interval: Option<Duration>,
    ) -> Arc<str> {
        if let Some((name, _)) = self.by_model.get_key_value(model) {
            return Arc::clone(name);
        }
        let name: Arc<str> = model.into();
        let limit = f64::from(u32::try_from(max.min(FIRST)).unwrap_or(1));
        let cooldown = Cooldown::new(interval);
        let pace = Pace { running: 0, limit, cooldown, line: BTreeMap::new() };
        self.by_model.insert(Arc::clone(&name), pace);
        name
    }

    pub(super) fn of(&mut self, model: &str) -> &mut Pace {
        self.by_model.get_mut(model).expect("the name is from here")
    }

    /// Returns the number of one that comes to the end of the line.
    pub(super) fn line_up(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn free(&mut self, model: &str, turns: usize) {
        self.running -= turns;
        self.of(model).running -= turns;
    }

    /// Takes back a turn that was offered and not used.
    pub(super) fn give_back(&mut self, model: &str) {
        self.free(model, 1);
        self.of(model).cooldown.leave();
    }

    /// Takes back all turns that are offered for a model.
    pub(super) fn revoke(&mut self, model: &str) {
        let line = self.of(model).line.values_mut();
        let offered = line.filter(|waiter| waiter.turn == Turn::Offered);
        let revoked = offered.map(|waiter| waiter.turn = Turn::Awaited).count();
        self.free(model, revoked);
    }

    /// Offers turns as long as there are any; returns who is to look.
    pub(super) fn offer(&mut self, max: usize, now: Instant) -> Vec<Call> {
        let mut calls = Vec::new();
        while self.running < max {
            let open = self.by_model.iter().filter(|(_, pace)| pace.is_open(now));
            let first = open.filter_map(|(model, pace)| Some((pace.first()?, model))).min();
            let Some((number, model)) = first else { break };
            let model = Arc::clone(model);
            self.running += 1;
            let pace = self.of(&model);
            pace.running += 1;
            pace.cooldown.enter(now);
            if let Some(waiter) = pace.line.get_mut(&number) {
                waiter.turn = Turn::Offered;
                calls.push((number, model, waiter.mail.clone()));
            }
        }
        // When a wait for all is over nobody tells: the first in line has to know until when it is.
        for (model, pace) in &mut self.by_model {
            if pace.cooldown.until(now).is_some()
                && let Some(number) = pace.first()
                && let Some(waiter) = pace.line.get_mut(&number)
                && !mem::replace(&mut waiter.is_timed, true)
            {
                calls.push((number, Arc::clone(model), waiter.mail.clone()));
            }
        }
        calls
    }
}

impl Pace {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the limit is between one and the maximum"
    )]
    pub(super) fn is_open(&self, now: Instant) -> bool {
        self.running < self.limit as usize && self.cooldown.until(now).is_none()
    }

    /// Returns the number of whoever has waited longest.
    fn first(&self) -> Option<u64> {
        let mut waits = self.line.iter().filter(|(_, waiter)| waiter.turn == Turn::Awaited);
        waits.next().map(|(number, _)| *number)
    }
}
