//! Deficit round robin: keys take turns, and each turn is worth the same weight.

use std::collections::BTreeSet;

use super::lane::LaneId;

/// What a lane holds of its turns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    /// Weight that the lane may still send before the turn is over; less than twice the quantum,
    /// and lost when the lane runs out of work.
    credit: u64,
    /// The turn that the lane is in or waits for; it keeps it while the credit lasts, also when a
    /// batch in flight mutes it.
    turn: Option<u64>,
    /// The lane stands in [`Turns::ready`].
    ready: bool,
}

/// The lanes that have a batch to send, in the order in which they may.
#[derive(Debug, Default)]
pub(super) struct Turns {
    ready: BTreeSet<(u64, LaneId)>,
    /// The turn given to the next lane that joins at the end.
    next: u64,
    /// What a turn is worth: the largest batch so far, so that each turn sends at least one.
    quantum: u64,
}

impl Turns {
    /// Lets a lane take part whose next batch weighs `weight`.
    pub(super) fn join(&mut self, id: LaneId, share: &mut Share, weight: u64) {
        if share.ready {
            return;
        }
        let turn = match share.turn {
            Some(turn) if share.credit >= cost(weight) => turn,
            _ => {
                self.next += 1;
                self.next
            }
        };
        share.turn = Some(turn);
        share.ready = true;
        self.ready.insert((turn, id));
    }

    /// Takes a lane out that has nothing to send now; it keeps its credit.
    pub(super) fn leave(&mut self, id: LaneId, share: &mut Share) {
        if share.ready {
            share.ready = false;
            self.ready.remove(&(share.turn.expect("a lane that is ready has a turn"), id));
        }
    }

    /// Charges a batch that a lane sends, and takes the lane out.
    pub(super) fn charge(&mut self, id: LaneId, share: &mut Share, weight: u64) {
        let cost = cost(weight);
        self.quantum = self.quantum.max(cost);
        if share.credit < cost {
            share.credit = share.credit.saturating_add(self.quantum);
        }
        share.credit -= cost;
        self.leave(id, share);
    }

    /// Returns the lane whose turn it is.
    pub(super) fn first(&self) -> Option<LaneId> {
        self.ready.first().map(|(_, id)| *id)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }
}

/// Batches without weight cost something too: they must not keep a turn for ever.
fn cost(weight: u64) -> u64 {
    weight.max(1)
}
