//! The second half of a pass: wait for the batches and bring their results home.

use std::mem;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::answer::{Answer, RequestError};
use crate::backoff::Backoff;
use crate::draft::{Draft, NOBODY};
use crate::error::{Error, PendingReason};
use crate::provider::{CallError, Collected, Progress, Rejection};
use crate::send::Send;
use crate::session::{Job, Session};
use crate::state::Fate;
use crate::wire_id::seq_of;

/// How often the results of an ended batch are read before a request without a line is given up.
const READS: u32 = 3;

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
}

impl Watch {
    fn is_done(&self) -> bool {
        self.members.iter().all(|member| *member == NOBODY)
    }

    fn wanted(&self) -> Vec<u32> {
        self.members.iter().copied().filter(|member| *member != NOBODY).collect()
    }
}

impl Session<'_> {
    /// Asks once how far a batch is, and collects it when it has ended.
    pub(crate) fn watch(&mut self, mut watch: Watch) -> Result<(), Error> {
        let polled = match mem::replace(&mut watch.progress, Progress::Running) {
            Progress::Running => self.engine.provider.poll(&watch.batch_id, self.call),
            known => Ok(known),
        };
        let failed = match polled {
            Ok(Progress::Running) => {
                let next = self.later(watch.backoff.after_success());
                self.jobs.push(next, Job::Watch(watch));
                return Ok(());
            }
            Ok(Progress::Ended) => {
                watch.progress = Progress::Ended;
                self.crowded.after_success();
                self.collect(&mut watch)?
            }
            Ok(Progress::Rejected(rejection)) => return self.rejected(watch, rejection),
            Err(error) => Some(error),
        };
        match failed {
            None => {}
            Some(CallError::Passing { retry_after, .. }) => {
                let next = self.later(watch.backoff.after_failure(retry_after));
                self.jobs.push(next, Job::Watch(watch));
            }
            Some(CallError::Refused { message }) => {
                let batch_id = watch.batch_id;
                self.refused.get_or_insert(PendingReason::Refused { batch_id, message });
            }
        }
        Ok(())
    }

    /// Reads the results of an ended batch. `None`: nothing is left to wait for.
    fn collect(&mut self, watch: &mut Watch) -> Result<Option<CallError>, Error> {
        let (engine, call, table) = (self.engine, self.call, self.table);
        let before = watch.members.clone();
        let wanted = Draft::new(&watch.nonce, &before, table);
        let mut fault = None;
        let mut seen = vec![false; watch.members.len()];
        let (nonce, members) = (&watch.nonce, &mut watch.members);
        let mut sink = |custom_id: &str, outcome: Result<Answer, RequestError>| {
            let Some(seq) = seq_of(nonce, custom_id).filter(|seq| *seq < members.len()) else {
                self.stray += 1;
                return ControlFlow::Continue(());
            };
            if mem::replace(&mut seen[seq], true) {
                self.stray += 1;
                return ControlFlow::Continue(());
            }
            // Not waiting and not repeated: collected before, or asked by nobody today.
            let index = mem::replace(&mut members[seq], NOBODY);
            if index == NOBODY {
                return ControlFlow::Continue(());
            }
            match self.hand_over(index as usize, outcome) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    fault = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let read = engine.provider.results(&watch.batch_id, &wanted, call, &mut sink);
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
                if rest.is_none() && watch.reads < READS {
                    return Ok(Some(CallError::passing("some results are missing")));
                }
                let batch_id = watch.batch_id.clone();
                let missing = rest.unwrap_or(RequestError::Missing { batch_id });
                for index in watch.wanted() {
                    self.hand_over(index as usize, Err(missing.clone()))?;
                }
                Ok(None)
            }
        }
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
        let mut state = self.engine.state();
        if !is_ejected && !is_passing {
            let fate = Fate::Refused {
                code: None,
                kind: kind.clone(),
                message: message.clone(),
                retryable: false,
            };
            state.settle(watch.at, fate)?;
            drop(state);
            let refused = RequestError::Refused { status: None, kind, message, retryable: false };
            for index in members {
                self.hand_over(index as usize, Err(refused.clone()))?;
            }
            return Ok(());
        }
        state.void(watch.at, format!("{kind}: {message}"), None)?;
        let replaces = Some(state.record(watch.at).number);
        drop(state);
        if members.is_empty() {
            return Ok(());
        }
        let interval = self.engine.settings.poll_interval;
        let send = Send::new(members, replaces, interval);
        let wait = if is_passing { self.crowded.after_failure(None) } else { Duration::ZERO };
        let next = self.later(wait);
        self.jobs.push(next, Job::Send(send));
        Ok(())
    }
}
