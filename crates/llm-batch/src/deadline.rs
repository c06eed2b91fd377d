//! What is done when answers are needed by a certain moment.

use std::mem;
use std::time::Instant;

use crate::answer::RequestError;
use crate::backoff::Backoff;
use crate::collect::Watch;
use crate::direct::Ask;
use crate::draft::NOBODY;
use crate::error::Error;
use crate::lane::LaneChoice;
use crate::provider::{CallError, Progress};
use crate::session::{Job, Session, Tell};

impl<T: Tell> Session<'_, T> {
    pub(crate) fn is_auto(&self) -> bool {
        self.engine.settings.lane == LaneChoice::Auto
    }

    /// Returns when a batch has to be cancelled, so that there is time left for what it did not do.
    pub(crate) fn brake(&self, due: Instant) -> Instant {
        due.checked_sub(self.engine.settings.headroom).unwrap_or_else(Instant::now)
    }

    /// Returns the first deadline of requests of a create.
    fn due(&self, members: &[u32]) -> Option<Instant> {
        if !self.table.has_deadlines() {
            return None;
        }
        let wanted = members.iter().filter(|member| **member != NOBODY);
        wanted.filter_map(|&member| self.table.due(member as usize)).min()
    }

    /// Returns the moment of the next look at a create: as planned, or when a deadline wants it.
    pub(crate) fn in_time(&self, members: &[u32], next: Instant) -> Instant {
        let Some(due) = self.due(members) else { return next };
        let now = Instant::now();
        [self.brake(due), due].into_iter().filter(|at| *at > now).fold(next, Instant::min)
    }

    /// Returns the wait for a batch, with the moment at which it is cancelled: the headroom before
    /// its first deadline, and not before a third of the time is over.
    pub(crate) fn watch_of(
        &self,
        at: usize,
        batch_id: String,
        nonce: String,
        members: Vec<u32>,
        progress: Progress,
    ) -> Watch {
        let now = Instant::now();
        let brake = self.due(&members).map(|due| {
            let third = due.saturating_duration_since(now) / 3;
            self.brake(due).max(now.checked_add(third).unwrap_or(due))
        });
        let backoff = Backoff::new(self.engine.settings.poll_interval);
        let answered = Vec::new();
        let (again, alone) = (Vec::new(), Vec::new());
        let (reads, has_made_room, is_cancelled) = (0, false, false);
        Watch {
            at,
            batch_id,
            nonce,
            members,
            progress,
            backoff,
            reads,
            answered,
            again,
            alone,
            has_made_room,
            brake,
            is_cancelled,
        }
    }

    pub(crate) fn watch_later(&mut self, next: Instant, watch: Watch) {
        let now = Instant::now();
        let brake = watch.brake.filter(|brake| *brake > now);
        let next = self.in_time(&watch.members, brake.map_or(next, |brake| brake.min(next)));
        self.jobs.push(next, Job::Watch(watch));
    }

    /// Asks the provider to stop working on a batch whose deadline is near.
    pub(crate) fn cancel_in_time(&mut self, watch: &mut Watch) {
        let is_near = watch.brake.is_some_and(|brake| brake <= Instant::now());
        if !is_near || watch.is_cancelled {
            return;
        }
        let cancelled = self.engine.provider.cancel(&watch.batch_id, &self.call);
        // One that cannot be cancelled has ended, or its poll says what else there is.
        watch.is_cancelled = !matches!(cancelled, Err(CallError::Passing { .. }));
        watch.backoff = Backoff::new(self.engine.settings.poll_interval);
    }

    /// Gives up waiting for what is overdue; before that, where paying twice is allowed, asks
    /// alone. Tells whether nobody is left.
    pub(crate) fn give_up_overdue(&mut self, watch: &mut Watch) -> Result<bool, Error> {
        if self.is_auto() && self.engine.settings.pay_twice && watch.is_cancelled {
            let (now, half) = (Instant::now(), self.engine.settings.headroom / 2);
            let number = self.engine.state().record(watch.at).number;
            for at in 0..watch.members.len() {
                let member = watch.members[at];
                if member == NOBODY {
                    continue;
                }
                let due = self.table.due(member as usize);
                let is_near = due.is_some_and(|due| due.checked_sub(half).unwrap_or(now) <= now);
                if is_near && self.afford(watch.at, [member])? {
                    watch.members[at] = NOBODY;
                    let mut ask = Ask::new(member, Some(number));
                    ask.may_be_paid = true;
                    self.direct.extend([ask], &self.table);
                }
            }
        }
        self.miss_overdue(&mut watch.members, true)
    }

    /// Ends requests whose deadline has passed; tells whether nobody is left.
    pub(crate) fn miss_overdue(
        &mut self,
        members: &mut [u32],
        may_be_paid: bool,
    ) -> Result<bool, Error> {
        let now = Instant::now();
        if self.due(members).is_some_and(|due| due <= now) {
            let is_over = |member: u32| {
                member != NOBODY && self.table.due(member as usize).is_some_and(|due| due <= now)
            };
            let over: Vec<&mut u32> = members.iter_mut().filter(|m| is_over(**m)).collect();
            for member in over {
                let index = mem::replace(member, NOBODY) as usize;
                self.miss(index, may_be_paid)?;
            }
        }
        Ok(members.iter().all(|member| *member == NOBODY))
    }

    /// Asks a request alone that a batch came too late for, or ends it where that is too late too.
    pub(crate) fn ask_or_miss(&mut self, ask: Ask) -> Result<(), Error> {
        let is_over = self.table.due(ask.member as usize).is_some_and(|due| due <= Instant::now());
        if self.is_auto() && !is_over {
            self.direct.extend([ask], &self.table);
            return Ok(());
        }
        self.miss(ask.member as usize, ask.may_be_paid)
    }

    /// Ends what waits to be asked alone and is overdue.
    pub(crate) fn miss_asks(&mut self) -> Result<(), Error> {
        let overdue = self.direct.take_overdue(&self.table);
        overdue.iter().try_for_each(|ask| self.miss(ask.member as usize, ask.may_be_paid))
    }

    /// Ends a request that is overdue. It may be paid for where one of its creates was given up, too.
    pub(crate) fn miss(&mut self, index: usize, may_be_paid: bool) -> Result<(), Error> {
        let is_doubted = {
            let state = self.engine.state();
            let known = state.known(&self.table.items()[index]);
            known.is_some_and(|known| state.doubts(known.at) > 0)
        };
        let may_be_paid = may_be_paid || is_doubted;
        self.hand_over(index, Err(RequestError::DeadlineMissed { may_be_paid }))
    }

    /// Takes the requests of an ended batch that want to be asked alone.
    pub(crate) fn ask_alone(&mut self, watch: &mut Watch, number: u64) -> Result<(), Error> {
        for member in mem::take(&mut watch.alone) {
            self.ask_or_miss(Ask::new(member, Some(number)))?;
        }
        Ok(())
    }
}
