//! The handles of many accepted items.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::error::{NotReady, Outcome};
use crate::sync::deadline;
use crate::ticket::{Ticket, TicketFuture};

/// Waits for the results of many items, in the order in which they were submitted.
///
/// Dropping it detaches every item.
#[must_use = "a dropped set loses the results, not the work"]
pub struct TicketSet<O, E> {
    tickets: Vec<Ticket<O, E>>,
}

impl<O, E> TicketSet<O, E> {
    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Says whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// Blocks until every result is there; returns them in order.
    pub fn wait(self) -> Vec<Outcome<O, E>> {
        self.tickets.into_iter().map(Ticket::wait).collect()
    }

    /// Blocks until every result is there, for at most `timeout` in all.
    ///
    /// # Errors
    /// Gives the set back, whole, if the time is over first.
    pub fn wait_timeout(self, timeout: Duration) -> Result<Vec<Outcome<O, E>>, NotReady<Self>> {
        let until = deadline(timeout);
        for ticket in &self.tickets {
            if !ticket.wait_ready(until) {
                return Err(NotReady::new(self));
            }
        }
        Ok(self.wait())
    }
}

impl<O, E> fmt::Debug for TicketSet<O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketSet").field("len", &self.len()).finish()
    }
}

impl<O, E> FromIterator<Ticket<O, E>> for TicketSet<O, E> {
    fn from_iter<T: IntoIterator<Item = Ticket<O, E>>>(tickets: T) -> Self {
        Self { tickets: tickets.into_iter().collect() }
    }
}

impl<O, E> Extend<Ticket<O, E>> for TicketSet<O, E> {
    fn extend<T: IntoIterator<Item = Ticket<O, E>>>(&mut self, tickets: T) {
        self.tickets.extend(tickets);
    }
}

impl<O, E> IntoIterator for TicketSet<O, E> {
    type Item = Ticket<O, E>;
    type IntoIter = std::vec::IntoIter<Ticket<O, E>>;

    fn into_iter(self) -> Self::IntoIter {
        self.tickets.into_iter()
    }
}

impl<O, E> IntoFuture for TicketSet<O, E> {
    type Output = Vec<Outcome<O, E>>;
    type IntoFuture = TicketSetFuture<O, E>;

    fn into_future(self) -> TicketSetFuture<O, E> {
        let outcomes = Vec::with_capacity(self.tickets.len());
        TicketSetFuture { tickets: self.tickets.into_iter(), next: None, outcomes }
    }
}

/// Resolves to the results of many items, in order.
///
/// It waits for one item after the other, so a task is woken at most once an item. Dropping it
/// detaches the items.
#[must_use = "futures do nothing unless polled"]
pub struct TicketSetFuture<O, E> {
    tickets: std::vec::IntoIter<Ticket<O, E>>,
    next: Option<TicketFuture<O, E>>,
    outcomes: Vec<Outcome<O, E>>,
}

// No field is ever pinned.
impl<O, E> Unpin for TicketSetFuture<O, E> {}

impl<O, E> fmt::Debug for TicketSetFuture<O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketSetFuture")
            .field("ready", &self.outcomes.len())
            .finish_non_exhaustive()
    }
}

impl<O, E> Future for TicketSetFuture<O, E> {
    type Output = Vec<Outcome<O, E>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            if self.next.is_none() {
                self.next = self.tickets.next().map(Ticket::into_future);
            }
            let Some(next) = &mut self.next else {
                return Poll::Ready(std::mem::take(&mut self.outcomes));
            };
            match Pin::new(next).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(outcome) => {
                    self.next = None;
                    self.outcomes.push(outcome);
                }
            }
        }
    }
}
