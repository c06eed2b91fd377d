//! The lane `sync`: one request at a time each, several on their way together.

mod asks;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, Scope};
use std::time::Instant;

use serde_json::value::RawValue;

use crate::answer::RequestError;
use crate::draft::Draft;
use crate::error::{Error, PANICKED, PendingReason};
use crate::lane::{Lane, OnAmbiguous};
use crate::provider::CreateError;
use crate::record::{Fate, Intent};
use crate::session::{Event, Session, Tell};
use crate::throttle::Room;
use crate::wire_id::nonce;

pub(crate) use asks::Direct;
use asks::Wait;

/// How often in a row requests do not get through before the pass gives up, and how often one is
/// asked again after its answer was lost.
const TRIES: u32 = 10;
const LOST: u32 = 3;

/// Why one whose answer was lost is not asked once more.
const NOT_ALLOWED: &str = "what is asked one by one cannot be looked for, and is asked once more only \
                           where `sync_retry` allows to pay twice";

const TOO_OFTEN: &str = "its answer was lost time after time";

const TOO_DEAR: &str = "to ask it once more is more than the limits of cost or its budget leave room for; \
                        raise them";

/// A request that is to be asked, perhaps once more.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) member: u32,
    /// The record whose request this is.
    pub(crate) replaces: Option<u64>,
    at: Option<usize>,
    /// How often an answer was lost.
    lost: u32,
    /// Whether the batch that it comes from may have run it.
    pub(crate) may_be_paid: bool,
}

/// What came of an [`Ask`].
#[derive(Debug)]
pub(crate) struct Reply {
    ask: Ask,
    at: usize,
    answer: Result<Box<RawValue>, CreateError>,
    /// Whether the answer, if there is one, is on the disk.
    kept: Result<(), Error>,
    /// The round of the throttle that it went badly in.
    round: u64,
}

impl Ask {
    pub(crate) fn new(member: u32, replaces: Option<u64>) -> Ask {
        Ask { member, replaces, at: None, lost: 0, may_be_paid: false }
    }
}

impl<'s, T: Tell> Session<'s, T> {
    /// Returns when there is something to do about what is asked alone: something may go out, or is
    /// overdue.
    pub(crate) fn next_ask(&self) -> Option<Instant> {
        self.direct.next()
    }

    /// Sends off as many requests as may be on their way.
    pub(crate) fn ask_more<'scope>(&mut self, scope: &'scope Scope<'scope, '_>) -> Result<(), Error>
    where
        's: 'scope,
    {
        self.miss_asks()?;
        let (engine, table) = (self.engine, Arc::clone(&self.table));
        while let Some(mut ask) = self.direct.pop() {
            if self.keeps_nothing(&[ask.member]) {
                continue;
            }
            let replaces = ask.replaces.as_slice();
            let doubts = engine.state().doubts_behind(replaces, ask.may_be_paid);
            let is_within = match self.is_within_budget(ask.member as usize, doubts) {
                Ok(is_within) => is_within && !self.is_over_budget(&[ask.member]),
                Err(fault) => {
                    self.fail(&[ask.member], fault)?;
                    false
                }
            };
            if !is_within {
                continue;
            }
            let model = table.model(ask.member);
            let asks = self.direct.of(model);
            let mut permit = match engine.throttle.enter(model, asks.place.take(), &self.mail) {
                Room::Now(permit) => permit,
                Room::Later(place, until) => {
                    (asks.place, asks.wait) = (Some(place), Wait::ForRoom(until));
                    self.direct.put_back(ask, &table);
                    continue;
                }
            };
            asks.wait = Wait::None;
            let (at, nonce) = match self.begin_ask(&mut ask) {
                Ok(begun) => begun,
                Err(fault) => {
                    drop(permit);
                    self.fail(&[ask.member], fault)?;
                    continue;
                }
            };
            self.touched.insert(at);
            self.count_submission(at, &[ask.member], Lane::Sync);
            self.direct.running += 1;
            let (table, call) = (Arc::clone(&table), Arc::clone(&self.call));
            let (mail, spare, away) = (self.mail.clone(), ask.clone(), engine.send_away());
            let work = move || {
                permit.go();
                let members = [ask.member];
                let draft = Draft::new(&nonce, &members, &table);
                let asked = catch_unwind(AssertUnwindSafe(|| {
                    let entry = draft.entries().next().expect("a draft of one request has one");
                    engine.provider.ask(&entry, &call)
                }));
                let panicked = || CreateError::Ambiguous { reason: PANICKED.to_owned() };
                let answer = asked.unwrap_or_else(|_| Err(panicked()));
                let round = match &answer {
                    Ok(_) => {
                        permit.went_well();
                        0
                    }
                    Err(CreateError::Busy { retry_after, .. }) => permit.went_badly(*retry_after),
                    Err(CreateError::NotSent { .. }) => permit.went_badly(None),
                    Err(_) => 0,
                };
                // It is paid for, and whoever works on the session may be at something else for long.
                let kept = match &answer {
                    Ok(response) => engine.state().keep_answer(at, response),
                    Err(_) => Ok(()),
                };
                // Not before the pace is changed, so that nobody goes out at the old one.
                drop(permit);
                // The session may end with its last reply, and the table with the session.
                drop(table);
                drop(away);
                // The session listens until everything that was sent off has come back.
                mail.post(Event::Answered(Box::new(Reply { ask, at, answer, kept, round })));
            };
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, work) {
                // Nothing was sent.
                let round = engine.throttle.went_badly(model, None);
                let reason = format!("cannot start a thread to ask: {error}");
                let answer = Err(CreateError::NotSent { reason });
                self.answered(Reply { ask: spare, at, answer, kept: Ok(()), round })?;
                break;
            }
        }
        self.direct.leave_idle();
        Ok(())
    }

    /// Writes down that a request is about to be asked; returns its record and its nonce.
    fn begin_ask(&mut self, ask: &mut Ask) -> Result<(usize, String), Error> {
        if let Some(at) = ask.at {
            let mut state = self.engine.state();
            state.begin_again(at, "")?;
            return Ok((at, state.record(at).intent.nonce.clone()));
        }
        let provider = &*self.engine.provider;
        let group = self.table.group(ask.member as usize);
        let nonce = nonce();
        let intent = Intent {
            replaces: ask.replaces.into_iter().collect(),
            may_be_paid: ask.may_be_paid,
            ..Intent::new(provider, group, nonce.clone(), Lane::Sync)
        };
        let at = self.engine.state().begin(intent, &[ask.member], &self.table)?;
        ask.at = Some(at);
        Ok((at, nonce))
    }

    /// Decides about what came of a request.
    pub(crate) fn answered(&mut self, reply: Reply) -> Result<(), Error> {
        let member = reply.ask.member;
        self.decide(reply).or_else(|fault| self.fail(&[member], fault))
    }

    fn decide(&mut self, reply: Reply) -> Result<(), Error> {
        let Reply { mut ask, at, answer, kept, round } = reply;
        self.direct.running -= 1;
        let index = ask.member as usize;
        let table = Arc::clone(&self.table);
        let model = table.model(ask.member);
        let error = match answer {
            Ok(response) => {
                self.direct.of(model).failures = 0;
                // It is paid for: its requester gets it whatever becomes of the record.
                let answer = self.engine.provider.answer(response);
                let told = self.hand_over(index, Ok(answer));
                if let Err(fault) = kept {
                    self.could_not_keep(fault);
                }
                return told;
            }
            Err(error) => error,
        };
        match error {
            CreateError::Busy { message, .. } => {
                self.engine.state().settle(at, Fate::Unsent { reason: message })?;
                self.direct.put_back(ask, &self.table);
                Ok(())
            }
            CreateError::NotSent { reason } => {
                self.engine.state().settle(at, Fate::Unsent { reason: reason.clone() })?;
                if self.direct.of(model).failed(round) >= TRIES {
                    self.pending.get_or_insert(PendingReason::Unreachable { reason });
                }
                self.direct.put_back(ask, &self.table);
                Ok(())
            }
            CreateError::TooLarge { message } => {
                self.refuse_ask(index, at, 413, "request_too_large", message, false)
            }
            CreateError::Refused { status, kind, message, retryable } => {
                self.refuse_ask(index, at, status, &kind, message, retryable)
            }
            CreateError::Ambiguous { reason } => {
                ask.lost += 1;
                let refusal = if ask.lost > LOST && self.engine.settings.sync_retry {
                    Some(TOO_OFTEN)
                } else {
                    self.may_ask_again(at, ask.member)?
                };
                let Some(why) = refusal else {
                    self.engine.throttle.went_badly(model, None);
                    let replaces = Some(self.doubt(at, reason)?);
                    ask = Ask { replaces, at: None, ..ask };
                    self.direct.put_back(ask, &self.table);
                    return Ok(());
                };
                self.engine.state().settle(at, Fate::Ambiguous { reason: reason.clone() })?;
                self.lost_for_good(index, reason, why)
            }
        }
    }

    /// Goes on with a request that an earlier pass asked and got no answer to.
    pub(crate) fn take_up_ask(
        &mut self,
        at: usize,
        member: u32,
        reason: &str,
    ) -> Result<(), Error> {
        let kept = self.engine.state().kept_answer(at)?;
        if let Some(response) = kept {
            let answer = self.engine.provider.answer(response);
            return self.hand_over(member as usize, Ok(answer));
        }
        let Some(why) = self.may_ask_again(at, member)? else {
            let replaces = Some(self.doubt(at, reason.to_owned())?);
            self.direct.extend([Ask::new(member, replaces)], &self.table);
            return Ok(());
        };
        self.lost_for_good(member as usize, reason.to_owned(), why)
    }

    /// Returns why a request whose answer was lost is not asked once more, if it is not.
    fn may_ask_again(&mut self, at: usize, member: u32) -> Result<Option<&'static str>, Error> {
        if !self.engine.settings.sync_retry {
            return Ok(Some(NOT_ALLOWED));
        }
        Ok((!self.afford(at, [member])?).then_some(TOO_DEAR))
    }

    /// Gives an ask up that may have been paid for; returns the number of its record.
    fn doubt(&mut self, at: usize, reason: String) -> Result<u64, Error> {
        let mut state = self.engine.state();
        state.settle(at, Fate::Void { reason, may_be_paid: true })?;
        Ok(state.record(at).number)
    }

    fn lost_for_good(&mut self, index: usize, reason: String, why: &str) -> Result<(), Error> {
        if self.engine.settings.on_ambiguous == OnAmbiguous::Fail {
            return self.hand_over(index, Err(RequestError::Unknown { reason }));
        }
        self.mark_ambiguous(index, &format!("{reason}; {why}"));
        Ok(())
    }

    fn refuse_ask(
        &mut self,
        index: usize,
        at: usize,
        status: u16,
        kind: &str,
        message: String,
        retryable: bool,
    ) -> Result<(), Error> {
        let kind = kind.to_owned();
        let (code, fate_kind, fate_message) = (Some(status), kind.clone(), message.clone());
        let fate = Fate::Refused { code, kind: fate_kind, message: fate_message, retryable };
        self.engine.state().settle(at, fate)?;
        let refused = RequestError::Refused { status: code, kind, message, retryable };
        self.hand_over(index, Err(refused))
    }
}
