//! What a pass does nothing more for, although it has no outcome.

use super::{Ambiguity, Session, Tell};
use crate::accounting::Delivered;
use crate::answer::{RequestError, Status};
use crate::draft::NOBODY;
use crate::engine::Mode;
use crate::error::{Error, PendingReason};

impl<T: Tell> Session<'_, T> {
    /// Leaves requests for a later pass. Of tickets each is told at once, and why: it has nothing to do with
    /// what the pass still waits for. A run says it at its end.
    pub(crate) fn set_aside(&mut self, members: &[u32], why: PendingReason) {
        if self.mode == Mode::Run {
            self.refused.get_or_insert(why);
            return;
        }
        for index in members.iter().filter(|member| **member != NOBODY).map(|m| *m as usize) {
            if self.status[index] == Status::Pending {
                let left = self.engine.left(self.table.id(index), &why);
                self.leave(index, left);
            }
        }
    }

    /// Ends a run that cannot go on; of tickets it sets those aside that the fault is about.
    pub(crate) fn fail(&mut self, members: &[u32], fault: Error) -> Result<(), Error> {
        match self.mode {
            Mode::Run => Err(fault),
            Mode::Tickets => {
                self.set_aside(members, PendingReason::State { problem: fault.to_string() });
                Ok(())
            }
        }
    }

    /// Begins nothing more: an answer that is paid for could not be written down, and what else is paid
    /// for could not be, either.
    pub(crate) fn could_not_keep(&mut self, fault: Error) {
        self.unkept.get_or_insert_with(|| fault.to_string());
        self.cut(fault);
    }

    /// Tells whether nothing is begun any more, and sets the requests aside then.
    pub(crate) fn keeps_nothing(&mut self, members: &[u32]) -> bool {
        self.note_again();
        let unnoted = self.unnoted.first().map(|(_, problem)| problem);
        let Some(problem) = self.unkept.as_ref().or(unnoted).cloned() else { return false };
        self.set_aside(members, PendingReason::State { problem });
        true
    }

    /// Writes down once more what could not be.
    pub(crate) fn note_again(&mut self) {
        if self.unnoted.is_empty() {
            return;
        }
        let mut state = self.engine.state();
        self.unnoted.retain(|&(at, _)| {
            let fate = state.record(at).fate.clone();
            fate.is_some_and(|fate| state.settle(at, fate).is_err())
        });
    }

    /// Leaves a request of which it is unknown whether it was taken.
    pub(crate) fn mark_ambiguous(&mut self, index: usize, reason: &str) {
        self.status[index] = Status::Ambiguous;
        let reason = reason.to_owned();
        match self.mode {
            Mode::Run => {
                let new = || Ambiguity { requests: 0, reason };
                self.ambiguous.get_or_insert_with(new).requests += 1;
            }
            Mode::Tickets => {
                let state = self.engine.state_dir.clone();
                self.leave(index, RequestError::Ambiguous { state, reason });
            }
        }
    }

    fn leave(&mut self, index: usize, left: RequestError) {
        if !self.left.insert(index) {
            return;
        }
        self.count_open(index);
        self.direct.step_aside();
        (self.on_outcome)(index, Err(left));
    }

    /// Counts a request without an outcome.
    pub(super) fn count_open(&mut self, index: usize) {
        let delivered = Delivered { status: self.status[index], usage: None };
        self.count(index, delivered);
        self.tally(index, delivered);
    }
}
