//! The handles of many accepted items.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::error::{NotReady, Outcome};
use crate::sync::deadline;
use crate::ticket::{Ticket, TicketFuture, TicketRow};

/// Waits for the results of many items, in the order in which they were submitted.
///
/// Dropping it detaches every item.
#[must_use = "a dropped set loses the results, not the work"]
pub struct TicketSet<O, E> {
    /// Items that were accepted one after the other stand in one row.
    rows: Vec<TicketRow<O, E>>,
}

impl<O, E> TicketSet<O, E> {
    pub(crate) fn new() -> Self {
        Self { rows: Vec::new() }
    }

    #[inline]
    pub(crate) fn push(&mut self, ticket: Ticket<O, E>) {
        let refused = match self.rows.last_mut() {
            Some(row) => row.push(ticket).err(),
            None => Some(ticket),
        };
        self.rows.extend(refused.map(TicketRow::of));
    }

    pub(crate) fn append(&mut self, row: TicketRow<O, E>) {
        let refused = match self.rows.last_mut() {
            Some(last) => last.append(row).err(),
            None => Some(row),
        };
        self.rows.extend(refused);
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.rows.iter().map(TicketRow::len).sum()
    }

    /// Says whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Blocks until every result is there; returns them in order.
    pub fn wait(mut self) -> Vec<Outcome<O, E>> {
        let mut outcomes = Vec::with_capacity(self.len());
        // Mostly the last result comes last, and all are there when this thread is woken once. One
        // that may have to run the batches stands where the next of them is looked for.
        let last =
            self.pop().map(|ticket| if ticket.is_led() { Err(ticket) } else { Ok(ticket.wait()) });
        for mut row in self.rows {
            loop {
                row.take_done(|outcome| outcomes.push(outcome));
                let Some(ticket) = row.next() else { break };
                outcomes.push(ticket.wait());
            }
        }
        outcomes.extend(last.map(|last| last.unwrap_or_else(Ticket::wait)));
        outcomes
    }

    /// Takes the ticket of the last item out.
    fn pop(&mut self) -> Option<Ticket<O, E>> {
        let row = self.rows.last_mut()?;
        let ticket = row.pop();
        if row.len() == 0 {
            self.rows.pop();
        }
        ticket
    }

    /// Blocks until every result is there, for at most `timeout` in all.
    ///
    /// # Errors
    /// Gives the set back, whole, if the time is over first.
    pub fn wait_timeout(self, timeout: Duration) -> Result<Vec<Outcome<O, E>>, NotReady<Self>> {
        let until = deadline(timeout);
        let tickets = self.into_iter();
        let last = tickets.as_slice().last().filter(|ticket| !ticket.is_led());
        let is_ready = last.is_none_or(|ticket| ticket.wait_ready(until))
            && tickets.as_slice().iter().all(|ticket| ticket.wait_ready(until));
        let whole: Self = tickets.collect();
        if is_ready { Ok(whole.wait()) } else { Err(NotReady::new(whole)) }
    }
}

impl<O, E> fmt::Debug for TicketSet<O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketSet").field("len", &self.len()).finish()
    }
}

impl<O, E> FromIterator<Ticket<O, E>> for TicketSet<O, E> {
    fn from_iter<T: IntoIterator<Item = Ticket<O, E>>>(tickets: T) -> Self {
        let mut set = Self::new();
        set.extend(tickets);
        set
    }
}

impl<O, E> Extend<Ticket<O, E>> for TicketSet<O, E> {
    fn extend<T: IntoIterator<Item = Ticket<O, E>>>(&mut self, tickets: T) {
        tickets.into_iter().for_each(|ticket| self.push(ticket));
    }
}

impl<O, E> IntoIterator for TicketSet<O, E> {
    type Item = Ticket<O, E>;
    type IntoIter = std::vec::IntoIter<Ticket<O, E>>;

    fn into_iter(self) -> Self::IntoIter {
        let mut tickets = Vec::with_capacity(self.len());
        tickets.extend(self.rows.into_iter().flatten());
        tickets.into_iter()
    }
}

impl<O, E> IntoFuture for TicketSet<O, E> {
    type Output = Vec<Outcome<O, E>>;
    type IntoFuture = TicketSetFuture<O, E>;

    fn into_future(mut self) -> TicketSetFuture<O, E> {
        let outcomes = Vec::with_capacity(self.len());
        let last = self.pop().map(|ticket| Last::Pending(ticket.into_future()));
        let mut rows = self.rows.into_iter();
        TicketSetFuture { last, row: rows.next(), rows, next: None, outcomes }
    }
}

/// Resolves to the results of many items, in order.
///
/// It waits for the last item first and then for one after the other: mostly all are there when the
/// task is woken once, and it is woken at most once an item. Dropping it detaches the items.
#[must_use = "futures do nothing unless polled"]
pub struct TicketSetFuture<O, E> {
    /// The last item; `None` if there is none, or its result is among the outcomes.
    last: Option<Last<O, E>>,
    rows: std::vec::IntoIter<TicketRow<O, E>>,
    /// The row that is waited for.
    row: Option<TicketRow<O, E>>,
    /// The first of it that was not done, taken out of it.
    next: Option<TicketFuture<O, E>>,
    outcomes: Vec<Outcome<O, E>>,
}

/// How far the last item is.
enum Last<O, E> {
    Pending(TicketFuture<O, E>),
    Ready(Outcome<O, E>),
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
        let Self { last, rows, row, next, outcomes } = &mut *self;
        if let Some(Last::Pending(ticket)) = last {
            let Poll::Ready(outcome) = Pin::new(ticket).poll(context) else {
                return Poll::Pending;
            };
            *last = Some(Last::Ready(outcome));
        }
        loop {
            if let Some(ticket) = next {
                let Poll::Ready(outcome) = Pin::new(ticket).poll(context) else {
                    return Poll::Pending;
                };
                *next = None;
                outcomes.push(outcome);
            }
            let Some(tickets) = row else {
                if let Some(Last::Ready(outcome)) = last.take() {
                    outcomes.push(outcome);
                }
                return Poll::Ready(std::mem::take(outcomes));
            };
            tickets.take_done(|outcome| outcomes.push(outcome));
            *next = tickets.next().map(Ticket::into_future);
            if next.is_none() {
                *row = rows.next();
            }
        }
    }
}
