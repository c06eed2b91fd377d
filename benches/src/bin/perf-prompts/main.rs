//! How fast prompts are beside the library they are made of and beside other engines, in one process.
//!
//! Each figure is a budget or a peer's cost divided by ours: more is better. With `--detail` the ratios
//! of ours to the other, where less is better, go to standard error. What is compared says the same
//! text, which is checked first.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the numbers are what it is for")]

mod compile;
mod eviction;
mod lookup;
mod reload;
mod render;
mod rounds;

use std::error::Error;

type Fallible<T = ()> = Result<T, Box<dyn Error>>;

/// A cost of ours as a share of another's.
struct Figure {
    name: &'static str,
    /// Ours divided by the other's; less is better.
    ratio: f64,
}

fn main() -> Fallible {
    let wants_detail = std::env::args().any(|argument| argument == "--detail");
    let parts =
        [render::measure, compile::measure, lookup::measure, eviction::measure, reload::measure];
    for part in parts {
        for Figure { name, ratio } in part()? {
            if wants_detail {
                eprintln!("{name}\t{ratio:.3}");
            }
            println!("{name}\t{:.3}", ratio.recip().min(1_000.0));
        }
    }
    Ok(())
}
