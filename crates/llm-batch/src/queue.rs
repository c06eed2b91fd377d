//! What is to be done when.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Instant;

/// Jobs by the time they are due; those due at one time come out in the order they went in.
#[derive(Debug)]
pub(crate) struct Queue<J> {
    heap: BinaryHeap<Due<J>>,
    next: u64,
}

#[derive(Debug)]
struct Due<J> {
    at: Instant,
    order: u64,
    job: J,
}

impl<J> Queue<J> {
    pub(crate) fn new() -> Queue<J> {
        Queue { heap: BinaryHeap::new(), next: 0 }
    }

    pub(crate) fn push(&mut self, at: Instant, job: J) {
        self.heap.push(Due { at, order: self.next, job });
        self.next += 1;
    }

    /// Returns when the first job is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|due| due.at)
    }

    /// Takes the first job out if it is due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<J> {
        let due = self.heap.peek()?.at <= now;
        if due { self.heap.pop().map(|due| due.job) } else { None }
    }

    /// Takes everything out, in no order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = J> + use<'_, J> {
        self.heap.drain().map(|due| due.job)
    }
}

impl<J> PartialEq for Due<J> {
    fn eq(&self, other: &Due<J>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<J> Eq for Due<J> {}

impl<J> PartialOrd for Due<J> {
    fn partial_cmp(&self, other: &Due<J>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<J> Ord for Due<J> {
    /// The heap has the greatest on top, so the earliest is the greatest.
    fn cmp(&self, other: &Due<J>) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}
