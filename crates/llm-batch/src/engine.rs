//! What tickets and runs share: the state, the settings, and who works on which request.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::accounting::{Accounting, Delivered, Run};
use crate::answer::{Answer, RequestError};
use crate::digest::Digest;
use crate::error::{Error, PendingReason};
use crate::intake::Intake;
use crate::lane::{LaneChoice, OnAmbiguous};
use crate::prices::Prices;
use crate::provider::{Call, Provider};
use crate::session::{Event, Mail, Session, Tell};
use crate::state::{Known, State};
use crate::stop::Stop;
use crate::table::{Item, Table};
use crate::throttle::Throttle;

/// How a batcher works; each is set by the method of its name at [`Builder`](crate::Builder).
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub(crate) struct Settings {
    pub(crate) max_items: Option<usize>,
    pub(crate) timeout: Duration,
    pub(crate) poll_interval: Option<Duration>,
    pub(crate) stop: Stop,
    pub(crate) held: Option<HashMap<String, Delivered>>,
    pub(crate) on_ambiguous: OnAmbiguous,
    pub(crate) list_lag: Duration,
    pub(crate) lane: LaneChoice,
    pub(crate) max_concurrent: usize,
    pub(crate) sync_retry: bool,
    pub(crate) fresh: bool,
    pub(crate) prices: Prices,
    pub(crate) max_cost: Option<f64>,
    pub(crate) attempts: u32,
    pub(crate) batch_time: Duration,
    pub(crate) headroom: Duration,
    pub(crate) pay_twice: bool,
    pub(crate) cache_prefixes: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            max_items: None,
            timeout: Duration::from_hours(26),
            poll_interval: None,
            stop: Stop::new(),
            held: None,
            on_ambiguous: OnAmbiguous::default(),
            list_lag: Duration::from_mins(1),
            lane: LaneChoice::default(),
            max_concurrent: 8,
            sync_retry: false,
            fresh: false,
            prices: Prices::default(),
            max_cost: None,
            attempts: 3,
            batch_time: Duration::from_hours(1),
            headroom: Duration::from_mins(15),
            pay_twice: false,
            cache_prefixes: false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) settings: Settings,
    pub(crate) state_dir: PathBuf,
    state: Mutex<State>,
    active: Mutex<ActiveIds>,
    idle: Condvar,
    totals: Mutex<Accounting>,
    http_calls: AtomicU64,
    /// How many requests may be asked alone at a time, by all passes together.
    pub(crate) throttle: Arc<Throttle>,
    /// When creates may go out.
    pub(crate) intake: Intake,
}

/// What is being worked on.
#[derive(Debug, Default)]
struct ActiveIds {
    ids: HashSet<Arc<str>>,
    passes: usize,
    /// Requests that are asked alone, in threads that a pass which panics does not wait for.
    away: usize,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A run, which may be a repeated one: what was handed over is not handed over again.
    Run,
    /// Holders of tickets, who have nothing yet and nothing to do with each other.
    Tickets,
}

impl Engine {
    pub(crate) fn new(provider: Arc<dyn Provider>, settings: Settings, state: State) -> Engine {
        Engine {
            provider,
            throttle: Throttle::new(settings.max_concurrent, settings.poll_interval),
            intake: Intake::new(settings.poll_interval),
            settings,
            state_dir: state.dir().to_owned(),
            state: Mutex::new(state),
            active: Mutex::default(),
            idle: Condvar::new(),
            totals: Mutex::default(),
            http_calls: AtomicU64::new(0),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn accounting(&self) -> Accounting {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner).clone();
        totals.http_calls = self.http_calls.load(Ordering::Relaxed);
        totals.settle();
        totals
    }

    /// Changes the totals. Called before anybody can learn of what is counted.
    pub(crate) fn tally(&self, change: impl FnOnce(&mut Accounting)) {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut totals);
    }

    /// Returns an empty table for the requests of one pass.
    pub(crate) fn table(&self) -> Table {
        Table::new(&self.state_dir).marking_prefixes(self.settings.cache_prefixes)
    }

    /// Brings every request of a run to its outcome, as far as that is possible now. `on_outcome`
    /// gets each outcome with the request's index, in order of arrival, and no lock is held
    /// meanwhile.
    pub(crate) fn drive(
        &self,
        table: &Arc<Table>,
        on_outcome: &mut dyn FnMut(usize, Result<Answer, RequestError>),
    ) -> Result<Run, Error> {
        let mut session = self.open(table, Mode::Run, Mail::open(), |active| {
            move |index, outcome| {
                // It lives as long as the pass.
                let _ = &active;
                on_outcome(index, outcome);
            }
        })?;
        thread::scope(|scope| session.work(scope));
        session.finish().map_err(|unfinished| unfinished.into_error(self.state_dir.clone()))
    }

    /// Begins a pass; `tell` makes what its outcomes are handed to.
    pub(crate) fn open<'e, T: Tell>(
        &'e self,
        table: &Arc<Table>,
        mode: Mode,
        mail: (Mail, Receiver<Event>),
        tell: impl FnOnce(Active<'e>) -> T,
    ) -> Result<Session<'e, T>, Error> {
        let active = self.activate(table)?;
        if !self.settings.fresh {
            self.refuse_conflicts(table)?;
        }
        let budget = self.budget(table, mode)?;
        let call = Call::within(self.settings.timeout, &self.settings.stop, &self.http_calls);
        let table = Arc::clone(table);
        let mut session = Session::new(self, mode, call, table, budget, mail, tell(active));
        session.begin();
        Ok(session)
    }

    /// Returns the outcome of a request that whoever asks has already.
    pub(crate) fn delivered(&self, state: &State, item: &Item, mode: Mode) -> Option<Delivered> {
        match (mode, &self.settings.held) {
            (Mode::Tickets, _) => None,
            (Mode::Run, Some(held)) => held.get(&*item.id).copied(),
            (Mode::Run, None) => state.told(item).map(|told| told.delivered),
        }
    }

    /// Returns why a request cannot be worked on now: its id was used in a create with another content,
    /// or somebody works on it. One that cannot be sent has no digest.
    pub(crate) fn refusal(&self, id: &str, digest: Option<Digest>) -> Option<Error> {
        let is_other = |known: Known| Some(known.digest) != digest;
        if !self.settings.fresh && self.state().find(id).is_some_and(is_other) {
            return Some(Error::Conflict { id: id.to_owned(), state: self.state_dir.clone() });
        }
        let active = self.active();
        active.ids.contains(id).then(|| Error::InFlight { id: id.to_owned() })
    }

    /// Returns what the ticket of a request that is not finished is told. One that cannot be sent, and never
    /// was, has failed.
    pub(crate) fn left(&self, id: &str, reason: &PendingReason) -> RequestError {
        match reason {
            PendingReason::State { problem } | PendingReason::OverBudget { problem }
                if !self.state().may_be_paid(id) =>
            {
                RequestError::Failed { reason: problem.clone() }
            }
            _ => RequestError::Pending { state: self.state_dir.clone(), reason: reason.clone() },
        }
    }

    /// Refuses ids that were used in a create with another content.
    fn refuse_conflicts(&self, table: &Table) -> Result<(), Error> {
        let state = self.state();
        let is_other = |(index, item): &(usize, &Item)| {
            let known = state.find(&item.id);
            known
                .is_some_and(|known| table.invalid(*index).is_some() || known.digest != item.digest)
        };
        match table.items().iter().enumerate().find(is_other) {
            None => Ok(()),
            Some((_, item)) => {
                Err(Error::Conflict { id: item.id.to_string(), state: self.state_dir.clone() })
            }
        }
    }

    /// Waits until no pass goes on and lets others have the state folder. While an answer is on its way to
    /// a pass that panicked, it keeps the folder: what was asked is read there, and the answer kept.
    pub(crate) fn release_state(&self) {
        let active = self.active();
        let idle = self.idle.wait_while(active, |active| active.passes > 0);
        let idle = idle.unwrap_or_else(PoisonError::into_inner);
        if idle.away == 0 {
            self.state().release();
        }
    }

    /// Has the folder kept for a request that is asked alone, as long as what is returned lives.
    pub(crate) fn send_away(&self) -> Away<'_> {
        self.active().away += 1;
        Away { engine: self }
    }

    fn active(&self) -> MutexGuard<'_, ActiveIds> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the requests as being worked on, all or none.
    fn activate(&self, table: &Arc<Table>) -> Result<Active<'_>, Error> {
        let mut active = self.active();
        if let Some(taken) = table.items().iter().find(|item| active.ids.contains(&item.id)) {
            return Err(Error::InFlight { id: taken.id.to_string() });
        }
        active.passes += 1;
        active.ids.extend(table.items().iter().map(|item| Arc::clone(&item.id)));
        let (table, released) = (Arc::clone(table), HashSet::new());
        Ok(Active { engine: self, table, released, _pass: Pass { engine: self } })
    }
}

/// Marks requests as being worked on while it lives.
pub(crate) struct Active<'e> {
    engine: &'e Engine,
    table: Arc<Table>,
    released: HashSet<usize>,
    /// The last to go: with the table, what it has in the folder.
    _pass: Pass<'e>,
}

/// Counts as a pass that goes on while it lives.
struct Pass<'e> {
    engine: &'e Engine,
}

/// Counts as a request that is asked alone while it lives.
pub(crate) struct Away<'e> {
    engine: &'e Engine,
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        self.engine.active().away -= 1;
    }
}

impl Active<'_> {
    /// Ends the work on one request.
    pub(crate) fn release(&mut self, index: usize) {
        if self.released.insert(index) {
            let mut active = self.engine.active();
            active.ids.remove(self.table.id(index));
        }
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        let mut active = self.engine.active();
        for (index, item) in self.table.items().iter().enumerate() {
            if !self.released.contains(&index) {
                active.ids.remove(&item.id);
            }
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut active = self.engine.active();
        active.passes -= 1;
        if active.passes == 0 {
            self.engine.idle.notify_all();
        }
    }
}
