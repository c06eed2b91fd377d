//! The accumulator and its model, which get the same calls and are compared after each.

use super::model::{KEYS, Model, Next, State};
use super::*;

/// Bits that decide what is done next.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// Returns a number below `sides`.
    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        let (rest, rolled) = (self.0 / sides, self.0 % sides);
        self.0 = rest;
        rolled
    }

    pub(super) fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    /// Returns one of the numbers below `len`, which is not 0.
    pub(super) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.roll(len as u64)).unwrap()
    }
}

pub(super) struct Pair {
    pub(super) real: Accumulator<usize, u64, ()>,
    pub(super) model: Model,
    /// What is in flight and not settled.
    pub(super) flying: Vec<(BatchId, Parted<u64, ()>)>,
    pub(super) trace: Vec<Event>,
}

impl Pair {
    pub(super) fn new(policy: Policy) -> Self {
        let real = Accumulator::new(policy.clone());
        Self { real, model: Model::new(policy), flying: Vec::new(), trace: Vec::new() }
    }

    /// Does one thing, and checks every law.
    pub(super) fn step(&mut self, mut dice: Dice) {
        let now = self.time(&mut dice);
        match dice.roll(64) {
            0..24 => self.push(now, &mut dice),
            24..36 => self.send(now, &mut dice),
            36..50 => self.end(now, &mut dice),
            50..54 => self.cancel(now, &mut dice),
            54..57 => self.flush(now),
            57..59 => {
                self.model.pressed = !self.model.pressed;
                self.real.set_pressed(self.model.pressed);
            }
            59..61 => self.reserve(&mut dice),
            61..63 => self.tick(now, &mut dice),
            _ => self.close(&mut dice),
        }
        self.model.hurry();
        self.check();
    }

    /// Draws what time it is: mostly a little later, at times far later or before.
    fn time(&self, dice: &mut Dice) -> Time {
        let now = self.model.now;
        match dice.roll(32) {
            12..28 => now.saturating_add(dice.roll(4)),
            28 => now.saturating_add(dice.roll(64)),
            29 if dice.one_in(256) => now.saturating_add(u64::MAX >> dice.roll(64)),
            30 => now.saturating_sub(dice.roll(16)),
            _ => now,
        }
    }

    fn push(&mut self, now: Time, dice: &mut Dice) {
        let key = dice.index(KEYS);
        let weight = match dice.roll(16) {
            0 => 0,
            1 => self.model.policy.max_weight,
            2 => u64::MAX,
            _ => 1 + dice.roll(6),
        };
        let admitted = self.real.admit(weight);
        assert_eq!(admitted, self.model.admit(weight));
        if admitted.is_err() {
            return;
        }
        let seq = self.model.items.len() as u64;
        self.model.at(now);
        if self.real.can_pass() && dice.one_in(2) {
            return self.pass(key, weight, dice);
        }
        self.model.push(key, weight);
        let lent = if dice.one_in(4) { None } else { self.real.lend() };
        if let Some(mut open) = lent {
            let joins = open.takes(weight) && self.real.is_lent_by(&key);
            if joins && dice.one_in(2) {
                let len = open.places(weight).min(1 + dice.index(4));
                for _ in 1..len {
                    assert_eq!(self.model.admit(weight), Ok(()));
                    self.model.push(key, weight);
                }
                let items = seq..seq + len as u64;
                let accepted = open.join_all(now, id(seq), weight, items, Units(len));
                assert_eq!(accepted, self.model.stats.accepted);
            } else if joins {
                let accepted = open.join(now, id(seq), weight, seq, ());
                assert_eq!(accepted, self.model.stats.accepted);
            }
            self.real.take_back(open);
            if joins {
                return;
            }
        }
        self.real.push(&now, key, id(seq), weight, seq, ());
    }

    /// Lets everything happen that is due.
    fn tick(&mut self, now: Time, dice: &mut Dice) {
        self.model.at(now);
        let mut expired = Vec::new();
        while let Some(due) = self.real.tick(now) {
            match due {
                Due::Expired(items) => expired.extend(items.iter().map(|(seq, _)| *seq)),
                Due::Overdue(batch) => self.time_out(batch, dice),
            }
        }
        expired.sort_unstable();
        let mut due = self.model.seqs(State::Waits);
        due.retain(|&seq| self.model.get(seq).deadline <= self.model.now);
        assert_eq!(expired, due);
        self.model.leave_queue(&expired);
        self.model.stats.expired += expired.len() as u64;
        self.model.hurry();
        self.model.note_turns();
        assert_eq!(self.real.next_timer(), self.model.next_timer());
        let ready = (0..KEYS).any(|key| self.model.next(key).is_some()) && self.model.may_send();
        assert_eq!(self.real.has_ready(), ready);
        assert!(self.real.next_timer().is_none_or(|next| next > self.model.now));
    }

    /// Ends the items of a batch in flight whose deadline has come.
    fn time_out(&mut self, batch: BatchId, dice: &mut Dice) {
        let now = self.model.now;
        let at = self.model.flights.iter().position(|flight| flight.batch == batch).unwrap();
        assert!(self.model.flights[at].armed <= now);
        let (_, items) = self.flying.iter_mut().find(|(of, _)| *of == batch).unwrap();
        let late: Vec<_> = items.extract_if(.., |(_, entry)| entry.deadline <= now).collect();
        let next = items.iter().map(|(_, entry)| entry.deadline).min().unwrap_or(NEVER);
        self.settle(batch, late, End::TimedOut);
        self.real.rearm(batch, next);
        self.model.flights[at].armed = next;
        if dice.one_in(2) {
            self.deliver(batch);
        }
    }

    fn send(&mut self, now: Time, dice: &mut Dice) {
        if dice.one_in(8) {
            // Nothing is sent past its deadline, even if nobody looked at the time.
            self.model.at(now);
            self.real.at(now);
        } else {
            self.tick(now, dice);
        }
        let upcoming: Option<Vec<_>> = self.real.upcoming().map(|known| known.ids().collect());
        let Some(ready) = self.real.next_ready() else { return };
        let next = self.model.next(ready.key).expect("what is sent may go");
        assert!(self.model.may_send());
        assert_eq!(ready.reason, self.model.reason(ready.key, next));
        let stats = &mut self.model.stats;
        stats.calls += 1;
        stats.retries += u64::from(ready.reason == DispatchReason::Retry);
        stats.splits += u64::from(ready.reason == DispatchReason::Split);
        let flight = self.model.take(ready.batch, ready.key, next);
        assert_eq!(ready.items, flight.seqs);
        let (seqs, ids) = (flight.seqs.clone(), flight.seqs.iter().map(|&seq| id(seq)).collect());
        assert_eq!(upcoming, Some(ids));
        let weight = self.model.weigh(&seqs);
        assert!(seqs.len() <= self.model.policy.max_items);
        assert!(weight <= u128::from(self.model.policy.max_weight));
        if next == Next::Fresh {
            let age = self.model.now - self.model.get(seqs[0]).accepted;
            assert_eq!(ready.queued, age, "from the oldest item");
        }
        let mut known = ready.known;
        let ids: Vec<_> = known.ids().collect();
        assert_eq!((known.len(), ids.len()), (seqs.len(), seqs.len()));
        assert!(known.spans().all(|span| span.attempt == self.model.get(seqs[0]).attempt));
        for ((entry, known), &seq) in known.spread().iter().zip(ids).zip(&seqs) {
            assert_eq!((entry.id, known), (id(seq), id(seq)));
            assert_eq!(entry.attempt, self.model.get(seq).attempt);
        }
        let parts = ready.items.into_iter().zip(known.spread().drain(..));
        self.flying.push((ready.batch, parts.collect()));
    }

    fn cancel(&mut self, now: Time, dice: &mut Dice) {
        self.model.at(now);
        let waiting = self.model.seqs(State::Waits);
        let seq = if waiting.is_empty() || dice.one_in(4) {
            dice.roll(self.model.items.len() as u64 + 1)
        } else {
            waiting[dice.index(waiting.len())]
        };
        let lane = self.real.lanes.iter().find(|(_, lane)| {
            self.model.items.get(usize::try_from(seq).unwrap()).is_some_and(|i| i.key == lane.key)
        });
        let hint = lane.map(|(id, _)| id).filter(|_| dice.one_in(2));
        let cancelled = self.real.cancel(now, id(seq), hint);
        assert_eq!(cancelled.map(|(seq, _)| seq), waiting.contains(&seq).then_some(seq));
        if waiting.contains(&seq) {
            self.model.leave_queue(&[seq]);
            self.model.stats.cancelled += 1;
        }
    }

    fn flush(&mut self, now: Time) {
        self.model.at(now);
        self.model.flush();
        let open = [State::Waits, State::Flies, State::Ended].map(|state| self.model.seqs(state));
        let open = open.concat();
        let era = self.real.flush(now);
        assert_eq!(era.is_some(), !open.is_empty());
        let Some(era) = era else { return };
        self.model.barriers.push((era, open));
    }

    fn reserve(&mut self, dice: &mut Dice) {
        let weight = dice.roll(6);
        if dice.one_in(2) {
            if self.real.admit(weight).is_ok() {
                self.real.reserve(weight);
                self.model.reserved.push(weight);
            }
        } else if let Some(weight) = self.model.reserved.pop() {
            self.real.release(weight);
        }
    }

    fn close(&mut self, dice: &mut Dice) {
        match dice.roll(128) {
            0..3 => {
                self.real.close();
                self.model.closed = true;
            }
            3 => {
                let over = id(dice.roll(9));
                self.real.halt(over);
                self.model.halted.get_or_insert(over);
            }
            4..8 => self.drain(),
            _ => self.real.recycle(Buffers::of(Vec::new(), &mut Packed::default())),
        }
    }

    fn drain(&mut self) {
        let drained: Vec<_> = self.real.drain().iter().map(|(seq, _)| *seq).collect();
        assert_eq!(drained, self.model.seqs(State::Waits), "the oldest first");
        self.model.leave_queue(&drained);
        self.model.stats.handed_back += drained.len() as u64;
    }

    /// Compares all that can be seen.
    pub(super) fn check(&mut self) {
        let (waiting, flying) = (self.model.seqs(State::Waits), self.model.seqs(State::Flies));
        let stats = &mut self.model.stats;
        stats.queued = waiting.len() as u64;
        stats.in_flight = flying.len() as u64;
        assert_eq!(self.real.stats(), stats);
        let ended = stats.completed + stats.failed + stats.cancelled + stats.expired;
        let law = ended + stats.handed_back + stats.queued + stats.in_flight;
        assert_eq!(stats.accepted, law);
        let done = self.real.next_done_era();
        assert!(self.real.next_done_era().is_none(), "told of once");
        for (era, items) in &self.model.barriers {
            let is_done = items.iter().all(|&seq| self.model.get(seq).state == State::Told);
            assert_eq!(is_done, done.is_some_and(|done| *era <= done), "{era:?}");
        }
        self.model.barriers.retain(|(era, _)| done.is_none_or(|done| *era > done));
        let oldest = waiting.iter().map(|&seq| self.model.get(seq).accepted).min();
        assert_eq!(self.real.oldest(), oldest);
        let has_work = |key: &usize| {
            waiting.iter().any(|&seq| self.model.get(seq).key == *key)
                || self.model.flights.iter().any(|flight| flight.key == *key)
        };
        let busy = (0..KEYS).filter(has_work).count();
        assert_eq!(self.real.lanes.len(), (busy, busy), "keys without work are forgotten");
        let untold = self.model.seqs(State::Ended).len();
        assert!(self.real.eras.len() <= waiting.len() + flying.len() + untold);
        assert_eq!(self.real.is_closed(), self.model.closed || self.model.halted.is_some());
        self.model.note_turns();
        self.trace.extend(std::mem::take(&mut self.real.trace));
    }

    /// Ends everything; nothing is left of it.
    pub(super) fn wind_up(&mut self) {
        while let Some(weight) = self.model.reserved.pop() {
            self.real.release(weight);
        }
        while let Some((batch, items)) = self.flying.pop() {
            self.settle(batch, items, End::Completed);
            self.finish(self.model.now, batch, Vec::new());
        }
        self.drain();
        self.check();
        assert!(self.real.is_idle() && self.model.barriers.is_empty());
        let real = &self.real;
        assert_eq!(real.lanes.len(), (0, 0));
        assert_eq!([real.turns.len(), real.timers.len(), real.lingering.len()], [0; 3]);
        assert_eq!([real.flights.len(), real.eras.len()], [0; 2]);
        assert!(real.history().len() <= self.model.policy.history);
    }
}
