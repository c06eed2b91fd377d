//! A whole batch beside the push that is in it.

use std::path::Path;

use git_batch::{Commit, GitBatch, Operation, Settings};

use super::rounds::{Ratios, timed};
use super::{Fallible, TASKS, apply, file_of, git, path_text, prepare, trees};

/// How often each side takes its turn.
const ROUNDS: usize = 11;

/// Returns how long a bare `git push --atomic` of [`TASKS`] new branches takes, divided by what a whole
/// batch takes that makes and pushes the same: at most 1, less for all that is more than the push. In
/// folders of `root`, which stay.
///
/// # Errors
/// A command or an operation failed, or the trees differ.
pub fn bare_vs_batch(root: &Path) -> Fallible<Ratios> {
    let (work, remote) = (root.join("work"), root.join("remote.git"));
    prepare(root, &work, &remote)?;
    let bare = root.join("bare.git");
    git(root, &["clone", "-q", "--bare", path_text(&remote)?, path_text(&bare)?])?;
    for setting in ["gc.auto", "receive.autogc"] {
        git(&bare, &["config", setting, "0"])?;
    }
    let batch = GitBatch::open(&work, Settings::default())?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let folder = format!("batch-{round}");
        let operations = operations(&folder);
        ours.push(timed(|| apply(&batch, operations))?.0);
        let mut args = vec!["push", "-q", "--atomic", path_text(&bare)?];
        let refs: Vec<String> =
            (0..TASKS).map(|task| format!("refs/heads/{folder}/task-{task}")).collect();
        args.extend(refs.iter().map(String::as_str));
        theirs.push(timed(|| git(&work, &args))?.0);
        let prefix = format!("refs/heads/{folder}/");
        if trees(&bare, &prefix)? != trees(&remote, &prefix)? {
            return Err("the two remotes have other trees".into());
        }
    }
    Ok(Ratios::of(&theirs, &ours))
}

/// A commit on a new branch in `folder` and the push of it, for each task. No other folder has the same
/// content: it would be at the remote already.
fn operations(folder: &str) -> Vec<Operation> {
    let operations = (0..TASKS).map(|task| {
        let branch = format!("{folder}/task-{task}");
        let (path, content) = file_of(task);
        let commit = Commit::new(&*branch, format!("Do task {task}")).with_base("main");
        let commit = commit.write(path, format!("{content}for {folder}\n"));
        [
            Operation::commit(format!("commit-{task}"), commit),
            Operation::push(format!("push-{task}"), branch),
        ]
    });
    operations.flatten().collect()
}
