//! Which spans and events a batcher makes, and what they follow from.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, HashMap};
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, ThreadId};
use std::time::Duration;

use batch_core::{
    Batch, BatchError, BatchOf, BatchProcessor, Batcher, Close, Dispatched, Disposition, Event,
    ItemId, Journal, JournalError, JournalErrorKind, ManualClock, Observer, Retry, Sim,
    TracingObserver, keyed_fn,
};
use common::{Gate, LONG, Recorder, Watched};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_global_default;
use tracing::{Metadata, Subscriber, info_span};
use tracing_core::span::Current;

/// Keeps every span and event of the process.
#[derive(Clone, Debug, Default)]
struct Trace(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    spans: BTreeMap<u64, Span>,
    events: Vec<(Option<u64>, String)>,
    entered: HashMap<ThreadId, Vec<u64>>,
}

#[derive(Clone, Debug)]
struct Span {
    metadata: &'static Metadata<'static>,
    fields: String,
    is_root: bool,
    follows: Vec<u64>,
    handles: usize,
    entered: usize,
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        write!(self.0, "{}={value:?}", field.name()).unwrap();
    }
}

impl Trace {
    /// Returns the subscriber of the process.
    fn get() -> &'static Self {
        static TRACE: OnceLock<Trace> = OnceLock::new();
        TRACE.get_or_init(|| {
            let trace = Self::default();
            set_global_default(trace.clone()).unwrap();
            trace
        })
    }

    fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    /// Returns the spans of the batches of one batcher, in order, without the name of the batcher.
    fn batches(&self, of: &str) -> Vec<Span> {
        let prefix = format!("batcher=\"{of}\" ");
        self.with(|inner| {
            let batches = inner.spans.values().filter_map(|span| {
                let fields = span.fields.strip_prefix(&prefix)?.to_owned();
                Some(Span { fields, ..span.clone() })
            });
            batches.collect()
        })
    }

    fn fields(&self, batcher: &str) -> Vec<String> {
        self.batches(batcher).into_iter().map(|span| span.fields).collect()
    }

    /// Returns the events of one batcher, each with the number of its batch.
    fn events(&self, batcher: &str) -> Vec<String> {
        let prefix = format!("batcher=\"{batcher}\" ");
        self.with(|inner| {
            let events = inner.events.iter().filter_map(|(parent, what)| {
                let Some(parent) = parent else {
                    return what.contains(&prefix).then(|| what.replace(&prefix, ""));
                };
                let fields = inner.spans[parent].fields.strip_prefix(&prefix)?;
                Some(format!("{}: {what}", fields.split(' ').next().unwrap()))
            });
            events.collect()
        })
    }

    /// Returns the number of handles of a span.
    fn handles(&self, span: &tracing::Span) -> usize {
        self.with(|inner| inner.spans[&number(span)].handles)
    }
}

fn number(span: &tracing::Span) -> u64 {
    span.id().unwrap().into_u64()
}

impl Subscriber for Trace {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut fields = Fields(String::new());
        attributes.record(&mut fields);
        let span = Span {
            metadata: attributes.metadata(),
            fields: fields.0,
            is_root: attributes.is_root(),
            follows: Vec::new(),
            handles: 1,
            entered: 0,
        };
        self.with(|inner| {
            let id = u64::try_from(inner.spans.len()).unwrap() + 1;
            inner.spans.insert(id, span);
            Id::from_u64(id)
        })
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.with(|inner| {
            assert!(inner.spans[&follows.into_u64()].handles > 0, "it follows a closed span");
            inner.spans.get_mut(&span.into_u64()).unwrap().follows.push(follows.into_u64());
        });
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields(event.metadata().level().to_string());
        event.record(&mut fields);
        let parent = event.parent().map(Id::into_u64);
        self.with(|inner| inner.events.push((parent, fields.0)));
    }

    fn enter(&self, span: &Id) {
        self.with(|inner| {
            inner.spans.get_mut(&span.into_u64()).unwrap().entered += 1;
            inner.entered.entry(thread::current().id()).or_default().push(span.into_u64());
        });
    }

    fn exit(&self, span: &Id) {
        let left = self.with(|inner| inner.entered.get_mut(&thread::current().id()).unwrap().pop());
        assert_eq!(left, Some(span.into_u64()));
    }

    fn clone_span(&self, span: &Id) -> Id {
        self.with(|inner| inner.spans.get_mut(&span.into_u64()).unwrap().handles += 1);
        span.clone()
    }

    fn try_close(&self, span: Id) -> bool {
        self.with(|inner| {
            let span = inner.spans.get_mut(&span.into_u64()).unwrap();
            span.handles -= 1;
            span.handles == 0
        })
    }

    fn current_span(&self) -> Current {
        self.with(|inner| {
            let last = inner.entered.get(&thread::current().id()).and_then(|stack| stack.last());
            last.map_or_else(Current::none, |span| {
                Current::new(Id::from_u64(*span), inner.spans[span].metadata)
            })
        })
    }
}

#[test]
fn a_batch_has_one_span_that_follows_from_those_of_its_submits() {
    let (trace, recorder) = (Trace::get(), Recorder::open());
    let builder = Batcher::builder(recorder).observer(TracingObserver::new("links"));
    let (batcher, mut sim) = Sim::new(builder.linger(Duration::from_secs(1)), 1).unwrap();
    let (first, second) = (info_span!("first"), info_span!("second"));
    // Two of one span, one of another, and one of none.
    let tickets = [
        first.in_scope(|| batcher.submit(1).unwrap()),
        second.in_scope(|| batcher.submit(2).unwrap()),
        first.in_scope(|| batcher.submit(3).unwrap()),
        batcher.submit(4).unwrap(),
    ];
    let other = second.in_scope(|| batcher.submit(1_001).unwrap());
    // The spans stay open as long as their items are not final.
    assert_eq!((trace.handles(&first), trace.handles(&second)), (3, 3));
    assert!(sim.run(100));
    assert_eq!(tickets.map(|ticket| ticket.wait().unwrap()), [2, 3, 4, 5]);
    other.wait().unwrap();
    assert_eq!((trace.handles(&first), trace.handles(&second)), (1, 1));
    let spans = trace.batches("links");
    assert_eq!(
        trace.fields("links"),
        [
            "batch=0 key=0 items=4 attempt=1 reason=\"linger\"",
            "batch=1 key=1 items=1 attempt=1 reason=\"linger\"",
        ]
    );
    assert_eq!(spans[0].follows, [number(&first), number(&second)]);
    assert_eq!(spans[1].follows, [number(&second)]);
    for batch in spans {
        assert_eq!((batch.metadata.name(), batch.metadata.target()), ("batch", "batch_core"));
        assert_eq!((batch.entered, batch.handles, batch.is_root), (1, 0, true));
    }
    assert!(trace.events("links").is_empty());
}

/// Retries the first attempt of everything; then splits while 13 is there and does not go alone.
#[derive(Debug)]
struct Fussy;

impl BatchProcessor for Fussy {
    type Key = &'static str;
    type Item = u32;
    type Output = u32;
    type Error = Disposition;

    fn key(&self, _: &u32) -> &'static str {
        "all"
    }

    fn process(&self, _: &&'static str, batch: BatchOf<Self>) {
        let attempt = batch.slot(0).attempt();
        if attempt == 1 {
            batch.fail_all(Disposition::Retry { after: None });
        } else if batch.items().contains(&13) {
            batch.fail_all(Disposition::Split);
        } else {
            batch.resolve_all(batch.items().iter().copied().map(Ok).collect());
        }
    }

    fn classify(&self, error: &Disposition) -> Disposition {
        *error
    }
}

#[test]
fn what_is_sent_again_has_a_span_each_time_and_keeps_its_links() {
    let trace = Trace::get();
    let builder = Batcher::builder(Fussy).observer(TracingObserver::new("again"));
    let builder =
        builder.retry(Retry::default()).linger(Duration::from_secs(1)).delivery_timeout(None);
    let (batcher, mut sim) = Sim::new(builder, 1).unwrap();
    let callers = [info_span!("a"), info_span!("b"), info_span!("c")];
    let items = [12, 13, 14];
    for (caller, item) in callers.iter().zip(items) {
        caller.in_scope(|| batcher.submit(item).unwrap().detach());
    }
    assert!(sim.run(1_000));
    assert_eq!((batcher.stats().completed, batcher.stats().failed), (2, 1));
    assert_eq!(
        trace.fields("again"),
        [
            "batch=0 key=\"all\" items=3 attempt=1 reason=\"linger\"",
            "batch=1 key=\"all\" items=3 attempt=2 reason=\"retry\"",
            "batch=2 key=\"all\" items=2 attempt=3 reason=\"split\"",
            "batch=3 key=\"all\" items=1 attempt=4 reason=\"split\"",
            "batch=4 key=\"all\" items=1 attempt=4 reason=\"split\"",
            "batch=5 key=\"all\" items=1 attempt=3 reason=\"split\"",
        ]
    );
    let [a, b, c] = [0, 1, 2].map(|at| number(&callers[at]));
    let follows: Vec<_> = trace.batches("again").into_iter().map(|batch| batch.follows).collect();
    assert_eq!(follows, [vec![a, b, c], vec![a, b, c], vec![a, b], vec![a], vec![b], vec![c]]);
    assert_eq!(
        trace.events("again"),
        [
            "batch=0: INFO message=items are retried items=3",
            "batch=1: INFO message=items are split items=3",
            "batch=2: INFO message=items are split items=2",
        ]
    );
    assert_eq!(callers.each_ref().map(|caller| trace.handles(caller)), [1, 1, 1]);
}

/// Keeps its batches.
#[derive(Clone, Debug, Default)]
struct Keep(Arc<Mutex<Vec<BatchOf<Keep>>>>);

impl BatchProcessor for Keep {
    type Key = ();
    type Item = u32;
    type Output = u32;
    type Error = String;

    fn key(&self, _: &u32) {}

    fn process(&self, (): &(), batch: BatchOf<Self>) {
        self.0.lock().unwrap().push(batch);
    }
}

#[test]
fn the_span_of_a_batch_that_is_kept_stays_open() {
    let (trace, keep) = (Trace::get(), Keep::default());
    let builder = Batcher::builder(keep.clone()).observer(TracingObserver::new("kept"));
    let batcher = builder.inline().build().unwrap();
    let caller = info_span!("caller");
    let ticket = caller.in_scope(|| batcher.submit(1).unwrap());
    let batch = trace.batches("kept").remove(0);
    assert_eq!((batch.entered, batch.handles), (1, 1));
    let kept = keep.0.lock().unwrap().pop().unwrap();
    thread::spawn(move || kept.resolve_all(vec![Ok(7)])).join().unwrap();
    assert_eq!(ticket.wait().unwrap(), 7);
    assert_eq!((trace.batches("kept")[0].handles, trace.handles(&caller)), (0, 1));
}

#[test]
fn time_outs_are_events() {
    let (trace, keep) = (Trace::get(), Keep::default());
    let builder = Batcher::builder(keep.clone()).observer(TracingObserver::new("late"));
    let (batcher, mut sim) = Sim::new(builder.max_batch_items(2), 1).unwrap();
    let caller = info_span!("caller");
    let tickets = caller.in_scope(|| batcher.submit_all([1, 2, 3]).unwrap());
    assert!(sim.run(100));
    let outcomes = tickets.wait();
    assert!(matches!(outcomes[1], Err(BatchError::TimedOut)));
    assert!(matches!(outcomes[2], Err(BatchError::Expired)));
    let mut events = trace.events("late");
    events.sort();
    assert_eq!(
        events,
        [
            "WARN message=items were not sent within their delivery time-out items=1",
            "batch=0: WARN message=items timed out items=2",
        ]
    );
    assert_eq!(trace.handles(&caller), 1);
    drop(keep.0.lock().unwrap().pop());
    assert_eq!(trace.batches("late")[0].handles, 0);
}

/// A journal that forgets nothing.
struct Stubborn(Mutex<u64>);

impl Journal<u64> for Stubborn {
    fn reserve(&self, count: u64) -> ItemId {
        let mut next = self.0.lock().unwrap();
        let first = *next;
        *next += count;
        ItemId { epoch: 1, seq: first }
    }

    fn append(&self, _: &[(ItemId, &u64)]) -> Result<(), JournalError> {
        Ok(())
    }

    fn ack(&self, _: &[ItemId]) -> Result<(), JournalError> {
        Err(JournalError::new(JournalErrorKind::Io, "no disk"))
    }

    fn unacked(&self, _: ItemId) -> Result<Vec<(ItemId, u64)>, JournalError> {
        Ok(Vec::new())
    }
}

#[test]
fn failures_of_the_journal_are_events() {
    let trace = Trace::get();
    let builder = Batcher::builder(Recorder::open()).observer(TracingObserver::new("journal"));
    let batcher = builder.journal(Stubborn(Mutex::new(0))).inline().build().unwrap();
    let caller = info_span!("caller");
    let ticket = caller.in_scope(|| batcher.submit(1).unwrap());
    ticket.wait().unwrap();
    assert_eq!(trace.batches("journal")[0].follows, [number(&caller)]);
    assert_eq!(trace.handles(&caller), 1);
    let events = trace.events("journal");
    assert_eq!(events.len(), 1);
    assert!(events[0].starts_with("ERROR message=the journal did not take an acknowledgement"));
    assert!(events[0].contains("no disk"), "{}", events[0]);
}

#[test]
fn what_is_never_sent_is_let_go_of() {
    let trace = Trace::get();
    let observer = Arc::new(TracingObserver::new("unsent"));
    let builder = Batcher::builder(Recorder::open()).observer(Arc::clone(&observer)).full_only();
    let batcher = builder.build().unwrap();
    let caller = info_span!("caller");
    let ticket = caller.in_scope(|| batcher.submit(1).unwrap());
    drop(caller.in_scope(|| batcher.submit_all([2, 3]).unwrap()));
    assert_eq!(trace.handles(&caller), 4);
    assert!(ticket.cancel());
    assert_eq!(trace.handles(&caller), 3);
    assert_eq!(batcher.close(Close::Abort, LONG).leftovers.len(), 2);
    assert_eq!(trace.handles(&caller), 1);
    assert!(trace.batches("unsent").is_empty() && trace.events("unsent").is_empty());
    let nothing = "TracingObserver { batcher: \"unsent\", items: 0, batches: 0 }";
    assert_eq!(format!("{observer:?}"), nothing);
}

#[test]
fn every_item_is_linked_and_let_go_of_with_many_threads() {
    let trace = Trace::get();
    let observer = Arc::new(TracingObserver::new("threads"));
    let gone = Gate::default();
    let watched = Watched(Arc::clone(&observer), gone.clone());
    let builder = Batcher::builder(Recorder::open()).observer(watched);
    let batcher = builder.workers(2).max_batch_items(3).unordered().build().unwrap();
    let callers: Vec<_> = (0..300).map(|_| info_span!("caller")).collect();
    thread::scope(|scope| {
        for callers in callers.chunks(100) {
            let batcher = &batcher;
            scope.spawn(move || {
                for caller in callers {
                    // Some are final before their submit has told that they were admitted.
                    caller.in_scope(|| batcher.submit(1).unwrap()).wait().unwrap();
                }
            });
        }
    });
    let calls = batcher.close(Close::Drain, LONG).stats.calls;
    drop(batcher);
    gone.pass();
    let spans = trace.batches("threads");
    assert_eq!(u64::try_from(spans.len()).unwrap(), calls);
    assert!(spans.iter().all(|batch| (batch.entered, batch.handles) == (1, 0)));
    let mut follows: Vec<_> = spans.into_iter().flat_map(|batch| batch.follows).collect();
    follows.sort_unstable();
    let all: Vec<_> = callers.iter().map(number).collect();
    assert_eq!(follows, all);
    assert!(callers.iter().all(|caller| trace.handles(caller) == 1));
    let nothing = "TracingObserver { batcher: \"threads\", items: 0, batches: 0 }";
    assert_eq!(format!("{observer:?}"), nothing);
}

/// Keeps admissions to itself.
struct Silent(Arc<TracingObserver>);

impl Observer<u64> for Silent {
    fn event(&self, event: &Event<'_, u64>) {
        if !matches!(event, Event::Admitted { .. }) {
            self.0.event(event);
        }
    }

    fn around(&self, batch: &Dispatched<'_, u64>, call: &mut dyn FnMut()) {
        self.0.around(batch, call);
    }
}

#[test]
fn an_admission_that_is_told_last_is_linked_all_the_same() {
    let trace = Trace::get();
    let observer = Arc::new(TracingObserver::new("slow"));
    let builder = Batcher::builder(Recorder::open()).observer(Silent(Arc::clone(&observer)));
    let batcher = builder.inline().build().unwrap();
    let ticket = batcher.submit(1).unwrap();
    let id = ticket.id();
    ticket.wait().unwrap();
    assert!(trace.batches("slow")[0].follows.is_empty());
    let caller = info_span!("caller");
    caller.in_scope(|| Observer::<u64>::event(&*observer, &Event::Admitted { id }));
    let batch = trace.batches("slow").remove(0);
    assert_eq!((batch.follows, batch.handles), (vec![number(&caller)], 0));
    assert_eq!(trace.handles(&caller), 1);
    let nothing = "TracingObserver { batcher: \"slow\", items: 0, batches: 0 }";
    assert_eq!(format!("{observer:?}"), nothing);
}

/// Lets a batch time out before the processor is given it: before, or after, that is told.
struct Descheduled {
    inner: Arc<TracingObserver>,
    clock: ManualClock,
    is_told_before: bool,
    over: Gate,
}

impl Observer<u64> for Descheduled {
    fn event(&self, event: &Event<'_, u64>) {
        if self.is_told_before {
            self.inner.event(event);
        }
        match event {
            Event::Dispatched(_) => {
                self.clock.advance(LONG);
                self.over.pass();
            }
            Event::Finished { .. } => {
                if !self.is_told_before {
                    self.inner.event(event);
                }
                self.over.open();
                return;
            }
            _ => {}
        }
        if !self.is_told_before {
            self.inner.event(event);
        }
    }

    fn around(&self, batch: &Dispatched<'_, u64>, call: &mut dyn FnMut()) {
        self.inner.around(batch, call);
    }
}

#[test]
fn a_batch_that_is_over_before_its_call_is_let_go_of() {
    let trace = Trace::get();
    for is_told_before in [false, true] {
        let inner = Arc::new(TracingObserver::new("early"));
        let (clock, over, gone) = (ManualClock::new(), Gate::default(), Gate::default());
        let observer =
            Descheduled { inner: Arc::clone(&inner), clock: clock.clone(), is_told_before, over };
        let ends = keyed_fn(|_| 0, |_: &u64, batch: Batch<u64, u64, ()>| drop(batch));
        let builder = Batcher::builder(ends).observer(Watched(observer, gone.clone()));
        let batcher = builder.clock(clock).delivery_timeout(Some(LONG)).build().unwrap();
        let caller = info_span!("caller");
        let tickets = caller.in_scope(|| batcher.submit_all([1, 2]).unwrap());
        let outcomes = tickets.wait();
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Err(BatchError::TimedOut))));
        drop(batcher);
        gone.pass();
        assert_eq!(trace.handles(&caller), 1);
        assert!(trace.batches("early").iter().all(|batch| batch.handles == 0));
        let nothing = "TracingObserver { batcher: \"early\", items: 0, batches: 0 }";
        assert_eq!(format!("{inner:?}"), nothing);
    }
}
