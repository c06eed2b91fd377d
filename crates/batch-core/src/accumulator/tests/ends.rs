//! The ends of batches, for an accumulator and its model.

use super::model::{Rerun, State};
use super::pair::{Dice, Pair};
use super::*;

impl Pair {
    /// Ends some or all items of a batch in flight.
    pub(super) fn end(&mut self, now: Time, dice: &mut Dice) {
        if self.flying.is_empty() {
            return;
        }
        self.model.at(now);
        self.real.at(now);
        let at = dice.index(self.flying.len());
        let batch = self.flying[at].0;
        if dice.one_in(4) {
            let count = dice.index(self.flying[at].1.len() + 1);
            let some = self.flying[at].1.drain(..count).collect();
            self.settle(batch, some, [End::Completed, End::Failed, End::Cancelled][dice.index(3)]);
            if dice.one_in(2) {
                self.deliver(batch);
            }
            return;
        }
        let (_, items) = self.flying.remove(at);
        let mut again = Vec::new();
        let whole = dice.roll(5);
        if whole == 4 {
            self.settle(batch, items, End::Completed);
            self.finish(now, batch, again);
            return;
        }
        for (item, entry) in items {
            match if whole < 3 { whole } else { dice.roll(3) } {
                0 => self.settle(batch, vec![(item, entry)], End::Completed),
                1 => {
                    let after = [None, None, Some(dice.roll(8)), Some(u64::MAX)][dice.index(4)];
                    again.push((item, entry, Again::Retry { after }));
                }
                _ => again.push((item, entry, Again::Split)),
            }
        }
        if dice.one_in(4) {
            again.reverse();
        }
        self.finish(now, batch, again);
    }

    pub(super) fn settle(&mut self, batch: BatchId, items: Parted<u64, ()>, end: End) {
        let flight = self.real.flight(batch);
        if end == End::Completed && items.len() == flight.items {
            self.real.complete(self.model.now, batch);
        } else {
            let ends = items.iter().map(|(_, entry)| (entry.mark, end));
            self.real.settle(self.model.now, batch, ends);
        }
        let flight = self.model.flights.iter_mut().find(|flight| flight.batch == batch).unwrap();
        if end == End::Completed && !items.is_empty() && !flight.completed {
            flight.completed = true;
            let whole = u64::from(self.model.policy.retry.budget) * 5;
            self.model.budget = (self.model.budget + 1).min(whole);
        }
        let count = items.len() as u64;
        match end {
            End::Completed => self.model.stats.completed += count,
            End::Failed => self.model.stats.failed += count,
            End::TimedOut => self.model.stats.expired += count,
            End::Cancelled => self.model.stats.cancelled += count,
        }
        for (seq, _) in items {
            assert_eq!(self.model.get(seq).state, State::Flies, "{seq} ends once");
            self.model.item(seq).state = State::Ended;
        }
    }

    pub(super) fn deliver(&mut self, batch: BatchId) {
        let told = self.tell(batch);
        self.real.delivered(batch, told);
    }

    /// Notes that the callers of the settled items of a batch are told; returns their number.
    fn tell(&mut self, batch: BatchId) -> usize {
        let flight = self.model.flights.iter().find(|flight| flight.batch == batch).unwrap();
        let mut told = 0;
        for seq in flight.seqs.clone() {
            if self.model.get(seq).state == State::Ended {
                self.model.item(seq).state = State::Told;
                told += 1;
            }
        }
        told
    }

    pub(super) fn finish(
        &mut self,
        now: Time,
        batch: BatchId,
        again: Vec<(u64, Entry<()>, Again)>,
    ) {
        self.model.at(now);
        let mut expected: Vec<_> = again.iter().map(|(seq, _, wish)| (*seq, *wish)).collect();
        expected.sort_unstable_by_key(|(seq, _)| *seq);
        self.tell(batch);
        let finished = self.real.finish(now, batch, again);
        let fresh = std::mem::take(&mut self.real.trace);
        let denied = self.put_back(batch, &expected, &fresh);
        self.trace.extend(fresh);
        if let Finished::Denied(items) = finished {
            assert_eq!(items.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), denied);
            assert!(!denied.is_empty());
            for seq in denied {
                self.model.item(seq).state = State::Ended;
                self.model.stats.failed += 1;
            }
            self.check();
            self.tell(batch);
            let over = self.real.finish(now, batch, Vec::new());
            assert!(matches!(over, Finished::Over { .. }));
        } else {
            assert_eq!(denied, [0; 0]);
        }
        self.model.flights.retain(|flight| flight.batch != batch);
    }

    /// Puts items back as they asked; returns those that are denied.
    fn put_back(&mut self, batch: BatchId, wishes: &[(u64, Again)], trace: &[Event]) -> Vec<u64> {
        let flight = self.model.flights.iter().find(|flight| flight.batch == batch).unwrap();
        let (key, was_alone, now) = (flight.key, flight.seqs.len() == 1, self.model.now);
        let retry = self.model.policy.retry;
        let (mut denied, mut retried, mut split, mut longest) = (vec![], vec![], vec![], 0);
        for &(seq, wish) in wishes {
            let item = self.model.get(seq);
            let list = match wish {
                _ if self.model.halted.is_some() => &mut denied,
                Again::Split if was_alone => &mut denied,
                Again::Split => &mut split,
                Again::Retry { after } => {
                    let after = after.unwrap_or(0);
                    let many = item.retries + 1 >= retry.max_attempts;
                    if many || now.saturating_add(after) >= item.deadline {
                        &mut denied
                    } else {
                        longest = longest.max(after);
                        &mut retried
                    }
                }
            };
            list.push(seq);
        }
        if let Some(most) = retried.iter().map(|&seq| self.model.get(seq).retries).max() {
            let doubled = u128::from(retry.base) << most;
            let longest_jitter = u64::try_from(doubled.min(u128::from(retry.cap))).unwrap();
            let latest = now.saturating_add(longest.max(longest_jitter));
            // The jitter is random: the trace tells what it was, or that it was too long.
            let told = trace.iter().find_map(|event| match event {
                Event::Retried { due, .. } => Some(*due),
                _ => None,
            });
            let due = told.unwrap_or(latest);
            assert!(now.saturating_add(longest) <= due && due <= latest);
            let late = |seq: &u64| self.model.get(*seq).deadline <= due;
            let can_pay = self.model.budget >= 5;
            if told.is_some() {
                denied.extend(retried.extract_if(.., |seq| late(seq)));
                assert!(!retried.is_empty() && can_pay);
                self.model.budget -= 5;
                for &seq in &retried {
                    self.model.item(seq).retries += 1;
                }
                self.put(key, &retried, due, DispatchReason::Retry);
            } else {
                assert!(retried.iter().all(late) || !can_pay);
                denied.append(&mut retried);
            }
        }
        let second = split.split_off(split.len().div_ceil(2));
        self.put(key, &second, now, DispatchReason::Split);
        self.put(key, &split, now, DispatchReason::Split);
        denied.sort_unstable();
        denied
    }

    fn put(&mut self, key: usize, seqs: &[u64], due: Time, reason: DispatchReason) {
        for &seq in seqs {
            assert_eq!(self.model.get(seq).state, State::Flies);
            self.model.item(seq).state = State::Waits;
            self.model.item(seq).attempt += 1;
        }
        if !seqs.is_empty() {
            let rerun = Rerun { seqs: seqs.to_vec(), due, reason };
            self.model.keys[key].reruns.push(rerun);
        }
    }
}

/// What many batches stood in is given back, also by a key that always has work.
#[test]
fn a_queue_that_was_long_gives_its_room_back() {
    let mut bench = Bench::new(Policy { max_items: 1, ..policy() });
    let places = |bench: &Bench| {
        let lanes = bench.queue.lanes.iter();
        lanes.map(|(_, lane)| lane.fresh.capacity()).sum::<usize>()
    };
    for _ in 0..1_000 {
        bench.push(1, 1);
    }
    assert!(places(&bench) >= 1_000);
    for _ in 0..990 {
        bench.sent();
        bench.complete();
    }
    assert!(places(&bench) < 100, "{} places for 10 batches", places(&bench));
}
