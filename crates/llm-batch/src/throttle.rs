//! How many requests are asked alone at a time, by all passes of a batcher together.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::backoff::Backoff;
use crate::session::{Event, Mail};

/// How many may be on their way at first.
const FIRST: usize = 4;

/// What all who ask alone share.
#[derive(Debug)]
pub(crate) struct Throttle {
    pace: Mutex<Pace>,
    max: usize,
}

#[derive(Debug)]
struct Pace {
    running: usize,
    /// How many may be on their way: grows by one a round of answers, and halves when the provider
    /// is busy.
    limit: f64,
    /// Nothing goes out before.
    cooldown: Option<Instant>,
    /// Set anew when the provider takes something.
    backoff: Backoff,
    interval: Option<Duration>,
    /// How many rounds went badly.
    round: u64,
    /// Passes that found no room.
    waiting: VecDeque<Mail>,
}

/// Holds the place of a request that is on its way.
#[derive(Debug)]
pub(crate) struct Place<'t>(&'t Throttle);

/// Whether a request may go out.
#[derive(Debug)]
pub(crate) enum Room<'t> {
    Now(Place<'t>),
    /// Not before that moment.
    At(Instant),
    /// Not before another one is back; then the pass gets mail.
    Full,
}

impl Throttle {
    pub(crate) fn new(max: usize, interval: Option<Duration>) -> Throttle {
        let limit = f64::from(u32::try_from(max.min(FIRST)).unwrap_or(1));
        let pace = Pace {
            running: 0,
            limit,
            cooldown: None,
            backoff: Backoff::new(interval),
            interval,
            round: 0,
            waiting: VecDeque::new(),
        };
        Throttle { pace: Mutex::new(pace), max }
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a request, if there is one. `mail` is told of the next one if not.
    pub(crate) fn enter(&self, mail: &Mail) -> Room<'_> {
        let mut pace = self.pace();
        if let Some(until) = pace.cooldown.filter(|until| *until > Instant::now()) {
            return Room::At(until);
        }
        if !pace.has_room() {
            pace.waiting.push_back(mail.clone());
            return Room::Full;
        }
        pace.running += 1;
        Room::Now(Place(self))
    }

    /// Lets somebody else know if there is room.
    pub(crate) fn pass_on(&self) {
        loop {
            let mut pace = self.pace();
            if !pace.has_room() {
                return;
            }
            let Some(next) = pace.waiting.pop_front() else { return };
            drop(pace);
            if next.post(Event::Room) {
                return;
            }
        }
    }

    pub(crate) fn went_well(&self) {
        let max = f64::from(u32::try_from(self.max).unwrap_or(u32::MAX));
        let mut pace = self.pace();
        pace.limit = (pace.limit + 1.0 / pace.limit).min(max);
        pace.backoff = Backoff::new(pace.interval);
    }

    /// Slows down; returns the number of the round that this is told of. Those that were on their
    /// way together fail together, in one round.
    pub(crate) fn went_badly(&self, retry_after: Option<Duration>) -> u64 {
        let now = Instant::now();
        let mut pace = self.pace();
        if pace.cooldown.is_none_or(|until| until <= now) {
            pace.round += 1;
            pace.limit = (pace.limit / 2.0).max(1.0);
            let until = now.checked_add(pace.backoff.after_failure(retry_after));
            pace.cooldown = until.or(pace.cooldown);
        } else if let Some(until) = retry_after.and_then(|wait| now.checked_add(wait)) {
            pace.cooldown = pace.cooldown.max(Some(until));
        }
        pace.round
    }
}

impl Pace {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the limit is between one and the maximum"
    )]
    fn has_room(&self) -> bool {
        self.running == 0 || self.running < self.limit as usize
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.pace().running -= 1;
        self.0.pass_on();
    }
}
