//! The same tasks done twice: by the git program one after the other, and in one batch.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use git_batch::{Commit, GitBatch, Operation, Settings};

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
pub fn speedup() -> Fallible<f64> {
    let root = tempfile::tempdir()?;
    let (work, remote) = (root.path().join("work"), root.path().join("remote.git"));
    prepare(root.path(), &work, &remote)?;
    let batch = GitBatch::open(&work, Settings::default())?;
    let worktrees = (0..TASKS)
        .map(|task| add_worktree(root.path(), &work, task))
        .collect::<Fallible<Vec<_>>>()?;

    let mut one_by_one = Duration::ZERO;
    let mut batches = Vec::new();
    for (round, part) in worktrees.chunks(TASKS.div_ceil(ROUNDS)).enumerate() {
        let started = Instant::now();
        for (offset, worktree) in part.iter().enumerate() {
            do_task(worktree, round * part.len() + offset)?;
        }
        one_by_one += started.elapsed();

        let operations = operations(round);
        let started = Instant::now();
        let report = batch.apply(operations)?;
        batches.push(started.elapsed());
        if let Some((id, outcome)) = report.outcomes.iter().find(|(_, end)| !end.is_success()) {
            return Err(format!("operation {id}: {outcome:?}").into());
        }
        if report.pushes() != 1 {
            return Err(format!("{} pushes for one batch", report.pushes()).into());
        }
    }

    let expected = trees(&remote, "refs/heads/git/")?;
    for round in 0..batches.len() {
        let ours = trees(&remote, &format!("refs/heads/batch-{round}/"))?;
        if ours != expected || expected.len() != TASKS {
            return Err("the remote has other trees for the batch than for the git program".into());
        }
    }
    batches.sort();
    Ok(one_by_one.as_secs_f64() / batches[batches.len() / 2].as_secs_f64())
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

fn operations(round: usize) -> Vec<Operation> {
    (0..TASKS)
        .flat_map(|task| {
            let branch = format!("batch-{round}/task-{task}");
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

fn git(dir: &Path, args: &[&str]) -> Fallible<()> {
    let output = Command::new("git").current_dir(dir).args(args).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("git {args:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
}
