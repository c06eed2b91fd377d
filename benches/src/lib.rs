//! Scenarios measured side by side, and the programs behind `cargo xtask perf`.
//!
//! * `perf-ratio` runs ours and the other way in one process on one machine state, compares what
//!   they made, and prints how many times faster ours was.
//! * `perf-core` does the same for the engine alone, against channels and other engines (feature
//!   `peers`).
//! * `perf-lessons` does it for the index of lessons, against the seed's way and SQLite (feature
//!   `lessons`).
//! * `perf-prompts` does the same for prompts, against other template engines (feature `peers`).
//! * `perf-llm` does it for results of model batches, against parsing them whole, and holds the memory
//!   of a large batch against its budget.
//! * `perf-allocs` runs fixed scenarios under a [counting allocator](alloc::Counting) and prints
//!   how often each asked for memory. The same on every machine, whatever else runs there.
//!
//! All print `name<TAB>value`, one a line, and nothing else on standard output.

pub mod alloc;
#[cfg(feature = "peers")]
pub mod core_ratios;
#[cfg(feature = "domains")]
pub mod git;
#[cfg(feature = "lessons")]
pub mod lessons;
#[cfg(feature = "domains")]
pub mod llm;
#[cfg(feature = "domains")]
pub mod prompts;
#[cfg(feature = "peers")]
mod seed_port;

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
