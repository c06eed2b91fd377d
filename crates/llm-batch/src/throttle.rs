//! How many requests are asked alone at a time, by all passes of a batcher together.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cooldown::Cooldown;
use crate::session::{Event, Mail};

/// How many of a model may be on their way at first.
const FIRST: usize = 4;

/// What all who ask alone share. Providers limit what is asked of each model.
#[derive(Debug)]
pub(crate) struct Throttle {
    paces: Mutex<Paces>,
    max: usize,
    interval: Option<Duration>,
}

#[derive(Debug, Default)]
struct Paces {
    running: usize,
    by_model: BTreeMap<Arc<str>, Pace>,
    /// How many have ever waited.
    waited: u64,
    /// Somebody hands permits out, until nobody waits for one that there is.
    is_handing_out: bool,
}

/// That of one model.
#[derive(Debug)]
struct Pace {
    running: usize,
    /// How many may be on their way: grows by one a round of answers, and halves when the provider
    /// is busy.
    limit: f64,
    cooldown: Cooldown,
    /// Passes that found no room, each with its number among all of them.
    waiting: VecDeque<(u64, Mail)>,
}

/// Lets one request be on its way; dropped, it goes to whoever has waited longest.
#[derive(Debug)]
pub(crate) struct Permit {
    throttle: Arc<Throttle>,
    model: Arc<str>,
}

/// Whether a request may go out.
#[derive(Debug)]
pub(crate) enum Room {
    Now(Permit),
    /// Not before that moment.
    At(Instant),
    /// Not before another one is back; then the pass gets its permit by mail.
    Full,
}

impl Throttle {
    pub(crate) fn new(max: usize, interval: Option<Duration>) -> Arc<Throttle> {
        Arc::new(Throttle { paces: Mutex::default(), max, interval })
    }

    fn paces(&self) -> MutexGuard<'_, Paces> {
        self.paces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a request to a model out, with the permit that was `held` for it if there is one. Where there
    /// is no other, the next one comes by `mail`.
    pub(crate) fn enter(
        self: &Arc<Throttle>,
        model: &str,
        held: Option<Permit>,
        mail: &Mail,
    ) -> Room {
        let now = Instant::now();
        let mut paces = self.paces();
        let model = paces.named(model, self);
        let until = paces.of(&model).cooldown.until(now);
        let permit = match (until, held) {
            (Some(until), held) => {
                drop(paces);
                // Somebody else may be after another model.
                drop(held);
                return Room::At(until);
            }
            (None, Some(held)) => held,
            (None, None) if paces.may_take(&model, self.max) => {
                paces.take(&model);
                Permit { throttle: Arc::clone(self), model: Arc::clone(&model) }
            }
            (None, None) => {
                let number = paces.waited;
                paces.waited += 1;
                paces.of(&model).waiting.push_back((number, mail.clone()));
                return Room::Full;
            }
        };
        paces.of(&model).cooldown.enter(now);
        Room::Now(permit)
    }

    /// Slows a model down; returns the number of the round that this is told of. Those that were on
    /// their way together fail together, in one round.
    pub(crate) fn went_badly(&self, model: &str, retry_after: Option<Duration>) -> u64 {
        let mut paces = self.paces();
        let model = paces.named(model, self);
        let pace = paces.of(&model);
        let before = pace.cooldown.round();
        let round = pace.cooldown.went_badly(Instant::now(), retry_after);
        if round != before {
            pace.limit = (pace.limit / 2.0).max(1.0);
        }
        round
    }

    /// Hands out what permits there are to those who wait, in the order in which they came.
    fn hand_out<'t>(self: &'t Arc<Throttle>, mut paces: MutexGuard<'t, Paces>) {
        if mem::replace(&mut paces.is_handing_out, true) {
            return;
        }
        while let Some(model) = paces.next(self.max) {
            paces.take(&model);
            let next = paces.of(&model).waiting.pop_front();
            drop(paces);
            let permit = Permit { throttle: Arc::clone(self), model };
            if let Some((_, mail)) = next {
                // Whoever does not look at it any more drops it.
                mail.post(Event::Room(permit));
            }
            paces = self.paces();
        }
        paces.is_handing_out = false;
    }
}

impl Paces {
    /// Returns the name of a model as it is kept here.
    fn named(&mut self, model: &str, throttle: &Throttle) -> Arc<str> {
        if let Some((name, _)) = self.by_model.get_key_value(model) {
            return Arc::clone(name);
        }
        let name: Arc<str> = model.into();
        let limit = f64::from(u32::try_from(throttle.max.min(FIRST)).unwrap_or(1));
        let cooldown = Cooldown::new(throttle.interval);
        let pace = Pace { running: 0, limit, cooldown, waiting: VecDeque::new() };
        self.by_model.insert(Arc::clone(&name), pace);
        name
    }

    fn of(&mut self, model: &str) -> &mut Pace {
        self.by_model.get_mut(model).expect("the name is from here")
    }

    fn take(&mut self, model: &str) {
        self.running += 1;
        self.of(model).running += 1;
    }

    /// Tells whether somebody who comes now may take a permit, and takes it from nobody who waits.
    fn may_take(&self, model: &str, max: usize) -> bool {
        let has_room = self.by_model.get(model).is_some_and(Pace::has_room);
        self.running < max && has_room && self.next(max).is_none()
    }

    /// Returns the model of whoever has waited longest for a permit that there is now.
    fn next(&self, max: usize) -> Option<Arc<str>> {
        if self.running >= max {
            return None;
        }
        let open = self.by_model.iter().filter(|(_, pace)| pace.has_room());
        let waiting = open.filter_map(|(model, pace)| Some((pace.waiting.front()?.0, model)));
        waiting.min().map(|(_, model)| Arc::clone(model))
    }
}

impl Pace {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the limit is between one and the maximum"
    )]
    fn has_room(&self) -> bool {
        self.running < self.limit as usize
    }
}

impl Permit {
    /// Returns the model that it is for.
    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    /// Notes that the request was answered.
    pub(crate) fn went_well(&self) {
        let max = f64::from(u32::try_from(self.throttle.max).unwrap_or(u32::MAX));
        let mut paces = self.throttle.paces();
        let pace = paces.of(&self.model);
        pace.limit = (pace.limit + 1.0 / pace.limit).min(max);
        pace.cooldown.went_well();
    }

    /// Notes that it was not; returns the round, as [`Throttle::went_badly`].
    pub(crate) fn went_badly(&self, retry_after: Option<Duration>) -> u64 {
        self.throttle.went_badly(&self.model, retry_after)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut paces = self.throttle.paces();
        paces.running -= 1;
        paces.of(&self.model).running -= 1;
        self.throttle.hand_out(paces);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use super::*;

    fn now(room: Room) -> Permit {
        match room {
            Room::Now(permit) => permit,
            other => panic!("{other:?}"),
        }
    }

    fn mailed(events: &Receiver<Event>) -> Option<Permit> {
        match events.try_recv() {
            Ok(Event::Room(permit)) => Some(permit),
            _ => None,
        }
    }

    fn is_full(room: &Room) -> bool {
        matches!(room, Room::Full)
    }

    /// Whoever came between took it, and the one that had waited longest was the last again.
    #[test]
    fn a_place_that_is_given_back_is_that_of_whoever_has_waited_longest() {
        let throttle = Throttle::new(1, None);
        let [a, b, c] = [(); 3].map(|()| Mail::open());
        let first = now(throttle.enter("m", None, &a.0));
        assert!(is_full(&throttle.enter("m", None, &b.0)));
        drop(first);
        assert!(is_full(&throttle.enter("m", None, &c.0)));
        let held = mailed(&b.1);
        assert!(mailed(&c.1).is_none());
        let second = now(throttle.enter("m", held, &b.0));
        drop(second);
        assert!(mailed(&c.1).is_some());
    }

    /// It was told to a pass that ended just then, and to nobody else.
    #[test]
    fn a_place_that_nobody_looks_at_goes_to_the_next() {
        let throttle = Throttle::new(1, None);
        let [a, b, c, d] = [(); 4].map(|()| Mail::open());
        let first = now(throttle.enter("m", None, &a.0));
        for (mail, _) in [&b, &c, &d] {
            assert!(is_full(&throttle.enter("m", None, mail)));
        }
        drop(first);
        // One with the permit unread, and one before it got any.
        drop(c.1);
        drop(b.1);
        assert!(mailed(&d.1).is_some());
        assert_eq!(throttle.paces().running, 0);
    }

    /// Each that was not there any more gave it to the next one, on the stack of the one before.
    #[test]
    fn places_go_past_any_number_of_passes_that_have_ended() {
        let throttle = Throttle::new(1, None);
        let (a, last) = (Mail::open(), Mail::open());
        let first = now(throttle.enter("m", None, &a.0));
        for _ in 0..20_000 {
            assert!(is_full(&throttle.enter("m", None, &Mail::open().0)));
        }
        assert!(is_full(&throttle.enter("m", None, &last.0)));
        drop(first);
        assert!(mailed(&last.1).is_some());
    }

    #[test]
    fn a_model_that_is_busy_holds_no_other_back() {
        let throttle = Throttle::new(8, None);
        let (mail, events) = Mail::open();
        let first = now(throttle.enter("busy", None, &mail));
        first.went_badly(Some(Duration::from_hours(1)));
        assert!(matches!(throttle.enter("busy", None, &mail), Room::At(_)));
        let others: Vec<_> = (0..FIRST).map(|_| now(throttle.enter("m", None, &mail))).collect();
        assert!(is_full(&throttle.enter("m", None, &mail)));
        drop(others);
        assert_eq!(mailed(&events).unwrap().model(), "m");
    }

    /// A permit that is held for a model that became busy is of use to another one.
    #[test]
    fn a_place_for_a_model_that_is_busy_goes_to_another_one() {
        let throttle = Throttle::new(1, None);
        let [a, b, c] = [(); 3].map(|()| Mail::open());
        let first = now(throttle.enter("busy", None, &a.0));
        assert!(is_full(&throttle.enter("busy", None, &b.0)));
        assert!(is_full(&throttle.enter("m", None, &c.0)));
        first.went_badly(None);
        drop(first);
        let held = mailed(&b.1);
        assert!(matches!(throttle.enter("busy", held, &b.0), Room::At(_)));
        assert!(mailed(&c.1).is_some());
    }
}
