//! How fast the engine is beside channels and other engines, in one process.
//!
//! With `--detail` the nanoseconds and counts behind the figures go to standard error.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the numbers are what it is for")]

use std::error::Error;

use benches::alloc::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> Result<(), Box<dyn Error>> {
    let figures = benches::core_ratios::measure()?;
    if std::env::args().any(|argument| argument == "--detail") {
        for (name, value) in &figures.detail {
            eprintln!("{name}\t{value:.3}");
        }
    }
    for (name, value) in &figures.gate {
        println!("{name}\t{value:.3}");
    }
    Ok(())
}
