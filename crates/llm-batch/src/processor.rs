//! How batches of tickets come to the engine.

use std::collections::HashSet;
use std::sync::Arc;

use batch_core::{BatchOf, BatchProcessor, Slot};

use crate::answer::{Answer, RequestError, Status};
use crate::engine::{Engine, Mode};
use crate::error::Error;
use crate::request::{Kind, Request};

/// What requests must have in common to share a batch: kind and model.
pub type GroupKey = (Kind, String);

/// Hands each batch to the engine and each outcome to the slot of its own request.
#[derive(Debug)]
pub(crate) struct Processor {
    engine: Arc<Engine>,
}

type SlotOf<'b> = Slot<'b, Request, Answer, RequestError>;

impl Processor {
    pub(crate) fn new(engine: Arc<Engine>) -> Processor {
        Processor { engine }
    }

    /// Works on as many of the slots as can be; the others are told why not.
    fn work(&self, batch: &BatchOf<Self>) {
        let mut slots = distinct(batch);
        let failed = loop {
            let mut table = self.engine.table();
            let filled =
                slots.iter().try_for_each(|slot| table.push(slot.item(), &*self.engine.provider));
            let driven = filled.and_then(|()| {
                self.engine.drive(&table, Mode::Tickets, &mut |index, outcome| {
                    slots[index].resolve(outcome);
                    batch.publish();
                })
            });
            match driven {
                Ok(_) => return,
                // Nothing was started: leave that one out and go on with the others.
                Err(error @ (Error::InFlight { .. } | Error::Conflict { .. })) => {
                    let (Error::InFlight { id } | Error::Conflict { id, .. }) = &error else {
                        break error;
                    };
                    let Some(at) = slots.iter().position(|slot| slot.item().id == *id) else {
                        break error;
                    };
                    refuse(slots.swap_remove(at), &error);
                }
                Err(error) => break error,
            }
        };
        let Some(run) = failed.run() else {
            for slot in slots {
                refuse(slot, &failed);
            }
            return;
        };
        let state = self.engine.state_dir.clone();
        for (slot, (_, status)) in slots.iter().zip(&run.outcomes) {
            let state = state.clone();
            match status {
                Status::Ambiguous => slot.resolve(Err(RequestError::Ambiguous { state })),
                Status::Pending => slot.resolve(Err(RequestError::Pending { state })),
                _ => true,
            };
        }
    }
}

/// Returns the slots without those whose id another one has.
fn distinct(batch: &BatchOf<Processor>) -> Vec<SlotOf<'_>> {
    let mut seen = HashSet::new();
    let (distinct, repeated): (Vec<_>, Vec<_>) =
        batch.slots().partition(|slot| seen.insert(slot.item().id.as_str()));
    for slot in repeated {
        refuse(slot, &Error::InFlight { id: slot.item().id.clone() });
    }
    distinct
}

fn refuse(slot: SlotOf<'_>, error: &Error) {
    slot.resolve(Err(RequestError::Failed { reason: error.to_string() }));
}

impl BatchProcessor for Processor {
    type Key = GroupKey;
    type Item = Request;
    type Output = Answer;
    type Error = RequestError;

    fn key(&self, request: &Request) -> GroupKey {
        (request.kind.clone(), request.model.clone())
    }

    fn process(&self, _: &GroupKey, batch: BatchOf<Self>) {
        self.work(&batch);
    }
}
