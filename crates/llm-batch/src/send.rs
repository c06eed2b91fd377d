//! The one rule for a create: what is definite is retried or told, what is unknown is looked for.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::answer::RequestError;
use crate::backoff::Backoff;
use crate::direct::Ask;
use crate::draft::Draft;
use crate::error::{Error, PendingReason};
use crate::lane::Lane;
use crate::provider::{CreateError, Created, Progress};
use crate::record::{Fate, Intent};
use crate::seek::Seek;
use crate::session::{Job, Session, Tell};
use crate::table::Table;
use crate::wire_id::nonce;

/// How often in a row a create that does not get through is tried before the pass gives up.
const TRIES: u32 = 10;

/// A create that is to be sent, perhaps once more.
#[derive(Debug)]
pub(crate) struct Send {
    /// The request at each position on the wire.
    pub(crate) members: Vec<u32>,
    /// The records whose requests these are.
    replaces: Vec<u64>,
    nonce: String,
    /// What the provider returned when it was prepared.
    anchor: Option<String>,
    /// Its record, once there is one.
    at: Option<usize>,
    backoff: Backoff,
    /// Attempts in a row that did not get through.
    failures: u32,
    /// How often the requests came back without an answer.
    resent: u32,
    /// Whether the provider has those that are replaced still, and may have run them.
    may_be_paid: bool,
}

impl Send {
    pub(crate) fn new(
        members: Vec<u32>,
        replaces: Vec<u64>,
        resent: u32,
        interval: Option<Duration>,
    ) -> Send {
        Send {
            members,
            replaces,
            nonce: nonce(),
            anchor: None,
            at: None,
            backoff: Backoff::new(interval),
            failures: 0,
            resent,
            may_be_paid: false,
        }
    }

    /// Returns the same for requests that may have been paid for.
    pub(crate) fn doubtful(self) -> Send {
        Send { may_be_paid: true, ..self }
    }
}

/// Returns the prefixes that more than one of the requests have, in order.
fn shared_prefixes(members: &[u32], table: &Table) -> Vec<u64> {
    let prefix = |&member: &u32| table.prefix(member as usize);
    let mut all: Vec<u64> = members.iter().filter_map(prefix).map(|prefix| prefix.digest).collect();
    all.sort_unstable();
    all.chunk_by(u64::eq).filter(|same| same.len() > 1).map(|same| same[0]).collect()
}

impl<T: Tell> Session<'_, T> {
    /// Sends one create: intent to disk, one call, its fate to disk.
    pub(crate) fn send(&mut self, mut send: Send) -> Result<(), Error> {
        let taken_out = self.take_out_late(&mut send);
        let members = send.members.clone();
        taken_out
            .and_then(|()| self.send_the_rest(send))
            .or_else(|fault| self.fail(&members, fault))
    }

    fn send_the_rest(&mut self, mut send: Send) -> Result<(), Error> {
        self.take_out_dear(&mut send)?;
        let is_nothing = send.members.is_empty() || self.keeps_nothing(&send.members);
        if is_nothing || self.is_over_budget(&send.members) {
            return Ok(());
        }
        let (engine, table) = (self.engine, Arc::clone(&self.table));
        if let Err(until) = engine.intake.enter(table.model(send.members[0])) {
            self.jobs.push(self.in_time(&send.members, until), Job::Send(send));
            return Ok(());
        }
        let provider = &*engine.provider;
        let (members, id) = (send.members.clone(), send.nonce.clone());
        let shared = shared_prefixes(&members, &table);
        let draft = Draft::new(&id, &members, &table).marking(&shared, provider.cache_mark());
        if send.at.is_none() && provider.leaves_traces() {
            let begun = self.begin_send(&send, String::new(), true);
            send.at = Some(self.or_leave(&members, begun)?);
        }
        let anchor = match &send.anchor {
            Some(anchor) => anchor.clone(),
            None => match provider.prepare(&draft, &self.call) {
                Ok(anchor) => send.anchor.insert(anchor).clone(),
                Err(CreateError::Ambiguous { reason }) => {
                    return self.unsent(send, CreateError::NotSent { reason });
                }
                Err(error) => return self.unsent(send, error),
            },
        };
        let at = if let Some(at) = send.at {
            let begun = engine.state().begin_again(at, &anchor);
            self.or_leave(&members, begun)?;
            at
        } else {
            let begun = self.begin_send(&send, anchor.clone(), false);
            *send.at.insert(self.or_leave(&members, begun)?)
        };
        self.count_submission(at, &members, Lane::Batch);
        match provider.create(&draft, &anchor, &self.call) {
            Ok(created) => {
                engine.intake.took();
                self.submitted(at, id, members, created);
                Ok(())
            }
            Err(CreateError::Ambiguous { reason }) => {
                let settled = engine.state().settle(at, Fate::Ambiguous { reason: reason.clone() });
                if let Err(fault) = settled {
                    self.cut(fault);
                }
                let seek = Seek::new(at, members, id, reason, &engine.settings);
                self.jobs.push(Instant::now(), Job::Seek(seek));
                Ok(())
            }
            Err(error) => self.unsent(send, error),
        }
    }

    /// Leaves it to the next one to go first after a busy provider where a create cannot be begun.
    fn or_leave<B>(&self, members: &[u32], begun: Result<B, Error>) -> Result<B, Error> {
        begun.inspect_err(|_| self.engine.intake.leave(self.table.model(members[0])))
    }

    /// Writes down what is about to be sent, or prepared; returns its record.
    fn begin_send(&mut self, send: &Send, anchor: String, preparing: bool) -> Result<usize, Error> {
        let (engine, table) = (self.engine, &*self.table);
        let group = table.group(send.members[0] as usize);
        let intent = Intent {
            anchor,
            replaces: send.replaces.clone(),
            resent: send.resent,
            may_be_paid: send.may_be_paid,
            preparing,
            ..Intent::new(&*engine.provider, group, send.nonce.clone(), Lane::Batch)
        };
        let at = engine.state().begin(intent, &send.members, table)?;
        self.touched.insert(at);
        Ok(at)
    }

    /// Goes on with a batch that the provider has.
    pub(crate) fn submitted(
        &mut self,
        at: usize,
        nonce: String,
        members: Vec<u32>,
        created: Created,
    ) {
        let Created { batch_id, progress } = created;
        self.engine.tally(|totals| totals.batches += 1);
        let settled =
            self.engine.state().settle(at, Fate::Submitted { batch_id: batch_id.clone() });
        if let Err(fault) = settled {
            // It is known here, and found by the next process.
            self.unnoted.push((at, fault.to_string()));
            self.cut(fault);
        }
        let is_running = progress == Progress::Running;
        let mut watch = self.watch_of(at, batch_id, nonce, members, progress);
        let next =
            if is_running { self.later(watch.backoff.after_success()) } else { Instant::now() };
        self.watch_later(next, watch);
    }

    /// Decides about a create of which nothing came for sure.
    fn unsent(&mut self, mut send: Send, error: CreateError) -> Result<(), Error> {
        match error {
            CreateError::NotSent { reason } | CreateError::Ambiguous { reason } => {
                send.failures += 1;
                self.note_unsent(&send, &reason)?;
                if send.failures >= TRIES {
                    self.set_aside(&send.members, PendingReason::Unreachable { reason });
                    return Ok(());
                }
                let next = self.later(send.backoff.after_failure(None));
                self.jobs.push(self.in_time(&send.members, next), Job::Send(send));
                Ok(())
            }
            CreateError::Busy { message, retry_after } => {
                send.failures = 0;
                self.note_unsent(&send, &message)?;
                let until = self.engine.intake.is_busy(retry_after);
                self.jobs.push(self.in_time(&send.members, until), Job::Send(send));
                Ok(())
            }
            CreateError::TooLarge { .. } if send.members.len() > 1 => {
                let replaces = self.drop_unsent(&send, "more than the provider takes at once")?;
                let (resent, may_be_paid) = (send.resent, send.may_be_paid);
                let half = send.members.split_off(send.members.len() / 2);
                for members in [send.members, half] {
                    let interval = self.engine.settings.poll_interval;
                    let half = Send::new(members, replaces.clone(), resent, interval);
                    self.jobs.push(Instant::now(), Job::Send(Send { may_be_paid, ..half }));
                }
                Ok(())
            }
            CreateError::TooLarge { message } => {
                self.refuse(&send, Some(413), "request_too_large", message, false)
            }
            CreateError::Refused { status, kind, message, retryable } => {
                self.refuse(&send, Some(status), &kind, message, retryable)
            }
        }
    }

    /// Gives a create up of which nothing came; returns the records whose requests these are.
    fn drop_unsent(&mut self, send: &Send, reason: &str) -> Result<Vec<u64>, Error> {
        let Some(at) = send.at else { return Ok(send.replaces.clone()) };
        let number = {
            let mut state = self.engine.state();
            state.settle(at, Fate::Void { reason: reason.to_owned(), may_be_paid: false })?;
            state.record(at).number
        };
        self.discard(at);
        Ok(vec![number])
    }

    /// Takes the requests out for which a batch that is not created yet comes too late.
    fn take_out_late(&mut self, send: &mut Send) -> Result<(), Error> {
        let now = Instant::now();
        let is_late = |session: &Session<'_, T>, member: u32| {
            let due = session.table.due(member as usize);
            due.is_some_and(|due| due <= now || (session.is_auto() && session.brake(due) <= now))
        };
        if !send.members.iter().any(|&member| is_late(self, member)) {
            return Ok(());
        }
        let replaces = self.drop_unsent(send, "the deadline came first")?;
        let (late, rest): (Vec<u32>, Vec<u32>) =
            send.members.iter().partition(|member| is_late(self, **member));
        for member in late {
            // Where there are several, none of them may have been paid for.
            let mut ask = Ask::new(member, replaces.first().copied());
            ask.may_be_paid = send.may_be_paid;
            self.ask_or_miss(ask)?;
        }
        let again = Send::new(rest, replaces, send.resent, self.engine.settings.poll_interval);
        *send = Send { may_be_paid: send.may_be_paid, ..again };
        Ok(())
    }

    /// Takes the requests out whose own budgets another create would go beyond.
    fn take_out_dear(&mut self, send: &mut Send) -> Result<(), Error> {
        // With a record it was asked when that was begun.
        if send.at.is_none() {
            let doubts = self.engine.state().doubts_behind(&send.replaces, send.may_be_paid);
            for member in mem::take(&mut send.members) {
                if self.is_within_budget(member as usize, doubts)? {
                    send.members.push(member);
                }
            }
        }
        Ok(())
    }

    fn note_unsent(&mut self, send: &Send, reason: &str) -> Result<(), Error> {
        let Some(at) = send.at else { return Ok(()) };
        self.engine.state().settle(at, Fate::Unsent { reason: reason.to_owned() })
    }

    fn refuse(
        &mut self,
        send: &Send,
        code: Option<u16>,
        kind: &str,
        message: String,
        retryable: bool,
    ) -> Result<(), Error> {
        let kind = kind.to_owned();
        let refused = RequestError::Refused {
            status: code,
            kind: kind.clone(),
            message: message.clone(),
            retryable,
        };
        if let Some(at) = send.at {
            self.engine.state().settle(at, Fate::Refused { code, kind, message, retryable })?;
            if send.anchor.is_some() {
                self.discard(at);
            }
        }
        for &member in &send.members {
            self.hand_over(member as usize, Err(refused.clone()))?;
        }
        Ok(())
    }

    /// Returns the moment after a wait, or the end where that is beyond the clock.
    pub(crate) fn later(&self, wait: Duration) -> Instant {
        Instant::now().checked_add(wait).unwrap_or(self.call.deadline())
    }
}
