//! Counts, sizes and times of a batcher, for whatever recorder is installed.

use std::borrow::Cow;
use std::fmt;

use ::metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};

use crate::error::Refusal;
use crate::observer::{Dispatched, Event, Observer, Settled, Unsent};
use crate::stats::DispatchReason;

/// Reports what a batcher does through the `metrics` facade.
///
/// | metric | kind | labels besides `batcher` | what |
/// |---|---|---|---|
/// | `batch.items` | counter | `outcome`, `error.type` | items, each counted once, at its end |
/// | `batch.size` | histogram | | items of a batch that is sent |
/// | `batch.weight` | histogram | | their weight |
/// | `batch.queue.time` | histogram, s | | how long the oldest of them waited |
/// | `batch.exec.time` | histogram, s | | from the dispatch of a batch to its end |
/// | `batch.queue.size` | gauge | | items that wait, for the first time or again |
/// | `batch.queue.capacity` | gauge | | the setting `capacity` |
/// | `batch.inflight` | gauge | | items with the processor |
/// | `batch.retries` | counter | | calls that sent items again for a retry |
/// | `batch.splits` | counter | | calls that sent half of a split |
/// | `batch.flush` | counter | `reason` | calls, by the [`DispatchReason`] |
///
/// The outcomes are `completed`, `failed` (with `error.type` `failed`, `unresolved` or
/// `wrong_count`), `cancelled`, `expired` (`expired` if it was never sent or waited to be sent again,
/// `timed_out` if the processor had it), `handed_back`, and `refused` (one for each submit, with what
/// was in the way: `full`, `full_weight`, `closed`, `too_heavy`, `fatal`, `journal` or
/// `would_deadlock`). All counts are those of [`Stats`](crate::Stats).
///
/// An event costs one or two atomic additions of the recorder and allocates nothing here. The
/// recorder has to be installed before the observer is made, as the metrics are registered then.
///
/// # Examples
/// ```
/// use batch_core::{Batcher, MetricsObserver, batch_fn};
///
/// let double = batch_fn(|items: &[u32]| items.iter().map(|n| Ok::<_, String>(n * 2)).collect());
/// let batcher = Batcher::builder(double).observer(MetricsObserver::new("double")).build()?;
/// assert_eq!(batcher.submit(21)?.wait()?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MetricsObserver {
    outcomes: Outcomes,
    refused: Refusals,
    size: Histogram,
    weight: Histogram,
    queue_time: Histogram,
    exec_time: Histogram,
    queue_size: Gauge,
    capacity: Gauge,
    in_flight: Gauge,
    retries: Counter,
    splits: Counter,
    flushes: Flushes,
}

struct Outcomes {
    completed: Counter,
    failed: Counter,
    unresolved: Counter,
    wrong_count: Counter,
    cancelled: Counter,
    expired: Counter,
    timed_out: Counter,
    handed_back: Counter,
}

struct Refusals {
    full: Counter,
    full_weight: Counter,
    closed: Counter,
    too_heavy: Counter,
    fatal: Counter,
    journal: Counter,
    would_deadlock: Counter,
}

struct Flushes {
    full: Counter,
    natural: Counter,
    linger: Counter,
    flush: Counter,
    close: Counter,
    retry: Counter,
    split: Counter,
}

impl MetricsObserver {
    /// Registers the metrics with the recorder that is installed; `batcher` is the label by which
    /// they are told from those of other batchers.
    pub fn new(batcher: impl Into<Cow<'static, str>>) -> Self {
        let batcher = Label::new("batcher", batcher.into());
        describe();
        let histogram = |name: &'static str| histogram!(name, vec![batcher.clone()]);
        let gauge = |name: &'static str| gauge!(name, vec![batcher.clone()]);
        let counter = |name: &'static str| counter!(name, vec![batcher.clone()]);
        Self {
            outcomes: Outcomes::new(&batcher),
            refused: Refusals::new(&batcher),
            size: histogram("batch.size"),
            weight: histogram("batch.weight"),
            queue_time: histogram("batch.queue.time"),
            exec_time: histogram("batch.exec.time"),
            queue_size: gauge("batch.queue.size"),
            capacity: gauge("batch.queue.capacity"),
            in_flight: gauge("batch.inflight"),
            retries: counter("batch.retries"),
            splits: counter("batch.splits"),
            flushes: Flushes::new(&batcher),
        }
    }

    fn dispatched<K>(&self, batch: &Dispatched<'_, K>) {
        let items = figure(batch.items.len());
        self.size.record(items);
        self.weight.record(figure(batch.weight));
        self.queue_time.record(batch.queued);
        self.queue_size.decrement(items);
        self.in_flight.increment(items);
        self.flushes.of(batch.reason).increment(1);
        match batch.reason {
            DispatchReason::Retry => self.retries.increment(1),
            DispatchReason::Split => self.splits.increment(1),
            _ => {}
        }
    }

    fn settled(&self, settled: &Settled<'_>) {
        let Settled { completed, failed, unresolved, wrong_count, cancelled, timed_out, .. } =
            *settled;
        self.in_flight.decrement(figure(settled.items.len()));
        let outcomes = &self.outcomes;
        let counts = [
            (&outcomes.completed, completed),
            (&outcomes.failed, failed - unresolved - wrong_count),
            (&outcomes.unresolved, unresolved),
            (&outcomes.wrong_count, wrong_count),
            (&outcomes.cancelled, cancelled),
            (&outcomes.timed_out, timed_out),
        ];
        for (counter, items) in counts {
            add(counter, items);
        }
    }

    fn unsent(&self, items: usize, end: Unsent) {
        self.queue_size.decrement(figure(items));
        let counter = match end {
            Unsent::Expired => &self.outcomes.expired,
            Unsent::Cancelled => &self.outcomes.cancelled,
            Unsent::HandedBack => &self.outcomes.handed_back,
        };
        add(counter, items);
    }
}

impl<K> Observer<K> for MetricsObserver {
    fn event(&self, event: &Event<'_, K>) {
        match event {
            Event::Started { capacity } => self.capacity.set(figure(*capacity)),
            Event::Admitted { .. } => self.queue_size.increment(1),
            Event::Refused { reason } => self.refused.of(reason).increment(1),
            Event::Dispatched(batch) => self.dispatched(batch),
            Event::Settled(settled) => self.settled(settled),
            Event::Again { retried, split, .. } => {
                self.in_flight.decrement(figure(retried + split));
                self.queue_size.increment(figure(retried + split));
            }
            Event::Finished { took, .. } => self.exec_time.record(*took),
            Event::Unsent { items, end } => self.unsent(items.len(), *end),
            Event::JournalFailed { .. } => {}
        }
    }
}

impl Outcomes {
    fn new(batcher: &Label) -> Self {
        let plain = |outcome: &'static str| {
            let outcome = Label::from_static_parts("outcome", outcome);
            counter!("batch.items", vec![batcher.clone(), outcome])
        };
        let error = |outcome, error| with_error(batcher, outcome, error);
        Self {
            completed: plain("completed"),
            failed: error("failed", "failed"),
            unresolved: error("failed", "unresolved"),
            wrong_count: error("failed", "wrong_count"),
            cancelled: plain("cancelled"),
            expired: error("expired", "expired"),
            timed_out: error("expired", "timed_out"),
            handed_back: plain("handed_back"),
        }
    }
}

impl Refusals {
    fn new(batcher: &Label) -> Self {
        let error = |error| with_error(batcher, "refused", error);
        Self {
            full: error("full"),
            full_weight: error("full_weight"),
            closed: error("closed"),
            too_heavy: error("too_heavy"),
            fatal: error("fatal"),
            journal: error("journal"),
            would_deadlock: error("would_deadlock"),
        }
    }

    fn of(&self, reason: &Refusal) -> &Counter {
        match reason {
            Refusal::Full { .. } => &self.full,
            Refusal::FullWeight { .. } => &self.full_weight,
            Refusal::Closed => &self.closed,
            Refusal::TooHeavy { .. } => &self.too_heavy,
            Refusal::Fatal { .. } => &self.fatal,
            Refusal::Journal(_) => &self.journal,
            Refusal::WouldDeadlock => &self.would_deadlock,
        }
    }
}

impl Flushes {
    fn new(batcher: &Label) -> Self {
        let flush = |reason: DispatchReason| {
            let reason = Label::from_static_parts("reason", reason.as_str());
            counter!("batch.flush", vec![batcher.clone(), reason])
        };
        Self {
            full: flush(DispatchReason::Full),
            natural: flush(DispatchReason::Natural),
            linger: flush(DispatchReason::Linger),
            flush: flush(DispatchReason::Flush),
            close: flush(DispatchReason::Close),
            retry: flush(DispatchReason::Retry),
            split: flush(DispatchReason::Split),
        }
    }

    fn of(&self, reason: DispatchReason) -> &Counter {
        match reason {
            DispatchReason::Full => &self.full,
            DispatchReason::Natural => &self.natural,
            DispatchReason::Linger => &self.linger,
            DispatchReason::Flush => &self.flush,
            DispatchReason::Close => &self.close,
            DispatchReason::Retry => &self.retry,
            DispatchReason::Split => &self.split,
        }
    }
}

fn with_error(batcher: &Label, outcome: &'static str, error: &'static str) -> Counter {
    let outcome = Label::from_static_parts("outcome", outcome);
    let error = Label::from_static_parts("error.type", error);
    counter!("batch.items", vec![batcher.clone(), outcome, error])
}

fn describe() {
    describe_counter!("batch.items", Unit::Count, "Items, each counted once, at its end.");
    describe_histogram!("batch.size", Unit::Count, "Items of a batch that is sent.");
    describe_histogram!("batch.weight", Unit::Count, "Weight of a batch that is sent.");
    describe_histogram!("batch.queue.time", Unit::Seconds, "How long its oldest item waited.");
    describe_histogram!("batch.exec.time", Unit::Seconds, "From its dispatch to its end.");
    describe_gauge!("batch.queue.size", Unit::Count, "Items that wait.");
    describe_gauge!("batch.queue.capacity", Unit::Count, "The bound on items.");
    describe_gauge!("batch.inflight", Unit::Count, "Items with the processor.");
    describe_counter!("batch.retries", Unit::Count, "Calls that sent items again for a retry.");
    describe_counter!("batch.splits", Unit::Count, "Calls that sent half of a split.");
    describe_counter!("batch.flush", Unit::Count, "Calls, by why they were made.");
}

fn add(counter: &Counter, items: usize) {
    if items > 0 {
        counter.increment(u64::try_from(items).unwrap_or(u64::MAX));
    }
}

/// Returns a count as recorders take it; exact up to 2^32, and the most beyond.
fn figure(count: impl TryInto<u32>) -> f64 {
    f64::from(count.try_into().unwrap_or(u32::MAX))
}

impl fmt::Debug for MetricsObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsObserver").finish_non_exhaustive()
    }
}
