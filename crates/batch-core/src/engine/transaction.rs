//! The engine's lock, and all that follows from what was done under it.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::task::Waker;

use super::{Engine, Keeper, PlaceOf, SharedOf, State};
use crate::accumulator::{Due, Time};
use crate::id::BatchId;
use crate::link::Link;
use crate::panics;
use crate::processor::BatchProcessor;
use crate::slot::{Filler, Round};
use crate::sync::{Arc, MutexGuard};

/// Holds the lock; when it is dropped, the lock is freed and whoever the changes concern is told.
///
/// No user code but keys and clocks runs under the lock: what has to be woken, resolved or dropped is
/// collected and done after it. So no path can forget to wake somebody; the one without a transaction
/// is a submit to a batch that is open, which concerns nobody.
pub(crate) struct Transaction<'e, P: BatchProcessor> {
    engine: &'e Engine<P>,
    /// `None` only while it is dropped.
    state: Option<MutexGuard<'e, State<P>>>,
    /// Most changes concern nobody, or wake one worker.
    waker: Option<Waker>,
    effects: Option<Box<Effects<P>>>,
    scope: Scope,
}

/// Whom the changes of a transaction can concern.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Anybody.
    All,
    /// Workers and the keeper: items were accepted, and a batch began or was filled by one.
    Batch,
    /// As `Batch`, if a batch was.
    Work,
}

/// What is to be done once the lock is free, where that is more than to wake one.
struct Effects<P: BatchProcessor> {
    wakers: Vec<Waker>,
    /// Not to be woken, only to be dropped.
    buried: Vec<Waker>,
    flushed: Vec<Filler<(), Link>>,
    expired: Vec<(P::Item, PlaceOf<P>)>,
    /// Batches with items that are over, and the time that was told.
    overdue: Vec<(Arc<SharedOf<P>>, Time)>,
    start_keeper: bool,
    /// Lets go of an engine that only its queue held.
    released: Option<Arc<Engine<P>>>,
}

impl<P: BatchProcessor> Effects<P> {
    fn new() -> Self {
        Self {
            wakers: Vec::new(),
            buried: Vec::new(),
            flushed: Vec::new(),
            expired: Vec::new(),
            overdue: Vec::new(),
            start_keeper: false,
            released: None,
        }
    }
}

impl<P: BatchProcessor> Engine<P> {
    pub(crate) fn lock(&self) -> Transaction<'_, P> {
        self.begin(Scope::All)
    }

    /// Locks to accept items, and for nothing else.
    pub(super) fn lock_to_accept(&self) -> Transaction<'_, P> {
        self.begin(Scope::Work)
    }

    /// Makes a transaction of a lock under which an item began or filled a batch.
    pub(super) fn go_on_to_accept<'e>(
        &'e self,
        state: MutexGuard<'e, State<P>>,
    ) -> Transaction<'e, P> {
        self.transact(state, Scope::Batch)
    }

    fn begin(&self, scope: Scope) -> Transaction<'_, P> {
        self.transact(self.core.lock(), scope)
    }

    fn transact<'e>(
        &'e self,
        mut state: MutexGuard<'e, State<P>>,
        scope: Scope,
    ) -> Transaction<'e, P> {
        self.gather(&mut state);
        Transaction { engine: self, state: Some(state), waker: None, effects: None, scope }
    }
}

impl<P: BatchProcessor> Transaction<'_, P> {
    /// Lets the timers go off that are due; says whether one was.
    pub(super) fn tick(&mut self) -> bool {
        let now = self.engine.steady_now();
        let mut is_any = false;
        while let Some(due) = self.queue.tick(now) {
            is_any = true;
            match due {
                Due::Expired(items) => self.effects().expired.extend(items),
                Due::Overdue(batch) => self.note_overdue(batch),
            }
        }
        if !self.alarms.is_empty() {
            let due = self.alarms.extract_if(.., |alarm| alarm.at <= now);
            let wakers: Vec<_> = due.map(|alarm| alarm.waker).collect();
            self.effects().wakers.extend(wakers);
        }
        is_any
    }

    fn note_overdue(&mut self, batch: BatchId) {
        let place = self.in_flight.binary_search_by_key(&batch, |(id, _)| *id);
        let batch = place.ok().and_then(|place| self.in_flight[place].1.upgrade());
        let now = self.queue.time();
        self.effects().overdue.extend(batch.map(|batch| (batch, now)));
    }

    /// Notes that more was done than to accept items.
    pub(super) fn widen(&mut self) {
        self.scope = Scope::All;
    }

    fn effects(&mut self) -> &mut Effects<P> {
        self.effects.get_or_insert_with(|| Box::new(Effects::new()))
    }

    fn wake(&mut self, waker: Waker) {
        if self.waker.is_none() {
            self.waker = Some(waker);
        } else {
            self.effects().wakers.push(waker);
        }
    }

    /// Finds out who is concerned by the state as it is now.
    fn conclude(&mut self) {
        let mut state = self.state.take().expect("the lock is held until the drop");
        state.gather();
        match self.scope {
            Scope::All => self.conclude_all(&mut state),
            Scope::Work | Scope::Batch => {
                if self.scope == Scope::Batch || state.queue.take_changed() {
                    self.call_worker(&mut state);
                    self.call_keeper(&mut state, false);
                }
                return self.engine.core.board.write_accepted(state.queue.stats().accepted);
            }
        }
        self.engine.core.board.write(state.queue.stats());
        // The lock is free from here on.
    }

    fn conclude_all(&mut self, state: &mut State<P>) {
        if !state.buried.is_empty() {
            self.effects().buried.append(&mut state.buried);
        }
        while let Some(era) = state.queue.next_done_era() {
            let done = state.flushes.extract_if(.., |(of, _)| *of <= era.0);
            let done: Vec<_> = done.map(|flush| flush.1).collect();
            self.effects().flushed.extend(done);
        }
        if state.room.is_waiting() {
            let State { room, queue, .. } = state;
            let has_room = |weight| queue.admit(weight).is_ok();
            room.call(queue.is_closed(), has_room, |waker| self.wake(waker));
        }
        if !state.closers.is_empty() && state.is_idle() {
            state.closers.drain(..).for_each(|(_, waker)| self.wake(waker));
        }
        let is_over = self.engine.is_over(state);
        if is_over {
            state.resting.drain(..).for_each(|(_, waker)| self.wake(waker));
        } else {
            self.call_worker(state);
        }
        if is_over && state.kept.is_some() && !state.leading {
            self.effects().released = state.kept.take();
        }
        self.call_keeper(state, is_over);
    }

    /// Wakes a worker that rests, if a batch is ready and none is on its way.
    fn call_worker(&mut self, state: &mut State<P>) {
        if self.engine.settings.is_inline() {
            return;
        }
        let is_ready = state.queue.has_ready();
        self.engine.core.outlook.show(is_ready);
        if is_ready
            && !state.is_called
            && let Some((_, waker)) = state.resting.pop()
        {
            state.is_called = true;
            self.wake(waker);
        }
    }

    /// Wakes the keeper if it sleeps for too long, or has one started if one is needed.
    fn call_keeper(&mut self, state: &mut State<P>, is_over: bool) {
        match &state.keeper {
            Keeper::Awake => {}
            Keeper::Absent => {
                // A leader, or who is about to become one, looks at the timers itself.
                let settings = &self.engine.settings;
                let is_led = state.leading || (settings.is_inline() && state.queue.has_ready());
                if !is_led && settings.has_keeper() && state.next_timer().is_some() {
                    state.keeper = Keeper::Awake;
                    self.effects().start_keeper = true;
                }
            }
            Keeper::Asleep { until, .. } => {
                let next = state.next_timer();
                if (next.is_some_and(|next| next < *until) || (is_over && next.is_none()))
                    && let Keeper::Asleep { waker, .. } =
                        mem::replace(&mut state.keeper, Keeper::Awake)
                {
                    self.wake(waker);
                }
            }
        }
    }
}

impl<P: BatchProcessor> Drop for Transaction<'_, P> {
    fn drop(&mut self) {
        self.conclude();
        if let Some(effects) = self.effects.take() {
            self.engine.perform(*effects);
        }
        if let Some(waker) = self.waker.take() {
            // A waker is not ours: one that panics must not keep others from being woken.
            panics::swallow(|| waker.wake());
        }
    }
}

impl<P: BatchProcessor> Engine<P> {
    /// Does what a transaction asked for. The lock is free.
    #[cold]
    fn perform(&self, effects: Effects<P>) {
        if !effects.expired.is_empty() {
            self.end_expired(effects.expired);
        }
        for (batch, now) in effects.overdue {
            batch.time_out(now);
        }
        if !effects.flushed.is_empty() {
            let mut round = Round::new();
            effects.flushed.into_iter().for_each(|filler| round.fill(filler, ()));
            round.finish();
        }
        for waker in effects.wakers {
            panics::swallow(|| waker.wake());
        }
        if effects.start_keeper {
            self.start_keeper();
        }
        panics::swallow(|| drop(effects.buried));
        drop(effects.released);
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
