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
use crate::error::{Error, PANICKED, PendingReason};
use crate::request::{Kind, Request};
use crate::session::{Mail, Session, Step, Unfinished};
use crate::table::{Encoded, Table};
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
    /// nothing can be begun.
    pub(crate) fn open(
        engine: &'e Engine,
        desk: &Arc<Desk>,
        number: u64,
        batch: Arc<BatchOf<Processor>>,
    ) -> Option<Pass<'e>> {
        let mut asked = distinct(&batch);
        // The requests are in memory until their bodies are in the state folder.
        let begin = AssertUnwindSafe(|| {
            loop {
                let table = table(engine, &batch, &mut asked)?;
                let slots: Vec<usize> = asked.iter().map(|(slot, _)| *slot).collect();
                match begin(engine, desk, number, &batch, &slots, &table) {
                    Ok(session) => return Ok((session, slots)),
                    // Somebody began to work on one of them just now.
                    Err(Error::InFlight { .. } | Error::Conflict { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        });
        match catch_unwind(begin) {
            Ok(Ok((session, slots))) => return Some(Pass { session, batch, slots }),
            Ok(Err(error)) => end_all(engine, &batch, &error),
            Err(_) => abandon_all(engine, &batch),
        }
        None
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
        // Tickets cut no pass before it has begun.
        let Err(Unfinished::Cut { run, pending, .. }) = session.finish() else { return };
        // Of those that were told already, what they were told counts.
        for (slot, (id, status)) in slots.iter().zip(&run.outcomes) {
            if *status == Status::Pending {
                batch.slot(*slot).resolve(Err(engine.left(id, &pending)));
            }
        }
    }

    /// Ends the work on a batch after a panic. What was sent stays recorded.
    pub(crate) fn abandon(self) {
        let Pass { session, batch, .. } = self;
        drop(session);
        batch.fail_all(RequestError::Unknown { reason: PANICKED.to_owned() });
    }
}

/// Returns the requests as they are sent. Those that cannot be worked on now are told so and left out,
/// before anything of them is written.
fn table(
    engine: &Engine,
    batch: &BatchOf<Processor>,
    asked: &mut Vec<(usize, Request)>,
) -> Result<Arc<Table>, Error> {
    let (mut table, provider) = (engine.table().of_tickets(), &*engine.provider);
    let mut pushed = Ok(());
    asked.retain(|(slot, request)| {
        let encoded = Encoded::of(request, provider);
        if let Some(error) = engine.refusal(&request.id, encoded.digest) {
            refuse(batch.slot(*slot), &error);
            return false;
        }
        if pushed.is_ok() {
            pushed = table.push(request, encoded, provider);
        }
        true
    });
    pushed?;
    table.put_away();
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
fn distinct(batch: &BatchOf<Processor>) -> Vec<(usize, Request)> {
    let mut seen = HashSet::new();
    let (distinct, repeated): (Vec<_>, Vec<_>) =
        batch.slots().partition(|slot| seen.insert(slot.item().id()));
    for slot in repeated {
        refuse(slot, &Error::InFlight { id: slot.item().id().to_owned() });
    }
    distinct.into_iter().filter_map(|slot| Some((slot.index(), *slot.item().take()?))).collect()
}

/// Ends what is left of a batch that cannot be worked on now.
fn end_all(engine: &Engine, batch: &BatchOf<Processor>, error: &Error) {
    let problem = error.to_string();
    let reason = match error {
        Error::StateIo { .. } | Error::StateFile { .. } => PendingReason::State { problem },
        _ => PendingReason::OverBudget { problem },
    };
    for slot in batch.slots() {
        let left = engine.left(slot.item().id(), &reason);
        slot.resolve(Err(left));
    }
}

/// Ends what is left of a batch after a panic. What was sent earlier may be paid for.
fn abandon_all(engine: &Engine, batch: &BatchOf<Processor>) {
    for slot in batch.slots() {
        let reason = PANICKED.to_owned();
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
