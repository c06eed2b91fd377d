//! The shared results of one batch: one mutex and one condition variable for all its tickets.

use std::mem;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::current;
use crate::error::Outcome;
use crate::panics;
use crate::sync::{Arc, Condvar, Mutex, Weak, is_over, lock, wait_until};

/// An engine whose batches are run by the threads that wait for them.
pub(crate) trait Lead: Send + Sync {
    /// Runs batches until none is ready, another thread does, or a waiting thread takes over.
    fn lead(&self);
}

/// What a block knows of its engine.
#[derive(Clone)]
pub(crate) struct EngineLink {
    /// The identity under which threads note that they run a batch of this engine.
    pub(crate) id: usize,
    /// The engine, if waiting threads have to run its batches.
    pub(crate) lead: Option<Weak<dyn Lead>>,
}

/// The result cells of one batch.
pub(crate) struct Block<O, E> {
    state: Mutex<State<O, E>>,
    published: Condvar,
    link: EngineLink,
}

struct State<O, E> {
    cells: Vec<Cell<O, E>>,
    /// Cells without a result.
    pending: usize,
    /// Threads that wait on `published`.
    waiting: usize,
    /// A thread that waits here is asked to run the engine.
    lead_wanted: bool,
    /// Futures that wait for the whole block.
    flushes: Vec<Waker>,
}

enum Cell<O, E> {
    Pending(Option<Waker>),
    Ready(Outcome<O, E>),
    Taken,
}

impl<O, E> Block<O, E> {
    pub(crate) fn new(link: EngineLink) -> Self {
        Self {
            state: Mutex::new(State {
                cells: Vec::new(),
                pending: 0,
                waiting: 0,
                lead_wanted: false,
                flushes: Vec::new(),
            }),
            published: Condvar::new(),
            link,
        }
    }

    /// Adds a cell and returns its index.
    pub(crate) fn push(&self) -> usize {
        let mut state = lock(&self.state);
        state.cells.push(Cell::Pending(None));
        state.pending += 1;
        state.cells.len() - 1
    }

    /// Stores the results of one round, then wakes whoever waits for them.
    pub(crate) fn publish(&self, round: impl IntoIterator<Item = (usize, Outcome<O, E>)>) {
        let mut wakers = Vec::new();
        let wake_threads = {
            let mut state = lock(&self.state);
            for (index, outcome) in round {
                match mem::replace(&mut state.cells[index], Cell::Ready(outcome)) {
                    Cell::Pending(waker) => {
                        wakers.extend(waker);
                        state.pending -= 1;
                    }
                    Cell::Ready(_) | Cell::Taken => unreachable!("a slot is published once"),
                }
            }
            if state.pending == 0 {
                wakers.append(&mut state.flushes);
            }
            state.waiting > 0
        };
        if wake_threads {
            self.published.notify_all();
        }
        // The wakers are not ours: one that panics must not keep the others from being woken.
        for waker in wakers {
            panics::swallow(|| waker.wake());
        }
    }

    /// Asks a waiting thread to run the engine; false if none waits.
    pub(crate) fn request_lead(&self) -> bool {
        let mut state = lock(&self.state);
        if state.waiting == 0 {
            return false;
        }
        state.lead_wanted = true;
        drop(state);
        self.published.notify_all();
        true
    }

    pub(crate) fn is_ready(&self, index: usize) -> bool {
        !matches!(lock(&self.state).cells[index], Cell::Pending(_))
    }

    /// Takes the result of a cell if it is there.
    pub(crate) fn take(&self, index: usize) -> Option<Outcome<O, E>> {
        lock(&self.state).take(index)
    }

    /// Waits for a cell until it is ready or `until` has come, and takes its result.
    pub(crate) fn wait(&self, index: usize, until: Option<Instant>) -> Option<Outcome<O, E>> {
        self.wait_for(until, |state| state.take(index))
    }

    /// Waits for a cell until it is ready or `until` has come; says whether it is.
    pub(crate) fn wait_ready(&self, index: usize, until: Option<Instant>) -> bool {
        let ready = |state: &mut State<O, E>| {
            (!matches!(state.cells[index], Cell::Pending(_))).then_some(())
        };
        self.wait_for(until, ready).is_some()
    }

    /// Takes the result of a cell, or registers the waker of the task that wants it.
    pub(crate) fn poll(&self, index: usize, context: &Context<'_>) -> Poll<Outcome<O, E>> {
        // Wakers are cloned before the lock and dropped after it: both may run any code.
        let waker = context.waker().clone();
        let mut state = lock(&self.state);
        if let Some(outcome) = state.take(index) {
            return Poll::Ready(outcome);
        }
        let replaced = match &mut state.cells[index] {
            Cell::Pending(place) => place.replace(waker),
            Cell::Ready(_) | Cell::Taken => unreachable!("the cell was not ready"),
        };
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    /// Says whether the calling thread runs a batch of this block's engine.
    pub(crate) fn is_own_processor(&self) -> bool {
        current::is_running(self.link.id)
    }

    fn wait_for<R>(
        &self,
        until: Option<Instant>,
        mut ready: impl FnMut(&mut State<O, E>) -> Option<R>,
    ) -> Option<R> {
        let mut state = lock(&self.state);
        loop {
            if let Some(result) = ready(&mut state) {
                return Some(result);
            }
            if mem::take(&mut state.lead_wanted) {
                drop(state);
                if let Some(engine) = self.link.lead.as_ref().and_then(Weak::upgrade) {
                    engine.lead();
                }
                state = lock(&self.state);
                continue;
            }
            if is_over(until) {
                return None;
            }
            state.waiting += 1;
            state = wait_until(&self.published, state, until);
            state.waiting -= 1;
        }
    }
}

impl<O, E> State<O, E> {
    fn take(&mut self, index: usize) -> Option<Outcome<O, E>> {
        match &mut self.cells[index] {
            Cell::Pending(_) => None,
            cell @ Cell::Ready(_) => match mem::replace(cell, Cell::Taken) {
                Cell::Ready(outcome) => Some(outcome),
                Cell::Pending(_) | Cell::Taken => unreachable!("the cell was ready"),
            },
            Cell::Taken => unreachable!("one ticket a cell, and taking consumes the ticket"),
        }
    }
}

/// A block seen by those who only wait for all of it.
pub(crate) trait Completion: Send + Sync {
    /// Waits until every cell has its result or `until` has come; says whether they have.
    fn wait_all(&self, until: Option<Instant>) -> bool;
    /// Says whether every cell has its result, and registers the waker if not.
    fn poll_all(&self, context: &Context<'_>) -> bool;
    /// Says whether the calling thread runs a batch of this block's engine.
    fn is_own_processor(&self) -> bool;
}

impl<O: Send, E: Send + Sync> Completion for Block<O, E> {
    fn wait_all(&self, until: Option<Instant>) -> bool {
        self.wait_for(until, |state| (state.pending == 0).then_some(())).is_some()
    }

    fn poll_all(&self, context: &Context<'_>) -> bool {
        let waker = context.waker().clone();
        let mut state = lock(&self.state);
        let is_done = state.pending == 0;
        if !is_done && !state.flushes.iter().any(|known| known.will_wake(&waker)) {
            state.flushes.push(waker);
        }
        is_done
    }

    fn is_own_processor(&self) -> bool {
        Block::is_own_processor(self)
    }
}

/// A shared block.
pub(crate) type SharedBlock<O, E> = Arc<Block<O, E>>;
