//! A hundred tasks of a hundred agents, and what their one push cost.
//!
//! `cargo run -p git-batch --example many -- [TASKS]`
#![allow(clippy::print_stdout, reason = "it is what an example is for")]

use std::error::Error;
use std::path::Path;
use std::process::Command;

use git_batch::{Author, Commit, GitBatch, Operation, Settings};

fn main() -> Result<(), Box<dyn Error>> {
    let tasks: usize = std::env::args().nth(1).map_or(Ok(100), |count| count.parse())?;
    let dir = tempfile::tempdir()?;
    git(dir.path(), &["init", "-q", "--bare", "-b", "main", "remote.git"])?;
    git(dir.path(), &["init", "-q", "-b", "main", "work"])?;
    let work = dir.path().join("work");
    git(&work, &["remote", "add", "origin", "../remote.git"])?;
    let settings = Settings::default().with_author(Author::new("Yard", "yard@example.com"));
    let batch = GitBatch::open(&work, settings)?;
    let start = Commit::new("main", "Start").write("README.md", "hello\n");
    // The empty work tree stands on main, so main moves at the remote only.
    let report = batch.apply(vec![Operation::commit("c", start), Operation::push("p", "main")])?;
    assert!(report.outcomes.iter().all(|(_, outcome)| outcome.is_success()), "{report:?}");

    let mut operations = Vec::new();
    for n in 0..tasks {
        let branch = format!("agent/{n}");
        let commit = Commit::new(&branch, format!("Task {n}"))
            .write(format!("tasks/{n}/note.txt"), format!("Task {n} is done.\n"))
            .write("README.md", format!("hello from {n}\n"));
        operations.push(Operation::commit(format!("commit {n}"), commit));
        operations.push(Operation::push(format!("push {n}"), branch));
    }
    let report = batch.apply(operations)?;
    let done = report.outcomes.iter().filter(|(_, outcome)| outcome.is_success()).count();
    println!("{done} of {} operations done", report.outcomes.len());
    for receipt in report.receipts {
        println!(
            "{} push, {} refs, {} bytes, {} processes, {} fsyncs, {:.3} s",
            receipt.pushes,
            receipt.refs.len(),
            receipt.bytes,
            receipt.processes,
            receipt.fsyncs,
            receipt.seconds.as_secs_f64()
        );
    }
    Ok(())
}

fn git(dir: &Path, args: &[&str]) -> Result<(), Box<dyn Error>> {
    let status = Command::new("git").args(args).current_dir(dir).status()?;
    if status.success() { Ok(()) } else { Err(format!("git {args:?} failed").into()) }
}
