//! The same tasks without batching, really run: one submission, one commit and one push a task.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Instant;

use git_batch::{Action, Change, Mode};
use llm_batch::{LlmBatch, Provider};
use serde::Serialize;

use super::Scratch;
use crate::answer::{self, Edit};
use crate::git::Git;
use crate::pipeline::{Board, Standing, Study};
use crate::plan::{Plan, Task};

/// What the comparison took.
#[derive(Debug, Serialize)]
pub(crate) struct OneByOne {
    pub(crate) tasks: usize,
    pub(crate) submissions: u64,
    pub(crate) pushes: u64,
    pub(crate) seconds: f64,
}

/// Runs the tasks one after the other with the git program, on the second scratch remote.
///
/// # Errors
///
/// Why the comparison could not be made.
pub(crate) fn compare(
    scratch: &Scratch,
    plan: &Plan,
    study: &Study,
    provider: &Arc<dyn Provider>,
) -> Result<OneByOne, String> {
    scratch.clone("one-by-one.git", "one-by-one")?;
    let clone = scratch.root.join("one-by-one");
    let git = scratch.git.in_folder(&clone);
    let state = scratch.root.join("one-by-one.state");
    let mut compared =
        OneByOne { tasks: plan.tasks.len(), submissions: 0, pushes: 0, seconds: 0.0 };
    let mut board = Board::new(plan);
    let begun = Instant::now();
    for at in plan.waves.iter().flatten().copied() {
        if board.ready(&[at]).is_empty() {
            continue;
        }
        let task = &plan.tasks[at];
        let requests = study.requests(&board, &[at]).map_err(|stop| stop.message().to_owned())?;
        // One state for each task: each is a run of its own.
        let llm = LlmBatch::builder(Arc::clone(provider))
            .state(state.join(at.to_string()))
            .build()
            .map_err(|error| error.to_string())?;
        let mut text = None;
        let run =
            llm.run(requests, |_, outcome| text = outcome.ok().and_then(|answer| answer.text));
        compared.submissions += run.map_err(|error| error.to_string())?.accounting.submissions;
        let text = text.unwrap_or_default();
        let Ok(edit) = answer::read(&text, &plan.allow) else { continue };
        commit_and_push(&git, &clone, scratch.base(), task, &edit)?;
        compared.pushes += 1;
        board.set(at, Standing::Answered { text, edit });
    }
    compared.seconds = begun.elapsed().as_secs_f64();
    Ok(compared)
}

fn commit_and_push(
    git: &Git,
    clone: &Path,
    base: &str,
    task: &Task,
    edit: &Edit,
) -> Result<(), String> {
    let branch = task.branch();
    git.run(["checkout", "--quiet", "--no-track", "-B", &branch, &format!("origin/{base}")])?;
    for change in &edit.changes {
        put(clone, change)?;
    }
    git.run(["add", "--all"])?;
    let message = edit.message.as_deref().unwrap_or(&task.id);
    git.run(["commit", "--quiet", "--message", message])?;
    git.run(["push", "--quiet", "origin", &branch])?;
    Ok(())
}

fn put(clone: &Path, change: &Change) -> Result<(), String> {
    let text = change.path.to_string();
    let relative = Path::new(&text);
    if !relative.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(format!("\"{text}\" is no plain path"));
    }
    let path = clone.join(relative);
    let failed = |error: std::io::Error| format!("{text}: {error}");
    match &change.action {
        Action::Write { content, mode: Mode::File | Mode::Executable } => {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(failed)?;
            }
            fs::write(&path, content).map_err(failed)?;
            if matches!(change.action, Action::Write { mode: Mode::Executable, .. }) {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(failed)?;
            }
            Ok(())
        }
        Action::Delete => fs::remove_file(&path).map_err(failed),
        _ => Err(format!("\"{text}\" is no plain file")),
    }
}
