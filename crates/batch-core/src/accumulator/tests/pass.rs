//! Items that go through alone, for an accumulator and its model.

use super::model::{Next, State};
use super::pair::{Dice, Pair};
use super::*;

impl Pair {
    /// Has an item go through alone that was admitted now, and ends it at once or as any other.
    pub(super) fn pass(&mut self, key: usize, weight: u64, dice: &mut Dice) {
        let (seq, now) = (self.model.items.len() as u64, self.model.now);
        self.model.push(key, weight);
        let next = self.model.next(key).expect("an item that can pass may go at once");
        assert_eq!((next, self.model.may_send()), (Next::Fresh, true));
        let (pass, mut known) = self.real.pass(&now, key, id(seq), weight, ());
        assert_eq!(pass.reason(), self.model.reason(key, next));
        assert_eq!(known.ids().collect::<Vec<_>>(), [id(seq)]);
        let batch = pass.batch();
        self.model.stats.calls += 1;
        assert_eq!(self.model.take(batch, key, next).seqs, [seq]);
        if dice.one_in(2) {
            let lane = pass.lane();
            self.real.take_in(pass);
            assert_eq!(self.real.lanes.get(lane).map(|lane| lane.key), Some(key));
            self.flying.push((batch, vec![(seq, known.spread().remove(0))]));
            return;
        }
        let later = now.saturating_add(dice.roll(4));
        self.model.at(later);
        self.real.end_pass(later, pass);
        let whole = u64::from(self.model.policy.retry.budget) * 5;
        self.model.budget = (self.model.budget + 1).min(whole);
        self.model.stats.completed += 1;
        self.model.item(seq).state = State::Told;
        self.model.flights.retain(|flight| flight.batch != batch);
    }
}

/// What is remembered of a batch does not tell whether it was alone.
#[test]
fn an_item_that_passes_leaves_what_any_other_does() {
    let through = |passes: bool| {
        let mut bench = Bench::new(policy());
        bench.at(3);
        if passes {
            assert!(bench.queue.can_pass());
            let (pass, _) = bench.queue.pass(&bench.now, 7, id(0), 2, ());
            bench.queue.end_pass(9 * MS, pass);
        } else {
            bench.push(7, 2);
            assert_eq!(bench.sent(), Some(vec![0]));
            bench.at(9).complete();
        }
        // The lane of the next item is another one.
        let lane = bench.queue.push(&bench.now, 8, id(1), 1, 1, ());
        let past: Vec<_> = bench.queue.history().map(|past| format!("{past:?}")).collect();
        (past, *bench.queue.stats(), lane, std::mem::take(&mut bench.queue.trace))
    };
    assert_eq!(through(true), through(false));
}

/// A key whose item passed keeps its turn, as long as it is worth: what comes meanwhile goes in the
/// same order as without that.
#[test]
fn an_item_that_is_taken_in_has_its_turn() {
    let order = |passes: bool| {
        let mut bench = Bench::new(policy());
        bench.push(9, 100);
        bench.sent();
        bench.complete();
        if passes {
            let (pass, mut known) = bench.queue.pass(&bench.now, 1, id(1), 1, ());
            bench.seq += 1;
            bench.flying.push((pass.batch(), vec![(1, known.spread().remove(0))]));
            bench.queue.take_in(pass);
        } else {
            bench.push(1, 1);
            bench.sent();
        }
        for key in [1, 2] {
            bench.push(key, 1);
        }
        bench.complete();
        [bench.sent(), bench.sent()]
    };
    assert_eq!(order(true), order(false));
}

/// Beside a batch that waits, is in flight, lingers or could never go there is an order to keep.
#[test]
fn nothing_passes_what_came_before() {
    let mut bench = Bench::new(policy());
    assert!(bench.queue.can_pass());
    bench.push(1, 1);
    assert!(!bench.queue.can_pass(), "something waits");
    bench.sent();
    assert!(!bench.queue.can_pass(), "something is in flight");
    bench.complete();
    assert!(bench.queue.can_pass());
    for dispatch in [Dispatch::Linger(1), Dispatch::Full] {
        assert!(!Bench::new(Policy { dispatch, ..policy() }).queue.can_pass());
    }
    let expires = Policy { delivery_timeout: Some(0), ..policy() };
    assert!(!Bench::new(expires).queue.can_pass(), "it would be over at once");
}
