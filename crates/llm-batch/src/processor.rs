//! How batches of tickets come to the engine.

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::Scope;

use batch_core::{BatchOf, BatchProcessor, Slot};

use crate::answer::{Answer, RequestError, Status};
use crate::desk::Desk;
use crate::engine::{Engine, Mode};
use crate::error::{Error, PANICKED};
use crate::request::{Kind, Request};
use crate::session::{Mail, Session, Step};
use crate::table::Table;
use crate::unsent::Unsent;

/// What requests must have in common to share a batch: kind and model.
pub type GroupKey = (Kind, String);

/// Brings each batch to the desk, where it is worked on as long as that takes.
#[derive(Debug)]
pub(crate) struct Processor {
    desk: Arc<Desk>,
}

impl Processor {
    pub(crate) fn new(desk: Arc<Desk>) -> Processor {
        Processor { desk }
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        self.desk.close();
    }
}

impl BatchProcessor for Processor {
    type Key = GroupKey;
    type Item = Unsent;
    type Output = Answer;
    type Error = RequestError;

    fn key(&self, request: &Unsent) -> GroupKey {
        request.key().clone()
    }

    fn process(&self, _: &GroupKey, batch: BatchOf<Self>) {
        self.desk.push(batch);
    }
}

type SlotOf<'b> = Slot<'b, Unsent, Answer, RequestError>;
type Teller<'e> = Box<dyn FnMut(usize, Result<Answer, RequestError>) + Send + 'e>;

/// The work on one batch of tickets.
pub(crate) struct Pass<'e> {
    session: Session<'e, Teller<'e>>,
    batch: Arc<BatchOf<Processor>>,
    /// The slot of each request of the pass.
    slots: Vec<usize>,
}

impl fmt::Debug for Pass<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("batch", &self.batch).finish_non_exhaustive()
    }
}

impl<'e> Pass<'e> {
    /// Begins to work on as many of the slots as can be; the others are told why not. `None` where
    /// none are left.
    pub(crate) fn open(
        engine: &'e Engine,
        desk: &Arc<Desk>,
        number: u64,
        batch: Arc<BatchOf<Processor>>,
    ) -> Option<Pass<'e>> {
        let (mut slots, mut requests) = distinct(&batch);
        let fail = |error: &Error| {
            end_all(engine, &batch, &error.to_string());
            None
        };
        // The requests are in memory until their bodies are in the state folder.
        let begin = AssertUnwindSafe(|| {
            loop {
                let table = match table(engine, &requests) {
                    Ok(table) => table,
                    Err(error) => return fail(&error),
                };
                let refusals = match begin(engine, desk, number, &batch, &slots, &table) {
                    Ok(session) => return Some(session),
                    // It takes all bodies to find one: so all are found.
                    Err(Error::InFlight { .. } | Error::Conflict { .. }) => engine.refusals(&table),
                    Err(error) => return fail(&error),
                };
                // Nothing was started: leave those out and go on with the others.
                for (at, error) in refusals.into_iter().rev() {
                    refuse(batch.slot(slots.swap_remove(at)), &error);
                    requests.swap_remove(at);
                }
            }
        });
        let Ok(session) = catch_unwind(begin) else {
            end_all(engine, &batch, PANICKED);
            return None;
        };
        session.map(|session| Pass { session, batch, slots })
    }

    pub(crate) fn step<'scope>(&mut self, scope: &'scope Scope<'scope, '_>) -> Step
    where
        'e: 'scope,
    {
        self.session.step(scope)
    }

    /// Tells those who have no answer how far theirs came.
    pub(crate) fn finish(self) {
        let Pass { session, batch, slots } = self;
        let engine = session.engine;
        let state = engine.state_dir.clone();
        let Err(failed) = session.finish() else { return };
        let Some(run) = failed.run() else {
            end_all(engine, &batch, &failed.to_string());
            return;
        };
        for (slot, (_, status)) in slots.iter().zip(&run.outcomes) {
            let (slot, state) = (batch.slot(*slot), state.clone());
            match status {
                Status::Ambiguous => slot.resolve(Err(RequestError::Ambiguous { state })),
                Status::Pending => slot.resolve(Err(RequestError::Pending { state })),
                _ => true,
            };
        }
    }

    /// Ends the work on a batch after a panic. What was sent stays recorded.
    pub(crate) fn abandon(self) {
        let Pass { session, batch, .. } = self;
        drop(session);
        batch.fail_all(RequestError::Unknown { reason: PANICKED.to_owned() });
    }
}

fn table(engine: &Engine, requests: &[Request]) -> Result<Arc<Table>, Error> {
    let mut table = engine.table().of_tickets();
    for request in requests {
        table.push(request, &*engine.provider)?;
    }
    table.put_away()?;
    Ok(Arc::new(table))
}

fn begin<'e>(
    engine: &'e Engine,
    desk: &Arc<Desk>,
    number: u64,
    batch: &Arc<BatchOf<Processor>>,
    slots: &[usize],
    table: &Arc<Table>,
) -> Result<Session<'e, Teller<'e>>, Error> {
    engine.open(table, Mode::Tickets, Mail::at(desk, number), |mut active| {
        let (batch, slots) = (Arc::clone(batch), slots.to_vec());
        Box::new(move |index: usize, outcome| {
            // Who has the answer may ask again at once, whatever the others still wait for.
            active.release(index);
            batch.slot(slots[index]).resolve(outcome);
            batch.publish();
        }) as Teller<'e>
    })
}

/// Takes the requests of a batch out of it, each with its slot, but for those whose id another one has.
fn distinct(batch: &BatchOf<Processor>) -> (Vec<usize>, Vec<Request>) {
    let mut seen = HashSet::new();
    let (distinct, repeated): (Vec<_>, Vec<_>) =
        batch.slots().partition(|slot| seen.insert(slot.item().id()));
    for slot in repeated {
        refuse(slot, &Error::InFlight { id: slot.item().id().to_owned() });
    }
    distinct.into_iter().filter_map(|slot| Some((slot.index(), *slot.item().take()?))).unzip()
}

/// Ends what is left of a batch of which nothing was sent now. What was sent earlier may be paid for.
fn end_all(engine: &Engine, batch: &BatchOf<Processor>, reason: &str) {
    for slot in batch.slots() {
        let reason = reason.to_owned();
        let ended = if engine.state().may_be_paid(slot.item().id()) {
            RequestError::Unknown { reason }
        } else {
            RequestError::Failed { reason }
        };
        slot.resolve(Err(ended));
    }
}

fn refuse(slot: SlotOf<'_>, error: &Error) {
    slot.resolve(Err(RequestError::Failed { reason: error.to_string() }));
}
