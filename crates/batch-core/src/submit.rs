//! A submit that waits without blocking.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::batcher::Batcher;
use crate::engine::{Entered, Patience, ReplyClaim, TicketOf, Visitor, Weighed};
use crate::error::SubmitError;
use crate::processor::BatchProcessor;
use crate::slot::Fate;

/// Resolves to the ticket of an item once there is room for it.
///
/// Those who wait are served in the order in which they first polled, blocking submits included.
/// Dropping it before it is ready withdraws and drops the item, unless it is on its way to a journal:
/// then it is accepted, and its ticket detached.
#[must_use = "futures do nothing unless polled"]
pub struct Submit<P: BatchProcessor> {
    batcher: Batcher<P>,
    state: State<P>,
}

enum State<P: BatchProcessor> {
    /// Waits for room.
    Outside { item: Option<Weighed<P>>, visitor: Visitor },
    /// Waits for the journal.
    Storing(Option<ReplyClaim<P>>),
}

impl<P: BatchProcessor> Submit<P> {
    pub(crate) fn new(batcher: Batcher<P>, item: P::Item) -> Self {
        let item = Some(batcher.engine().weigh(item));
        Self { batcher, state: State::Outside { item, visitor: Visitor::new(Patience::Setting) } }
    }
}

// No field is ever pinned.
impl<P: BatchProcessor> Unpin for Submit<P> {}

impl<P: BatchProcessor> Future for Submit<P> {
    type Output = Result<TicketOf<P>, SubmitError<P::Item>>;

    /// # Panics
    /// Panics if it is polled again after it was ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { batcher, state } = self.get_mut();
        let engine = batcher.engine();
        loop {
            match state {
                State::Outside { item, visitor } => {
                    let entered = engine.poll_submit(item, visitor, context);
                    let Poll::Ready(entered) = entered else { return Poll::Pending };
                    match entered {
                        Ok(Entered::Accepted(ticket)) => return Poll::Ready(Ok(ticket)),
                        Ok(Entered::Storing(claim)) => *state = State::Storing(Some(claim)),
                        Err(refusal) => {
                            let item = item.take().expect("a refused item is still here").item;
                            return Poll::Ready(Err(SubmitError::new(item, refusal)));
                        }
                    }
                }
                State::Storing(claim) => {
                    let waiting = claim.take().expect("a ready future is not polled again");
                    if !waiting.poll(context) {
                        *claim = Some(waiting);
                        return Poll::Pending;
                    }
                    return Poll::Ready(reply::<P>(waiting));
                }
            }
        }
    }
}

fn reply<P: BatchProcessor>(claim: ReplyClaim<P>) -> Result<TicketOf<P>, SubmitError<P::Item>> {
    match claim.try_take() {
        Ok(Fate::Value(Ok(ticket))) => Ok(ticket),
        Ok(Fate::Value(Err((mut items, refusal)))) => {
            let item = items.pop().expect("a refused item comes back");
            Err(SubmitError::new(item, refusal))
        }
        Ok(Fate::Abandoned) | Err(_) => unreachable!("every item sent to the journal is answered"),
    }
}

impl<P: BatchProcessor> Drop for Submit<P> {
    fn drop(&mut self) {
        if let State::Outside { visitor, .. } = &mut self.state {
            self.batcher.engine().leave(visitor);
        }
    }
}

impl<P: BatchProcessor> fmt::Debug for Submit<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submit").finish_non_exhaustive()
    }
}
