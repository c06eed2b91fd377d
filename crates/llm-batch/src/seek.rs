//! What is done about a create whose fate is unknown.

use std::time::Instant;

use crate::answer::RequestError;
use crate::backoff::Backoff;
use crate::draft::NOBODY;
use crate::engine::Settings;
use crate::error::Error;
use crate::lane::OnAmbiguous;
use crate::provider::{CallError, Found, Lost};
use crate::record::Fate;
use crate::send::Send;
use crate::session::{Job, Session, Tell};

/// Why what is absent is not sent again where the folder is not the one that it was sent from, or where
/// nobody knows.
const COPIED: &str = "the list does not have it, but this state folder was copied, moved or restored \
                      since, and whoever goes on with another copy, or went on here, may have sent it \
                      again; go on there, or use the policy `resubmit` where nobody does or did";

const UNKNOWN_FOLDER: &str = "the list does not have it, but it was written down before folders were told \
                              apart, and whoever goes on with a copy of this one may have sent it \
                              again; use the policy `resubmit` where nobody does";

const TOO_DEAR: &str = "the list does not have it, and to send it once more is more than the limits of \
                        cost or the budgets of its requests leave room for; raise them";

/// A create that is looked for.
#[derive(Debug)]
pub(crate) struct Seek {
    at: usize,
    /// The request at each position on the wire; nobody where it is not wanted.
    pub(crate) members: Vec<u32>,
    nonce: String,
    /// What happened to the create.
    reason: String,
    /// What the last look at the list came to, where that decided nothing.
    found: Option<String>,
    backoff: Backoff,
    /// When it was first absent from the list.
    absent: Option<Instant>,
}

impl Seek {
    pub(crate) fn new(
        at: usize,
        members: Vec<u32>,
        nonce: String,
        reason: String,
        settings: &Settings,
    ) -> Seek {
        let backoff = Backoff::new(settings.poll_interval);
        Seek { at, members, nonce, reason, found: None, backoff, absent: None }
    }

    /// Returns what is known of it, for people.
    pub(crate) fn story(&self) -> String {
        let Seek { reason, found, .. } = self;
        found.as_ref().map_or_else(|| reason.clone(), |found| format!("{reason}; {found}"))
    }

    fn wanted(&self) -> impl Iterator<Item = u32> + '_ {
        self.members.iter().copied().filter(|member| *member != NOBODY)
    }
}

impl<T: Tell> Session<'_, T> {
    /// Looks for the batch once, and does what the policy says.
    pub(crate) fn seek(&mut self, mut seek: Seek) -> Result<(), Error> {
        let provider = &*self.engine.provider;
        let (anchor, requests, known, key) = {
            let state = self.engine.state();
            let record = state.record(seek.at);
            if !record.is_lost() {
                drop(state);
                return self.go_on(seek);
            }
            // The one that is looked for is not among them: it is lost.
            (record.intent.anchor.clone(), record.size, state.batch_ids(), record.intent.key())
        };
        if self.miss_overdue(&mut seek.members, true)? {
            return Ok(());
        }
        let is_same_account = key.is_same(provider);
        let (anchor, known) = (anchor.as_str(), known.as_slice());
        let lost = Lost { anchor, nonce: &seek.nonce, requests, known, is_same_account };
        let policy = self.engine.settings.on_ambiguous;
        match provider.find(&lost, &self.call) {
            Ok(Found::Batch(created)) if !self.is_submitted(seek.at) => {
                self.submitted(seek.at, seek.nonce, seek.members, created);
                Ok(())
            }
            // Another pass found out meanwhile what became of it, and has counted it.
            Ok(Found::Batch(_)) => self.go_on(seek),
            _ if !self.is_lost(seek.at) => self.go_on(seek),
            Ok(Found::Absent) => match policy {
                OnAmbiguous::Fail => self.give_up(&seek, "the provider's list does not have it"),
                OnAmbiguous::Resubmit if self.may_pay_again(&seek)? => self.resubmit(seek, true),
                OnAmbiguous::Hold | OnAmbiguous::Resubmit => {
                    let lag = self.engine.settings.list_lag;
                    let first = *seek.absent.get_or_insert_with(Instant::now);
                    seek.found = None;
                    if first.elapsed() >= lag {
                        if !self.engine.state().is_copied(seek.at) {
                            return self.resubmit(seek, false);
                        }
                        // With that policy nobody else goes on with it. What was lost before may have
                        // been paid, and so may this.
                        let may_send = policy == OnAmbiguous::Resubmit;
                        if may_send && self.afford(seek.at, seek.wanted())? {
                            return self.resubmit(seek, true);
                        }
                        let why = match may_send {
                            true => TOO_DEAR,
                            false if self.engine.state().is_placed(seek.at) => COPIED,
                            false => UNKNOWN_FOLDER,
                        };
                        seek.found = Some(why.to_owned());
                        self.keep(&seek);
                        return Ok(());
                    }
                    let next = first.checked_add(lag).unwrap_or(self.call.deadline());
                    self.seek_later(next, seek)
                }
            },
            Ok(Found::Undecided { reason }) => {
                if policy == OnAmbiguous::Fail {
                    return self.give_up(&seek, &reason);
                }
                // What may be it is in the list, so the list is not behind.
                (seek.absent, seek.found) = (None, Some(reason));
                let next = self.later(seek.backoff.after_success());
                self.seek_later(next, seek)
            }
            Err(CallError::Passing { message, retry_after }) => {
                if policy == OnAmbiguous::Fail {
                    return self.give_up(&seek, &message);
                }
                // What an earlier look came to still holds.
                seek.found.get_or_insert_with(|| format!("looking for it failed: {message}"));
                let next = self.later(seek.backoff.after_failure(retry_after));
                self.seek_later(next, seek)
            }
            Err(CallError::Refused { message }) => {
                if policy == OnAmbiguous::Fail {
                    return self.give_up(&seek, &message);
                }
                // Without a list nothing can be found out, today.
                seek.found = Some(format!("looking for it failed: {message}"));
                self.keep(&seek);
                Ok(())
            }
        }
    }

    /// Keeps the requests for a later run.
    fn keep(&mut self, seek: &Seek) {
        let reason = seek.story();
        for member in seek.wanted() {
            self.mark_ambiguous(member as usize, &reason);
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "it stands where other ends can fail")]
    fn seek_later(&mut self, next: Instant, seek: Seek) -> Result<(), Error> {
        self.jobs.push(self.in_time(&seek.members, next), Job::Seek(seek));
        Ok(())
    }

    fn is_submitted(&self, at: usize) -> bool {
        matches!(self.engine.state().record(at).fate, Some(Fate::Submitted { .. }))
    }

    fn is_lost(&self, at: usize) -> bool {
        self.engine.state().record(at).is_lost()
    }

    /// Tells whether what is absent once may be sent once more at once. Where that was done before
    /// and the answer was lost again, it is not: each round of that could be one more batch to pay.
    fn may_pay_again(&mut self, seek: &Seek) -> Result<bool, Error> {
        let doubts = self.engine.state().doubts(seek.at);
        Ok(doubts == 0 && self.afford(seek.at, seek.wanted())?)
    }

    /// Goes on where another pass found out what became of the create.
    fn go_on(&mut self, seek: Seek) -> Result<(), Error> {
        let fate = self.engine.state().record(seek.at).fate.clone();
        if let Some(Fate::Void { may_be_paid: true, reason }) = &fate
            && !self.afford(seek.at, seek.wanted())?
        {
            for member in seek.wanted() {
                self.mark_ambiguous(member as usize, reason);
            }
            return Ok(());
        }
        let mut fresh = Vec::new();
        self.take_up(seek.at, seek.members, &mut fresh)?;
        self.send_all(&fresh)
    }

    /// Sends the requests once more under another nonce.
    fn resubmit(&mut self, seek: Seek, may_be_paid: bool) -> Result<(), Error> {
        let members: Vec<u32> = seek.wanted().collect();
        let mut state = self.engine.state();
        if !state.record(seek.at).is_lost() {
            drop(state);
            return self.go_on(seek);
        }
        state.settle(seek.at, Fate::Void { reason: seek.reason, may_be_paid })?;
        let record = state.record(seek.at);
        let (replaces, resent) = (vec![record.number], record.intent.resent);
        drop(state);
        self.discard(seek.at);
        let send = Send::new(members, replaces, resent, self.engine.settings.poll_interval);
        self.jobs.push(Instant::now(), Job::Send(send));
        Ok(())
    }

    /// Ends the requests as errored; the create stays unknown.
    fn give_up(&mut self, seek: &Seek, found: &str) -> Result<(), Error> {
        let reason = format!("{}; {found}", seek.reason);
        for member in seek.wanted().collect::<Vec<_>>() {
            let unknown = RequestError::Unknown { reason: reason.clone() };
            self.hand_over(member as usize, Err(unknown))?;
        }
        Ok(())
    }
}
