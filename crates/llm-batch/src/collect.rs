//! The second half of a pass: wait for the batches and bring their results home.

use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use crate::answer::{Answer, RequestError};
use crate::backoff::Backoff;
use crate::draft::{Draft, NOBODY};
use crate::error::{Error, PendingReason};
use crate::lane::OnAmbiguous;
use crate::provider::{CallError, Collected, Progress, Rejection};
use crate::record::Fate;
use crate::send::Send;
use crate::session::{Job, Session, Tell};
use crate::wire_id::seq_of;

/// How often the results of an ended batch are read before a request without a line is given up,
/// and how often where the provider says that it was answered.
const READS: u32 = 3;
const READS_OF_PAID: u32 = 10;

/// A batch that the provider has, with the requests that still wait for a result.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Its record.
    pub(crate) at: usize,
    pub(crate) batch_id: String,
    pub(crate) nonce: String,
    /// The request at each position on the wire; nobody where it does not wait any more.
    pub(crate) members: Vec<u32>,
    pub(crate) progress: Progress,
    pub(crate) backoff: Backoff,
    pub(crate) reads: u32,
    /// The positions on the wire for which an answer was seen; empty before the first.
    pub(crate) answered: Vec<bool>,
    /// Requests that came back without an answer and are sent again, or asked alone, once all
    /// results were read.
    pub(crate) again: Vec<u32>,
    pub(crate) alone: Vec<u32>,
    /// Whether it was told that it makes room for another one.
    pub(crate) has_made_room: bool,
    /// When it is cancelled, because the deadline is near, and whether that was done.
    pub(crate) brake: Option<Instant>,
    pub(crate) is_cancelled: bool,
}

/// What is done about a request that came back without an answer.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// It is told.
    Tell,
    /// It is sent again, in another batch.
    Again,
    /// It is asked alone.
    Alone,
    /// It is told that it came too late.
    Missed,
}

impl Watch {
    fn is_done(&self) -> bool {
        self.members.iter().all(|member| *member == NOBODY)
    }

    fn wanted(&self) -> Vec<u32> {
        self.members.iter().copied().filter(|member| *member != NOBODY).collect()
    }
}

impl<T: Tell> Session<'_, T> {
    /// Asks once how far a batch is, and collects it when it has ended.
    pub(crate) fn watch(&mut self, mut watch: Watch) -> Result<(), Error> {
        self.note_again();
        self.cancel_in_time(&mut watch);
        let polled = match mem::replace(&mut watch.progress, Progress::Running) {
            Progress::Running => self.engine.provider.poll(&watch.batch_id, &self.call),
            known => Ok(known),
        };
        let failed = match polled {
            Ok(Progress::Running) => {
                if !self.give_up_overdue(&mut watch)? {
                    let next = self.later(watch.backoff.after_success());
                    self.watch_later(next, watch);
                }
                return Ok(());
            }
            Ok(Progress::Ended) => {
                watch.progress = Progress::Ended;
                self.resend.after_success();
                // Once, whoever told, and not at each time that its results cannot be read yet.
                if !mem::replace(&mut watch.has_made_room, true) {
                    let model = self.engine.state().record(watch.at).intent.model.clone();
                    self.engine.intake.has_ended(&model);
                }
                self.collect(&mut watch)?
            }
            Ok(Progress::Rejected(rejection)) => return self.rejected(watch, rejection),
            Err(error) => Some(error),
        };
        match failed {
            None => self.send_again(watch)?,
            Some(CallError::Passing { retry_after, .. }) => {
                // What has ended is there and paid for: late is better than never.
                let is_there = watch.progress == Progress::Ended;
                if !is_there && self.give_up_overdue(&mut watch)? {
                    return Ok(());
                }
                let next = self.later(watch.backoff.after_failure(retry_after));
                self.watch_later(next, watch);
            }
            Some(CallError::Refused { mut message }) => {
                let members = [watch.wanted(), watch.again, watch.alone].concat();
                let batch_id = watch.batch_id;
                let key = self.engine.state().record(watch.at).intent.key();
                if key.is_same(&*self.engine.provider) == Some(false) {
                    message.push_str("; the batch was created with another key than that of now");
                }
                self.set_aside(&members, PendingReason::Refused { batch_id, message });
            }
        }
        Ok(())
    }

    /// Reads the results of an ended batch. `None`: nothing is left to wait for.
    fn collect(&mut self, watch: &mut Watch) -> Result<Option<CallError>, Error> {
        let (engine, call, table) = (self.engine, Arc::clone(&self.call), Arc::clone(&self.table));
        let before = watch.members.clone();
        let (nonce, batch_id) = (watch.nonce.clone(), watch.batch_id.clone());
        let wanted = Draft::new(&nonce, &before, &table);
        let resent = engine.state().record(watch.at).intent.resent;
        let mut fault = None;
        let mut seen = vec![false; watch.members.len()];
        watch.answered.resize(watch.members.len(), false);
        let at = watch.at;
        let Watch { members, answered, again, alone, is_cancelled, .. } = watch;
        let mut sink = |custom_id: &str, outcome: Result<Answer, RequestError>| {
            let Some(seq) = seq_of(&nonce, custom_id).filter(|seq| *seq < members.len()) else {
                self.stray += 1;
                return ControlFlow::Continue(());
            };
            let late = (outcome.is_ok() && !answered[seq])
                .then(|| self.take_back(at, seq, again, alone))
                .flatten();
            if mem::replace(&mut seen[seq], true) && late.is_none() {
                self.stray += 1;
                return ControlFlow::Continue(());
            }
            answered[seq] |= outcome.is_ok();
            // Not waiting and not repeated: collected before, or asked by nobody today.
            let index = late.unwrap_or(mem::replace(&mut members[seq], NOBODY));
            if index == NOBODY {
                return ControlFlow::Continue(());
            }
            let next = match &outcome {
                Ok(_) => Next::Tell,
                Err(error) => self.next_for(index, error, resent, *is_cancelled),
            };
            if next != Next::Tell && matches!(outcome, Err(RequestError::Errored { .. })) {
                self.ran(index as usize);
            }
            let told = match next {
                Next::Tell => self.hand_over(index as usize, outcome),
                Next::Missed => self.miss(index as usize, false),
                Next::Again => {
                    again.push(index);
                    Ok(())
                }
                Next::Alone => {
                    alone.push(index);
                    Ok(())
                }
            };
            match told {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    fault = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let read = engine.provider.results(&batch_id, &wanted, &call, &mut sink);
        if let Some(fault) = fault {
            return Err(fault);
        }
        match read {
            Err(_) if watch.is_done() => Ok(None),
            Err(error) => Ok(Some(error)),
            Ok(Collected { unreadable, rest }) => {
                self.stray += unreadable;
                watch.reads += 1;
                if watch.is_done() {
                    return Ok(None);
                }
                self.missing(watch, unreadable, rest)
            }
        }
    }

    /// Takes the request at a position back from those that are sent again: its answer is there.
    fn take_back(
        &self,
        at: usize,
        seq: usize,
        again: &mut Vec<u32>,
        alone: &mut Vec<u32>,
    ) -> Option<u32> {
        let state = self.engine.state();
        let is_it = |index: &u32| {
            let known = state.known(&self.table.items()[*index as usize]);
            known.is_some_and(|known| (known.at, known.seq) == (at, seq))
        };
        [again, alone].into_iter().find_map(|list| {
            let place = list.iter().position(is_it)?;
            Some(list.remove(place))
        })
    }

    /// Decides about requests of an ended batch without a result, once all results were read.
    fn missing(
        &mut self,
        watch: &mut Watch,
        unreadable: u64,
        rest: Option<RequestError>,
    ) -> Result<Option<CallError>, Error> {
        let batch_id = watch.batch_id.clone();
        let seen = watch.answered.iter().filter(|answered| **answered).count() as u64;
        let counted = match self.engine.provider.answered(&batch_id, &self.call) {
            // A count below what was seen is wrong, and says nothing of the rest.
            Ok(counted) => counted.filter(|counted| *counted >= seen),
            Err(CallError::Refused { .. }) => None,
            Err(error) => return Ok(Some(error)),
        };
        let missing = counted.unwrap_or(0).saturating_sub(seen);
        if missing > unreadable {
            // They are paid for and will come out, if not today.
            if watch.reads < READS_OF_PAID {
                return Ok(Some(CallError::passing("paid results are missing")));
            }
            let wanted = watch.wanted();
            self.set_aside(&wanted, PendingReason::Incomplete { batch_id, missing });
            return Ok(None);
        }
        if watch.reads < READS {
            return Ok(Some(CallError::passing("some results are missing")));
        }
        let resent = self.engine.state().record(watch.at).intent.resent;
        // Where nobody counts, a line that cannot be read may be the answer that is missing.
        let is_unpaid =
            counted.map_or(rest.is_some() && unreadable == 0, |counted| counted == seen);
        let missing = rest.filter(|_| is_unpaid).unwrap_or(RequestError::Missing { batch_id });
        let wanted = watch.wanted();
        watch.members.fill(NOBODY);
        let policy = self.engine.settings.on_ambiguous;
        let may_pay_twice = policy == OnAmbiguous::Resubmit && unreadable == 0;
        if !is_unpaid
            && may_pay_twice
            && self.may_resend(resent)
            && self.afford(watch.at, wanted.iter().copied())?
        {
            let number = self.engine.state().record(watch.at).number;
            let interval = self.engine.settings.poll_interval;
            let send = Send::new(wanted, vec![number], resent + 1, interval).doubtful();
            self.jobs.push(Instant::now(), Job::Send(send));
            return Ok(None);
        }
        for index in wanted {
            let next = if is_unpaid {
                self.next_for(index, &missing, resent, watch.is_cancelled)
            } else {
                Next::Tell
            };
            match next {
                Next::Tell => self.hand_over(index as usize, Err(missing.clone()))?,
                Next::Missed => self.miss(index as usize, false)?,
                Next::Again => watch.again.push(index),
                Next::Alone => watch.alone.push(index),
            }
        }
        Ok(None)
    }

    fn may_resend(&self, resent: u32) -> bool {
        resent.saturating_add(1) < self.engine.settings.attempts
    }

    /// Decides about a request that came back without an answer, and unpaid.
    fn next_for(&self, index: u32, error: &RequestError, resent: u32, is_cancelled: bool) -> Next {
        let is_unrun = matches!(error, RequestError::Expired | RequestError::Canceled);
        let is_missing = matches!(error, RequestError::Missing { .. });
        if !(is_unrun || is_missing || error.is_retryable()) {
            return Next::Tell;
        }
        let due = self.table.due(index as usize);
        if due.is_some_and(|due| self.brake(due) <= Instant::now()) {
            return if self.is_auto() { Next::Alone } else { Next::Missed };
        }
        match error {
            // The deadline of another one ended the batch, which says nothing about this one.
            RequestError::Canceled if is_cancelled => Next::Again,
            // Somebody wanted it so.
            RequestError::Canceled => Next::Tell,
            _ if self.may_resend(resent) => Next::Again,
            _ => Next::Tell,
        }
    }

    /// Sends what came back without an answer, once all results were read.
    fn send_again(&mut self, mut watch: Watch) -> Result<(), Error> {
        let (number, resent) = {
            let state = self.engine.state();
            let record = state.record(watch.at);
            (record.number, record.intent.resent)
        };
        self.ask_alone(&mut watch, number)?;
        if !watch.again.is_empty() {
            let interval = self.engine.settings.poll_interval;
            let send = Send::new(watch.again, vec![number], resent.saturating_add(1), interval);
            // What was too much for the provider just now is too much at once, too.
            let wait = self.resend.after_failure(None);
            let next = self.later(wait);
            self.jobs.push(self.in_time(&send.members, next), Job::Send(send));
        }
        Ok(())
    }

    /// Takes up a batch of which nothing was run: those at fault fail alone.
    fn rejected(&mut self, mut watch: Watch, rejection: Rejection) -> Result<(), Error> {
        let Rejection { kind, message, lines, is_passing } = rejection;
        let mut is_ejected = false;
        for (seq, kind, message) in lines {
            let Some(member) = watch.members.get_mut(seq) else { continue };
            is_ejected = true;
            let index = mem::replace(member, NOBODY);
            if index != NOBODY {
                let refused =
                    RequestError::Refused { status: None, kind, message, retryable: false };
                self.hand_over(index as usize, Err(refused))?;
            }
        }
        let members = watch.wanted();
        let until = is_passing.then(|| {
            let model = self.engine.state().record(watch.at).intent.model.clone();
            self.engine.intake.is_full(&model)
        });
        let mut state = self.engine.state();
        if !is_ejected && !is_passing {
            let fate = Fate::Refused {
                code: None,
                kind: kind.clone(),
                message: message.clone(),
                retryable: false,
            };
            let settled = state.settle(watch.at, fate);
            drop(state);
            if let Err(fault) = settled {
                return self.fail(&members, fault);
            }
            self.discard(watch.at);
            let refused = RequestError::Refused { status: None, kind, message, retryable: false };
            for index in members {
                self.hand_over(index as usize, Err(refused.clone()))?;
            }
            return Ok(());
        }
        let reason = format!("{kind}: {message}");
        let settled = state.settle(watch.at, Fate::Void { reason, may_be_paid: false });
        if let Err(fault) = settled {
            drop(state);
            return self.fail(&members, fault);
        }
        let record = state.record(watch.at);
        let (replaces, resent) = (vec![record.number], record.intent.resent);
        drop(state);
        self.discard(watch.at);
        if members.is_empty() {
            return Ok(());
        }
        let interval = self.engine.settings.poll_interval;
        let send = Send::new(members, replaces, resent, interval);
        let next = until.unwrap_or_else(Instant::now);
        self.jobs.push(self.in_time(&send.members, next), Job::Send(send));
        Ok(())
    }
}
