//! The lane `sync`: one request at a time each, several on their way together.

use std::collections::VecDeque;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::Scope;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use crate::answer::RequestError;
use crate::backoff::Backoff;
use crate::draft::Draft;
use crate::error::{Error, PendingReason};
use crate::lane::{Lane, OnAmbiguous};
use crate::provider::CreateError;
use crate::record::{Fate, Intent};
use crate::session::{Event, Session};
use crate::table::Table;
use crate::wire_id::nonce;

/// How often in a row requests do not get through before the pass gives up, and how often one is
/// asked again after its answer was lost.
const TRIES: u32 = 10;
const LOST: u32 = 3;

/// What is asked one by one.
#[derive(Debug)]
pub(crate) struct Direct {
    queue: VecDeque<Ask>,
    running: usize,
    /// How many may be on their way: grows by one a round of answers, and halves when the provider
    /// is busy.
    limit: f64,
    max: usize,
    /// Nothing goes out before.
    cooldown: Option<Instant>,
    /// Set while the provider does not take anything.
    trouble: Option<Trouble>,
    /// The first deadline of what waits, or one that has gone.
    due: Option<Instant>,
}

#[derive(Debug)]
struct Trouble {
    backoff: Backoff,
    failures: u32,
}

/// A request that is to be asked, perhaps once more.
#[derive(Debug)]
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
}

impl Ask {
    pub(crate) fn new(member: u32, replaces: Option<u64>) -> Ask {
        Ask { member, replaces, at: None, lost: 0, may_be_paid: false }
    }
}

impl Direct {
    pub(crate) fn new(max: usize) -> Direct {
        let limit = f64::from(u32::try_from(max.min(4)).unwrap_or(4));
        let queue = VecDeque::new();
        Direct { queue, running: 0, limit, max, cooldown: None, trouble: None, due: None }
    }

    pub(crate) fn extend(&mut self, asks: impl IntoIterator<Item = Ask>, table: &Table) {
        for ask in asks {
            self.notice(&ask, table);
            self.queue.push_back(ask);
        }
    }

    fn notice(&mut self, ask: &Ask, table: &Table) {
        let due = table.due(ask.member as usize);
        self.due = [self.due, due].into_iter().flatten().min();
    }

    /// Puts one back at the head.
    fn put_back(&mut self, ask: Ask, table: &Table) {
        self.notice(&ask, table);
        self.queue.push_front(ask);
    }

    /// Takes out what waits and is overdue.
    pub(crate) fn take_overdue(&mut self, table: &Table) -> Vec<Ask> {
        let now = Instant::now();
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.due = None;
        let mut overdue = Vec::new();
        for ask in mem::take(&mut self.queue) {
            if table.due(ask.member as usize).is_some_and(|due| due <= now) {
                overdue.push(ask);
            } else {
                self.notice(&ask, table);
                self.queue.push_back(ask);
            }
        }
        overdue
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running > 0
    }

    /// Returns when there is something to do: something may go out, or is overdue.
    pub(crate) fn next(&self) -> Option<Instant> {
        let due = self.due.filter(|_| !self.queue.is_empty());
        [self.next_to_go(), due].into_iter().flatten().min()
    }

    /// Returns when something may go out, if something waits and there is room.
    fn next_to_go(&self) -> Option<Instant> {
        let has_room = self.running == 0 || self.running < self.room();
        (has_room && !self.queue.is_empty()).then(|| self.cooldown.unwrap_or_else(Instant::now))
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the limit is between one and the maximum"
    )]
    fn room(&self) -> usize {
        self.limit as usize
    }

    fn went_well(&mut self) {
        self.trouble = None;
        let max = f64::from(u32::try_from(self.max).unwrap_or(u32::MAX));
        self.limit = (self.limit + 1.0 / self.limit).min(max);
    }

    /// Slows down; returns how often in a row this was needed.
    fn went_badly(&mut self, interval: Option<Duration>, retry_after: Option<Duration>) -> u32 {
        let now = Instant::now();
        let trouble = self
            .trouble
            .get_or_insert_with(|| Trouble { backoff: Backoff::new(interval), failures: 0 });
        // Those that were on their way together fail together: one halving a round.
        if self.cooldown.is_none_or(|until| until <= now) {
            trouble.failures += 1;
            self.limit = (self.limit / 2.0).max(1.0);
            let until = now.checked_add(trouble.backoff.after_failure(retry_after));
            self.cooldown = until.or(self.cooldown);
        } else if let Some(until) = retry_after.and_then(|wait| now.checked_add(wait)) {
            self.cooldown = self.cooldown.max(Some(until));
        }
        trouble.failures
    }
}

impl<'s> Session<'s> {
    /// Sends off as many requests as may be on their way.
    pub(crate) fn ask_more<'scope>(&mut self, scope: &'scope Scope<'scope, '_>) -> Result<(), Error>
    where
        's: 'scope,
    {
        self.miss_asks()?;
        while self.direct.next_to_go().is_some_and(|next| next <= Instant::now()) {
            let Some(mut ask) = self.direct.queue.pop_front() else { break };
            let replaces = ask.replaces.as_slice();
            let doubts = self.engine.state().doubts_behind(replaces, ask.may_be_paid);
            if !self.is_within_budget(ask.member as usize, doubts)? || self.is_over_budget() {
                continue;
            }
            let (at, nonce) = self.begin_ask(&mut ask)?;
            self.touched.insert(at);
            self.count_submission(at, &[ask.member], Lane::Sync);
            self.direct.running += 1;
            let (engine, table, call) = (self.engine, self.table, self.call);
            let sender = self.sender.clone();
            scope.spawn(move || {
                let members = [ask.member];
                let draft = Draft::new(&nonce, &members, table);
                let asked = catch_unwind(AssertUnwindSafe(|| {
                    let entry = draft.entries().next().expect("a draft of one request has one");
                    engine.provider.ask(&entry, call)
                }));
                let panicked = || "the provider's code panicked".to_owned();
                let answer =
                    asked.unwrap_or_else(|_| Err(CreateError::Ambiguous { reason: panicked() }));
                // The session listens until everything that was sent off has come back.
                let _ = sender.send(Event::Answered(Box::new(Reply { ask, at, answer })));
            });
        }
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
        let at = self.engine.state().begin(intent, &[ask.member], self.table)?;
        ask.at = Some(at);
        Ok((at, nonce))
    }

    /// Decides about what came of a request.
    pub(crate) fn answered(&mut self, reply: Reply) -> Result<(), Error> {
        let Reply { mut ask, at, answer } = reply;
        self.direct.running -= 1;
        let index = ask.member as usize;
        let interval = self.engine.settings.poll_interval;
        let error = match answer {
            Ok(response) => {
                self.direct.went_well();
                let kept = self.engine.state().keep_answer(at, &response);
                // It is paid for: its requester gets it whatever becomes of the record.
                let answer = self.engine.provider.answer(response);
                return self.hand_over(index, Ok(answer)).and(kept);
            }
            Err(error) => error,
        };
        match error {
            CreateError::Busy { message, retry_after } => {
                self.engine.state().settle(at, Fate::Unsent { reason: message })?;
                self.direct.went_badly(interval, retry_after);
                self.direct.put_back(ask, self.table);
                Ok(())
            }
            CreateError::NotSent { reason } => {
                self.engine.state().settle(at, Fate::Unsent { reason: reason.clone() })?;
                if self.direct.went_badly(interval, None) >= TRIES {
                    self.pending.get_or_insert(PendingReason::Unreachable { reason });
                }
                self.direct.put_back(ask, self.table);
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
                if self.engine.settings.sync_retry
                    && ask.lost <= LOST
                    && self.afford(at, [ask.member])?
                {
                    self.direct.went_badly(interval, None);
                    let replaces = Some(self.doubt(at, reason)?);
                    ask = Ask { replaces, at: None, ..ask };
                    self.direct.put_back(ask, self.table);
                    return Ok(());
                }
                self.engine.state().settle(at, Fate::Ambiguous { reason: reason.clone() })?;
                self.lost_for_good(index, reason)
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
        if self.engine.settings.sync_retry && self.afford(at, [member])? {
            let replaces = Some(self.doubt(at, reason.to_owned())?);
            self.direct.extend([Ask::new(member, replaces)], self.table);
            return Ok(());
        }
        self.lost_for_good(member as usize, reason.to_owned())
    }

    /// Gives an ask up that may have been paid for; returns the number of its record.
    fn doubt(&mut self, at: usize, reason: String) -> Result<u64, Error> {
        let mut state = self.engine.state();
        state.settle(at, Fate::Void { reason, may_be_paid: true })?;
        Ok(state.record(at).number)
    }

    fn lost_for_good(&mut self, index: usize, reason: String) -> Result<(), Error> {
        if self.engine.settings.on_ambiguous == OnAmbiguous::Fail {
            return self.hand_over(index, Err(RequestError::Unknown { reason }));
        }
        self.mark_ambiguous(index, &reason);
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
