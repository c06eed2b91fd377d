//! What an observer sees, and that it cannot do harm.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use batch_core::{
    BatchError, BatchOf, BatchProcessor, Batcher, Close, Dispatched, Disposition, Event, Observer,
    PartialSubmit, Refusal, Sim, Stats, Unsent, batch_fn,
};
use common::{Gate, LONG, Recorder, block_on};

/// Writes all events down, one word or two for each, with the thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(String, ThreadId)>>>);

impl Log {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|(line, _)| line.clone()).collect()
    }

    fn note(&self, line: String) {
        self.0.lock().unwrap().push((line, thread::current().id()));
    }
}

impl<K> Observer<K> for Log {
    fn event(&self, event: &Event<'_, K>) {
        self.note(match event {
            Event::Started { capacity } => format!("started {capacity}"),
            Event::Admitted { id } => format!("admitted {}", id.seq),
            Event::Refused { reason } => format!("refused: {reason}"),
            Event::Dispatched(batch) => {
                let Dispatched { batch, items, weight, attempt, reason, queued, .. } = *batch;
                let (items, reason) = (items.len(), reason.as_str());
                format!("{batch} has {items} of {weight}, {attempt}, {reason}, {queued:?}")
            }
            Event::Settled(settled) => {
                let (completed, failed) = (settled.completed, settled.failed);
                let (cancelled, late) = (settled.cancelled, settled.timed_out);
                assert_eq!(settled.items.len(), completed + failed + cancelled + late);
                let odd = settled.unresolved + settled.wrong_count;
                format!("{} {completed}/{failed}({odd})/{cancelled}/{late}", settled.batch)
            }
            Event::Again { batch, retried, split } => format!("{batch} again {retried}/{split}"),
            Event::Finished { batch, took } => format!("{batch} took {took:?}"),
            Event::Unsent { items, end } => format!("unsent {} {end:?}", items.len()),
            _ => "other".to_owned(),
        });
    }

    fn around(&self, _: &Dispatched<'_, K>, call: &mut dyn FnMut()) {
        self.note("call".to_owned());
        call();
        self.note("return".to_owned());
    }
}

#[test]
fn the_events_of_a_batch_come_in_order() {
    let log = Log::default();
    let builder = Batcher::builder(Recorder::open()).observer(log.clone()).capacity(2);
    let (batcher, mut sim) = Sim::new(builder.linger(Duration::from_secs(3)), 1).unwrap();
    let PartialSubmit { accepted, .. } = batcher.submit_all([7, 8, 9]).unwrap_err();
    sim.run(10);
    drop(accepted.wait());
    assert_eq!(
        log.lines(),
        [
            "started 2",
            "admitted 0",
            "admitted 1",
            "refused: the batcher is full: 2 items are queued or running",
            "0 has 2 of 15, 1, linger, 3s",
            "call",
            "0 2/0(0)/0/0",
            "0 took 0ns",
            "return",
        ]
    );
}

#[test]
fn items_are_admitted_on_the_thread_that_submits_them_before_they_are_run_inline() {
    let log = Log::default();
    let builder = Batcher::builder(Recorder::open()).observer(log.clone());
    let batcher = builder.inline().build().unwrap();
    batcher.submit(1).unwrap().wait().unwrap();
    block_on(async { batcher.submit_async(2).await.unwrap().await }).unwrap();
    let here = thread::current().id();
    assert!(log.0.lock().unwrap().iter().all(|(_, thread)| *thread == here));
    let lines = log.lines();
    let order: Vec<_> = lines.iter().map(|line| line.split(' ').next().unwrap()).collect();
    let one = |id| ["admitted", id, "call", id, id, "return"];
    assert_eq!(order, [&["started"][..], &one("0"), &one("1")].concat());
}

#[test]
fn a_bulk_submit_that_waits_for_room_has_told_of_what_it_has_brought_in() {
    /// Opens at the first admission.
    struct First(Gate);
    impl<K> Observer<K> for First {
        fn event(&self, event: &Event<'_, K>) {
            if let Event::Admitted { .. } = event {
                self.0.open();
            }
        }
    }
    let (told, recorder) = (Gate::default(), Recorder::default());
    let builder = Batcher::builder(recorder.clone()).observer(First(told.clone())).capacity(1);
    let batcher = builder.build().unwrap();
    let bulk = thread::spawn(move || batcher.submit_all([1, 2]).unwrap().wait().len());
    recorder.entered.pass();
    // The second has no room before the first is final, which it is not before the gate opens.
    told.pass();
    recorder.gate.open();
    assert_eq!(bulk.join().unwrap(), 2);
}

/// Ends each item as it says.
#[derive(Debug)]
struct Obedient;

impl BatchProcessor for Obedient {
    type Key = ();
    type Item = Option<Disposition>;
    type Output = ();
    type Error = Disposition;

    fn key(&self, _: &Self::Item) {}

    fn process(&self, (): &(), batch: BatchOf<Self>) {
        for slot in batch.slots() {
            slot.resolve(slot.item().map_or(Ok(()), Err));
        }
    }

    fn classify(&self, error: &Disposition) -> Disposition {
        *error
    }
}

#[test]
fn an_item_that_may_not_be_retried_is_told_as_failed_and_not_as_retried() {
    let log = Log::default();
    let builder = Batcher::builder(Obedient).observer(log.clone()).inline();
    let batcher = builder.delivery_timeout(Some(Duration::from_secs(5))).build().unwrap();
    let never = Disposition::Retry { after: Some(LONG) };
    assert!(matches!(batcher.submit(Some(never)).unwrap().wait(), Err(BatchError::Failed(_))));
    assert!(batcher.submit(Some(Disposition::Split)).unwrap().wait().is_err());
    let lines = log.lines();
    assert!(lines.contains(&"0 0/1(0)/0/0".to_owned()), "{lines:?}");
    assert!(lines.contains(&"1 0/1(0)/0/0".to_owned()), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("again")), "{lines:?}");
}

#[test]
fn a_withdrawn_item_is_told_as_cancelled() {
    let log = Log::default();
    let withdraw = batch_core::keyed_fn(
        |_: &u8| (),
        |(), batch: batch_core::Batch<u8, (), String>| drop(batch.withdraw()),
    );
    let batcher = Batcher::builder(withdraw).observer(log.clone()).inline().build().unwrap();
    assert!(matches!(batcher.submit(1).unwrap().wait(), Err(BatchError::Cancelled)));
    assert!(log.lines().contains(&"0 0/0(0)/1/0".to_owned()), "{:?}", log.lines());
}

/// Panics at every turn; may or may not make the call.
struct Wild(bool);

impl<K> Observer<K> for Wild {
    fn event(&self, event: &Event<'_, K>) {
        match event {
            Event::Unsent { end: Unsent::Expired, .. } => panic!("expired"),
            _ => panic!("an event"),
        }
    }

    fn around(&self, _: &Dispatched<'_, K>, call: &mut dyn FnMut()) {
        if self.0 {
            call();
            // The second time it does nothing.
            call();
        }
        panic!("around");
    }
}

/// Runs a little of everything; returns what the callers and the counters say.
fn run(observer: Option<Wild>) -> (Vec<String>, Stats) {
    let mut builder = Batcher::builder(Obedient).max_batch_items(3).capacity(6);
    if let Some(observer) = observer {
        builder = builder.observer(observer);
    }
    let (batcher, mut sim) = Sim::new(builder, 3).unwrap();
    let retry = Disposition::Retry { after: None };
    let items = [None, Some(Disposition::Fail), Some(Disposition::Split), Some(retry), None, None];
    let bulk = batcher.submit_all(items).unwrap();
    assert_eq!(batcher.submit(None).unwrap_err().reason(), &Refusal::Full { capacity: 6 });
    sim.run(1_000);
    let cancelled = batcher.submit(None).unwrap();
    cancelled.cancel();
    let left = batcher.submit(None).unwrap();
    let report = batcher.close(Close::Abort, LONG);
    assert_eq!(report.leftovers.len(), 1);
    let mut outcomes = bulk.wait();
    outcomes.extend([cancelled.wait(), left.wait()]);
    (outcomes.into_iter().map(|outcome| format!("{outcome:?}")).collect(), report.stats)
}

#[test]
fn a_panicking_observer_changes_nothing() {
    let plain = run(None);
    assert_eq!(run(Some(Wild(true))), plain);
    assert_eq!(run(Some(Wild(false))), plain);
}

#[test]
fn an_observer_may_use_its_batcher() {
    /// Reads the counters, and submits once.
    struct Nosy(std::sync::OnceLock<Arc<dyn Fn() + Send + Sync>>);
    impl<K> Observer<K> for Nosy {
        fn event(&self, _: &Event<'_, K>) {
            if let Some(look) = self.0.get() {
                look();
            }
        }
    }
    let nosy = Arc::new(Nosy(std::sync::OnceLock::new()));
    let double = batch_fn(|items: &[u32]| items.iter().map(|n| Ok::<_, String>(n * 2)).collect());
    let builder = Batcher::builder(double).observer((Arc::clone(&nosy), Log::default()));
    let batcher = builder.inline().build().unwrap();
    let (handle, once) = (batcher.clone(), Mutex::new(true));
    let look: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
        assert!(handle.stats().accepted > 0);
        if std::mem::take(&mut *once.lock().unwrap()) {
            handle.submit(1).unwrap().detach();
        }
    });
    nosy.0.set(look).ok().unwrap();
    assert_eq!(batcher.submit(21).unwrap().wait().unwrap(), 42);
    let report = batcher.close(Close::Drain, LONG);
    assert_eq!(report.stats.completed, 2);
}
