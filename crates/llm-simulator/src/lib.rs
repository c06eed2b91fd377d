//! A model provider on loopback that fails on purpose, for tests of what talks to one.
//!
//! Batch endpoints take money for what they take in, and answer hours later. What talks to them has
//! to be right when an answer is lost, a download breaks off or a list is behind, and none of that
//! happens when a test needs it. Here it does: this server speaks as Anthropic does (`/v1/messages`,
//! `/v1/messages/batches`) and as OpenAI does (`/v1/files`, `/v1/batches`, `/v1/chat/completions`),
//! keeps books on what would have been paid, and goes wrong as it is told, or by chance from a seed.
//!
//! ```
//! use llm_simulator::{Endpoint, Reply, Simulator};
//!
//! // The first create is taken, and its answer lost.
//! let simulator = Simulator::builder()
//!     .after(|call, usual| match (call.endpoint, call.nth) {
//!         (Endpoint::Create, 0) => Reply::Drop,
//!         _ => usual,
//!     })
//!     .start()?;
//! assert!(simulator.url().starts_with("http://127.0.0.1:"));
//! // ... run what is to be tested against `simulator.url()`, then look at the books:
//! assert!(simulator.paid().is_empty());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Limits
//! * It answers what the endpoints above need and nothing else; prices, images and streams are not
//!   there.
//! * Batches end after a number of polls, not after a time, so that tests need no clock.
//! * Everything is held in memory.
//!
//! # Performance
//! A thread a connection. A create of 100,000 requests is parsed whole.
#![forbid(unsafe_code)]

mod simulator;

mod faults;
mod model;

mod anthropic;
mod openai;
mod world;

mod http;
mod rng;

pub use faults::{Fault, Faults};
pub use http::{Handler, Reading, Reply, Seen, Server};
pub use model::{Question, Said};
pub use simulator::{Builder, Call, Endpoint, Simulator, Taken};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
