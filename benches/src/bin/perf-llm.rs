//! How results of model batches are read, and what a large batch takes in memory.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the numbers are what it is for")]

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(url) = std::env::args().nth(1) {
        // The process that is measured.
        println!("{}", benches::llm::large_batch(&url)?);
        return Ok(());
    }
    let (envelope, answer) = benches::llm::parsing()?;
    println!("llm_envelope_vs_value\t{envelope:.2}");
    println!("llm_answer_vs_value\t{answer:.2}");
    if let Some(times) = benches::llm::memory_budget(&std::env::current_exe()?)? {
        println!("llm_48_mib_vs_peak_of_256_mb_each_way\t{times:.2}");
    }
    Ok(())
}
