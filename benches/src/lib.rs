//! Scenarios measured side by side, and the programs behind `cargo xtask perf`.
//!
//! * `perf-ratio` runs ours and the other way in one process on one machine state, compares what
//!   they made, and prints how many times faster ours was.
//! * `perf-allocs` runs fixed scenarios under a [counting allocator](alloc::Counting) and prints
//!   how often each asked for memory. The same on every machine, whatever else runs there.
//!
//! Both print `name<TAB>value`, one a line, and nothing else on standard output.

pub mod alloc;
pub mod git;

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
