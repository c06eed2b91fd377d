//! How many requests are asked alone at a time, by all passes of a batcher together.

mod paces;

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::session::{Event, Mail};
use paces::{Call, Paces, Turn, Waiter};

/// What all who ask alone share. Providers limit what is asked of each model.
#[derive(Debug)]
pub(crate) struct Throttle {
    paces: Mutex<Paces>,
    max: usize,
    interval: Option<Duration>,
}

/// The place of a pass in line. Dropped, it is nobody's, and a turn goes to the next.
#[derive(Debug)]
pub(crate) struct Place {
    throttle: Arc<Throttle>,
    model: Arc<str>,
    number: u64,
}

/// Lets one request be on its way; dropped, it is the turn of whoever has waited longest. Where nothing
/// [went](Permit::go) with it, it is as if it had not been given.
#[derive(Debug)]
pub(crate) struct Permit {
    throttle: Arc<Throttle>,
    model: Arc<str>,
    is_used: bool,
}

/// Whether a request may go out.
#[derive(Debug)]
pub(crate) enum Room {
    Now(Permit),
    /// Not before that moment, or before the mail says that it is its turn.
    Later(Place, Option<Instant>),
}

impl Throttle {
    pub(crate) fn new(max: usize, interval: Option<Duration>) -> Arc<Throttle> {
        Arc::new(Throttle { paces: Mutex::default(), max, interval })
    }

    fn paces(&self) -> MutexGuard<'_, Paces> {
        self.paces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a request to a model out where it is its turn, and keeps the `place` of the pass otherwise;
    /// one that has none goes to the end of the line.
    pub(crate) fn enter(
        self: &Arc<Throttle>,
        model: &str,
        place: Option<Place>,
        mail: &Mail,
    ) -> Room {
        let now = now();
        let mut paces = self.paces();
        let place = place.unwrap_or_else(|| Place {
            throttle: Arc::clone(self),
            model: paces.named(model, self.max, self.interval),
            number: paces.line_up(),
        });
        let (model, number) = (Arc::clone(&place.model), place.number);
        let come = || Waiter { mail: mail.clone(), turn: Turn::Awaited, is_timed: false };
        let waiter = paces.of(&model).line.entry(number).or_insert_with(come);
        if waiter.turn == Turn::Aside {
            waiter.turn = Turn::Awaited;
        }
        let mut calls = paces.offer(self.max, now);
        calls.retain(|(other, ..)| *other != number);
        let shared = paces.of(&model);
        let until = shared.cooldown.until(now);
        let waiter = shared.line.get_mut(&number).expect("it stands in line");
        waiter.is_timed = until.is_some();
        // It leaves the line with its turn, which is that of the request from now on.
        let is_next = waiter.turn == Turn::Offered;
        let gone = if is_next { shared.line.remove(&number) } else { None };
        drop(paces);
        tell(calls);
        match gone {
            Some(_) => Room::Now(Permit { throttle: Arc::clone(self), model, is_used: false }),
            None => Room::Later(place, until),
        }
    }

    /// Slows a model down; returns the number of the round that this is told of. Those that were on
    /// their way together fail together, in one round.
    pub(crate) fn went_badly(
        self: &Arc<Throttle>,
        model: &str,
        retry_after: Option<Duration>,
    ) -> u64 {
        let mut paces = self.paces();
        let model = paces.named(model, self.max, self.interval);
        let pace = paces.of(&model);
        let before = pace.cooldown.round();
        let round = pace.cooldown.went_badly(now(), retry_after);
        if round != before {
            pace.limit = (pace.limit / 2.0).max(1.0);
            paces.revoke(&model);
        }
        self.hand_out(paces);
        round
    }

    /// Offers the turns that there are to those who wait, in the order in which they came.
    fn hand_out(&self, mut paces: MutexGuard<'_, Paces>) {
        let calls = paces.offer(self.max, now());
        drop(paces);
        tell(calls);
    }
}

/// Returns the time, which tests move on.
fn now() -> Instant {
    #[cfg(test)]
    return tests::now();
    #[cfg(not(test))]
    Instant::now()
}

/// Has passes look. No lock is held meanwhile.
fn tell(calls: Vec<Call>) {
    for (_, model, mail) in calls {
        mail.post(Event::Room(model));
    }
}

impl Place {
    /// Lets others go first until the pass [enters](Throttle::enter) again. Its place stays its own.
    pub(crate) fn step_aside(&self) {
        let mut paces = self.throttle.paces();
        let Some(waiter) = paces.of(&self.model).line.get_mut(&self.number) else { return };
        match mem::replace(&mut waiter.turn, Turn::Aside) {
            Turn::Aside => return,
            Turn::Awaited => {}
            Turn::Offered => paces.give_back(&self.model),
        }
        self.throttle.hand_out(paces);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut paces = self.throttle.paces();
        let gone = paces.of(&self.model).line.remove(&self.number);
        if gone.as_ref().is_some_and(|waiter| waiter.turn == Turn::Offered) {
            paces.give_back(&self.model);
        }
        self.throttle.hand_out(paces);
        // Not under the lock: with it the mail of the pass may go.
        drop(gone);
    }
}

impl Permit {
    /// Notes that the request goes out.
    pub(crate) fn go(&mut self) {
        self.is_used = true;
    }

    /// Notes that the request was answered.
    pub(crate) fn went_well(&self) {
        let max = f64::from(u32::try_from(self.throttle.max).unwrap_or(u32::MAX));
        let mut paces = self.throttle.paces();
        let pace = paces.of(&self.model);
        pace.limit = (pace.limit + 1.0 / pace.limit).min(max);
        pace.cooldown.went_well();
        self.throttle.hand_out(paces);
    }

    /// Notes that it was not; returns the round, as [`Throttle::went_badly`].
    pub(crate) fn went_badly(&self, retry_after: Option<Duration>) -> u64 {
        self.throttle.went_badly(&self.model, retry_after)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut paces = self.throttle.paces();
        if self.is_used {
            paces.free(&self.model, 1);
        } else {
            paces.give_back(&self.model);
        }
        self.throttle.hand_out(paces);
    }
}

#[cfg(test)]
mod tests;
