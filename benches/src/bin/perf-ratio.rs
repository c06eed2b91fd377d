//! How many times faster ours is than the other way, in one process.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the numbers are what it is for")]

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("git_{}_tasks_speedup\t{:.2}", benches::git::TASKS, benches::git::speedup()?);
    println!("git_10_tasks_speedup\t{:.2}", benches::git::speedup_of(10)?);
    println!("git_50_worktrees_speedup\t{:.2}", benches::git::worktrees_speedup(50)?);
    println!("git_100_commits_vs_fast_import\t{:.2}", benches::git::commits_vs_fast_import()?);
    Ok(())
}
