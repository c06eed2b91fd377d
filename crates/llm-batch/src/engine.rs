//! What tickets and runs share: the state, the settings, and who works on which request.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::accounting::{Accounting, Delivered, Run};
use crate::answer::{Answer, RequestError};
use crate::digest::digest;
use crate::error::Error;
use crate::provider::{Call, Provider};
use crate::request::Request;
use crate::session::Session;
use crate::state::State;
use crate::stop::Stop;

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) max_items: Option<usize>,
    pub(crate) timeout: Duration,
    pub(crate) poll_interval: Option<Duration>,
    pub(crate) stop: Stop,
    pub(crate) held: Option<HashMap<String, Delivered>>,
}

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) settings: Settings,
    pub(crate) state_dir: PathBuf,
    state: Mutex<State>,
    active: Mutex<Working>,
    idle: Condvar,
    totals: Mutex<Accounting>,
    http_calls: AtomicU64,
}

/// What is being worked on.
#[derive(Debug, Default)]
struct Working {
    ids: HashSet<String>,
    passes: usize,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A run, which may be a repeated one: what was handed over is not handed over again, and
    /// while the fate of a create is unknown nothing new is sent.
    Run,
    /// Holders of tickets, who have nothing yet and nothing to do with each other.
    Tickets,
}

/// A request, checked and measured.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) digest: String,
    pub(crate) bytes: u64,
}

impl Engine {
    pub(crate) fn new(provider: Arc<dyn Provider>, settings: Settings, state: State) -> Engine {
        Engine {
            provider,
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
        totals
    }

    /// Changes the totals. Called before anybody can learn of what is counted.
    pub(crate) fn tally(&self, change: impl FnOnce(&mut Accounting)) {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut totals);
        totals.settle();
    }

    /// Brings every request to its outcome, as far as that is possible now. `on_outcome` gets
    /// each outcome with the request's index, in order of arrival, and no lock is held meanwhile.
    pub(crate) fn drive(
        &self,
        requests: &[&Request],
        mode: Mode,
        on_outcome: &mut dyn FnMut(usize, Result<Answer, RequestError>),
    ) -> Result<Run, Error> {
        let active = self.activate(requests)?;
        let prepared: Vec<_> = requests.iter().map(|request| self.prepare(request)).collect();
        for (request, prepared) in requests.iter().zip(&prepared) {
            if self.conflicts(request, prepared) {
                return Err(Error::Conflict {
                    id: request.id.clone(),
                    state: self.state_dir.clone(),
                });
            }
        }
        let call = Call::within(self.settings.timeout, &self.settings.stop, &self.http_calls);
        let mut tell = |index: usize, outcome| {
            if mode == Mode::Tickets {
                // Who has the answer may ask again at once, whatever the others still wait for.
                active.release(&requests[index].id);
            }
            on_outcome(index, outcome);
        };
        let mut session = Session::new(self, &call, requests, &mut tell);
        let worked = session.work(prepared, mode);
        session.finish(worked)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared, RequestError> {
        if request.model.is_empty() {
            return Err(RequestError::invalid("the request names no model"));
        }
        let encoded = self.provider.encode(request)?;
        Ok(Prepared {
            digest: digest(&*self.provider, request, encoded.get()),
            bytes: encoded.get().len() as u64,
        })
    }

    /// Tells whether the id was used in a create with another content.
    fn conflicts(&self, request: &Request, prepared: &Result<Prepared, RequestError>) -> bool {
        let state = self.state();
        let Some((at, seq)) = state.find(&request.id) else { return false };
        let known = &state.record(at).intent.requests[seq].1;
        prepared.as_ref().map_or(true, |prepared| prepared.digest != *known)
    }

    /// Waits until nobody works and lets others have the state folder.
    pub(crate) fn release_state(&self) {
        let active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = self.idle.wait_while(active, |active| active.passes > 0);
        self.state().release();
        drop(idle);
    }

    /// Marks the requests as being worked on, all or none.
    fn activate(&self, requests: &[&Request]) -> Result<Active<'_>, Error> {
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = requests.iter().find(|request| active.ids.contains(&request.id));
        if let Some(taken) = taken {
            return Err(Error::InFlight { id: taken.id.clone() });
        }
        active.passes += 1;
        active.ids.extend(requests.iter().map(|request| request.id.clone()));
        let ids = requests.iter().map(|request| request.id.clone()).collect();
        Ok(Active { engine: self, ids: RefCell::new(ids) })
    }
}

struct Active<'e> {
    engine: &'e Engine,
    ids: RefCell<BTreeSet<String>>,
}

impl Active<'_> {
    /// Ends the work on one request.
    fn release(&self, id: &str) {
        if self.ids.borrow_mut().remove(id) {
            let mut active = self.engine.active.lock().unwrap_or_else(PoisonError::into_inner);
            active.ids.remove(id);
        }
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        let mut active = self.engine.active.lock().unwrap_or_else(PoisonError::into_inner);
        for id in &*self.ids.get_mut() {
            active.ids.remove(id);
        }
        active.passes -= 1;
        if active.passes == 0 {
            self.engine.idle.notify_all();
        }
    }
}
