//! Commits alone, without any push: by `git fast-import`, and in one batch.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use git_batch::{Commit, GitBatch, Operation, Settings};

use super::rounds::{Ratios, timed};
use super::{Fallible, TASKS, apply, file_of, git, operations, path_text, prepare, trees};

/// How often each side takes its turn.
const ROUNDS: usize = 15;

/// How many times faster a batch makes [`TASKS`] commits on as many new branches than one
/// `git fast-import` that is given the same.
#[derive(Clone, Debug)]
pub struct VsFastImport {
    /// Than one whose refs are made durable as git does it when it is told to.
    pub durable: Ratios,
    /// Than one after which the whole file system is made durable, by one `sync`.
    pub synced: Ratios,
    /// Than one that leaves its refs to the next power cut.
    pub bare: Ratios,
}

/// The ways of `git fast-import`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Bare,
    Durable,
    Synced,
}

/// Measures that, in folders of `root`, which stay. Each side has a copy of one repository to itself in
/// each round, and another one goes first.
///
/// # Errors
/// A command or an operation failed, or the trees differ.
pub fn vs_fast_import(root: &Path) -> Fallible<VsFastImport> {
    let (work, remote) = (root.join("work"), root.join("remote.git"));
    prepare(root, &work, &remote)?;
    // What is made once in a repository is there, and what it has is packed, as in a clone.
    let first = Commit::new("first", "First").with_base("main").write("first.txt", "1\n");
    apply(&GitBatch::open(&work, Settings::default())?, vec![Operation::commit("first", first)])?;
    git(&work, &["gc", "-q"])?;

    let stream = stream();
    let sides = [None, Some(Way::Bare), Some(Way::Durable), Some(Way::Synced)];
    let mut times: [Vec<Duration>; 4] = Default::default();
    for round in 0..ROUNDS {
        let mut made = Vec::new();
        for turn in 0..sides.len() {
            let side = (round + turn) % sides.len();
            let repository = root.join(format!("{round}-{side}"));
            copy(&work.join(".git"), &repository)?;
            let took = match sides[side] {
                None => {
                    let batch = GitBatch::open(&repository, Settings::default())?;
                    let commits = operations("task", TASKS).into_iter().step_by(2).collect();
                    timed(|| apply(&batch, commits))?.0
                }
                Some(way) => timed(|| fast_import(&repository, way, &stream))?.0,
            };
            times[side].push(took);
            made.push(trees(&repository, "refs/heads/task/")?);
        }
        if made[0].len() != TASKS || made.iter().any(|other| *other != made[0]) {
            return Err("two sides made other trees".into());
        }
    }
    let [ours, bare, durable, synced] = &times;
    Ok(VsFastImport {
        durable: Ratios::of(durable, ours),
        synced: Ratios::of(synced, ours),
        bare: Ratios::of(bare, ours),
    })
}

fn copy(from: &Path, to: &Path) -> Fallible<()> {
    std::fs::create_dir(to)?;
    let status = Command::new("cp").arg("-R").args([from, to]).status()?;
    if status.success() { Ok(()) } else { Err(format!("cannot copy {}", from.display()).into()) }
}

/// What `git fast-import` reads to make the commits.
fn stream() -> String {
    let mut stream = String::new();
    for task in 0..TASKS {
        let (path, content) = file_of(task);
        let message = format!("Do task {task}");
        let _ = write!(
            stream,
            "commit refs/heads/task/task-{task}\ncommitter B <b@example.org> 1700000000 +0000\n\
             data {}\n{message}\nfrom refs/heads/main^0\nM 100644 inline {path}\ndata {}\n{content}\n",
            message.len(),
            content.len()
        );
    }
    stream
}

fn fast_import(repository: &Path, way: Way, stream: &str) -> Fallible<()> {
    let mut command = Command::new("git");
    command.current_dir(repository);
    if way == Way::Durable {
        command.args(["-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync"]);
    }
    let mut child = command.args(["fast-import", "--quiet"]).stdin(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("no stdin")?.write_all(stream.as_bytes())?;
    if !child.wait()?.success() {
        return Err("git fast-import failed".into());
    }
    if way == Way::Synced {
        let mut sync = Command::new("sync");
        if cfg!(target_os = "linux") {
            sync.args(["-f", path_text(repository)?]);
        }
        if !sync.status()?.success() {
            return Err("sync failed".into());
        }
    }
    Ok(())
}
