//! The batching engine: many small jobs in, few expensive calls out.
//!
//! Callers on any thread submit single items and get a [`Ticket`] each. The engine groups the items
//! by a key and hands each group to a [`BatchProcessor`] as one owned [`Batch`], whose slots the
//! processor resolves, at once or hours later. Every accepted item comes to exactly one end, every
//! refused item comes back, and no result can reach another caller.
//!
//! ```
//! use batch_core::{BatchError, Batcher, batch_fn};
//!
//! // One call parses a whole batch.
//! let parse = |texts: &[String]| texts.iter().map(|text| text.parse::<i32>()).collect();
//! let batcher = Batcher::new(batch_fn(parse))?;
//!
//! let outcomes = batcher.submit_all(["7", "x", "9"].map(String::from))?.wait();
//! assert!(matches!(outcomes[0], Ok(7)));
//! assert!(matches!(outcomes[1], Err(BatchError::Failed(_))));
//! assert!(matches!(outcomes[2], Ok(9)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A processor of one's own
//! [`batch_fn`] and [`keyed_fn`] make a processor from functions. A type can say more: what an item
//! weighs, which errors are worth another call.
//!
//! ```
//! use batch_core::{BatchOf, BatchProcessor, Batcher};
//!
//! /// Books all amounts of an account as one entry; each caller learns what the entry came to.
//! struct Bookings;
//!
//! impl BatchProcessor for Bookings {
//!     type Key = &'static str;
//!     type Item = (&'static str, u64);
//!     type Output = u64;
//!     type Error = std::convert::Infallible;
//!
//!     fn key(&self, (account, _): &Self::Item) -> Self::Key {
//!         account
//!     }
//!
//!     fn process(&self, _account: &Self::Key, batch: BatchOf<Self>) {
//!         let entry = batch.items().iter().map(|(_, amount)| amount).sum();
//!         batch.resolve_all(vec![Ok(entry); batch.len()]);
//!     }
//! }
//!
//! let batcher = Batcher::builder(Bookings).max_batch_items(50).build()?;
//! let tickets = batcher.submit_all([("ann", 3), ("bob", 5), ("ann", 4)])?;
//! let entries: Vec<_> = tickets.wait().into_iter().map(Result::unwrap).collect();
//! assert_eq!(entries, [7, 5, 7]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Answers that come later
//! A batch is owned: it can be kept, sent to another thread and resolved whenever the answer comes.
//! It holds its batcher weakly, so a processor may keep batches in itself. Work that takes longer
//! than two minutes needs another [`delivery_timeout`](Builder::delivery_timeout).
//!
//! ```
//! use std::sync::Mutex;
//! use std::thread;
//! use batch_core::{BatchOf, BatchProcessor, Batcher};
//!
//! /// Keeps what a human has to decide.
//! #[derive(Default)]
//! struct Desk(Mutex<Vec<BatchOf<Desk>>>);
//!
//! impl BatchProcessor for Desk {
//!     type Key = ();
//!     type Item = u32;
//!     type Output = bool;
//!     type Error = std::convert::Infallible;
//!
//!     fn key(&self, _: &u32) {}
//!
//!     fn process(&self, (): &(), batch: BatchOf<Self>) {
//!         self.0.lock().expect("nobody panics here").push(batch);
//!     }
//! }
//!
//! let batcher = Batcher::builder(Desk::default()).inline().delivery_timeout(None).build()?;
//! let ticket = batcher.submit(1_000)?;
//! assert!(!ticket.is_done());
//!
//! // Hours later, on another thread:
//! let desk = batcher.clone();
//! thread::spawn(move || {
//!     // Taken out first: a resolve may run the next batch, which wants the lock.
//!     let batches = std::mem::take(&mut *desk.processor().0.lock().expect("nobody panics here"));
//!     for batch in batches {
//!         for slot in batch.slots() {
//!             slot.resolve(Ok(*slot.item() < 5_000));
//!         }
//!     }
//! });
//! assert!(ticket.wait()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Async callers
//! Tickets, sets of tickets, flushes and closes are futures for any executor, and
//! [`submit_async`](Batcher::submit_async) waits for room without blocking. No runtime is a
//! dependency. To have the batches run in tasks as well, see [`Tasks`].
//!
//! ```
//! # use std::future::Future;
//! # fn block_on<F: Future>(future: F) -> F::Output {
//! #     use std::{pin::pin, sync::Arc, task::{Context, Poll, Wake, Waker}, thread};
//! #     struct Unpark(thread::Thread);
//! #     impl Wake for Unpark { fn wake(self: Arc<Self>) { self.0.unpark() } }
//! #     let mut future = pin!(future);
//! #     let waker = Waker::from(Arc::new(Unpark(thread::current())));
//! #     loop {
//! #         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
//! #             Poll::Ready(output) => return output,
//! #             Poll::Pending => thread::park(),
//! #         }
//! #     }
//! # }
//! use std::time::Duration;
//! use batch_core::{Batcher, Close, batch_fn};
//!
//! let double = batch_fn(|items: &[u32]| items.iter().map(|n| Ok::<_, String>(n * 2)).collect());
//! let batcher = Batcher::builder(double).capacity(1).build()?;
//! block_on(async {
//!     let first = batcher.submit_async(20).await?;
//!     // There is room for one item: this waits for the first, and holds no thread meanwhile.
//!     let second = batcher.submit_async(1).await?;
//!     assert_eq!(first.await? + second.await?, 42);
//!     let report = batcher.close_async(Close::Drain, Duration::from_mins(1)).await;
//!     assert_eq!(report.stats.completed, 2);
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Concepts
//! * **Dispatch**: [`natural`](Builder::natural) (default) sends at once while the processor is
//!   idle, and fills the next batch while it is busy; [`linger`](Builder::linger) waits for more
//!   items, measured from the oldest one; [`full_only`](Builder::full_only) waits for a full batch.
//! * **Drivers**: one thread (default) or several ([`workers`](Builder::workers)); none at all
//!   ([`inline`](Builder::inline): the callers run the batches themselves); the tasks of an executor
//!   ([`tasks`](Builder::tasks)); or [`Sim`], a simulation on a clock of its own, the same for the
//!   same seed.
//! * **Keys**: items of different keys never share a batch. Batches of one key run one after the
//!   other unless the batcher is [`unordered`](Builder::unordered); keys take turns by weight, and
//!   one without work costs nothing.
//! * **Limits**: items and weight of a batch are hard caps, bulk submits included. One bound on
//!   items and one on weight hold over all that is queued, running or waiting to be tried again; a
//!   full batcher blocks for a time or refuses, and a refusal gives the item back.
//! * **Waiting**: a ticket is waited for by blocking, with a time-out, or as a future.
//!   [`flush`](Batcher::flush) is a barrier, [`close`](Batcher::close) hands back what was not sent.
//!   A wait that could never end, inside the processor of the same batcher, is an error.
//! * **Again**: the processor [classifies](BatchProcessor::classify) an error as one to fail with, to
//!   [`Retry`] (full jitter, a budget, no worker held), to split by (one bad item among 100 costs 15
//!   calls at most), or as fatal. What is good is delivered meanwhile.
//! * **Time-outs**: no item waits for longer than the
//!   [`delivery_timeout`](Builder::delivery_timeout), sent or not; one that waits can be
//!   [cancelled](Ticket::cancel).
//! * **Panics** of a processor are caught; what it had not resolved says so, with the message.
//! * **Journal**: with a [`Journal`] a submit returns once its item is durable, and
//!   [`resume`](Batcher::resume) takes up what an earlier run left, under the same [`ItemId`]s.
//! * **Observers**: an [`Observer`] sees each step; [`Stats`] adds up at every moment, and
//!   [`history`](Batcher::history) keeps the past batches. With the feature `tracing` there is
//!   `TracingObserver`, with `metrics` `MetricsObserver`.
//! * **Pull**: [`Pull`] is the engine turned round, for those who fetch batches and report later.
//!
//! # Limits
//! * Work is done at least once: a split, a retry and a restart with a journal give an item to the
//!   processor again. Its [`ItemId`] is the key by which that can be noticed.
//! * With FIFO order a batch that a processor keeps, or that waits for a retry, holds back its key.
//!   Inside a partly failed batch the order is not kept.
//! * An item whose time is over stays with a processor that has it; only its caller goes on.
//! * `Ord`, `Clone` and `Drop` of a key run under the engine's lock, and so does
//!   [`Clock::now`]; all other code of the user runs under none.
//! * After a `fork` without `exec` the child has handles and no threads: it must not use them.
//! * Equal items are not merged, results not cached, and one batcher lives in one process.
//!
//! # Performance
//! Counted, not timed: a submit takes the engine's lock once, `submit_all` once for all items that
//! have room. An item that joins a batch writes to a few lines of memory next to that lock: the books
//! hear of it with the batch, and items with ids in a row and equal weights are kept as one until
//! somebody asks for each of them. A batch whose items are all completed takes it four times, whatever the number of its
//! items, and wakes its waiters in one round after the last. Without a journal, an observer and a
//! history, a batch costs 4 allocations at most and one for each 128 items (`tests/soak.rs` asserts
//! it, and that keys that come and go leave no byte behind). Reading [`Stats`] takes no lock. Ratios
//! against channels and other engines are in `docs/perf.md` of the workspace.
//!
//! # Features
//! None is on by default; the dependencies then are `thiserror` and, on Linux, `rustix` for the clock
//! of the last tick.
//! * `tracing`: `TracingObserver`, one span for each batch with links to those of its callers.
//! * `metrics`: `MetricsObserver`, counts, sizes and times for whatever recorder is installed.
#![deny(unsafe_code)]

mod accumulator;
mod batch;
mod batcher;
mod board;
mod builder;
mod clock;
mod close;
mod current;
mod driver;
mod engine;
mod error;
mod flush;
mod id;
mod items;
mod journal;
mod link;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(any(feature = "metrics", feature = "tracing"))]
mod observe;
mod observer;
mod panics;
mod park;
mod processor;
mod pull;
mod receipts;
mod retry;
mod rounds;
mod seat;
#[cfg(all(test, shuttle))]
mod shuttle_tests;
mod slot;
mod stats;
mod submit;
mod sync;
mod ticket;
mod ticket_set;

pub use batch::{Batch, Slot};
pub use batcher::Batcher;
pub use builder::Builder;
pub use clock::{Clock, ManualClock};
pub use close::{Close, CloseReport, Closing};
pub use driver::{Progress, Sim, Tasks};
pub use error::{BatchError, NotReady, Outcome, PartialSubmit, Refusal, SubmitError};
pub use flush::{Flush, FlushWouldDeadlock};
pub use id::{BatchId, ItemId};
pub use journal::{Journal, JournalError, JournalErrorKind};
#[cfg(feature = "metrics")]
pub use observe::MetricsObserver;
#[cfg(feature = "tracing")]
pub use observe::TracingObserver;
pub use observer::{Dispatched, Event, Observer, Settled, Unsent};
pub use processor::{BatchOf, BatchProcessor, Disposition, batch_fn, keyed_fn};
pub use pull::{BatchInfo, BatchState, PendingBatch, Pull};
pub use retry::Retry;
pub use stats::{DispatchReason, PastBatch, Stats};
pub use submit::Submit;
pub use ticket::{Ticket, TicketFuture};
pub use ticket_set::{TicketSet, TicketSetFuture};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
