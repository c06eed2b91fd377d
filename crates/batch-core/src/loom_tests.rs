//! The engine under every order of events, as far as loom can tell: a lost wake is a deadlock to it.
//! The callers run the batches themselves, and time stands still.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use loom::thread;

use crate::{BatchError, BatchProcessor, Batcher, Close, ManualClock, Refusal, batch_fn};

/// Lies beyond what a clock can tell: there is no timer, of which loom knows nothing.
const LONG: Duration = Duration::MAX;

/// Adds 1 to each item.
fn adds() -> Batcher<impl BatchProcessor<Item = u32, Output = u32, Error = Infallible>> {
    let add = batch_fn(|items: &[u32]| items.iter().map(|item| Ok(item + 1)).collect());
    let builder = Batcher::builder(add).clock(ManualClock::new()).inline();
    builder.max_block(None).delivery_timeout(None).build().unwrap()
}

/// How often an item came to each of its ends, over all orders.
#[derive(Default)]
struct Ends {
    done: AtomicUsize,
    given_back: AtomicUsize,
    refused: AtomicUsize,
}

/// Submits an item and waits for it; says whether it was accepted, and then given back.
fn submit<P>(batcher: &Batcher<P>, item: u32, ends: &Ends) -> bool
where
    P: BatchProcessor<Item = u32, Output = u32, Error = Infallible>,
{
    let (end, is_given_back) = match batcher.submit(item) {
        Ok(ticket) => match ticket.wait() {
            Ok(output) => {
                assert_eq!(output, item + 1);
                (&ends.done, false)
            }
            Err(BatchError::Closed) => (&ends.given_back, true),
            Err(error) => panic!("{error}"),
        },
        Err(refused) => {
            assert_eq!(refused.into_parts(), (item, Refusal::Closed));
            (&ends.refused, false)
        }
    };
    end.fetch_add(1, Ordering::Relaxed);
    is_given_back
}

/// Tries every order of clients that submit one item each while the batcher closes: of one client
/// all there are, of more those with at most two preemptions.
fn submit_against_close(clients: u32, how: Close) -> Arc<Ends> {
    let ends = Arc::new(Ends::default());
    let seen = Arc::clone(&ends);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = (clients > 1).then_some(2);
    model.check(move || {
        let batcher = adds();
        let clients: Vec<_> = (0..clients)
            .map(|item| {
                let (batcher, seen) = (batcher.clone(), Arc::clone(&seen));
                thread::spawn(move || submit(&batcher, item, &seen))
            })
            .collect();
        let report = batcher.close(how, LONG);
        let given_back = clients.into_iter().map(|client| client.join().unwrap());
        let given_back = given_back.filter(|is_given_back| *is_given_back).count();
        assert_eq!(
            report.leftovers.len(),
            given_back,
            "the tickets say it, and so does the report"
        );
        assert!(report.in_flight.is_empty());
        let stats = batcher.stats();
        assert_eq!(stats.accepted, stats.completed + stats.handed_back, "nothing is on its way");
    });
    ends
}

#[test]
fn loom_submit_against_close_and_drain() {
    for clients in [1, 2] {
        let ends = submit_against_close(clients, Close::Drain);
        let counts = [&ends.done, &ends.refused, &ends.given_back].map(read);
        assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}: both happen");
        assert_eq!(counts[2], 0, "what was accepted is done");
    }
}

#[test]
fn loom_submit_against_close_and_abort() {
    for clients in [1, 2] {
        let ends = submit_against_close(clients, Close::Abort);
        let counts = [&ends.done, &ends.refused].map(read);
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}: both happen");
        // One that is alone goes at once.
        assert_eq!(read(&ends.given_back) > 0, clients > 1);
    }
}

fn read(count: &AtomicUsize) -> usize {
    count.load(Ordering::Relaxed)
}
