//! Deficit round robin: keys take turns, and each turn is worth the same weight.
//!
//! A lane may overdraw its last batch of a turn, and pays for that in the next one ("surplus round
//! robin"): what a batch weighs is not known before it goes, as it may fill until then.
//!
//! A turn is worth the heaviest batch of those that compete for it, and no more: one that is worth
//! what somebody sent once would go on and on while keys of lighter batches wait.

use super::few::Few;
use super::lane::LaneId;

/// What a lane holds of its turns; lost when the lane runs out of work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    /// Weight that the lane may still send before its turn is over, or has sent too much. Never
    /// further from 0 than twice the heaviest batch that was sent or waited.
    credit: i128,
    /// The turn that the lane waits for or is in. It keeps it until the credit is used up, also
    /// while a batch in flight mutes it.
    turn: Option<u64>,
    /// The turn has begun: it is paid for.
    paid: bool,
    /// The lane stands in [`Turns::ready`], and with its stake in [`Turns::stakes`].
    ready: bool,
    stake: u64,
    /// The cost of the batch that it sent last.
    last: u64,
}

/// The lanes that have a batch to send, in the order in which they may.
#[derive(Debug, Default)]
pub(super) struct Turns {
    ready: Few<(u64, LaneId), ()>,
    /// What each of these likely sends next, the heaviest last.
    stakes: Few<(u64, LaneId), ()>,
    /// The turn given to the lane that joined last.
    last: u64,
}

impl Turns {
    /// Lets a lane take part: at the end, or where it was if its turn is not over. `head` is the
    /// weight of its next batch, which may grow: so what it sent last counts too.
    pub(super) fn join(&mut self, id: LaneId, share: &mut Share, head: u64) {
        let stake = head.max(share.last);
        if share.ready {
            if share.stake != stake {
                self.stakes.remove(&(share.stake, id));
                self.stakes.insert((stake, id), ());
                share.stake = stake;
            }
            return;
        }
        let turn = *share.turn.get_or_insert_with(|| {
            self.last += 1;
            self.last
        });
        share.ready = true;
        share.stake = stake;
        self.ready.insert((turn, id), ());
        self.stakes.insert((stake, id), ());
    }

    /// Takes a lane out that has nothing to send now.
    pub(super) fn leave(&mut self, id: LaneId, share: &mut Share) {
        if share.ready {
            share.ready = false;
            self.ready.remove(&(share.turn.expect("a lane that is ready has a turn"), id));
            self.stakes.remove(&(share.stake, id));
        }
    }

    /// Charges a batch that a lane sends, and takes the lane out.
    pub(super) fn charge(&mut self, id: LaneId, share: &mut Share, weight: u64) {
        self.leave(id, share);
        // Batches without weight cost something too: they must not keep a turn for ever.
        let cost = weight.max(1);
        let worth = self.stakes.last_key().map_or(cost, |(stake, _)| cost.max(*stake));
        let worth = i128::from(worth);
        if !share.paid {
            share.paid = true;
            share.credit += worth;
        }
        // What was worth more may be gone.
        share.credit = share.credit.clamp(-worth, worth) - i128::from(cost);
        share.last = cost;
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
        debug_assert_eq!(self.ready.len(), self.stakes.len());
        self.ready.len()
    }
}
