//! Merging many branches into one: by `git merge`, by `git merge-tree`, and in one batch.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use git_batch::{Commit, GitBatch, Operation, Settings};

use super::{Fallible, apply, git, path_text, prepare};

/// How many branches are merged.
pub const BRANCHES: usize = 100;

/// How often the batch is run, each time into a new branch.
const ROUNDS: usize = 3;

/// How many times faster one batch merges [`BRANCHES`] branches than the git program.
#[derive(Clone, Copy, Debug)]
pub struct Speedup {
    /// Than `git merge --no-ff` in a work tree that stands there, one after the other.
    pub than_merge: f64,
    /// Than `git merge-tree` and `git commit-tree`, one after the other.
    pub than_merge_tree: f64,
}

/// Merges branches that add a file each.
///
/// # Errors
/// A command or an operation failed, or the merged trees differ.
pub fn disjoint(root: &Path) -> Fallible<Speedup> {
    speedup(root, |branch| {
        let path = format!("src/part-{}/branch-{branch}.txt", branch % 10);
        (path, format!("by branch {branch}\n"))
    })
}

/// Merges branches that all edit one file, each in a place of its own.
///
/// # Errors
/// As [`disjoint`].
pub fn one_file(root: &Path) -> Fallible<Speedup> {
    speedup(root, |branch| {
        let mut lines: Vec<String> = file().lines().map(str::to_owned).collect();
        lines[branch * GAP] = format!("changed by branch {branch}");
        ("src/long.txt".to_owned(), lines.join("\n") + "\n")
    })
}

/// How far the places are from each other, in lines.
const GAP: usize = 10;

/// The file that all edit.
fn file() -> String {
    (0..BRANCHES * GAP)
        .map(|line| format!("line {line} of the file\n"))
        .collect::<Vec<_>>()
        .concat()
}

fn speedup(root: &Path, edit: impl Fn(usize) -> (String, String)) -> Fallible<Speedup> {
    let (work, remote) = (root.join("work"), root.join("remote.git"));
    prepare(root, &work, &remote)?;
    std::fs::write(work.join("src/long.txt"), file())?;
    git(&work, &["add", "."])?;
    git(&work, &["commit", "-q", "-m", "A long file"])?;
    git(&work, &["push", "-q", "origin", "main"])?;
    let batch = GitBatch::open(&work, Settings::default())?;
    let branches = (0..BRANCHES).map(|branch| {
        let (path, content) = edit(branch);
        let commit = Commit::new(format!("b/{branch}"), format!("Branch {branch}"));
        Operation::commit(branch.to_string(), commit.with_base("main").write(path, content))
    });
    apply(&batch, branches.collect())?;
    // Each way starts at the same commit, and none of them has it loose.
    git(&work, &["pack-refs", "--all"])?;
    git(&work, &["gc", "-q"])?;

    let path = root.join("merging");
    git(
        &work,
        &["worktree", "add", "-q", "--no-track", "-b", "by-merge", path_text(&path)?, "main"],
    )?;
    let merge = |branches: std::ops::Range<usize>| -> Fallible<Duration> {
        let started = Instant::now();
        for branch in branches {
            git(&path, &["merge", "-q", "--no-ff", "--no-edit", &format!("b/{branch}")])?;
        }
        Ok(started.elapsed())
    };
    let before = merge(0..BRANCHES / 2)?;
    let mut ours = Vec::new();
    for round in 0..ROUNDS {
        let into = format!("ours-{round}");
        git(&work, &["branch", "-q", "--no-track", &into, "main"])?;
        let merges = (0..BRANCHES)
            .map(|branch| Operation::merge(branch.to_string(), format!("b/{branch}"), &*into));
        let merges = merges.collect();
        let started = Instant::now();
        apply(&batch, merges)?;
        ours.push(started.elapsed());
    }
    let by_merge = before + merge(BRANCHES / 2..BRANCHES)?;
    let by_tree = merge_trees(&work)?;

    let expected = ask(&work, &["rev-parse", "by-merge^{tree}"])?;
    for made in ["by-tree", "ours-0", "ours-1", "ours-2"] {
        if ask(&work, &["rev-parse", &format!("{made}^{{tree}}")])? != expected {
            return Err(format!("{made} has another tree than `git merge` made").into());
        }
    }
    ours.sort();
    let ours = ours[ROUNDS / 2].as_secs_f64();
    Ok(Speedup {
        than_merge: by_merge.as_secs_f64() / ours,
        than_merge_tree: by_tree.as_secs_f64() / ours,
    })
}

/// Merges without a work tree, as scripts do it.
fn merge_trees(work: &Path) -> Fallible<Duration> {
    let started = Instant::now();
    let mut tip = ask(work, &["rev-parse", "main"])?;
    for branch in 0..BRANCHES {
        let name = format!("b/{branch}");
        let tree = ask(work, &["merge-tree", "--write-tree", &tip, &name])?;
        tip = ask(work, &["commit-tree", "-m", "merge", "-p", &tip, "-p", &name, &tree])?;
    }
    git(work, &["update-ref", "refs/heads/by-tree", &tip])?;
    Ok(started.elapsed())
}

fn ask(dir: &Path, args: &[&str]) -> Fallible<String> {
    let output = Command::new("git").current_dir(dir).args(args).output()?;
    if !output.status.success() {
        return Err(format!("git {args:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
