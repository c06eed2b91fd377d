//! Where passes of tickets are kept while they wait, and the few threads that work on them.
//!
//! A pass waits nearly all the time: for the next poll, for a list, for a provider that is busy. So it
//! has no thread of its own. One thread watches when the first of all passes is due, works on that one,
//! and lets another one watch meanwhile.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::Instant;

use batch_core::BatchOf;

use crate::engine::Engine;
use crate::processor::{Pass, Processor};
use crate::session::Step;

/// What is to be done when, and by whom.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    agenda: Mutex<Agenda>,
    /// The one that watches waits here, and those that have nothing to do.
    watch: Condvar,
    idle: Condvar,
}

#[derive(Debug, Default)]
struct Agenda {
    arrived: VecDeque<Arc<BatchOf<Processor>>>,
    /// Passes that wait, and when each is due; never where only mail can wake it.
    waiting: HashMap<u64, Option<Instant>>,
    /// Passes that are worked on, and whether mail has come for them since.
    working: HashMap<u64, bool>,
    next: u64,
    /// A batch that had arrived was taken last.
    has_opened: bool,
    threads: usize,
    idle: usize,
    is_watched: bool,
    is_closed: bool,
}

enum Work {
    Open(u64, Arc<BatchOf<Processor>>),
    GoOn(u64),
}

impl Agenda {
    /// Takes what is due, if anything is. What has arrived and what is waited for take turns: neither
    /// keeps the other from being done, however much of it there is.
    fn take(&mut self) -> Option<Work> {
        if self.has_opened && !self.arrived.is_empty() {
            let due = self.take_due();
            self.has_opened = due.is_none();
            return due.or_else(|| self.take_arrived());
        }
        self.take_arrived().or_else(|| self.take_due())
    }

    fn take_arrived(&mut self) -> Option<Work> {
        let batch = self.arrived.pop_front()?;
        self.next += 1;
        self.working.insert(self.next, false);
        self.has_opened = true;
        Some(Work::Open(self.next, batch))
    }

    fn take_due(&mut self) -> Option<Work> {
        let (due, number) = self.first()?;
        if due > Instant::now() {
            return None;
        }
        self.waiting.remove(&number);
        self.working.insert(number, false);
        Some(Work::GoOn(number))
    }

    /// Returns which of the passes that wait is due first.
    fn first(&self) -> Option<(Instant, u64)> {
        let timed = self.waiting.iter().filter_map(|(number, due)| due.map(|due| (due, *number)));
        timed.min()
    }

    fn is_over(&self) -> bool {
        let nothing_waits = self.arrived.is_empty() && self.waiting.is_empty();
        self.is_closed && nothing_waits && self.working.is_empty()
    }
}

/// The passes that are kept, by number. Nobody works on them.
type Kept<'e> = Mutex<HashMap<u64, Pass<'e>>>;

impl Desk {
    /// Starts the first of at most `threads` threads. They end when the desk is closed and nothing is
    /// left on it.
    pub(crate) fn start(engine: &Arc<Engine>, threads: usize) -> io::Result<Arc<Desk>> {
        let desk = Arc::new(Desk::default());
        let (engine, at) = (Arc::clone(engine), Arc::clone(&desk));
        desk.agenda().threads = 1;
        let serve = move || {
            let bell = Arc::clone(&at);
            let _hooked = engine.settings.stop.on_stop(move || bell.ring_all());
            let kept = Kept::default();
            thread::scope(|scope| at.work(&engine, &kept, threads, scope));
        };
        thread::Builder::new().name(NAME.to_owned()).spawn(serve)?;
        Ok(desk)
    }

    fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a batch in. Does not wait for anything of it.
    pub(crate) fn push(&self, batch: BatchOf<Processor>) {
        self.agenda().arrived.push_back(Arc::new(batch));
        self.watch.notify_one();
    }

    /// Lets the threads end once nothing is left.
    pub(crate) fn close(&self) {
        self.agenda().is_closed = true;
        self.watch.notify_all();
        self.idle.notify_all();
    }

    /// Has a pass looked at: there is mail for it.
    pub(crate) fn ring(&self, number: u64) {
        let mut agenda = self.agenda();
        if let Some(has_mail) = agenda.working.get_mut(&number) {
            *has_mail = true;
        } else if let Some(due) = agenda.waiting.get_mut(&number) {
            *due = Some(Instant::now());
            self.watch.notify_one();
        }
    }

    fn ring_all(&self) {
        let mut agenda = self.agenda();
        let now = Instant::now();
        agenda.working.values_mut().for_each(|has_mail| *has_mail = true);
        agenda.waiting.values_mut().for_each(|due| *due = Some(now));
        self.watch.notify_one();
    }

    /// Keeps a pass until it is due, or until there is mail.
    fn keep(&self, number: u64, due: Option<Instant>) {
        let mut agenda = self.agenda();
        let has_mail = agenda.working.remove(&number).unwrap_or(false);
        let due = if has_mail { Some(Instant::now()) } else { due };
        agenda.waiting.insert(number, due);
        self.watch.notify_one();
    }

    fn done(&self, number: u64) {
        self.agenda().working.remove(&number);
    }

    /// Waits for something to do; `None` when there will be nothing more. Starts one more thread where
    /// otherwise nobody would watch.
    fn next<'scope, 'e: 'scope>(
        self: &Arc<Desk>,
        engine: &'e Engine,
        kept: &'scope Kept<'e>,
        max: usize,
        scope: &'scope Scope<'scope, '_>,
    ) -> Option<Work> {
        let mut agenda = self.agenda();
        loop {
            if let Some(work) = agenda.take() {
                if agenda.idle > 0 {
                    self.idle.notify_one();
                } else if !agenda.is_watched && agenda.threads < max {
                    let desk = Arc::clone(self);
                    let work = move || desk.work(engine, kept, max, scope);
                    let started = thread::Builder::new().name(NAME.to_owned());
                    // Without it the others do its work.
                    agenda.threads += usize::from(started.spawn_scoped(scope, work).is_ok());
                }
                return Some(work);
            }
            if agenda.is_over() {
                self.watch.notify_all();
                self.idle.notify_all();
                return None;
            }
            if agenda.is_watched {
                agenda.idle += 1;
                agenda = self.idle.wait(agenda).unwrap_or_else(PoisonError::into_inner);
                agenda.idle -= 1;
                continue;
            }
            agenda.is_watched = true;
            agenda = match agenda.first() {
                None => self.watch.wait(agenda).unwrap_or_else(PoisonError::into_inner),
                Some((due, _)) => {
                    let wait = due.saturating_duration_since(Instant::now());
                    let waited = self.watch.wait_timeout(agenda, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            agenda.is_watched = false;
        }
    }

    fn work<'scope, 'e: 'scope>(
        self: &Arc<Desk>,
        engine: &'e Engine,
        kept: &'scope Kept<'e>,
        max: usize,
        scope: &'scope Scope<'scope, '_>,
    ) {
        let passes = || kept.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(work) = self.next(engine, kept, max, scope) {
            let (number, pass) = match work {
                Work::Open(number, batch) => (number, Pass::open(engine, self, number, batch)),
                Work::GoOn(number) => (number, passes().remove(&number)),
            };
            let Some(mut pass) = pass else {
                self.done(number);
                continue;
            };
            // What is the provider's may panic.
            let stepped = catch_unwind(AssertUnwindSafe(|| {
                loop {
                    match pass.step(scope) {
                        Step::Again => {}
                        Step::Wait(due) => return Some(due),
                        Step::Done => return None,
                    }
                }
            }));
            match stepped {
                Ok(Some(due)) => {
                    passes().insert(number, pass);
                    self.keep(number, due);
                }
                Ok(None) => {
                    pass.finish();
                    self.done(number);
                }
                Err(panic) => {
                    pass.abandon(&*panic);
                    self.done(number);
                }
            }
        }
    }
}

/// The name of the threads.
const NAME: &str = "llm-batch";
