//! How many times faster ours is than the other way, in one process.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the numbers are what it is for")]

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("git_{}_tasks_speedup\t{:.2}", benches::git::TASKS, benches::git::speedup()?);
    Ok(())
}
