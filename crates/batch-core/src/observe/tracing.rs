//! Spans for batches, with links to those who submitted their items.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::{self, Debug};

use ::tracing::{Level, Span, event, span};

use crate::id::{BatchId, ItemId};
use crate::observer::{Dispatched, Event, Observer, Settled, Unsent};
use crate::sync::{Mutex, lock};

const TARGET: &str = "batch_core";

/// Opens one `tracing` span for each batch around the call to the processor.
///
/// The span is named `batch`, at level `INFO` and target `batch_core`, and has the fields
/// `batcher`, `batch` (the id), `key`, `items` (how many), `attempt` and `reason`. A batch serves
/// many callers, so it has no parent: it *follows from* each span that was current where one of its
/// items was submitted. No span is opened for an item. The span is closed when nothing more comes of
/// the batch, which is later than the call where the processor keeps it.
///
/// Events: retries and splits (`INFO`) and time-outs of sent items (`WARN`), inside the span of
/// their batch; time-outs of items that were never sent (`WARN`); acknowledgements that the journal
/// did not take (`ERROR`).
///
/// While an item is not final it holds the span of its submit open, so the capacity of the batcher
/// bounds what is kept. An item that times out just before the call with its batch has no link. Each
/// batcher needs an observer of its own. Items that a thread of the
/// journal accepts for [`submit_async`](crate::Batcher::submit_async) have no link.
///
/// # Examples
/// ```
/// use batch_core::{Batcher, TracingObserver, batch_fn};
///
/// let double = batch_fn(|items: &[u32]| items.iter().map(|n| Ok::<_, String>(n * 2)).collect());
/// let batcher = Batcher::builder(double).observer(TracingObserver::new("double")).build()?;
/// let ticket = tracing::info_span!("request").in_scope(|| batcher.submit(21))?;
/// assert_eq!(ticket.wait()?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TracingObserver {
    batcher: Box<str>,
    spans: Mutex<Spans>,
}

#[derive(Default)]
struct Spans {
    /// One for each item that is not final, or whose submit has not told yet that it was admitted.
    origins: BTreeMap<ItemId, Origin>,
    /// Batches that something may still come of.
    batches: BTreeMap<BatchId, Span>,
    /// What is over of batches that the processor was not given yet, as time-outs are.
    early: BTreeMap<BatchId, Early>,
}

#[derive(Default)]
struct Early {
    items: BTreeSet<ItemId>,
    /// Nothing more comes of the batch.
    is_over: bool,
}

/// How many batches are looked for that are over before their call. A thread gives one at a time, so
/// there are never as many; what was told out of order is forgotten by this.
const MOST_EARLY: usize = 256;

/// Where an item came from.
enum Origin {
    /// It was submitted in this span, or in none.
    Known(Span),
    /// Its submit has not told yet; these batches are to be linked when it does.
    Awaited { batches: Vec<Span>, is_final: bool },
}

impl TracingObserver {
    /// Makes an observer; `batcher` is the field by which its spans are told from others.
    pub fn new(batcher: impl Into<Box<str>>) -> Self {
        Self { batcher: batcher.into(), spans: Mutex::default() }
    }

    fn open<K: Debug>(&self, batch: &Dispatched<'_, K>) -> Span {
        span!(
            target: TARGET,
            parent: None,
            Level::INFO,
            "batch",
            batcher = &*self.batcher,
            batch = batch.batch.0,
            key = ?batch.key,
            items = batch.items.len(),
            attempt = batch.attempt,
            reason = batch.reason.as_str(),
        )
    }

    fn admitted(&self, item: ItemId) {
        let origin = Span::current();
        let late = lock(&self.spans).admit(item, &origin);
        // Spans are linked and dropped under no lock: that calls the subscriber.
        for batch in late {
            batch.follows_from(&origin);
        }
    }

    fn unsent(&self, items: &[ItemId], end: Unsent) {
        let over = lock(&self.spans).end(items);
        drop(over);
        if end == Unsent::Expired {
            event!(
                target: TARGET,
                parent: None,
                Level::WARN,
                batcher = &*self.batcher,
                items = items.len(),
                "items were not sent within their delivery time-out"
            );
        }
    }

    fn settled(&self, settled: &Settled<'_>) {
        let (over, batch) = {
            let mut spans = lock(&self.spans);
            if !spans.batches.contains_key(&settled.batch) {
                spans.early(settled.batch).items.extend(settled.items);
            }
            (spans.end(settled.items), spans.batch(settled.batch))
        };
        drop(over);
        if settled.timed_out > 0 {
            let items = settled.timed_out;
            event!(target: TARGET, parent: &batch, Level::WARN, items, "items timed out");
        }
    }

    fn again(&self, batch: BatchId, retried: usize, split: usize) {
        let batch = lock(&self.spans).batch(batch);
        if retried > 0 {
            event!(target: TARGET, parent: &batch, Level::INFO, items = retried, "items are retried");
        }
        if split > 0 {
            event!(target: TARGET, parent: &batch, Level::INFO, items = split, "items are split");
        }
    }
}

impl<K: Debug> Observer<K> for TracingObserver {
    fn event(&self, event: &Event<'_, K>) {
        match event {
            Event::Admitted { id } => self.admitted(*id),
            Event::Settled(settled) => self.settled(settled),
            Event::Again { batch, retried, split } => self.again(*batch, *retried, *split),
            Event::Unsent { items, end } => self.unsent(items, *end),
            Event::Finished { batch, .. } => {
                let span = lock(&self.spans).finish(*batch);
                drop(span);
            }
            Event::JournalFailed { error } => {
                let error: &(dyn Error + 'static) = *error;
                event!(
                    target: TARGET,
                    parent: None,
                    Level::ERROR,
                    batcher = &*self.batcher,
                    error,
                    "the journal did not take an acknowledgement"
                );
            }
            Event::Started { .. } | Event::Refused { .. } | Event::Dispatched(_) => {}
        }
    }

    fn around(&self, batch: &Dispatched<'_, K>, call: &mut dyn FnMut()) {
        let span = self.open(batch);
        let origins = lock(&self.spans).send(batch.batch, batch.items, &span);
        let mut linked = BTreeSet::new();
        for origin in &origins {
            if origin.id().is_some_and(|id| linked.insert(id.into_u64())) {
                span.follows_from(origin);
            }
        }
        drop(origins);
        span.in_scope(call);
    }
}

impl Spans {
    /// Notes where an item came from; returns the batches that it went with before.
    fn admit(&mut self, item: ItemId, origin: &Span) -> Vec<Span> {
        let (late, is_final) = match self.origins.remove(&item) {
            Some(Origin::Awaited { batches, is_final }) => (batches, is_final),
            _ => (Vec::new(), false),
        };
        if !is_final {
            self.origins.insert(item, Origin::Known(origin.clone()));
        }
        late
    }

    /// Notes a batch; returns where its items came from.
    fn send(&mut self, batch: BatchId, items: &[ItemId], span: &Span) -> Vec<Span> {
        let early = self.early.remove(&batch).unwrap_or_default();
        if !early.is_over {
            self.batches.insert(batch, span.clone());
        }
        let mut origins = Vec::with_capacity(items.len());
        for item in items.iter().filter(|item| !early.items.contains(item)) {
            match self.origins.entry(*item).or_insert_with(Origin::unknown) {
                Origin::Known(origin) => origins.push(origin.clone()),
                Origin::Awaited { batches, .. } => batches.push(span.clone()),
            }
        }
        origins
    }

    /// Lets go of items that are final; returns what is to be dropped.
    fn end(&mut self, items: &[ItemId]) -> Vec<Origin> {
        let mut over = Vec::new();
        for item in items {
            let origin = self.origins.entry(*item).or_insert_with(Origin::unknown);
            match origin {
                Origin::Known(_) => over.extend(self.origins.remove(item)),
                Origin::Awaited { is_final, .. } => *is_final = true,
            }
        }
        over
    }

    /// Notes that nothing more comes of a batch; returns what is to be dropped.
    fn finish(&mut self, batch: BatchId) -> Option<Span> {
        let span = self.batches.remove(&batch);
        if span.is_none() {
            self.early(batch).is_over = true;
        }
        span
    }

    fn early(&mut self, batch: BatchId) -> &mut Early {
        if self.early.len() >= MOST_EARLY {
            self.early.pop_first();
        }
        self.early.entry(batch).or_default()
    }

    fn batch(&self, batch: BatchId) -> Span {
        self.batches.get(&batch).cloned().unwrap_or_else(Span::none)
    }
}

impl Origin {
    fn unknown() -> Self {
        Self::Awaited { batches: Vec::new(), is_final: false }
    }
}

impl Debug for TracingObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spans = lock(&self.spans);
        f.debug_struct("TracingObserver")
            .field("batcher", &self.batcher)
            .field("items", &spans.origins.len())
            .field("batches", &(spans.batches.len() + spans.early.len()))
            .finish()
    }
}
