//! How many requests are asked alone at a time, by all passes of a batcher together.

use std::collections::BTreeMap;
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
    /// Requests that are on their way, and turns that are offered.
    running: usize,
    by_model: BTreeMap<Arc<str>, Pace>,
    /// How many ever stood in line.
    numbers: u64,
}

/// That of one model.
#[derive(Debug)]
struct Pace {
    running: usize,
    /// How many may be on their way: grows by one a round of answers, and halves when the provider
    /// is busy.
    limit: f64,
    cooldown: Cooldown,
    /// Passes that want to ask, in the order in which they came.
    line: BTreeMap<u64, Waiter>,
}

/// A pass that stands in line.
#[derive(Debug)]
struct Waiter {
    mail: Mail,
    turn: Turn,
    /// Whether it looks again by itself, when the wait that there is for all is over.
    is_timed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It is at something else; others go before it meanwhile.
    Aside,
    Awaited,
    /// It is its turn: one may go out.
    Offered,
}

/// The place of a pass in line. Dropped, it is nobody's, and a turn goes to the next.
#[derive(Debug)]
pub(crate) struct Place {
    throttle: Arc<Throttle>,
    model: Arc<str>,
    number: u64,
}

/// Lets one request be on its way; dropped, it is the turn of whoever has waited longest.
#[derive(Debug)]
pub(crate) struct Permit {
    throttle: Arc<Throttle>,
    model: Arc<str>,
}

/// Whether a request may go out.
#[derive(Debug)]
pub(crate) enum Room {
    Now(Permit),
    /// Not before that moment, or before the mail says that it is its turn.
    Later(Place, Option<Instant>),
}

/// A pass that is to look whether it is its turn: its number, the model, and its mail.
type Call = (u64, Arc<str>, Mail);

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
        self.enter_at(Instant::now(), model, place, mail)
    }

    fn enter_at(
        self: &Arc<Throttle>,
        now: Instant,
        model: &str,
        place: Option<Place>,
        mail: &Mail,
    ) -> Room {
        let mut paces = self.paces();
        let place = place.unwrap_or_else(|| Place {
            throttle: Arc::clone(self),
            model: paces.named(model, self),
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
            Some(_) => Room::Now(Permit { throttle: Arc::clone(self), model }),
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
        let model = paces.named(model, self);
        let pace = paces.of(&model);
        let before = pace.cooldown.round();
        let round = pace.cooldown.went_badly(Instant::now(), retry_after);
        if round != before {
            pace.limit = (pace.limit / 2.0).max(1.0);
            paces.revoke(&model);
        }
        self.hand_out(paces);
        round
    }

    /// Offers the turns that there are to those who wait, in the order in which they came.
    fn hand_out(&self, mut paces: MutexGuard<'_, Paces>) {
        let calls = paces.offer(self.max, Instant::now());
        drop(paces);
        tell(calls);
    }
}

/// Has passes look. No lock is held meanwhile.
fn tell(calls: Vec<Call>) {
    for (_, model, mail) in calls {
        mail.post(Event::Room(model));
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
        let pace = Pace { running: 0, limit, cooldown, line: BTreeMap::new() };
        self.by_model.insert(Arc::clone(&name), pace);
        name
    }

    fn of(&mut self, model: &str) -> &mut Pace {
        self.by_model.get_mut(model).expect("the name is from here")
    }

    /// Returns the number of one that comes to the end of the line.
    fn line_up(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn free(&mut self, model: &str, turns: usize) {
        self.running -= turns;
        self.of(model).running -= turns;
    }

    /// Takes back a turn that was offered and not used.
    fn give_back(&mut self, model: &str) {
        self.free(model, 1);
        self.of(model).cooldown.leave();
    }

    /// Takes back all turns that are offered for a model.
    fn revoke(&mut self, model: &str) {
        let line = self.of(model).line.values_mut();
        let offered = line.filter(|waiter| waiter.turn == Turn::Offered);
        let revoked = offered.map(|waiter| waiter.turn = Turn::Awaited).count();
        self.free(model, revoked);
    }

    /// Offers turns as long as there are any; returns who is to look.
    fn offer(&mut self, max: usize, now: Instant) -> Vec<Call> {
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
    fn is_open(&self, now: Instant) -> bool {
        self.running < self.limit as usize && self.cooldown.until(now).is_none()
    }

    /// Returns the number of whoever has waited longest.
    fn first(&self) -> Option<u64> {
        let mut waits = self.line.iter().filter(|(_, waiter)| waiter.turn == Turn::Awaited);
        waits.next().map(|(number, _)| *number)
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
        paces.free(&self.model, 1);
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
            Room::Later(..) => panic!("{room:?}"),
        }
    }

    fn later(room: Room) -> Place {
        match room {
            Room::Later(place, _) => place,
            Room::Now(_) => panic!("{room:?}"),
        }
    }

    fn is_told((_, events): &(Mail, Receiver<Event>)) -> bool {
        matches!(events.try_recv(), Ok(Event::Room(_)))
    }

    /// Whoever came between took it, and the one that had waited longest was the last again.
    #[test]
    fn a_turn_that_is_given_back_is_that_of_whoever_has_waited_longest() {
        let throttle = Throttle::new(1, None);
        let [a, b, c] = [(); 3].map(|()| Mail::open());
        let first = now(throttle.enter("m", None, &a.0));
        let second = later(throttle.enter("m", None, &b.0));
        drop(first);
        let third = later(throttle.enter("m", None, &c.0));
        assert!(is_told(&b) && !is_told(&c));
        let second = now(throttle.enter("m", Some(second), &b.0));
        drop(second);
        assert!(is_told(&c));
        now(throttle.enter("m", Some(third), &c.0));
    }

    /// It was told to a pass that ended just then, and to nobody else.
    #[test]
    fn a_turn_of_a_pass_that_ends_goes_to_the_next() {
        let throttle = Throttle::new(1, None);
        let [a, b, c, d] = [(); 4].map(|()| Mail::open());
        let first = now(throttle.enter("m", None, &a.0));
        let [b, c, last] = [&b, &c, &d].map(|(mail, _)| later(throttle.enter("m", None, mail)));
        // One to which it is offered, and one before it was.
        drop(c);
        drop(first);
        drop(b);
        assert!(is_told(&d));
        drop(last);
        let paces = throttle.paces();
        assert_eq!((paces.running, paces.by_model["m"].line.len()), (0, 0));
    }

    /// It was held by one that was at something else, which may be to wait for one of the others.
    #[test]
    fn whoever_is_at_something_else_keeps_its_place_and_nobody_back() {
        let throttle = Throttle::new(1, None);
        let [a, b, c] = [(); 3].map(|()| Mail::open());
        let first = now(throttle.enter("m", None, &a.0));
        let [second, third] = [&b, &c].map(|(mail, _)| later(throttle.enter("m", None, mail)));
        drop(first);
        assert!(is_told(&b));
        second.step_aside();
        assert!(is_told(&c));
        let third = now(throttle.enter("m", Some(third), &c.0));
        let fourth = later(throttle.enter("m", None, &a.0));
        // It is still before those that came after it.
        let second = later(throttle.enter("m", Some(second), &b.0));
        drop(third);
        assert!(is_told(&b) && !is_told(&a));
        drop((second, fourth));
        assert_eq!(throttle.paces().running, 0);
    }

    #[test]
    fn a_model_that_is_busy_holds_no_other_back() {
        let throttle = Throttle::new(8, None);
        let mail = Mail::open();
        let first = now(throttle.enter("busy", None, &mail.0));
        first.went_badly(Some(Duration::from_hours(1)));
        let busy = throttle.enter("busy", None, &mail.0);
        assert!(matches!(busy, Room::Later(_, Some(_))));
        let others: Vec<_> = (0..FIRST).map(|_| now(throttle.enter("m", None, &mail.0))).collect();
        let next = throttle.enter("m", None, &mail.0);
        assert!(matches!(next, Room::Later(_, None)));
        drop(others);
        assert!(is_told(&mail));
    }

    /// What was offered before a model became busy is of use to another one.
    #[test]
    fn a_turn_for_a_model_that_is_busy_goes_to_another_one() {
        let throttle = Throttle::new(2, None);
        let [a, b, c] = [(); 3].map(|()| Mail::open());
        let [first, other] = [(); 2].map(|()| now(throttle.enter("busy", None, &a.0)));
        let waits = later(throttle.enter("busy", None, &b.0));
        let next = later(throttle.enter("m", None, &c.0));
        drop(first);
        assert!(is_told(&b) && !is_told(&c));
        other.went_badly(None);
        assert!(is_told(&c));
        let waits = throttle.enter("busy", Some(waits), &b.0);
        assert!(matches!(waits, Room::Later(_, Some(_))), "{waits:?}");
        now(throttle.enter("m", Some(next), &c.0));
    }

    /// All others waited for the end of the trial, whatever came of it.
    #[test]
    fn all_may_go_once_the_first_after_a_wait_is_answered() {
        let throttle = Throttle::new(8, Some(Duration::from_hours(1)));
        let [a, b, c] = [(); 3].map(|()| Mail::open());
        throttle.went_badly("m", None);
        let then = Instant::now() + Duration::from_hours(2);
        let trial = now(throttle.enter_at(then, "m", None, &a.0));
        let waits = throttle.enter_at(then, "m", None, &b.0);
        assert!(matches!(waits, Room::Later(_, Some(until)) if until > then), "{waits:?}");
        assert!(!is_told(&b));
        trial.went_well();
        assert!(is_told(&b));
        now(throttle.enter("m", Some(later(waits)), &b.0));
        now(throttle.enter("m", None, &c.0));
    }

    /// It had no room when it came, and nobody told it when the wait that began since was over.
    #[test]
    fn the_first_in_line_knows_until_when_all_wait_whoever_goes() {
        let throttle = Throttle::new(1, Some(Duration::from_hours(1)));
        let [a, b, c, d] = [(); 4].map(|()| Mail::open());
        let first = now(throttle.enter("m", None, &a.0));
        let [second, third, fourth] =
            [&b, &c, &d].map(|(mail, _)| later(throttle.enter("m", None, mail)));
        first.went_badly(None);
        drop(first);
        assert!(is_told(&b) && !is_told(&c));
        second.step_aside();
        assert!(is_told(&c) && !is_told(&d));
        drop(third);
        assert!(is_told(&d));
        let then = Instant::now() + Duration::from_hours(2);
        let trial = now(throttle.enter_at(then, "m", Some(fourth), &d.0));
        // It is not known what comes of the trial, and the next one waits for its end.
        let second = throttle.enter_at(then, "m", Some(second), &b.0);
        assert!(matches!(second, Room::Later(_, Some(_))));
        let third = later(throttle.enter_at(then, "m", None, &c.0));
        drop(second);
        assert!(!is_told(&c), "it knows");
        drop(trial);
        let then = then + Duration::from_mins(1);
        now(throttle.enter_at(then, "m", Some(third), &c.0));
    }

    #[test]
    fn a_trial_that_is_not_used_is_that_of_the_next() {
        let throttle = Throttle::new(1, Some(Duration::from_hours(1)));
        let [a, b, c] = [(); 3].map(|()| Mail::open());
        let on_its_way = now(throttle.enter("other", None, &a.0));
        throttle.went_badly("m", None);
        let [first, next] = [&b, &c].map(|(mail, _)| later(throttle.enter("m", None, mail)));
        drop(on_its_way);
        let then = Instant::now() + Duration::from_hours(2);
        // Whoever comes first after the wait, it is the turn of the one that has waited longest.
        let next = later(throttle.enter_at(then, "m", Some(next), &c.0));
        assert!(is_told(&b) && !is_told(&c));
        drop(first);
        now(throttle.enter_at(then, "m", Some(next), &c.0));
    }
}
