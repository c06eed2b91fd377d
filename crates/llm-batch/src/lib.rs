//! Model requests of many tasks in few provider batches, each paid for once.
//!
//! Agents ask models for small things, many at a time. Batch endpoints take them together at half
//! the price, but then somebody has to group them, wait, bring each answer to the one who asked,
//! and never pay twice when a response is lost. That is what this crate does.
//!
//! ```
//! use std::sync::Arc;
//! use llm_batch::{Kind, LlmBatch, Request, providers::Offline};
//!
//! # let dir = tempfile::tempdir()?;
//! # let (answers, state) = (dir.path().join("answers"), dir.path().join("state"));
//! # std::fs::create_dir(&answers)?;
//! # std::fs::write(answers.join("task-1.md"), "Use a queue.")?;
//! # std::fs::write(answers.join("task-2.md"), "Use a ring.")?;
//! let llm = LlmBatch::builder(Arc::new(Offline::open(&answers)?)).state(&state).build()?;
//! let ask = |id: &str| Request::prompt(id, "some-model", "How?").with_kind(Kind::Planner);
//!
//! let (one, two) = (llm.submit(ask("task-1"))?, llm.submit(ask("task-2"))?);
//! llm.flush().wait()?;
//! assert_eq!(one.wait()?.text.as_deref(), Some("Use a queue."));
//! assert_eq!(two.wait()?.text.as_deref(), Some("Use a ring."));
//! assert_eq!(llm.stats().calls, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Concepts
//! * A **request** has an id of the caller's, a **kind** and a model. Requests of one (kind,
//!   model) share a **batch**, up to the provider's limits; each answer reaches its own requester.
//! * A **provider** is one type behind the [`Provider`] trait: [`providers::Anthropic`] and
//!   [`providers::OpenAi`] over HTTP, [`providers::Offline`] from recordings.
//! * The **state folder** holds an *intent* for every create, on the disk before its first byte
//!   leaves, what became of it, and what was handed over. A process that dies leaves a state from
//!   which the next one goes on: it polls and collects, and sends nothing a second time.
//! * A failed create follows **one rule**. Not fully sent, or no connection: it is sent again.
//!   Refused: its requests end as errored; one that is too large is halved. Busy (429): the wait
//!   that is asked for, then again. Anything else (a time-out, a lost response, a server error) is
//!   **ambiguous**, the batch may exist: it is looked for in the provider's list, behind the newest
//!   batch from before the create, and proven by ids that nobody else has. What is found goes on;
//!   what is absent from two lists, [`list_lag`](Builder::list_lag) apart, is sent once more.
//!   [`OnAmbiguous`] has other ways. So nothing is paid twice as long as the provider's list is
//!   behind by less than that.
//! * What comes back **without an answer** and was not billed (an error that passes, expired, missing
//!   by the provider's own count) is sent again, [`attempts`](Builder::attempts) times in all. What the
//!   provider counts as answered is never given up, and what may be paid for is not sent again unless a
//!   setting allows it by name.
//! * A request may have a **deadline** and a **budget**. [`LaneChoice`] says what is done about the
//!   former; [`max_cost`](Builder::max_cost) and the latter are kept before anything is sent.
//! * [`Accounting`] counts requests, submissions, HTTP calls, tokens and dollars apart, and by kind,
//!   model and lane.
//!
//! # Limits
//! * An answer of the lane `sync` that is lost cannot be looked for: its request stays ambiguous,
//!   or is asked once more where [`sync_retry`](Builder::sync_retry) allows paying twice.
//! * Who asks for one answer and is told by the provider itself that it is overloaded takes that for
//!   "not done", and asks again. Of a create nobody's word is taken for that.
//! * A state folder is for one process at a time, and a copy of it is a second one: two processes
//!   that go on with copies of one state may both send what was not sent yet, and what comes back
//!   without an answer. A copy that is made while a batch is waited for does no harm: both collect it.
//!   A lost create is sent again only from the very folder that it was sent from. A copy is noticed, one
//!   that was moved to another file system or machine counts as one, and so does one into which a
//!   backup was put back; a snapshot or a rollback of a whole file system or machine is not noticed.
//! * Whether a create is absent is told by the list of the account it was sent to. With a key that
//!   does not see that account's things it stays ambiguous.
//! * Prices are a table with a date; a model that is not in it has no cost.
//! * A download that breaks off goes on where it was only at servers that give it a strong tag and
//!   take ranges; elsewhere it begins anew. What was handed over is not handed over again.
//! * Of each request of a run some 400 bytes are in memory, its id and its record among them. A request
//!   that was submitted for a ticket is in memory as a whole until its batch is worked on: while it
//!   lingers, and until a thread is free for it. Then its body is in a file in the state folder, in clear, for the owner alone, until the batch is done;
//!   where the disk has no room it stays in memory.
//!   Whatever ends the process before that leaves the file there, a crash as well as a
//!   [`close`](LlmBatch::close) that gave up; it is removed when a batcher opens the folder again.
//! * A request that has missed its deadline is told so, and an answer that comes later to nobody.
//! * Linux and macOS only.
//!
//! # Performance
//! Bodies are in a file, not in memory, and go out from there; results are read line by line
//! in constant memory; of each line the envelope is parsed, and the body is handed on as it is. A run costs one HTTP call a
//! create, one a poll and one for the results of each batch, and one look at the provider's list.
//! Batches of tickets wait without a thread: a few threads
//! ([`max_in_flight`](Builder::max_in_flight)) make the calls of all that are open.
#![forbid(unsafe_code)]

mod request;

mod answer;

mod llm_batch;

mod loaded;
mod processor;
mod unsent;

mod accounting;
mod engine;
mod session;

mod send;

mod seek;

mod collect;

mod direct;

mod bodies;
mod budget;
mod cooldown;
mod deadline;
mod desk;
mod digest;
mod draft;
mod intake;
mod lane;
mod plan;
mod prices;
mod queue;
mod table;
mod throttle;
mod wire_id;

mod backoff;
mod stop;

mod deliveries;
mod durable;
mod overview;
mod record;
mod state;

mod error;
mod provider;
pub mod providers;

mod base_url;
mod http;
mod lines;
mod retry_after;

pub use accounting::{Accounting, Delivered, GroupAccounting, Run};
pub use answer::{Answer, RequestError, Status, Usage};
pub use batch_core::{
    BatchError, Close, CloseReport, Flush, PastBatch, Stats, SubmitError, Ticket,
};
pub use draft::{Draft, Entry};
pub use error::{Error, PendingReason};
pub use lane::{Lane, LaneChoice, OnAmbiguous};
pub use llm_batch::{Builder, LlmBatch};
pub use loaded::Loaded;
pub use overview::{Overview, Stage, Submission};
pub use prices::Prices;
pub use processor::GroupKey;
pub use provider::{
    CUSTOM_ID_LEN, Call, CallError, Collected, CreateError, Created, Found, Limits, Lost, Progress,
    Provider, Rejection, Sink, cancel,
};
pub use request::{Body, Content, DEFAULT_MAX_TOKENS, Kind, Message, Request, Role};
pub use stop::Stop;
pub use unsent::Unsent;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
