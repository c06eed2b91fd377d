//! Deficit round robin: keys take turns, and each turn is worth the same weight.
//!
//! A lane may overdraw its last batch of a turn, and pays for that in the next one ("surplus round
//! robin"): what a batch weighs is not known before it goes, as it may fill until then.

use super::few::Few;
use super::lane::LaneId;

/// What a lane holds of its turns; lost when the lane runs out of work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    /// Weight that the lane may still send before its turn is over, or has sent too much. Never
    /// further from 0 than the quantum.
    credit: i128,
    /// The turn that the lane waits for or is in. It keeps it until the credit is used up, also
    /// while a batch in flight mutes it.
    turn: Option<u64>,
    /// The turn has begun: it is paid for.
    paid: bool,
    /// The lane stands in [`Turns::ready`].
    ready: bool,
}

/// The lanes that have a batch to send, in the order in which they may.
#[derive(Debug, Default)]
pub(super) struct Turns {
    ready: Few<(u64, LaneId), ()>,
    /// The turn given to the lane that joined last.
    last: u64,
    /// What a turn is worth: the largest batch so far, so that each turn sends at least one.
    quantum: u64,
}

impl Turns {
    /// Lets a lane take part: at the end, or where it was if its turn is not over.
    pub(super) fn join(&mut self, id: LaneId, share: &mut Share) {
        if share.ready {
            return;
        }
        let turn = *share.turn.get_or_insert_with(|| {
            self.last += 1;
            self.last
        });
        share.ready = true;
        self.ready.insert((turn, id), ());
    }

    /// Takes a lane out that has nothing to send now.
    pub(super) fn leave(&mut self, id: LaneId, share: &mut Share) {
        if share.ready {
            share.ready = false;
            self.ready.remove(&(share.turn.expect("a lane that is ready has a turn"), id));
        }
    }

    /// Charges a batch that a lane sends, and takes the lane out.
    pub(super) fn charge(&mut self, id: LaneId, share: &mut Share, weight: u64) {
        self.leave(id, share);
        // Batches without weight cost something too: they must not keep a turn for ever.
        let cost = weight.max(1);
        self.quantum = self.quantum.max(cost);
        if !share.paid {
            share.paid = true;
            share.credit += i128::from(self.quantum);
        }
        share.credit -= i128::from(cost);
        if share.credit <= 0 {
            share.turn = None;
            share.paid = false;
        }
    }

    /// Returns the lane whose turn it is.
    pub(super) fn first(&self) -> Option<LaneId> {
        self.ready.first().map(|((_, id), ())| *id)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }
}
