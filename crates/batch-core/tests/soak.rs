//! What a batcher keeps on the heap: nothing of what came and went.
//!
//! The long run, on demand:
//! `cargo test -p batch-core --release --test soak -- --ignored --nocapture`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;

use batch_core::{Batch, BatchProcessor, Batcher, Builder, Sim, TicketSet, keyed_fn};

/// The system's allocator; it counts the live bytes of the process, and what each thread did.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    // Constant and without a destructor, so that counting never allocates.
    static BYTES: Cell<isize> = const { Cell::new(0) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Returns the bytes that this thread allocated less those that it freed.
fn bytes() -> isize {
    BYTES.get()
}

fn note(more: usize, less: usize) {
    let change = more.cast_signed() - less.cast_signed();
    LIVE.fetch_add(change, Relaxed);
    // Not there while a thread ends, when nothing is measured.
    let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() + change));
    let _ = CALLS.try_with(|calls| calls.set(calls.get() + u64::from(more > 0)));
}

// SAFETY: every call goes to the system's allocator with the caller's arguments as they are.
#[expect(unsafe_code, reason = "an allocator can be counted only by being one")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size, layout.size());
        // SAFETY: `memory` came from `System`, and the caller keeps the contract of `realloc`.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: `memory` came from `System` with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Adds 1 to each item; every `items_a_key` items share a key.
fn adder(items_a_key: u64) -> Builder<impl BatchProcessor<Key = u64, Item = u64, Output = u64>> {
    let add = |_: &u64, batch: Batch<u64, u64, Infallible>| {
        batch.resolve_all(batch.items().iter().map(|item| Ok(item + 1)).collect());
    };
    Batcher::builder(keyed_fn(move |item| item / items_a_key, add))
}

fn check<E>(first: u64, tickets: TicketSet<u64, E>) {
    for (item, outcome) in (first..).zip(tickets.wait()) {
        assert!(outcome.is_ok_and(|output| output == item + 1), "the output of {item}");
    }
}

/// One key after the other: what a key costs is gone when its item is.
#[test]
fn keys_one_after_the_other_leave_no_byte() {
    const ROUND: u64 = 6_400;
    let batcher = adder(1).inline().delivery_timeout(None).build().unwrap();
    let round = |first: u64| {
        for item in first..first + ROUND {
            assert!(batcher.submit(item).unwrap().wait().is_ok());
        }
        bytes()
    };
    // The first fills the history and the buffers that are kept.
    let before = round(0);
    for number in 1..5 {
        assert_eq!(round(number * ROUND) - before, 0, "after {} more keys", number * ROUND);
    }
}

/// A barrier that nobody waits for any more is not kept until it comes.
#[test]
fn flushes_that_are_dropped_leave_no_byte() {
    const ROUND: u64 = 1_000;
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keeper = Arc::clone(&kept);
    let keep =
        move |_: &u64, batch: Batch<u64, u64, Infallible>| keeper.lock().unwrap().push(batch);
    let builder = Batcher::builder(keyed_fn(|item: &u64| *item, keep));
    let batcher = builder.inline().delivery_timeout(None).build().unwrap();
    let ticket = batcher.submit(1).unwrap();
    let flush = batcher.flush();
    let round = || {
        (0..ROUND).for_each(|_| drop(batcher.flush()));
        bytes()
    };
    let before = round();
    for number in 1..5 {
        assert_eq!(round() - before, 0, "after {} more flushes", number * ROUND);
    }
    assert!(!flush.is_done() && !ticket.is_done(), "the item is still at the processor");
    kept.lock().unwrap().drain(..).for_each(|batch| batch.resolve_all(vec![Ok(2)]));
    flush.wait().unwrap();
}

/// Many keys at the same time, and each time others.
#[test]
fn keys_side_by_side_leave_no_byte() {
    const ROUND: u64 = 6_400;
    let batcher = adder(2).inline().delivery_timeout(None).full_only().build().unwrap();
    let round = |first: u64| {
        let before_round = bytes();
        let tickets = batcher.submit_all(first..first + ROUND).unwrap();
        assert!(bytes() > before_round, "what waits is on the heap");
        batcher.flush().wait().unwrap();
        check(first, tickets);
        bytes()
    };
    let before = round(0);
    for number in 1..5 {
        assert_eq!(round(number * ROUND) - before, 0, "after {} more items", number * ROUND);
    }
}

/// The queues of keys that are gone are kept for others, but not the room of long ones.
#[test]
fn many_batches_of_a_few_keys_leave_next_to_nothing() {
    const KEYS: u64 = 16;
    let builder = adder(1_000).max_batch_items(1).capacity(50_000).delivery_timeout(None);
    let (batcher, mut sim) = Sim::new(builder.history(0), 1).unwrap();
    let mut round = |items_a_key: u64| {
        let items = (0..KEYS).flat_map(|key| key * 1_000..key * 1_000 + items_a_key);
        let tickets = batcher.submit_all(items).unwrap();
        let waiting = bytes();
        sim.run(usize::MAX);
        assert!(tickets.wait().into_iter().all(|outcome| outcome.is_ok()));
        (waiting, bytes())
    };
    let (_, before) = round(1);
    let (waiting, after) = round(1_000);
    let (took, kept) = (waiting - before, after - before);
    assert!(kept < took / 20, "{kept} bytes are kept of {took}");
}

/// A batch costs a few allocations, and an item of it none but a share in those.
#[test]
fn allocations_are_by_the_batch() {
    const BATCH: u64 = 640;
    let calls_of = |per_batch: u64| {
        let builder = adder(u64::MAX).inline().delivery_timeout(None).full_only().history(0);
        let batcher = builder.max_batch_items(usize::try_from(per_batch).unwrap()).build().unwrap();
        let mut tickets = VecDeque::with_capacity(2 * usize::try_from(per_batch).unwrap());
        let mut round = || {
            for item in 0..per_batch {
                tickets.push_back(batcher.submit(item).unwrap());
            }
            assert!(tickets.drain(..).all(|ticket| ticket.wait().is_ok()));
        };
        (0..10).for_each(|_| round());
        let before = CALLS.get();
        (0..10).for_each(|_| round());
        (CALLS.get() - before) / 10
    };
    let (small, large) = (calls_of(BATCH), calls_of(2 * BATCH));
    // One block of slots for 128 items; the rest are those of the processor and the batch itself.
    assert!(large - small <= BATCH / 128, "{small} and {large} allocations a batch");
    assert!(small - BATCH / 128 <= 4, "{small} allocations a batch");
}

/// A hundred million items, of a million keys in each of ten rounds: the heap stays flat.
#[test]
#[ignore = "on demand: takes a minute in a release build"]
fn a_hundred_million_items_leave_the_heap_flat() {
    const ROUNDS: u64 = 10;
    const ROUND: u64 = 10_000_000;
    const CHUNK: u64 = 1_000;
    let batcher = adder(10).workers(1).build().unwrap();
    let mut idle = Vec::new();
    for number in 0..ROUNDS {
        thread::scope(|scope| {
            for half in 0..2 {
                let batcher = &batcher;
                scope.spawn(move || {
                    let first = number * ROUND + half * (ROUND / 2);
                    for chunk in (0..ROUND / 2 / CHUNK).map(|chunk| first + chunk * CHUNK) {
                        check(chunk, batcher.submit_all(chunk..chunk + CHUNK).unwrap());
                    }
                });
            }
        });
        batcher.flush().wait().unwrap();
        idle.push(LIVE.load(Relaxed));
        println!("{} items: {} bytes live", (number + 1) * ROUND, idle[idle.len() - 1]);
    }
    let stats = batcher.stats();
    assert_eq!((stats.completed, stats.queued, stats.in_flight), (ROUNDS * ROUND, 0, 0));
    // Buffers that are kept differ a little with what was last in them, but nothing grows.
    let most = idle[1..].iter().max().unwrap() - idle[0];
    assert!(most < 64 * 1024, "the heap grew by {most} bytes: {idle:?}");
}
