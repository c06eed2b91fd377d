//! How many times faster ours is than the other way, in one process.
//!
//! With `--detail` standard error has the times behind some of the ratios. With words after that only
//! the measurements that are called so are made: `tasks`, `worktrees`, `commits`, `push`, `merges`,
//! `queued`.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the numbers are what it is for")]
#![expect(clippy::print_stderr, reason = "and what is behind them is for whoever asks")]

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use benches::git;
use benches::git::rounds::Ratios;

#[global_allocator]
static ALLOCATOR: benches::alloc::Counting = benches::alloc::Counting;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let is_detailed = words.iter().any(|word| word == "--detail");
    words.retain(|word| word != "--detail");
    let is_wanted = |name: &str| words.is_empty() || words.iter().any(|word| word == name);
    let show = |name: &str, ratios: &Ratios| {
        println!("{name}\t{:.2}", ratios.median());
        if is_detailed {
            eprintln!("{name}: {ratios}");
        }
    };
    // Removed when all is measured.
    let root = tempfile::tempdir()?;
    let folder = |name: &str| -> Result<PathBuf, Box<dyn Error>> {
        let folder = root.path().join(name);
        fs::create_dir(&folder)?;
        Ok(folder)
    };

    if is_wanted("tasks") {
        println!("git_{}_tasks_speedup\t{:.2}", git::TASKS, git::speedup(&folder("100")?)?);
        println!("git_10_tasks_speedup\t{:.2}", git::speedup_of(&folder("10")?, 10)?);
    }
    if is_wanted("worktrees") {
        let speedup = git::worktrees_speedup(&folder("worktrees")?, 50)?;
        println!("git_50_worktrees_speedup\t{speedup:.2}");
    }
    if is_wanted("commits") {
        let import = git::commits::vs_fast_import(&folder("commits")?)?;
        show("git_100_commits_vs_fast_import", &import.bare);
        show("git_100_commits_vs_durable_fast_import", &import.durable);
        show("git_100_commits_vs_synced_fast_import", &import.synced);
    }
    if is_wanted("push") {
        show("git_100_refs_bare_push_vs_batch", &git::push::bare_vs_batch(&folder("push")?)?);
    }
    if is_wanted("merges") {
        let disjoint = git::merges::disjoint(&folder("disjoint")?)?;
        println!("git_100_disjoint_merges_vs_git_merge\t{:.2}", disjoint.than_merge);
        println!("git_100_disjoint_merges_vs_merge_tree\t{:.2}", disjoint.than_merge_tree);
        let one_file = git::merges::one_file(&folder("one-file")?)?;
        println!("git_100_merges_of_one_file_vs_git_merge\t{:.2}", one_file.than_merge);
    }
    if is_wanted("queued") {
        let budget = git::budget_of_queued_operations(&folder("queued")?)?;
        println!("git_budget_of_64_mib_for_10000_queued\t{budget:.2}");
    }
    Ok(())
}
