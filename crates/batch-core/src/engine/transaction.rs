//! The engine's lock, and all that follows from what was done under it.

use std::ops::{Deref, DerefMut};
use std::task::Waker;

use super::{Engine, Keeper, PlaceOf, SharedOf, State};
use crate::accumulator::Due;
use crate::id::BatchId;
use crate::link::Link;
use crate::panics;
use crate::processor::BatchProcessor;
use crate::slot::{Filler, Round};
use crate::sync::{Arc, MutexGuard, lock};

/// Holds the lock; when it is dropped, the lock is freed and whoever the changes concern is told.
///
/// No user code runs under the lock: what has to be woken, resolved or dropped is collected and
/// done after it. So no path through the engine can forget to wake somebody.
pub(crate) struct Transaction<'e, P: BatchProcessor> {
    engine: &'e Engine<P>,
    /// `None` only while it is dropped.
    state: Option<MutexGuard<'e, State<P>>>,
    effects: Effects<P>,
}

/// What is to be done once the lock is free.
struct Effects<P: BatchProcessor> {
    wakers: Vec<Waker>,
    flushed: Vec<Filler<(), Link>>,
    expired: Vec<(P::Item, PlaceOf<P>)>,
    overdue: Vec<Arc<SharedOf<P>>>,
    start_keeper: bool,
    /// Lets go of an engine that only its queue held.
    released: Option<Arc<Engine<P>>>,
}

impl<P: BatchProcessor> Engine<P> {
    pub(crate) fn lock(&self) -> Transaction<'_, P> {
        let effects = Effects {
            wakers: Vec::new(),
            flushed: Vec::new(),
            expired: Vec::new(),
            overdue: Vec::new(),
            start_keeper: false,
            released: None,
        };
        Transaction { engine: self, state: Some(lock(&self.state)), effects }
    }
}

impl<P: BatchProcessor> Transaction<'_, P> {
    /// Lets the timers go off that are due; says whether one was.
    pub(super) fn tick(&mut self) -> bool {
        let now = self.engine.now();
        let mut is_any = false;
        while let Some(due) = self.queue.tick(now) {
            is_any = true;
            match due {
                Due::Expired(items) => self.effects.expired.extend(items),
                Due::Overdue(batch) => self.note_overdue(batch),
            }
        }
        let Some(state) = self.state.as_deref_mut() else { return is_any };
        let due = state.alarms.extract_if(.., |alarm| alarm.at <= now).map(|alarm| alarm.waker);
        self.effects.wakers.extend(due);
        is_any
    }

    fn note_overdue(&mut self, batch: BatchId) {
        let place = self.in_flight.binary_search_by_key(&batch, |(id, _)| *id);
        let batch = place.ok().and_then(|place| self.in_flight[place].1.upgrade());
        self.effects.overdue.extend(batch);
    }

    /// Finds out who is concerned by the state as it is now.
    fn conclude(&mut self) {
        let Some(state) = self.state.as_deref_mut() else { return };
        let effects = &mut self.effects;
        while let Some(era) = state.queue.next_done_era() {
            effects
                .flushed
                .extend(state.flushes.extract_if(.., |(of, _)| *of <= era.0).map(|f| f.1));
        }
        if state.room.is_waiting() {
            let queue = &state.queue;
            state.room.call(
                queue.is_closed(),
                |weight| queue.admit(weight).is_ok(),
                |waker| {
                    effects.wakers.push(waker);
                },
            );
        }
        if !state.closers.is_empty() && state.is_idle() {
            effects.wakers.append(&mut state.closers);
        }
        let is_over = state.stopping && state.queue.queued() == 0;
        if is_over && !state.resting.is_empty() {
            effects.wakers.extend(state.resting.drain(..).map(|(_, waker)| waker));
        } else if !state.is_called
            && !state.resting.is_empty()
            && state.queue.has_ready()
            && let Some((_, waker)) = state.resting.pop()
        {
            state.is_called = true;
            effects.wakers.push(waker);
        }
        if is_over && state.kept.is_some() && !state.leading {
            effects.released = state.kept.take();
        }
        effects.start_keeper = call_keeper(state, self.engine, &mut effects.wakers, is_over);
        self.engine.board.write(state.queue.stats());
    }
}

/// Wakes the keeper if it sleeps for too long; says whether there is none and one is needed.
fn call_keeper<P: BatchProcessor>(
    state: &mut State<P>,
    engine: &Engine<P>,
    wakers: &mut Vec<Waker>,
    is_over: bool,
) -> bool {
    match &state.keeper {
        Keeper::Awake => false,
        Keeper::Absent => {
            // A leader, or who is about to become one, looks at the timers itself.
            let is_led = state.leading || (engine.settings.is_inline() && state.queue.has_ready());
            let is_needed = !is_led && engine.settings.has_keeper() && state.next_timer().is_some();
            if is_needed {
                state.keeper = Keeper::Awake;
            }
            is_needed
        }
        Keeper::Asleep { until, waker } => {
            let is_late = state.next_timer().is_some_and(|next| next < *until);
            if is_late || (is_over && state.is_idle()) {
                wakers.push(waker.clone());
                state.keeper = Keeper::Awake;
            }
            false
        }
    }
}

impl<P: BatchProcessor> Drop for Transaction<'_, P> {
    fn drop(&mut self) {
        self.conclude();
        // The lock is free from here on.
        self.state = None;
        let effects = &mut self.effects;
        if !effects.expired.is_empty() {
            self.engine.end_expired(std::mem::take(&mut effects.expired));
        }
        for batch in effects.overdue.drain(..) {
            batch.time_out(self.engine.now());
        }
        if !effects.flushed.is_empty() {
            let mut round = Round::new();
            effects.flushed.drain(..).for_each(|filler| round.fill(filler, ()));
            round.finish();
        }
        for waker in effects.wakers.drain(..) {
            // A waker is not ours: one that panics must not keep the others from being woken.
            panics::swallow(|| waker.wake());
        }
        if effects.start_keeper {
            self.engine.start_keeper();
        }
    }
}

impl<P: BatchProcessor> Deref for Transaction<'_, P> {
    type Target = State<P>;

    fn deref(&self) -> &State<P> {
        self.state.as_deref().expect("the lock is held until the drop")
    }
}

impl<P: BatchProcessor> DerefMut for Transaction<'_, P> {
    fn deref_mut(&mut self) -> &mut State<P> {
        self.state.as_deref_mut().expect("the lock is held until the drop")
    }
}
