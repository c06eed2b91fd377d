//! The engine behind a batcher: one lock over the queue and those who wait for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use crate::accumulator::{Accumulator, Open, Time};
use crate::board::Board;
use crate::builder::Settings;
use crate::clock::{EngineClock, Lately};
use crate::error::Outcome;
use crate::id::{BatchId, ItemId, NextIds};
use crate::link::{Hub, Link};
use crate::panics;
use crate::processor::BatchProcessor;
use crate::receipts::Receipts;
use crate::rounds::{EntryOf, Shared};
use crate::seat::Seat;
use crate::slot::{Arena, Filler};
use crate::stats::{PastBatch, Stats};
use crate::sync::{Arc, Mutex, MutexGuard, Weak, lock_in_turn};
use crate::ticket::{Ticket, TicketRow};

mod admission;
mod appender;
mod books;
mod ending;
mod hooks;
mod keeper;
mod lead;
mod outlook;
mod pass;
mod reports;
mod resume;
mod room;
mod transaction;
mod work;

pub(crate) use admission::{Entered, Patience, Visitor, Weighed};
pub(crate) use appender::{Reply, ReplyClaim};
pub(crate) use ending::Ending;
pub(crate) use hooks::Hooks;
pub(crate) use keeper::Watch;
use outlook::Outlook;
use pass::{Passing, Seen};
use room::Room;
use transaction::Transaction;
pub(crate) use work::Turn;

/// Delivery time-outs of so many nanoseconds need not be exact to a tick of the system.
const ROUGH_FROM: Time = 1_000_000_000;

/// The shared part of all handles of one batcher.
pub(crate) struct Engine<P: BatchProcessor> {
    pub(crate) processor: P,
    pub(crate) settings: Settings,
    pub(crate) hooks: Hooks<P>,
    receipts: Option<Arc<Receipts>>,
    link: Link,
    itself: Weak<Self>,
    clock: EngineClock,
    /// What the journal holds below this id is of earlier runs.
    resume_from: Option<ItemId>,
    core: Core<P>,
}

/// The lock, with what is written under it for each item side by side: two threads that submit
/// take turns at few lines of memory.
#[repr(C, align(64))]
struct Core<P: BatchProcessor> {
    board: Board,
    state: Mutex<State<P>>,
    outlook: Outlook,
}

impl<P: BatchProcessor> Core<P> {
    fn lock(&self) -> MutexGuard<'_, State<P>> {
        lock_in_turn(&self.state)
    }
}

type SharedOf<P> = Shared<
    <P as BatchProcessor>::Item,
    <P as BatchProcessor>::Output,
    <P as BatchProcessor>::Error,
>;
type SeatOf<P> = Seat<<P as BatchProcessor>::Output, <P as BatchProcessor>::Error>;
type PlaceOf<P> = EntryOf<<P as BatchProcessor>::Output, <P as BatchProcessor>::Error>;
type OutcomeOf<P> = Outcome<<P as BatchProcessor>::Output, <P as BatchProcessor>::Error>;
/// The ticket of a batcher over `P`.
pub(crate) type TicketOf<P> = Ticket<<P as BatchProcessor>::Output, <P as BatchProcessor>::Error>;

/// Tickets of a batcher over `P` that follow each other.
type RowOf<P> = TicketRow<<P as BatchProcessor>::Output, <P as BatchProcessor>::Error>;

/// What the lock of the engine guards.
#[repr(C)]
pub(crate) struct State<P: BatchProcessor> {
    /// The batch that the next item likely joins; given back before anything else is done.
    open: Option<Open<P::Item, SeatOf<P>>>,
    /// The batch of an item that goes through alone; taken in before anything else is done.
    passing: Option<Passing<P>>,
    /// That batch, once it was taken in, for the thread that runs it.
    seen: Option<Seen<P>>,
    /// The ids of items that no journal names.
    next_ids: NextIds,
    slots: Arena<OutcomeOf<P>, Link>,
    queue: Accumulator<P::Key, P::Item, SeatOf<P>>,
    /// The slots of flushes, and the flushes that wait, by the era that they end.
    flush_slots: Arena<(), Link>,
    flushes: Vec<(u64, Filler<(), Link>)>,
    /// Batches at the processor, by id.
    in_flight: Vec<(BatchId, Weak<SharedOf<P>>)>,
    /// Submits that wait for room.
    room: Room,
    /// Workers that have nothing to do.
    resting: Vec<(usize, Waker)>,
    /// A worker was woken and has not looked yet.
    is_called: bool,
    keeper: Keeper,
    /// Those who wait until nothing is queued or in flight.
    closers: Vec<(u64, Waker)>,
    next_closer: u64,
    /// Moments at which somebody other than the queue wants to be woken.
    alarms: Vec<Alarm>,
    next_alarm: u64,
    /// Wakers that are no longer needed. Dropping one is user code, so it waits for the lock to be
    /// free.
    buried: Vec<Waker>,
    /// Async submits whose items are on their way to the journal.
    appends: Vec<appender::Append<P>>,
    has_appender: bool,
    reply_slots: Arena<Reply<P>, Link>,
    /// Items whose tickets say `Closed`, for the next close to give back.
    leftovers: Vec<(ItemId, P::Item)>,
    fatal: Option<Arc<P::Error>>,
    resumed: bool,
    /// Workers end once nothing waits or is on its way to the journal.
    stopping: bool,
    /// Nothing is sent any more: what would wait is handed back.
    ended: bool,
    /// Workers that have not ended.
    workers: usize,
    /// A thread runs the batches of an inline engine.
    leading: bool,
    /// Holds an inline engine whose last handle is gone until its queue is empty.
    kept: Option<Arc<Engine<P>>>,
}

/// The one that looks after timers.
enum Keeper {
    Absent,
    Awake,
    Asleep { until: Time, waker: Waker },
}

struct Alarm {
    id: u64,
    at: Time,
    waker: Waker,
}

impl<P: BatchProcessor> State<P> {
    /// Says whether nothing is queued, in flight, or on its way to the journal.
    fn is_idle(&self) -> bool {
        self.queue.is_idle()
    }

    /// Says whether a batch is at the processor.
    fn is_in_flight(&self, batch: BatchId) -> bool {
        self.in_flight.binary_search_by_key(&batch, |(id, _)| *id).is_ok()
    }

    /// Returns when the next timer goes off.
    fn next_timer(&self) -> Option<Time> {
        let alarm = self.alarms.iter().map(|alarm| alarm.at).min();
        self.queue.next_timer().into_iter().chain(alarm).min()
    }
}

impl<P: BatchProcessor> Engine<P> {
    pub(crate) fn new(processor: P, settings: Settings, hooks: Hooks<P>) -> Arc<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let clock = EngineClock::new(hooks.clock.clone());
        let engine = Arc::new_cyclic(|itself: &Weak<Self>| {
            let hub: Weak<dyn Hub> = Weak::<Self>::clone(itself);
            let link = Link::new(id, settings.is_inline(), hub);
            let state = State {
                open: None,
                passing: None,
                seen: None,
                queue: Accumulator::new(settings.policy.clone()),
                slots: Arena::new(link.clone()),
                flush_slots: Arena::new(link.clone()),
                flushes: Vec::new(),
                in_flight: Vec::new(),
                next_ids: NextIds::default(),
                room: Room::default(),
                resting: Vec::new(),
                is_called: false,
                keeper: Keeper::Absent,
                closers: Vec::new(),
                next_closer: 0,
                alarms: Vec::new(),
                next_alarm: 0,
                buried: Vec::new(),
                appends: Vec::new(),
                has_appender: false,
                reply_slots: Arena::new(link.clone()),
                leftovers: Vec::new(),
                fatal: None,
                resumed: false,
                stopping: false,
                ended: false,
                workers: settings.driver.workers(),
                leading: false,
                kept: None,
            };
            Self {
                processor,
                resume_from: hooks.journal.as_ref().map(|journal| journal.reserve(0)),
                settings,
                receipts: hooks.journal.clone().map(|journal| Arc::new(Receipts::of(journal))),
                hooks,
                link,
                itself: Weak::clone(itself),
                clock,
                core: Core {
                    board: Board::new(),
                    state: Mutex::new(state),
                    outlook: Outlook::new(),
                },
            }
        });
        engine.watch_clock();
        engine
    }

    pub(crate) fn id(&self) -> usize {
        self.link.engine
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Returns the time for what the engine does by itself. The clock is user code: if it panics, time
    /// stands still, which 0 is to the queue.
    pub(crate) fn steady_now(&self) -> Time {
        let mut now = 0;
        panics::swallow(|| now = self.now());
        now
    }

    /// Returns the moment of an item that is accepted.
    #[inline]
    fn lately(&self) -> Lately<'_> {
        let timeout = self.settings.policy.delivery_timeout;
        Lately { clock: &self.clock, is_rough: timeout.is_none_or(|timeout| timeout >= ROUGH_FROM) }
    }

    /// Says whether a batch may go, as far as time was told.
    pub(crate) fn has_ready(&self) -> bool {
        self.lock().queue.has_ready()
    }

    /// Returns when the next timer goes off.
    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.lock().next_timer()
    }

    /// Says whether the workers have nothing to do, now or later.
    ///
    /// What the processor still has may come back to be tried again, for which they stay as long
    /// as there is an end to that: the engine holds the processor, which may hold its batches.
    fn is_over(&self, state: &State<P>) -> bool {
        let goes_on = !state.ended && self.settings.policy.delivery_timeout.is_some();
        state.stopping && state.queue.is_drained() && (state.is_idle() || !goes_on)
    }

    pub(crate) fn stats(&self) -> Stats {
        self.core.board.read()
    }

    pub(crate) fn history(&self) -> Vec<PastBatch<P::Key>> {
        self.lock().queue.history().cloned().collect()
    }

    /// Returns how long the batcher has sent nothing, in nanoseconds.
    pub(crate) fn since_last_dispatch(&self) -> Time {
        let state = self.lock();
        self.now().saturating_sub(state.queue.last_dispatch())
    }

    /// Returns how long the oldest item has waited, in nanoseconds.
    pub(crate) fn oldest_age(&self) -> Option<Time> {
        let state = self.lock();
        let oldest = state.queue.oldest()?;
        Some(self.now().saturating_sub(oldest))
    }

    /// Returns the error that closed the batcher.
    pub(crate) fn fatal(&self) -> Option<Arc<P::Error>> {
        self.lock().fatal.clone()
    }
}
