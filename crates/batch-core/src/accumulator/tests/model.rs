//! The accumulator once more, with vectors and plain loops only.

use super::*;
use crate::stats::Stats;

pub(super) const KEYS: usize = 5;

/// Where an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waits,
    Flies,
    /// Final, and its caller is not told.
    Ended,
    Told,
}

#[derive(Debug)]
pub(super) struct Item {
    pub(super) key: usize,
    pub(super) weight: u64,
    pub(super) accepted: Time,
    pub(super) deadline: Time,
    pub(super) attempt: u32,
    pub(super) retries: u32,
    pub(super) state: State,
}

#[derive(Debug, Default)]
pub(super) struct Fresh {
    pub(super) seqs: Vec<u64>,
    full: bool,
    flushed: bool,
    hurried: bool,
}

#[derive(Debug)]
pub(super) struct Rerun {
    pub(super) seqs: Vec<u64>,
    pub(super) due: Time,
    pub(super) reason: DispatchReason,
}

#[derive(Debug, Default)]
pub(super) struct Key {
    pub(super) fresh: Vec<Fresh>,
    /// In the order in which they were put back.
    pub(super) reruns: Vec<Rerun>,
}

#[derive(Debug)]
pub(super) struct Flight {
    pub(super) batch: BatchId,
    pub(super) key: usize,
    pub(super) seqs: Vec<u64>,
    pub(super) armed: Time,
    pub(super) completed: bool,
}

/// Which batch of a key is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Rerun(usize),
    Fresh,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) policy: Policy,
    pub(super) now: Time,
    pub(super) keys: Vec<Key>,
    /// By number.
    pub(super) items: Vec<Item>,
    pub(super) flights: Vec<Flight>,
    pub(super) reserved: Vec<u64>,
    /// Fifths of calls that may be made again.
    pub(super) budget: u64,
    /// Flushes that are not done, with the items that they wait for.
    pub(super) barriers: Vec<(EraId, Vec<u64>)>,
    pub(super) pressed: bool,
    pub(super) closed: bool,
    pub(super) halted: Option<ItemId>,
    pub(super) stats: Stats,
    /// Cost that each key sent while another waited for its turn all the time.
    pub(super) passed: [[u128; KEYS]; KEYS],
    /// The heaviest batch that competed with that of a key while it waited for its turn.
    rivals: [u128; KEYS],
    /// What each key sent last, unless it ran out of work since.
    last: [u128; KEYS],
}

impl Model {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            now: 0,
            keys: (0..KEYS).map(|_| Key::default()).collect(),
            items: Vec::new(),
            flights: Vec::new(),
            reserved: Vec::new(),
            budget: u64::from(policy.retry.budget) * 5,
            barriers: Vec::new(),
            pressed: false,
            closed: false,
            halted: None,
            stats: Stats::default(),
            passed: [[0; KEYS]; KEYS],
            rivals: [0; KEYS],
            last: [0; KEYS],
            policy,
        }
    }

    pub(super) fn at(&mut self, now: Time) {
        self.now = self.now.max(now.min(NEVER - 1));
    }

    pub(super) fn seqs(&self, state: State) -> Vec<u64> {
        let all = (0..).zip(&self.items);
        all.filter(|(_, item)| item.state == state).map(|(seq, _)| seq).collect()
    }

    pub(super) fn item(&mut self, seq: u64) -> &mut Item {
        &mut self.items[usize::try_from(seq).unwrap()]
    }

    pub(super) fn weigh(&self, seqs: &[u64]) -> u128 {
        seqs.iter().map(|&seq| u128::from(self.get(seq).weight)).sum()
    }

    pub(super) fn get(&self, seq: u64) -> &Item {
        &self.items[usize::try_from(seq).unwrap()]
    }

    pub(super) fn admit(&self, weight: u64) -> Result<(), Refused> {
        let max = self.policy.max_weight.min(self.policy.capacity_weight);
        let held = [self.seqs(State::Waits), self.seqs(State::Flies)].concat();
        let reserved: u128 = self.reserved.iter().map(|&weight| u128::from(weight)).sum();
        if let Some(item) = self.halted {
            Err(Refused::Fatal(item))
        } else if self.closed {
            Err(Refused::Closed)
        } else if weight > max {
            Err(Refused::TooHeavy { max })
        } else if held.len() + self.reserved.len() >= self.policy.capacity_items
            || self.weigh(&held) + reserved + u128::from(weight)
                > u128::from(self.policy.capacity_weight)
        {
            Err(Refused::Full)
        } else {
            Ok(())
        }
    }

    pub(super) fn push(&mut self, key: usize, weight: u64) {
        let seq = self.items.len() as u64;
        let deadline = self.policy.delivery_timeout.map_or(NEVER, |t| self.now.saturating_add(t));
        let (accepted, state) = (self.now, State::Waits);
        self.items.push(Item { key, weight, accepted, deadline, attempt: 1, retries: 0, state });
        self.stats.accepted += 1;
        let last = self.keys[key].fresh.last().map_or(&[][..], |last| &last.seqs);
        let sum = self.weigh(last) + u128::from(weight);
        let (max_items, max_weight) = (self.policy.max_items, u128::from(self.policy.max_weight));
        let fresh = &mut self.keys[key].fresh;
        match fresh.last_mut() {
            Some(last) if !last.full && !last.flushed && sum <= max_weight => last.seqs.push(seq),
            last => {
                if let Some(last) = last {
                    last.full |= !last.flushed;
                }
                fresh.push(Fresh { seqs: vec![seq], ..Fresh::default() });
            }
        }
        let seqs = fresh.last().unwrap().seqs.clone();
        let full = seqs.len() >= max_items || self.weigh(&seqs) >= max_weight;
        self.keys[key].fresh.last_mut().unwrap().full |= full;
    }

    pub(super) fn flush(&mut self) {
        self.keys.iter_mut().flat_map(|key| &mut key.fresh).for_each(|fresh| fresh.flushed = true);
    }

    /// Lets go what lingers while somebody waits for room.
    pub(super) fn hurry(&mut self) {
        for key in 0..KEYS {
            if self.pressed && self.linger_end(key).is_some() && self.next(key).is_none() {
                self.keys[key].fresh[0].hurried = true;
            }
        }
    }

    fn is_muted(&self, key: usize) -> bool {
        self.policy.order == Order::Fifo && self.flights.iter().any(|flight| flight.key == key)
    }

    /// Returns the rerun that goes first, due or not.
    fn first_rerun(&self, key: usize) -> Option<usize> {
        let reruns = &self.keys[key].reruns;
        match self.policy.order {
            Order::Fifo => reruns.len().checked_sub(1),
            // The later of two that are due at the same time.
            Order::Unordered => (0..reruns.len()).rev().min_by_key(|&at| reruns[at].due),
        }
    }

    /// Returns until when the first fresh batch lingers, if nothing else keeps it.
    fn linger_end(&self, key: usize) -> Option<Time> {
        let blocked = self.policy.order == Order::Fifo && !self.keys[key].reruns.is_empty();
        if self.is_muted(key) || blocked {
            return None;
        }
        let fresh = self.keys[key].fresh.first()?;
        Some(match self.policy.dispatch {
            _ if fresh.full || fresh.flushed || fresh.hurried || self.closed => 0,
            Dispatch::Natural => 0,
            Dispatch::Linger(linger) => self.get(fresh.seqs[0]).accepted.saturating_add(linger),
            Dispatch::Full => NEVER,
        })
    }

    /// Returns the batch of a key that may go.
    pub(super) fn next(&self, key: usize) -> Option<Next> {
        if self.is_muted(key) {
            return None;
        }
        let rerun = self.first_rerun(key).filter(|&at| self.keys[key].reruns[at].due <= self.now);
        let fresh = self.linger_end(key).filter(|end| *end <= self.now).map(|_| Next::Fresh);
        rerun.map(Next::Rerun).or(fresh)
    }

    pub(super) fn may_send(&self) -> bool {
        self.halted.is_none() && self.flights.len() < self.policy.max_in_flight
    }

    /// Returns when time does something next, once all that is due is done.
    pub(super) fn next_timer(&self) -> Option<Time> {
        let mut times: Vec<Time> = self.flights.iter().map(|flight| flight.armed).collect();
        times.extend(self.seqs(State::Waits).iter().map(|&seq| self.get(seq).deadline));
        for key in (0..KEYS).filter(|&key| !self.is_muted(key) && self.next(key).is_none()) {
            times.extend(self.first_rerun(key).map(|at| self.keys[key].reruns[at].due));
            times.extend(self.linger_end(key));
        }
        times.into_iter().min().filter(|&time| time != NEVER)
    }

    pub(super) fn reason(&self, key: usize, next: Next) -> DispatchReason {
        let fresh = match next {
            Next::Rerun(at) => return self.keys[key].reruns[at].reason,
            Next::Fresh => &self.keys[key].fresh[0],
        };
        match self.policy.dispatch {
            _ if fresh.full => DispatchReason::Full,
            _ if fresh.flushed => DispatchReason::Flush,
            _ if self.closed => DispatchReason::Close,
            Dispatch::Natural => DispatchReason::Natural,
            Dispatch::Linger(linger)
                if self.get(fresh.seqs[0]).accepted.saturating_add(linger) <= self.now =>
            {
                DispatchReason::Linger
            }
            Dispatch::Linger(_) | Dispatch::Full => DispatchReason::Full,
        }
    }

    /// Takes the batch of a key that may go.
    pub(super) fn take(&mut self, batch: BatchId, key: usize, next: Next) -> &Flight {
        let seqs = match next {
            Next::Rerun(at) => self.keys[key].reruns.remove(at).seqs,
            Next::Fresh => self.keys[key].fresh.remove(0).seqs,
        };
        for &seq in &seqs {
            assert!(self.get(seq).deadline > self.now, "{seq} is sent at or past its deadline");
            self.item(seq).state = State::Flies;
        }
        let weight = self.weigh(&seqs).max(1);
        for waits in (0..KEYS).filter(|waits| *waits != key) {
            let passed = &mut self.passed[waits][key];
            let worth = weight.max(self.rivals[waits]);
            assert!(*passed < worth, "key {key} had sent {passed} while {waits} was ready");
            *passed += weight;
        }
        self.passed[key] = [0; KEYS];
        self.rivals[key] = 0;
        self.last[key] = weight;
        let armed = seqs.iter().map(|&seq| self.get(seq).deadline).min().unwrap();
        self.flights.push(Flight { batch, key, seqs, armed, completed: false });
        self.flights.last().unwrap()
    }

    /// Takes waiting items out of their batches.
    pub(super) fn leave_queue(&mut self, seqs: &[u64]) {
        for key in &mut self.keys {
            key.fresh.iter_mut().for_each(|fresh| fresh.seqs.retain(|seq| !seqs.contains(seq)));
            key.fresh.retain(|fresh| !fresh.seqs.is_empty());
            key.reruns.iter_mut().for_each(|rerun| rerun.seqs.retain(|seq| !seqs.contains(seq)));
            key.reruns.retain(|rerun| !rerun.seqs.is_empty());
        }
        for &seq in seqs {
            assert_eq!(self.get(seq).state, State::Waits, "{seq} ends once, and waits until then");
            self.item(seq).state = State::Told;
        }
    }

    /// Notes which keys do not wait for their turn, and what the others may send in one.
    pub(super) fn note_turns(&mut self) {
        let mut heaviest = 0;
        for key in 0..KEYS {
            if self.next(key).is_none() {
                self.passed[key] = [0; KEYS];
                self.rivals[key] = 0;
                let Key { fresh, reruns } = &self.keys[key];
                let is_idle = fresh.is_empty() && reruns.is_empty();
                if is_idle && !self.flights.iter().any(|flight| flight.key == key) {
                    self.last[key] = 0;
                }
                continue;
            }
            // One that is put back may be due meanwhile, and go before the one that was seen first.
            let reruns = self.keys[key].reruns.iter().map(|rerun| &rerun.seqs);
            let fresh = self.keys[key].fresh.first().map(|fresh| &fresh.seqs);
            let head = reruns.chain(fresh).map(|seqs| self.weigh(seqs)).max();
            heaviest = heaviest.max(head.unwrap_or_default()).max(self.last[key]);
        }
        for key in 0..KEYS {
            if self.next(key).is_some() {
                self.rivals[key] = self.rivals[key].max(heaviest);
            }
        }
    }
}
