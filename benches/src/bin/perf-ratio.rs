//! How many times faster ours is than the other way, in one process.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the numbers are what it is for")]

use std::error::Error;

#[global_allocator]
static ALLOCATOR: benches::alloc::Counting = benches::alloc::Counting;

fn main() -> Result<(), Box<dyn Error>> {
    println!("git_{}_tasks_speedup\t{:.2}", benches::git::TASKS, benches::git::speedup()?);
    println!("git_10_tasks_speedup\t{:.2}", benches::git::speedup_of(10)?);
    println!("git_50_worktrees_speedup\t{:.2}", benches::git::worktrees_speedup(50)?);
    let import = benches::git::commits_vs_fast_import()?;
    println!("git_100_commits_vs_fast_import\t{:.2}", import.bare);
    println!("git_100_commits_vs_durable_fast_import\t{:.2}", import.durable);
    println!("git_100_refs_bare_push_vs_batch\t{:.2}", benches::git::bare_push_vs_batch()?);
    let disjoint = benches::git::merges::disjoint()?;
    println!("git_100_disjoint_merges_vs_git_merge\t{:.2}", disjoint.than_merge);
    println!("git_100_disjoint_merges_vs_merge_tree\t{:.2}", disjoint.than_merge_tree);
    let one_file = benches::git::merges::one_file()?;
    println!("git_100_merges_of_one_file_vs_git_merge\t{:.2}", one_file.than_merge);
    let budget = benches::git::budget_of_queued_operations()?;
    println!("git_budget_of_64_mib_for_10000_queued\t{budget:.2}");
    Ok(())
}
