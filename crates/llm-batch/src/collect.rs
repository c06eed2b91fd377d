//! The second half of a pass: wait for the batches and bring their results home.

use std::collections::BTreeMap;
use std::mem;
use std::ops::ControlFlow;
use std::time::Instant;

use crate::answer::{Answer, RequestError};
use crate::backoff::Backoff;
use crate::error::{Error, PendingReason};
use crate::provider::{CallError, Progress};
use crate::session::{Session, custom_ids, entries};
use crate::wire_id::seq_of;

/// How often the results of an ended batch are read before a request without a line is given up.
const READS: u32 = 3;

/// A batch that the provider has, with the requests that still wait for a result.
pub(crate) struct Open {
    pub(crate) batch_id: String,
    pub(crate) nonce: String,
    pub(crate) size: usize,
    /// Position on the wire to index in the pass.
    pub(crate) waiting: BTreeMap<usize, usize>,
    pub(crate) progress: Progress,
    pub(crate) next: Instant,
    pub(crate) backoff: Backoff,
    pub(crate) reads: u32,
}

impl Session<'_> {
    /// Polls every open batch until all are collected, the time is up, or somebody says stop.
    pub(crate) fn wait_and_collect(&mut self) -> Result<(), Error> {
        while let Some(due) = (0..self.open.len()).min_by_key(|&at| self.open[at].next) {
            let next = self.open[due].next;
            self.engine.settings.stop.wait_until(next.min(self.call.deadline()));
            if self.must_end() {
                break;
            }
            let mut open = self.open.swap_remove(due);
            let polled = match open.progress {
                Progress::Ended => Ok(Progress::Ended),
                Progress::Running => self.engine.provider.poll(&open.batch_id, self.call),
            };
            let failed = match polled {
                Ok(Progress::Running) => {
                    open.next = Instant::now() + open.backoff.after_success();
                    self.open.push(open);
                    continue;
                }
                Ok(Progress::Ended) => {
                    open.progress = Progress::Ended;
                    self.collect(&mut open)?
                }
                Err(error) => Some(error),
            };
            match failed {
                None => {}
                Some(CallError::Passing { retry_after, .. }) => {
                    let now = Instant::now();
                    let wait = open.backoff.after_failure(retry_after);
                    open.next = now.checked_add(wait).unwrap_or(self.call.deadline());
                    self.open.push(open);
                }
                Some(CallError::Refused { message }) => {
                    let batch_id = open.batch_id;
                    self.refused.get_or_insert(PendingReason::Refused { batch_id, message });
                }
            }
        }
        Ok(())
    }

    /// Reads the results of an ended batch. `None`: nothing is left to wait for.
    fn collect(&mut self, open: &mut Open) -> Result<Option<CallError>, Error> {
        let before = open.waiting.clone();
        let ids = custom_ids(&open.nonce, &before);
        let wanted = entries(&ids, &before, self.requests);
        let (engine, call) = (self.engine, self.call);
        let mut fault = None;
        let mut seen = vec![false; open.size];
        let mut sink = |custom_id: &str, outcome: Result<Answer, RequestError>| {
            let Some(seq) = seq_of(&open.nonce, custom_id).filter(|seq| *seq < open.size) else {
                self.stray += 1;
                return ControlFlow::Continue(());
            };
            if mem::replace(&mut seen[seq], true) {
                self.stray += 1;
                return ControlFlow::Continue(());
            }
            // Not waiting and not repeated: collected before, or asked by nobody today.
            let Some(index) = open.waiting.remove(&seq) else { return ControlFlow::Continue(()) };
            match self.hand_over(index, outcome) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    fault = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let read = engine.provider.results(&open.batch_id, &wanted, call, &mut sink);
        if let Some(fault) = fault {
            return Err(fault);
        }
        match read {
            Err(_) if open.waiting.is_empty() => Ok(None),
            Err(error) => Ok(Some(error)),
            Ok(unreadable) => {
                self.stray += unreadable;
                open.reads += 1;
                if open.waiting.is_empty() {
                    return Ok(None);
                }
                if open.reads < READS {
                    return Ok(Some(CallError::passing("some results are missing")));
                }
                for (_, index) in mem::take(&mut open.waiting) {
                    let batch_id = open.batch_id.clone();
                    self.hand_over(index, Err(RequestError::Missing { batch_id }))?;
                }
                Ok(None)
            }
        }
    }
}
