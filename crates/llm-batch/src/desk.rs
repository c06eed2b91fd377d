//! Where passes of tickets are kept while they wait, and the few threads that work on them.
//!
//! A pass waits nearly all the time: for the next poll, for a list, for a provider that is busy. So it
//! has no thread of its own. One thread looks out for the first of all passes that is due, works on that
//! one, and has another one look out meanwhile.

mod waiting;

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
use waiting::Waiting;

type Arrived = Arc<BatchOf<Processor>>;

/// What is to be done when, and by whom.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    agenda: Mutex<Agenda<Arrived>>,
    /// The one that looks out for what is due waits here, and those that have nothing to do.
    lookout: Condvar,
    idle: Condvar,
}

#[derive(Debug)]
struct Agenda<B> {
    arrived: VecDeque<B>,
    waiting: Waiting,
    /// Passes that are worked on, and whether mail has come for them since.
    working: HashMap<u64, bool>,
    next: u64,
    /// A batch that had arrived was taken last.
    has_opened: bool,
    threads: usize,
    idle: usize,
    has_lookout: bool,
    is_closed: bool,
}

enum Work<B> {
    Open(u64, B),
    GoOn(u64),
}

impl<B> Default for Agenda<B> {
    fn default() -> Agenda<B> {
        Agenda {
            arrived: VecDeque::new(),
            waiting: Waiting::default(),
            working: HashMap::new(),
            next: 0,
            has_opened: false,
            threads: 0,
            idle: 0,
            has_lookout: false,
            is_closed: false,
        }
    }
}

impl<B> Agenda<B> {
    /// Takes what is due, if anything is. What has arrived and what is waited for take turns: neither
    /// keeps the other from being done, however much of it there is.
    fn take(&mut self) -> Option<Work<B>> {
        if self.has_opened && !self.arrived.is_empty() {
            let due = self.take_due();
            self.has_opened = due.is_none();
            return due.or_else(|| self.take_arrived());
        }
        self.take_arrived().or_else(|| self.take_due())
    }

    fn take_arrived(&mut self) -> Option<Work<B>> {
        let batch = self.arrived.pop_front()?;
        self.next += 1;
        self.working.insert(self.next, false);
        self.has_opened = true;
        Some(Work::Open(self.next, batch))
    }

    fn take_due(&mut self) -> Option<Work<B>> {
        let (_, number) = self.waiting.first().filter(|(due, _)| *due <= Instant::now())?;
        self.waiting.remove(number);
        self.working.insert(number, false);
        Some(Work::GoOn(number))
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

    fn agenda(&self) -> MutexGuard<'_, Agenda<Arrived>> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a batch in. Does not wait for anything of it.
    pub(crate) fn push(&self, batch: BatchOf<Processor>) {
        self.agenda().arrived.push_back(Arc::new(batch));
        self.lookout.notify_one();
    }

    /// Lets the threads end once nothing is left.
    pub(crate) fn close(&self) {
        self.agenda().is_closed = true;
        self.lookout.notify_all();
        self.idle.notify_all();
    }

    /// Has a pass looked at: there is mail for it.
    pub(crate) fn ring(&self, number: u64) {
        let mut agenda = self.agenda();
        if let Some(has_mail) = agenda.working.get_mut(&number) {
            *has_mail = true;
        } else if agenda.waiting.wake(number, Instant::now()) {
            self.lookout.notify_one();
        }
    }

    fn ring_all(&self) {
        let mut agenda = self.agenda();
        agenda.working.values_mut().for_each(|has_mail| *has_mail = true);
        agenda.waiting.wake_all(Instant::now());
        self.lookout.notify_one();
    }

    /// Keeps a pass until it is due, or until there is mail.
    fn keep(&self, number: u64, due: Option<Instant>) {
        let mut agenda = self.agenda();
        let has_mail = agenda.working.remove(&number).unwrap_or(false);
        let due = if has_mail { Some(Instant::now()) } else { due };
        agenda.waiting.insert(number, due);
        self.lookout.notify_one();
    }

    fn done(&self, number: u64) {
        self.agenda().working.remove(&number);
    }

    /// Waits for something to do; `None` when there will be nothing more. Starts one more thread where
    /// otherwise nobody would look out.
    fn next<'scope, 'e: 'scope>(
        self: &Arc<Desk>,
        engine: &'e Engine,
        kept: &'scope Kept<'e>,
        max: usize,
        scope: &'scope Scope<'scope, '_>,
    ) -> Option<Work<Arrived>> {
        let mut agenda = self.agenda();
        loop {
            if let Some(work) = agenda.take() {
                if agenda.idle > 0 {
                    self.idle.notify_one();
                } else if !agenda.has_lookout && agenda.threads < max {
                    let desk = Arc::clone(self);
                    let work = move || desk.work(engine, kept, max, scope);
                    let started = thread::Builder::new().name(NAME.to_owned());
                    // Without it the others do its work.
                    agenda.threads += usize::from(started.spawn_scoped(scope, work).is_ok());
                }
                return Some(work);
            }
            if agenda.is_over() {
                self.lookout.notify_all();
                self.idle.notify_all();
                return None;
            }
            if agenda.has_lookout {
                agenda.idle += 1;
                agenda = self.idle.wait(agenda).unwrap_or_else(PoisonError::into_inner);
                agenda.idle -= 1;
                continue;
            }
            agenda.has_lookout = true;
            agenda = match agenda.waiting.first() {
                None => self.lookout.wait(agenda).unwrap_or_else(PoisonError::into_inner),
                Some((due, _)) => {
                    let wait = due.saturating_duration_since(Instant::now());
                    let waited = self.lookout.wait_timeout(agenda, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            agenda.has_lookout = false;
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
            let (number, batch) = match work {
                Work::Open(number, batch) => (number, Some(batch)),
                Work::GoOn(number) => (number, None),
            };
            let taken = Taken { desk: self, number: Some(number) };
            let mut pass = None;
            // What is the provider's may panic.
            let worked = catch_unwind(AssertUnwindSafe(|| {
                pass = match batch {
                    Some(batch) => Pass::open(engine, self, number, batch),
                    None => passes().remove(&number),
                };
                loop {
                    match pass.as_mut()?.step(scope) {
                        Step::Again => {}
                        Step::Wait(due) => return Some(due),
                        Step::Done => {
                            pass.take()?.finish();
                            return None;
                        }
                    }
                }
            }));
            match (worked, pass) {
                (Ok(Some(due)), Some(pass)) => {
                    passes().insert(number, pass);
                    taken.keep(due);
                }
                (Err(_), Some(pass)) => pass.abandon(),
                // Of a batch that is dropped here, those without an answer are told so.
                (_, None) | (Ok(None), Some(_)) => {}
            }
        }
    }
}

/// Has its pass count as worked on until it is kept or dropped.
struct Taken<'d> {
    desk: &'d Desk,
    number: Option<u64>,
}

impl Taken<'_> {
    /// Keeps the pass until it is due, or until there is mail.
    fn keep(mut self, due: Option<Instant>) {
        if let Some(number) = self.number.take() {
            self.desk.keep(number, due);
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.desk.done(number);
        }
    }
}

/// The name of the threads.
const NAME: &str = "llm-batch";

#[cfg(test)]
mod tests {
    use super::*;

    /// It stayed worked on for ever, and with it the threads and the lock of the folder.
    #[test]
    fn a_pass_is_done_however_the_work_on_it_ends() {
        let desk = Desk::default();
        desk.agenda().working.insert(7, false);
        desk.close();
        assert!(!desk.agenda().is_over());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _taken = Taken { desk: &desk, number: Some(7) };
            panic!("ours");
        }));
        assert!(panicked.is_err() && desk.agenda().is_over());
        let taken = Taken { desk: &desk, number: Some(8) };
        taken.keep(None);
        assert!(!desk.agenda().is_over(), "it waits");
    }

    /// However many arrive, and in one thread: what is due comes in between.
    #[test]
    fn what_arrives_and_what_is_due_take_turns() {
        let mut agenda = Agenda { arrived: ["batch"; 6].into(), ..Agenda::default() };
        for number in 100..103 {
            agenda.waiting.insert(number, Some(Instant::now()));
        }
        let turns: Vec<bool> = std::iter::from_fn(|| agenda.take())
            .map(|work| matches!(work, Work::Open(..)))
            .collect();
        assert_eq!(turns, [true, false, true, false, true, false, true, true, true]);
    }
}
