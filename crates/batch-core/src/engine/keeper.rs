//! Who looks after the timers: linger, retries, time-outs and the patience of async callers.
//!
//! One thread or task of an engine sleeps until the next of them; the thread is started with the
//! first timer. An engine whose clock is moved by hand looks when it is told that the clock has moved.

use std::mem;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::{Alarm, Engine, Keeper, State};
use crate::accumulator::Time;
use crate::clock::EngineClock;
use crate::park::Sleeper;
use crate::processor::BatchProcessor;
use crate::sync::{Weak, spawn};

/// What the keeper does next.
pub(crate) enum Watch {
    /// Sleep for so long, or until it is woken.
    Sleep(Option<Duration>),
    End,
}

impl<P: BatchProcessor> Engine<P> {
    /// Has the clock tell of its jumps, if it is one that jumps.
    pub(super) fn watch_clock(&self) {
        let EngineClock::Custom(clock) = &self.clock else { return };
        let engine = Weak::clone(&self.itself);
        let is_virtual = clock.subscribe(Box::new(move || {
            if let Some(engine) = engine.upgrade() {
                engine.look_at_timers();
            }
        }));
        if is_virtual {
            self.lock().keeper = Keeper::Awake;
        }
    }

    /// Lets the timers go off that are due.
    pub(crate) fn look_at_timers(&self) {
        while self.lock().tick() {}
        self.go_on();
    }

    pub(super) fn start_keeper(&self) {
        let Some(engine) = self.itself.upgrade() else { return };
        if spawn("batch-core-timer", move || engine.keep()).is_err() {
            // The next one who looks at the timers tries again. Not by a transaction: its end
            // would find a timer that nobody looks after, and come here once more.
            self.core.lock().keeper = Keeper::Absent;
        }
    }

    /// Says whether a keeper is to be started, which from now on is taken to be awake.
    pub(crate) fn wants_keeper(&self) -> bool {
        let mut state = self.lock();
        let is_absent = matches!(state.keeper, Keeper::Absent);
        state.keeper = Keeper::Awake;
        is_absent
    }

    /// Notes that the executor has dropped the keeper. If a timer is set, now or later, a thread
    /// takes its place.
    pub(crate) fn lose_keeper(&self) {
        self.lock().set_keeper(Keeper::Absent);
    }

    /// The life of the keeper's thread.
    fn keep(&self) {
        let sleeper = Sleeper::new();
        let waker = sleeper.waker();
        loop {
            match self.watch(&waker) {
                Watch::Sleep(time) => {
                    sleeper.sleep(time.and_then(|time| Instant::now().checked_add(time)));
                }
                Watch::End => return,
            }
        }
    }

    /// Lets the timers go off that are due, and says when to look again.
    pub(crate) fn watch(&self, waker: &Waker) -> Watch {
        self.look_at_timers();
        // Cloned before the lock: a waker is user code.
        let waker = waker.clone();
        let mut state = self.lock();
        let next = state.next_timer();
        if next.is_none() && state.stopping {
            state.set_keeper(Keeper::Absent);
            return Watch::End;
        }
        let until = next.unwrap_or(Time::MAX);
        state.set_keeper(Keeper::Asleep { until, waker });
        let now = self.steady_now().max(state.queue.time());
        Watch::Sleep(next.map(|next| Duration::from_nanos(next.saturating_sub(now))))
    }
}

impl<P: BatchProcessor> State<P> {
    /// Puts a keeper in the place of another, whose waker is dropped once the lock is free.
    fn set_keeper(&mut self, keeper: Keeper) {
        if let Keeper::Asleep { waker, .. } = mem::replace(&mut self.keeper, keeper) {
            self.buried.push(waker);
        }
    }

    /// Notes that a worker does not rest.
    pub(super) fn forget_worker(&mut self, worker: usize) {
        let known = self.resting.extract_if(.., |(id, _)| *id == worker);
        self.buried.extend(known.map(|(_, waker)| waker));
    }

    /// Has `waker` woken at a moment; returns the id by which the alarm is taken back.
    pub(super) fn set_alarm(&mut self, at: Time, waker: Waker) -> u64 {
        let id = self.next_alarm;
        self.next_alarm += 1;
        self.alarms.push(Alarm { id, at, waker });
        id
    }

    pub(super) fn clear_alarm(&mut self, id: Option<u64>) {
        if let Some(id) = id {
            let cleared = self.alarms.extract_if(.., |alarm| alarm.id == id);
            self.buried.extend(cleared.map(|alarm| alarm.waker));
        }
    }

    /// Notes that one does not wait any more until nothing is queued or in flight.
    pub(super) fn forget_closer(&mut self, known: Option<u64>) {
        if let Some(known) = known {
            let gone = self.closers.extract_if(.., |(id, _)| *id == known);
            self.buried.extend(gone.map(|(_, waker)| waker));
        }
    }

    /// Has `waker` woken when nothing is queued or in flight, in place of what was `known`; returns the
    /// id by which it is forgotten.
    pub(super) fn add_closer(&mut self, known: Option<u64>, waker: Waker) -> u64 {
        self.forget_closer(known);
        let id = self.next_closer;
        self.next_closer += 1;
        self.closers.push((id, waker));
        id
    }
}
