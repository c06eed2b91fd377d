//! The batching engine: many small jobs in, few expensive calls out.
//!
//! Callers on any thread submit single items and get a [`Ticket`] each. The engine groups the items
//! by a key and hands each group to a [`BatchProcessor`] as one owned [`Batch`], whose slots the
//! processor resolves. Every accepted item comes to exactly one end, and its result can reach no
//! other caller.
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
//! # Concepts
//! * **Dispatch**: *natural* (default) sends at once while the processor is idle, and fills the
//!   next batch while it is busy; *linger* waits for more items, measured from the oldest one.
//! * **Drivers**: threads (default), or *inline*, where the callers run the batches themselves.
//! * **Keys**: items of different keys never share a batch. Batches of one key run one after the
//!   other unless the batcher is [`unordered`](Builder::unordered).
//! * **Limits**: items and weight of a batch are hard caps, bulk submits included. One bound over
//!   queued and running items; a full batcher blocks or refuses, and a refusal gives the item back.
//! * **Waiting**: a ticket is waited for by blocking, with a time-out, or as a future on any
//!   executor. `flush` is a barrier, `close` hands back what was not sent.
//! * **Panics** of a processor are caught; what it had not resolved says so, with the message.
//!
//! # Limits
//! Retry, split, cancellation of single items, fairness by weight and durability are not part of
//! this version. With FIFO order a batch that a processor keeps for hours mutes its key meanwhile.
//!
//! # Performance
//! A submit takes one lock and, in a batch that has room, allocates nothing but the growth of the
//! batch's buffers; completing a batch takes two locks for the books and one for its results, and
//! wakes its waiters once.
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
mod journal;
mod link;
#[cfg(any(feature = "metrics", feature = "tracing"))]
mod observe;
mod observer;
mod panics;
mod park;
mod processor;
mod pull;
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
