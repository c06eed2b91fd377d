//! The one rule for a create: what is definite is retried or told, what is unknown is looked for.

use std::time::{Duration, Instant};

use crate::answer::RequestError;
use crate::backoff::Backoff;
use crate::collect::Watch;
use crate::draft::Draft;
use crate::error::{Error, PendingReason};
use crate::lane::Lane;
use crate::provider::{CreateError, Created, Progress};
use crate::seek::Seek;
use crate::session::{Job, Session};
use crate::state::{Fate, Intent};
use crate::wire_id::nonce;

/// How often in a row a create that does not get through is tried before the pass gives up.
const TRIES: u32 = 10;

/// A create that is to be sent, perhaps once more.
#[derive(Debug)]
pub(crate) struct Send {
    /// The request at each position on the wire.
    pub(crate) members: Vec<u32>,
    /// The record whose requests these are.
    replaces: Option<u64>,
    nonce: String,
    /// What the provider returned when it was prepared.
    anchor: Option<String>,
    /// Its record, once there is one.
    at: Option<usize>,
    backoff: Backoff,
    /// Attempts in a row that did not get through.
    failures: u32,
}

impl Send {
    pub(crate) fn new(
        members: Vec<u32>,
        replaces: Option<u64>,
        interval: Option<Duration>,
    ) -> Send {
        let (nonce, backoff) = (nonce(), Backoff::new(interval));
        Send { members, replaces, nonce, anchor: None, at: None, backoff, failures: 0 }
    }
}

impl Session<'_> {
    /// Sends one create: intent to disk, one call, its fate to disk.
    pub(crate) fn send(&mut self, mut send: Send) -> Result<(), Error> {
        if let Some(cooldown) = self.cooldown.filter(|until| *until > Instant::now()) {
            self.jobs.push(cooldown, Job::Send(send));
            return Ok(());
        }
        let (engine, table) = (self.engine, self.table);
        let provider = &*engine.provider;
        let (members, id) = (send.members.clone(), send.nonce.clone());
        let draft = Draft::new(&id, &members, table);
        let anchor = match &send.anchor {
            Some(anchor) => anchor.clone(),
            None => match provider.prepare(&draft, self.call) {
                Ok(anchor) => send.anchor.insert(anchor).clone(),
                Err(CreateError::Ambiguous { reason }) => {
                    return self.unsent(send, CreateError::NotSent { reason });
                }
                Err(error) => return self.unsent(send, error),
            },
        };
        let at = if let Some(at) = send.at {
            engine.state().begin_again(at)?;
            at
        } else {
            let group = table.group(members[0] as usize);
            let intent = Intent {
                nonce: id.clone(),
                provider: provider.name().to_owned(),
                endpoint: provider.endpoint().to_owned(),
                kind: group.kind.to_string(),
                model: group.model.clone(),
                anchor: anchor.clone(),
                lane: Lane::Batch,
                replaces: send.replaces,
            };
            *send.at.insert(engine.state().begin(intent, &members, table)?)
        };
        self.touched.insert(at);
        self.created += 1;
        engine.tally(|totals| totals.submissions += 1);
        match provider.create(&draft, &anchor, self.call) {
            Ok(created) => self.submitted(at, id, members, created),
            Err(CreateError::Ambiguous { reason }) => {
                engine.state().settle(at, Fate::Ambiguous { reason: reason.clone() })?;
                let seek = Seek::new(at, members, id, reason, &engine.settings);
                self.jobs.push(Instant::now(), Job::Seek(seek));
                Ok(())
            }
            Err(error) => self.unsent(send, error),
        }
    }

    /// Goes on with a batch that the provider has.
    pub(crate) fn submitted(
        &mut self,
        at: usize,
        nonce: String,
        members: Vec<u32>,
        created: Created,
    ) -> Result<(), Error> {
        let Created { batch_id, progress } = created;
        self.engine.tally(|totals| totals.batches += 1);
        self.engine.state().settle(at, Fate::Submitted { batch_id: batch_id.clone() })?;
        let mut backoff = Backoff::new(self.engine.settings.poll_interval);
        let next = match progress {
            Progress::Running => Instant::now() + backoff.after_success(),
            _ => Instant::now(),
        };
        let watch = Watch { at, batch_id, nonce, members, progress, backoff, reads: 0 };
        self.jobs.push(next, Job::Watch(watch));
        Ok(())
    }

    /// Decides about a create of which nothing came for sure.
    fn unsent(&mut self, mut send: Send, error: CreateError) -> Result<(), Error> {
        match error {
            CreateError::NotSent { reason } | CreateError::Ambiguous { reason } => {
                send.failures += 1;
                self.note_unsent(&send, &reason)?;
                if send.failures >= TRIES {
                    self.refused.get_or_insert(PendingReason::Unreachable { reason });
                    return Ok(());
                }
                let wait = send.backoff.after_failure(None);
                self.jobs.push(self.later(wait), Job::Send(send));
                Ok(())
            }
            CreateError::Busy { message, retry_after } => {
                send.failures = 0;
                self.note_unsent(&send, &message)?;
                let until = self.later(send.backoff.after_failure(retry_after));
                // The account is what is limited: nobody else need try earlier.
                self.cooldown = self.cooldown.max(Some(until));
                self.jobs.push(until, Job::Send(send));
                Ok(())
            }
            CreateError::TooLarge { .. } if send.members.len() > 1 => {
                let replaces = match send.at {
                    Some(at) => {
                        let reason = "more than the provider takes at once".to_owned();
                        let mut state = self.engine.state();
                        state.void(at, reason, None)?;
                        Some(state.record(at).number)
                    }
                    None => send.replaces,
                };
                let half = send.members.split_off(send.members.len() / 2);
                for members in [send.members, half] {
                    let send = Send::new(members, replaces, self.engine.settings.poll_interval);
                    self.jobs.push(Instant::now(), Job::Send(send));
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
