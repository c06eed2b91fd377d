//! The books add up at every moment.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use batch_core::{Batch, Batcher, Close, Stats, keyed_fn};
use common::{LONG, Recorder};
use proptest::prelude::*;

fn assert_law(stats: Stats) {
    let Stats { accepted, completed, failed, handed_back, queued, in_flight, .. } = stats;
    assert_eq!(accepted, completed + failed + handed_back + queued + in_flight, "{stats:?}");
}

#[test]
fn the_law_holds_while_threads_submit() {
    let batcher = Batcher::builder(Recorder::open()).max_batch_items(5).build().unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut looks = 0_u32;
            while !done.load(Ordering::Relaxed) || looks == 0 {
                assert_law(batcher.stats());
                looks += 1;
            }
        });
        let clients: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| batcher.submit_all(0..500).unwrap().wait().len()))
            .collect();
        assert_eq!(clients.into_iter().map(|c| c.join().unwrap()).sum::<usize>(), 2_000);
        done.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
    });
    assert_law(batcher.stats());
    assert_eq!(batcher.stats().completed, 2_000);
}

#[test]
fn the_books_are_in_order_before_a_waiter_wakes() {
    let batcher = Batcher::new(Recorder::open()).unwrap();
    for done in 1..200 {
        batcher.submit(1).unwrap().wait().unwrap();
        assert_eq!(batcher.stats().completed, done);
    }
}

#[test]
fn items_per_call_is_none_before_the_first_call() {
    let batcher = Batcher::new(Recorder::open()).unwrap();
    assert_eq!(batcher.stats().items_per_call(), None);
    batcher.submit(1).unwrap().wait().unwrap();
    assert_eq!(batcher.stats().items_per_call(), Some(1.0));
    assert_eq!(batcher.stats().calls_saved(), 0);
}

proptest! {
    #![proptest_config(common::cases(64))]

    /// Whatever goes in, in whatever groups and limits: each item comes back once, as itself, and
    /// batches keep their caps and the order of their key.
    #[test]
    fn any_split_keeps_every_item(
        groups in prop::collection::vec(prop::collection::vec((0_u8..4, 1_u64..6), 1..20), 1..8),
        max_items in 1_usize..9,
        max_weight in 5_u64..20,
        workers in 0_usize..3,
        abort in any::<bool>(),
    ) {
        let (send, receive) = std::sync::mpsc::channel();
        let send = std::sync::Mutex::new(send);
        let run = move |key: &u8, batch: Batch<(u8, u64, u64), u64, ()>| {
            send.lock().unwrap().send((*key, batch.items().to_vec())).unwrap();
            batch.resolve_all(batch.items().iter().map(|(_, _, n)| Ok(*n)).collect());
        };
        let processor = Weighed(keyed_fn(|item: &(u8, u64, u64)| item.0, run));
        let batcher = Batcher::builder(processor)
            .max_batch_items(max_items)
            .max_batch_weight(max_weight)
            .workers(workers)
            .build()
            .unwrap();
        let mut sets = Vec::new();
        let mut next = 0;
        for group in groups {
            let items: Vec<_> = group
                .into_iter()
                .map(|(key, weight)| { next += 1; (key, weight, next) })
                .collect();
            let numbers: Vec<_> = items.iter().map(|item| item.2).collect();
            sets.push((numbers, batcher.submit_all(items).unwrap()));
        }
        let mode = if abort { Close::Abort } else { Close::Drain };
        let report = batcher.close(mode, LONG);
        assert_law(report.stats);
        prop_assert_eq!(report.stats.accepted, next);
        let back: std::collections::BTreeSet<_> =
            report.leftovers.iter().map(|(_, item)| item.2).collect();
        for (numbers, set) in sets {
            for (number, outcome) in numbers.into_iter().zip(set.wait_timeout(LONG).unwrap()) {
                match outcome {
                    Ok(got) => prop_assert_eq!(got, number),
                    Err(_) => prop_assert!(back.contains(&number)),
                }
            }
        }
        drop(batcher);
        let mut last = [0; 4];
        for (key, items) in receive.try_iter() {
            prop_assert!(items.len() <= max_items);
            prop_assert!(items.iter().map(|item| item.1).sum::<u64>() <= max_weight);
            for item in items {
                prop_assert_eq!(item.0, key);
                prop_assert!(item.2 > last[usize::from(key)], "FIFO per key");
                last[usize::from(key)] = item.2;
            }
        }
    }
}

/// Takes the weight from the item.
struct Weighed<P>(P);

impl<P> batch_core::BatchProcessor for Weighed<P>
where
    P: batch_core::BatchProcessor<Item = (u8, u64, u64)>,
{
    type Key = P::Key;
    type Item = P::Item;
    type Output = P::Output;
    type Error = P::Error;

    fn key(&self, item: &P::Item) -> P::Key {
        self.0.key(item)
    }

    fn weight(&self, item: &P::Item) -> u64 {
        item.1
    }

    fn process(&self, key: &P::Key, batch: batch_core::BatchOf<Self>) {
        self.0.process(key, batch);
    }
}

#[test]
fn many_keys_leave_nothing_queued() {
    let batcher = Batcher::builder(Recorder::open()).inline().history(0).build().unwrap();
    for key in 0..100_000_u64 {
        batcher.submit(key * 1_000).unwrap().detach();
    }
    assert_eq!(batcher.stats().completed, 100_000);
    assert!(!batcher.should_flush(Duration::ZERO));
    assert!(batcher.history().is_empty());
}
