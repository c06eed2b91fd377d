//! Threads of the engine and of its callers sleep and are called, whatever user code does on them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use batch_core::{BatchError, Batcher, Event, ManualClock, Observer};
use common::{Gate, LONG, Recorder};

/// Parks until somebody else calls this thread, as a full channel or a scope of threads may.
fn park_until_called() {
    thread::park();
}

/// Tells the test that it was called, and parks, with the first item that is accepted.
struct Parks {
    entered: Mutex<Option<Sender<thread::Thread>>>,
}

impl Observer<u64> for Parks {
    fn event(&self, event: &Event<'_, u64>) {
        if let Event::Admitted { .. } = event
            && let Some(entered) = self.entered.lock().unwrap().take()
        {
            entered.send(thread::current()).unwrap();
            park_until_called();
        }
    }
}

/// The call for a submit that waits for room comes while the observer parks on its thread.
#[test]
fn a_submit_that_waits_for_room_hears_of_it_whatever_its_observer_does() {
    let (entered, has_entered) = channel();
    let observer = Parks { entered: Mutex::new(Some(entered)) };
    let recorder = Recorder::default();
    let batcher = Batcher::builder(recorder.clone()).capacity(1).max_block(None);
    let batcher = batcher.observer(observer).build().unwrap();
    let both = thread::spawn(move || batcher.submit_all([1, 2]).unwrap().wait());
    // By now it has a place among those who wait for room, and has not slept.
    has_entered.recv().unwrap();
    // The first item is done, so there is room: the thread is called, out of its observer.
    recorder.gate.open();
    let outcomes = both.join().unwrap();
    assert!(matches!(&outcomes[..], [Ok(2), Ok(3)]), "{outcomes:?}");
}

/// The only worker is called while the heir of a dropped item parks on it, before it rests.
#[test]
fn a_worker_hears_of_an_item_whatever_the_heir_of_another_does() {
    let (recorder, clock) = (Recorder::default(), ManualClock::new());
    let batcher_of = Arc::new(OnceLock::<Batcher<Recorder>>::new());
    let (has_dropped, dropped) = channel();
    let heir = {
        let batcher_of = Arc::clone(&batcher_of);
        move |_, item, _: BatchError<_>| {
            let batcher = batcher_of.get().unwrap().clone();
            let submitted = thread::spawn(move || batcher.submit(7).unwrap()).join().unwrap();
            // The call for that item may have come to this thread: taken here, it is still heard.
            thread::park_timeout(Duration::from_millis(1));
            has_dropped.send((item, submitted)).unwrap();
        }
    };
    let batcher = Batcher::builder(recorder.clone()).max_batch_items(1).clock(Quiet(clock.clone()));
    let batcher = batcher.delivery_timeout(Some(LONG)).on_dropped(heir).build().unwrap();
    batcher_of.set(batcher.clone()).unwrap_or_else(|_| panic!("set once"));
    let first = batcher.submit(1).unwrap();
    recorder.entered.pass();
    let second = batcher.submit(2).unwrap();
    clock.advance(LONG);
    recorder.gate.open();
    // In time or not: the engine may look at the clock before it comes.
    drop(first.wait());
    assert!(matches!(second.wait(), Err(BatchError::Expired)));
    let (item, seventh) = dropped.recv().unwrap();
    assert_eq!((item, seventh.wait().unwrap()), (2, 8));
    assert_eq!(batcher.submit(8).unwrap().wait().unwrap(), 9);
}

/// A clock that tells nobody that it was moved: the worker is the first to see it.
struct Quiet(ManualClock);

impl batch_core::Clock for Quiet {
    fn now(&self) -> Duration {
        self.0.now()
    }
}

/// A wait in an observer is refused on the thread that would have to end it.
#[test]
fn an_observer_that_waits_for_its_batcher_is_refused() {
    struct Waits {
        batcher: Arc<OnceLock<Batcher<Recorder>>>,
        is_refused: Arc<AtomicBool>,
        has_waited: Gate,
    }
    impl Observer<u64> for Waits {
        fn event(&self, event: &Event<'_, u64>) {
            if let Event::Unsent { .. } = event {
                let waited = self.batcher.get().unwrap().submit(5).unwrap().wait();
                self.is_refused.store(matches!(waited, Err(BatchError::WouldDeadlock)), Relaxed);
                self.has_waited.open();
            }
        }
    }
    let (recorder, clock) = (Recorder::default(), ManualClock::new());
    let batcher_of = Arc::new(OnceLock::new());
    let (is_refused, has_waited) = (Arc::new(AtomicBool::new(false)), Gate::default());
    let observer = Waits {
        batcher: Arc::clone(&batcher_of),
        is_refused: Arc::clone(&is_refused),
        has_waited: has_waited.clone(),
    };
    let batcher = Batcher::builder(recorder.clone()).max_batch_items(1).clock(Quiet(clock.clone()));
    let batcher = batcher.delivery_timeout(Some(LONG)).observer(observer).build().unwrap();
    batcher_of.set(batcher.clone()).unwrap_or_else(|_| panic!("set once"));
    let first = batcher.submit(1).unwrap();
    recorder.entered.pass();
    batcher.submit(2).unwrap().detach();
    clock.advance(LONG);
    recorder.gate.open();
    drop(first.wait());
    has_waited.pass();
    assert!(is_refused.load(Relaxed));
}

/// The process of the next test.
#[test]
#[ignore = "run by another test, in a process that can start no thread"]
fn lingers_without_a_thread() {
    let batcher = Batcher::builder(Recorder::open()).inline().linger(LONG).build().unwrap();
    let ticket = batcher.submit(1).unwrap();
    batcher.flush().wait().unwrap();
    assert_eq!(ticket.wait().unwrap(), 2);
}

/// A timer for which no thread can be started is not tried for without end.
#[test]
fn without_a_thread_for_the_timers_a_submit_still_comes_back() {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--ignored", "--exact", "lingers_without_a_thread", "--test-threads=1"]);
    // No system has room for such a stack.
    child.env("RUST_MIN_STACK", (1_u64 << 50).to_string());
    let ended = child.stdout(Stdio::null()).stderr(Stdio::piped()).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}
