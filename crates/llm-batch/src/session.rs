//! One pass over a set of requests: sort, send, wait, collect.

mod aside;
mod mail;
mod sort;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use crate::accounting::{Accounting, Delivered, Run};
use crate::answer::{Answer, RequestError, Status};
use crate::backoff::Backoff;
use crate::budget::Budget;
use crate::collect::Watch;
use crate::deliveries::Told;
use crate::direct::Direct;
use crate::draft::NOBODY;
use crate::engine::{Engine, Mode};
use crate::error::{Error, PendingReason};
use crate::intake::CROWDED;
use crate::lane::Lane;
use crate::provider::Call;
use crate::queue::Queue;
use crate::record::Fate;
use crate::seek::Seek;
use crate::send::Send;
use crate::table::{Item, Table};

pub(crate) use mail::{Event, Mail};

/// Whoever gets the outcomes of a pass, each with the index of its request.
pub(crate) trait Tell: FnMut(usize, Result<Answer, RequestError>) {}

impl<F: FnMut(usize, Result<Answer, RequestError>)> Tell for F {}

/// One pass. Whoever has it calls [`step`](Session::step) until it is done; in between it is kept, and
/// takes no thread.
pub(crate) struct Session<'s, T> {
    pub(crate) engine: &'s Engine,
    mode: Mode,
    pub(crate) table: Arc<Table>,
    on_outcome: T,
    pub(crate) status: Vec<Status>,
    accounting: Accounting,
    pub(crate) stray: u64,
    pub(crate) call: Arc<Call<'s>>,
    /// Creates begun and outcomes handed over in this pass.
    pub(crate) created: usize,
    handed_over: usize,
    /// Records that carry a request of this pass.
    pub(crate) touched: BTreeSet<usize>,
    pub(crate) jobs: Queue<Job>,
    pub(crate) direct: Direct,
    pub(crate) budget: Budget,
    events: Receiver<Event>,
    pub(crate) mail: Mail,
    /// The waits before what came back without an answer is sent again.
    pub(crate) resend: Backoff,
    pub(crate) pending: Option<PendingReason>,
    pub(crate) refused: Option<PendingReason>,
    ambiguous: Option<Ambiguity>,
    /// Requests of tickets that were told that they are not finished.
    left: BTreeSet<usize>,
    /// Why an answer that is paid for could not be written down. Nothing is begun any more then.
    pub(crate) unkept: Option<String>,
    /// Records of batches that could not be written down, and why. Nothing is begun until they are.
    pub(crate) unnoted: Vec<(usize, String)>,
    /// What cut the pass.
    fault: Option<Error>,
}

/// What there is to do for a pass.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something, at once.
    Again,
    /// Nothing before that moment, or before something happens.
    Wait(Option<Instant>),
    /// Nothing any more.
    Done,
}

/// What is to be done at some time.
#[derive(Debug)]
pub(crate) enum Job {
    Send(Send),
    Seek(Seek),
    Watch(Watch),
    Discard { nonce: String, anchor: String },
}

/// Requests whose create has an unknown fate.
pub(crate) struct Ambiguity {
    pub(crate) requests: usize,
    pub(crate) reason: String,
}

/// Why a pass has not brought all its requests to their outcomes.
pub(crate) enum Unfinished {
    /// Nothing was sent and nothing told: it is as if it had not begun.
    Unbegun(Error),
    /// It came so far.
    Cut { run: Box<Run>, ambiguous: Option<Ambiguity>, pending: PendingReason },
}

impl Unfinished {
    /// Returns what a run is told.
    pub(crate) fn into_error(self, state: PathBuf) -> Error {
        match self {
            Unfinished::Unbegun(error) => error,
            Unfinished::Cut { run, ambiguous: Some(Ambiguity { requests, reason }), .. } => {
                Error::Ambiguous { state, requests, reason, run }
            }
            Unfinished::Cut { run, ambiguous: None, pending: reason } => {
                Error::Pending { state, reason, run }
            }
        }
    }
}

impl<'s, T: Tell> Session<'s, T> {
    pub(crate) fn new(
        engine: &'s Engine,
        mode: Mode,
        call: Call<'s>,
        table: Arc<Table>,
        budget: Budget,
        (mail, events): (Mail, Receiver<Event>),
        on_outcome: T,
    ) -> Session<'s, T> {
        Session {
            engine,
            mode,
            status: vec![Status::Pending; table.items().len()],
            table,
            on_outcome,
            accounting: Accounting::default(),
            stray: 0,
            call: Arc::new(call),
            created: 0,
            handed_over: 0,
            touched: BTreeSet::new(),
            jobs: Queue::new(),
            direct: Direct::default(),
            budget,
            events,
            mail,
            resend: Backoff::new(Some(engine.settings.poll_interval.unwrap_or(CROWDED))),
            pending: None,
            refused: None,
            ambiguous: None,
            left: BTreeSet::new(),
            unkept: None,
            unnoted: Vec::new(),
            fault: None,
        }
    }

    /// Settles what is known already, and plans what is to be sent.
    pub(crate) fn begin(&mut self) {
        self.engine.state().deliveries.expect(self.table.items().len());
        if let Err(fault) = self.sort().and_then(|fresh| self.send_all(&fresh)) {
            self.cut(fault);
        }
    }

    /// Does what is due until nothing is left, the time is up, or somebody says stop.
    pub(crate) fn work<'scope>(&mut self, scope: &'scope Scope<'scope, '_>)
    where
        's: 'scope,
    {
        let mail = self.mail.clone();
        let _hooked = self.call.on_stop(move || mail.post(Event::Stopped));
        loop {
            let wait = match self.step(scope) {
                Step::Again => Duration::ZERO,
                Step::Wait(Some(until)) => until.saturating_duration_since(Instant::now()),
                Step::Wait(None) => Duration::MAX,
                Step::Done => return,
            };
            match self.events.recv_timeout(wait) {
                Ok(event) => self.take(event),
                // The session holds a sender itself.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    /// Does one thing, if one is due.
    pub(crate) fn step<'scope>(&mut self, scope: &'scope Scope<'scope, '_>) -> Step
    where
        's: 'scope,
    {
        while let Ok(event) = self.events.try_recv() {
            self.take(event);
        }
        if self.fault.is_some() || self.must_end() {
            self.direct.leave();
            // Whatever went wrong: answers that are on their way are paid for.
            return if self.direct.is_running() { Step::Wait(None) } else { Step::Done };
        }
        match self.advance(scope) {
            Ok(step) => step,
            Err(fault) => {
                self.cut(fault);
                Step::Again
            }
        }
    }

    fn advance<'scope>(&mut self, scope: &'scope Scope<'scope, '_>) -> Result<Step, Error>
    where
        's: 'scope,
    {
        self.ask_more(scope)?;
        if let Some(job) = self.jobs.pop(Instant::now()) {
            self.direct.step_aside();
            match job {
                Job::Send(send) => self.send(send)?,
                Job::Seek(seek) => {
                    let members = seek.members.clone();
                    self.seek(seek).or_else(|fault| self.fail(&members, fault))?;
                }
                Job::Watch(watch) => self.watch(watch)?,
                Job::Discard { nonce, anchor } => {
                    // What is left costs nothing but room.
                    let _ = self.engine.provider.discard(&nonce, &anchor, &self.call);
                }
            }
            return Ok(Step::Again);
        }
        if !self.has_work() {
            return Ok(Step::Done);
        }
        let due = [self.jobs.next(), self.next_ask()].into_iter().flatten().min();
        let end = self.call.deadline();
        Ok(Step::Wait(Some(due.unwrap_or(end).min(end))))
    }

    fn take(&mut self, event: Event) {
        let taken = match event {
            Event::Stopped => Ok(()),
            Event::Room(model) => {
                self.direct.look(&model);
                Ok(())
            }
            Event::Answered(reply) => self.answered(*reply),
        };
        if let Err(fault) = taken {
            self.cut(fault);
        }
    }

    /// Ends a run that cannot go on. Tickets have nothing to do with each other, and what is there for the
    /// others is paid for.
    pub(crate) fn cut(&mut self, fault: Error) {
        match self.mode {
            Mode::Run => {
                self.fault.get_or_insert(fault);
            }
            Mode::Tickets => {
                let problem = fault.to_string();
                self.refused.get_or_insert(PendingReason::State { problem });
            }
        }
    }

    /// Returns what the pass came to.
    pub(crate) fn finish(mut self) -> Result<Run, Unfinished> {
        self.note_again();
        let synced =
            if self.fault.is_none() { self.engine.state().deliveries.sync() } else { Ok(()) };
        let synced = synced.err().filter(|_| self.mode == Mode::Run);
        if let Some(error) = self.fault.take().or(synced) {
            if self.created == 0 && self.handed_over == 0 {
                return Err(Unfinished::Unbegun(error));
            }
            self.pending = Some(PendingReason::State { problem: error.to_string() });
        }
        let left: Vec<Job> = self.jobs.drain().collect();
        for job in left {
            if let Job::Seek(seek) = job {
                let reason = seek.story();
                for &member in seek.members.iter().filter(|member| **member != NOBODY) {
                    self.mark_ambiguous(member as usize, &reason);
                }
            }
        }
        if let (Some(ambiguity), Some(PendingReason::State { problem })) =
            (&mut self.ambiguous, &self.pending)
        {
            // It is told in place of this, and whoever runs again meets this first.
            ambiguity.reason = format!("{}; {problem}", ambiguity.reason);
        }
        self.count_records();
        for index in 0..self.status.len() {
            if !self.status[index].is_final() && !self.left.contains(&index) {
                self.count_open(index);
            }
        }
        self.accounting.http_calls = self.call.http_calls();
        self.accounting.settle();
        let is_done = self.status.iter().all(|status| status.is_final());
        let ids = self.table.items().iter().map(|item| item.id.to_string());
        let run = Run {
            outcomes: ids.zip(self.status).collect(),
            accounting: self.accounting,
            stray_results: self.stray,
        };
        if is_done {
            return Ok(run);
        }
        let pending = self.pending.or(self.refused).unwrap_or(PendingReason::TimedOut);
        Err(Unfinished::Cut { run: Box::new(run), ambiguous: self.ambiguous, pending })
    }

    /// Counts every create that carried a request of this pass, whichever run made it.
    fn count_records(&mut self) {
        let state = self.engine.state();
        let mut records = self.touched.clone();
        for &at in &self.touched {
            let mut open = vec![at];
            while let Some(at) = open.pop() {
                open.extend(state.replaced_by(at).filter(|older| records.insert(*older)));
            }
        }
        for at in records {
            let record = state.record(at);
            let intent = &record.intent;
            let of = (intent.kind.as_str(), intent.model.as_str(), intent.lane);
            let prices = &self.engine.settings.prices;
            self.accounting.submitted(of, record.attempts, prices);
            if let Some(Fate::Submitted { .. }) = record.fate {
                self.accounting.batches += 1;
            }
        }
        let is_doubted =
            |item: &&Item| state.known(item).is_some_and(|known| state.doubts_before(known.at) > 0);
        let doubted = self.table.items().iter().filter(is_doubted).count();
        self.accounting.possibly_paid_twice = doubted as u64;
    }

    /// Counts a request in this pass.
    fn count(&mut self, index: usize, delivered: Delivered) {
        let (group, lane) = (self.table.group(index), self.lane_of(index));
        self.accounting.count(group, lane, delivered, &self.engine.settings.prices);
    }

    /// Counts a request that the model has run.
    pub(crate) fn ran(&mut self, index: usize) {
        let (group, lane) = (self.table.group(index), self.lane_of(index));
        let prices = &self.engine.settings.prices;
        self.accounting.ran(group, lane, prices);
        self.engine.tally(|totals| totals.ran(group, lane, prices));
    }

    /// Counts a create, or a call of the lane `sync`, in what the batcher does altogether.
    pub(crate) fn count_submission(&mut self, at: usize, members: &[u32], lane: Lane) {
        self.created += 1;
        let group = self.table.group(members[0] as usize);
        let of = (group.kind.as_str(), group.model.as_str(), lane);
        let is_doubt = {
            let state = self.engine.state();
            state.record(at).attempts == 1 && state.is_first_in_doubt(at)
        };
        let doubted = if is_doubt { members.len() as u64 } else { 0 };
        self.engine.tally(|totals| {
            totals.submitted(of, 1, &self.engine.settings.prices);
            totals.possibly_paid_twice += doubted;
        });
    }

    /// Counts a request in what the batcher does altogether.
    fn tally(&self, index: usize, delivered: Delivered) {
        let (group, lane) = (self.table.group(index), self.lane_of(index));
        let prices = &self.engine.settings.prices;
        self.engine.tally(|totals| totals.count(group, lane, delivered, prices));
    }

    /// Returns the lane that a request took, or would take now.
    fn lane_of(&self, index: usize) -> Lane {
        let state = self.engine.state();
        let known = state.known(&self.table.items()[index]);
        known.map_or(self.engine.settings.lane.lane(), |k| state.record(k.at).intent.lane)
    }

    /// Gives an outcome to its requester and writes down that it was given.
    pub(crate) fn hand_over(
        &mut self,
        index: usize,
        outcome: Result<Answer, RequestError>,
    ) -> Result<(), Error> {
        let delivered = Delivered::of(&outcome);
        let may_be_paid = outcome.as_ref().is_err_and(RequestError::may_be_paid);
        let has_run = matches!(outcome, Ok(_) | Err(RequestError::Errored { .. }));
        self.status[index] = delivered.status;
        self.handed_over += 1;
        let (engine, group, lane) = (self.engine, self.table.group(index), self.lane_of(index));
        let count = |totals: &mut Accounting| {
            let prices = &engine.settings.prices;
            if has_run {
                totals.ran(group, lane, prices);
            }
            totals.count(group, lane, delivered, prices);
        };
        count(&mut self.accounting);
        engine.tally(count);
        // Whoever is told may ask, and wait for, something that needs the turn of this pass.
        self.direct.step_aside();
        (self.on_outcome)(index, outcome);
        let item = &self.table.items()[index];
        let told = Told::new(delivered, may_be_paid, item.digest);
        let noted = self.engine.state().deliveries.note(&item.id, told);
        match self.mode {
            Mode::Run => noted,
            // Nobody's ticket depends on it: the others get what is there for them all the same.
            Mode::Tickets => Ok(()),
        }
    }

    /// Tells whether the time is up or somebody said stop, and remembers which.
    pub(crate) fn must_end(&mut self) -> bool {
        if self.pending.is_some() {
            return true;
        }
        if self.engine.settings.stop.is_stopped() {
            self.pending = Some(PendingReason::Stopped);
        } else if self.call.time_left().is_zero() && self.has_work() {
            self.pending = Some(PendingReason::TimedOut);
        }
        self.pending.is_some()
    }

    fn has_work(&self) -> bool {
        self.jobs.next().is_some() || self.direct.has_work()
    }
}
