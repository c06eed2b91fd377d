//! The same tasks done twice: by the git program one after the other, and in one batch.
//!
//! All is done in folders that the caller gives and that stay: where files were deleted in numbers just
//! now, some file systems make new ones ten times as slowly.

pub mod commits;
pub mod merges;
pub mod push;
pub mod rounds;

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use batch_core::Close;
use git_batch::{Commit, GitBatch, Operation, Report, Settings, Worktree};

/// How many tasks are done in each way.
pub const TASKS: usize = 100;

/// Into how many parts the tasks of the git program are cut, and how often the batch is run: the
/// two take turns, so that a busy moment of the machine hits both.
const ROUNDS: usize = 5;

/// How many files the repository has before the tasks.
const FILES: usize = 200;

type Fallible<T> = Result<T, Box<dyn Error>>;

/// Does [`TASKS`] tasks both ways on one remote, checks that the remote has the same trees for
/// both, and returns how many times faster the batch was: all tasks one by one, divided by the
/// median of the batches.
///
/// A task is one new file, one commit on a branch of its own and its push. For the git program
/// that is `add`, `commit` and `push` in a worktree that is there already, the cheapest that an
/// agent does. Takes some ten seconds.
///
/// # Errors
/// A command or an operation failed, or the trees differ.
pub fn speedup(root: &Path) -> Fallible<f64> {
    speedup_of(root, TASKS)
}

/// As [`speedup`], with another number of tasks.
///
/// # Errors
/// As [`speedup`].
pub fn speedup_of(root: &Path, tasks: usize) -> Fallible<f64> {
    let (work, remote) = (root.join("work"), root.join("remote.git"));
    prepare(root, &work, &remote)?;
    let batch = GitBatch::open(&work, Settings::default())?;
    let worktrees =
        (0..tasks).map(|task| add_worktree(root, &work, task)).collect::<Fallible<Vec<_>>>()?;

    let mut one_by_one = Duration::ZERO;
    let mut batches = Vec::new();
    for (round, part) in worktrees.chunks(tasks.div_ceil(ROUNDS)).enumerate() {
        let started = Instant::now();
        for (offset, worktree) in part.iter().enumerate() {
            do_task(worktree, round * part.len() + offset)?;
        }
        one_by_one += started.elapsed();

        let operations = operations(&format!("batch-{round}"), tasks);
        let started = Instant::now();
        let report = apply(&batch, operations)?;
        batches.push(started.elapsed());
        if report.pushes() != 1 {
            return Err(format!("{} pushes for one batch", report.pushes()).into());
        }
    }

    let expected = trees(&remote, "refs/heads/git/")?;
    for round in 0..batches.len() {
        let ours = trees(&remote, &format!("refs/heads/batch-{round}/"))?;
        if ours != expected || expected.len() != tasks {
            return Err("the remote has other trees for the batch than for the git program".into());
        }
    }
    batches.sort();
    Ok(one_by_one.as_secs_f64() / batches[batches.len() / 2].as_secs_f64())
}

/// Lets as many agents edit three files each in a worktree of their own, and returns how many times
/// faster one batch captures and pushes them than `git add -A`, `git commit` and `git push` in each.
///
/// Both have worktrees of their own with the same edits, and take turns in several parts; the batch
/// has all in one, once. Checks that the remote has the same trees for both.
///
/// # Errors
/// A command or an operation failed, or the trees differ.
pub fn worktrees_speedup(root: &Path, agents: usize) -> Fallible<f64> {
    let (work, remote) = (root.join("work"), root.join("remote.git"));
    prepare(root, &work, &remote)?;
    let mut operations = Vec::new();
    let mut by_hand = Vec::new();
    for agent in 0..agents {
        by_hand.push(add_worktree(root, &work, agent)?);
        let (path, branch) = (root.join(format!("ours-{agent}")), format!("ours/task-{agent}"));
        git(&work, &["worktree", "add", "-q", "-b", &branch, path_text(&path)?, "main"])?;
        for worktree in [&by_hand[agent], &path] {
            for file in 0..3 {
                let file = format!("src/part-{file}/file-{file}.txt");
                std::fs::write(worktree.join(file), format!("by agent {agent}\n"))?;
            }
            let (new, content) = file_of(agent);
            std::fs::write(worktree.join(new), content)?;
        }
        let commit =
            Commit::new(&*branch, format!("Do task {agent}")).with_worktree(Worktree::all(path));
        operations.push(Operation::commit(format!("commit-{agent}"), commit));
        operations.push(Operation::push(format!("push-{agent}"), branch));
    }
    let half = agents / 2;
    let one_by_one = |part: &[PathBuf]| -> Fallible<Duration> {
        let started = Instant::now();
        for worktree in part {
            git(worktree, &["add", "-A"])?;
            git(worktree, &["commit", "-q", "-m", "Do the task"])?;
            git(worktree, &["push", "-q", "origin", "HEAD"])?;
        }
        Ok(started.elapsed())
    };
    let before = one_by_one(&by_hand[..half])?;
    let batch = GitBatch::open(&work, Settings::default())?;
    let started = Instant::now();
    apply(&batch, operations)?;
    let took = started.elapsed();
    let after = one_by_one(&by_hand[half..])?;
    let expected = trees(&remote, "refs/heads/git/")?;
    if trees(&remote, "refs/heads/ours/")? != expected || expected.len() != agents {
        return Err("the remote has other trees for the batch than for the git program".into());
    }
    Ok((before + after).as_secs_f64() / took.as_secs_f64())
}

/// Returns 64 MiB divided by what 10,000 queued operations keep of memory beyond what they carry. Only
/// with [`alloc::Counting`](crate::alloc::Counting) as the allocator.
///
/// # Errors
/// The repository cannot be made, or the queue does not take them.
pub fn budget_of_queued_operations(root: &Path) -> Fallible<f64> {
    const COUNT: usize = 10_000;
    let (work, remote) = (root.join("work"), root.join("remote.git"));
    prepare(root, &work, &remote)?;
    let settings =
        Settings::default().with_max_items(2 * COUNT).with_linger(Duration::from_hours(1));
    let batch = GitBatch::open(&work, settings)?;
    let operation = |task: usize| {
        let (path, content) = file_of(task);
        let (id, branch) = (format!("commit-{task}"), format!("task-{task}"));
        let message = format!("Do task {task}");
        let carried = id.len() + branch.len() + message.len() + path.len() + content.len();
        let commit = Commit::new(branch, message).write(path, content);
        (carried, Operation::commit(id, commit))
    };
    let (process, carried) = crate::alloc::count_all(|| -> Fallible<usize> {
        let mut carried = 0;
        for task in 0..COUNT {
            let (len, operation) = operation(task);
            carried += len;
            batch.submit(operation).map_err(|error| error.to_string())?.detach();
        }
        Ok(carried)
    });
    let kept = process.kept_bytes - i64::try_from(carried?)?;
    let left = batch.batcher().close(Close::Abort, Duration::from_secs(10)).leftovers;
    if left.len() != COUNT || kept <= 0 {
        return Err(format!("{} came back, {kept} bytes were kept", left.len()).into());
    }
    #[expect(clippy::cast_precision_loss, reason = "megabytes are exact enough")]
    let kept = kept as f64;
    Ok(f64::from(64 << 20) / kept)
}

/// Makes a repository with [`FILES`] files and its bare remote.
fn prepare(root: &Path, work: &Path, remote: &Path) -> Fallible<()> {
    git(root, &["init", "-q", "--bare", "-b", "main", "remote.git"])?;
    git(root, &["init", "-q", "-b", "main", "work"])?;
    for repository in [work, remote] {
        // What a user has set must not slow down one side.
        for setting in [
            ["user.name", "Bench"],
            ["user.email", "bench@example.org"],
            ["commit.gpgSign", "false"],
            ["core.hooksPath", "no-hooks"],
            ["core.fsmonitor", "false"],
            ["gc.auto", "0"],
            ["maintenance.auto", "false"],
            ["receive.autogc", "false"],
        ] {
            git(repository, &["config", setting[0], setting[1]])?;
        }
    }
    for file in 0..FILES {
        let mut content = String::new();
        for line in 0..50 {
            let _ = writeln!(content, "line {line} of file {file}");
        }
        let folder = work.join(format!("src/part-{}", file % 10));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(format!("file-{file}.txt")), content)?;
    }
    git(work, &["add", "."])?;
    git(work, &["commit", "-q", "-m", "base"])?;
    git(work, &["remote", "add", "origin", path_text(remote)?])?;
    git(work, &["push", "-q", "origin", "main"])
}

fn add_worktree(root: &Path, work: &Path, task: usize) -> Fallible<PathBuf> {
    let path = root.join(format!("worktree-{task}"));
    let branch = format!("git/task-{task}");
    git(work, &["worktree", "add", "-q", "--no-track", "-b", &branch, path_text(&path)?, "main"])?;
    Ok(path)
}

fn do_task(worktree: &Path, task: usize) -> Fallible<()> {
    let (path, content) = file_of(task);
    std::fs::write(worktree.join(&path), content)?;
    git(worktree, &["add", &path])?;
    git(worktree, &["commit", "-q", "-m", &format!("Do task {task}")])?;
    git(worktree, &["push", "-q", "origin", "HEAD"])
}

/// A commit on a new branch in `folder` and the push of it, for each task.
fn operations(folder: &str, tasks: usize) -> Vec<Operation> {
    (0..tasks)
        .flat_map(|task| {
            let branch = format!("{folder}/task-{task}");
            let (path, content) = file_of(task);
            let commit = Commit::new(&*branch, format!("Do task {task}"))
                .with_base("main")
                .write(path, content);
            let id = format!("commit-{task}");
            [Operation::commit(id, commit), Operation::push(format!("push-{task}"), branch)]
        })
        .collect()
}

fn file_of(task: usize) -> (String, String) {
    let content = format!("the result of task {task}\n").repeat(20);
    (format!("src/part-{}/task-{task}.txt", task % 10), content)
}

/// Returns the tree of each branch below `prefix`, by the rest of its name.
fn trees(repository: &Path, prefix: &str) -> Fallible<Vec<String>> {
    let format = format!("--format=%(refname:lstrip={}) %(tree)", prefix.matches('/').count());
    let output = Command::new("git")
        .current_dir(repository)
        .args(["for-each-ref", &format, prefix])
        .output()?;
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}

fn path_text(path: &Path) -> Fallible<&str> {
    path.to_str().ok_or_else(|| "the temporary folder has no UTF-8 name".into())
}

/// Runs operations, all of which have to succeed.
fn apply(batch: &GitBatch, operations: Vec<Operation>) -> Fallible<Report> {
    let report = batch.apply(operations)?;
    match report.outcomes.iter().find(|(_, outcome)| !outcome.is_success()) {
        Some((id, outcome)) => Err(format!("operation {id}: {outcome:?}").into()),
        None => Ok(report),
    }
}

fn git(dir: &Path, args: &[&str]) -> Fallible<()> {
    let output = Command::new("git").current_dir(dir).args(args).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("git {args:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
}
