//! The same tasks without batching, really run: one submission, one commit and one push a task.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use git_batch::{Action, Change, Mode, guard};
use llm_batch::{LlmBatch, Provider};
use serde::Serialize;

use super::Scratch;
use crate::answer::{self, Edit};
use crate::cli::Session;
use crate::git::Git;
use crate::pipeline::{Board, Standing, Study};
use crate::plan::Task;

/// What the comparison took.
#[derive(Debug, Serialize)]
pub(crate) struct OneByOne {
    pub(crate) tasks: usize,
    pub(crate) submissions: u64,
    pub(crate) pushes: u64,
    pub(crate) seconds: f64,
}

/// Runs the tasks one after the other with the git program, on the second scratch remote. What did not
/// land in the run itself is asked for and goes no further. A signal ends it between two tasks.
///
/// # Errors
///
/// Why the comparison could not be made.
pub(crate) fn compare(
    session: &Session,
    scratch: &Scratch,
    done: &Board<'_>,
    study: &Study,
    provider: &Arc<dyn Provider>,
) -> Result<OneByOne, String> {
    let plan = done.plan;
    scratch.clone("one-by-one.git", "one-by-one")?;
    let clone = scratch.root.join("one-by-one");
    let git = scratch.git.in_folder(&clone);
    let state = scratch.root.join("one-by-one.state");
    let mut compared =
        OneByOne { tasks: plan.tasks.len(), submissions: 0, pushes: 0, seconds: 0.0 };
    let mut board = Board::new(plan);
    let begun = Instant::now();
    for at in plan.waves.iter().flatten().copied() {
        if session.interrupt.seen() {
            return Err("it was interrupted".to_owned());
        }
        if board.ready(&[at]).is_empty() {
            continue;
        }
        let task = &plan.tasks[at];
        let rendered = study.requests(&board, &[at]).map_err(|stop| stop.message().to_owned())?;
        let Some(Ok(request)) = rendered.into_iter().next() else { continue };
        // One state for each task: each is a run of its own.
        let llm = LlmBatch::builder(Arc::clone(provider))
            .state(state.join(at.to_string()))
            .build()
            .map_err(|error| error.to_string())?;
        let mut text = None;
        let run =
            llm.run([request], |_, outcome| text = outcome.ok().and_then(|answer| answer.text));
        compared.submissions += run.map_err(|error| error.to_string())?.accounting.submissions;
        let text = text.unwrap_or_default();
        let Ok(edit) = answer::read(&text, &plan.allow) else { continue };
        if matches!(done.get(at), Standing::Landed { .. }) {
            commit_and_push(&git, &clone, scratch.base(), task, &edit)?;
            compared.pushes += 1;
        }
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

/// Changes a file of the clone, and nothing outside of it.
fn put(clone: &Path, change: &Change) -> Result<(), String> {
    let text = change.path.to_string();
    let path = inside(clone, change)?;
    let failed = |error: io::Error| format!("{text}: {error}");
    match &change.action {
        Action::Write { content, mode: mode @ (Mode::File | Mode::Executable) } => {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(failed)?;
            }
            fs::write(&path, content).map_err(failed)?;
            if *mode == Mode::Executable {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(failed)?;
            }
            Ok(())
        }
        Action::Delete => fs::remove_file(&path).map_err(failed),
        _ => Err(format!("\"{text}\" is no plain file")),
    }
}

/// Returns where a path is in the clone; refused is what git would not check out there, and what is
/// behind a symlink, as the run itself refuses it.
fn inside(clone: &Path, change: &Change) -> Result<PathBuf, String> {
    guard::path::check(change.path.as_ref()).map_err(|error| error.to_string())?;
    let mut path = clone.to_owned();
    for part in Path::new(&change.path.to_string()).components() {
        path.push(part);
        match fs::symlink_metadata(&path) {
            Ok(data) if data.is_symlink() => {
                return Err(format!("\"{}\" is, or is behind, a symlink", change.path));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("\"{}\": {error}", change.path)),
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// None of these lands, so a whole run never comes this far with them.
    #[test]
    fn nothing_is_written_outside_of_the_clone_or_into_its_git_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let (clone, outside) = (folder.path().join("clone"), folder.path().join("outside"));
        fs::create_dir_all(clone.join(".git")).expect("made");
        fs::create_dir(&outside).expect("made");
        fs::write(outside.join("there"), "").expect("written");
        std::os::unix::fs::symlink(&outside, clone.join("link")).expect("linked");
        std::os::unix::fs::symlink(outside.join("new"), clone.join("file")).expect("linked");
        let write = || Action::Write { content: b"x".to_vec(), mode: Mode::File };
        let paths = [
            "link/new",
            "link/there",
            "link/deep/new",
            "file",
            ".git/config",
            ".GIT/config",
            "../outside/new",
            "/new",
            "a/../../outside/new",
        ];
        for path in paths {
            assert!(put(&clone, &Change::new(path, write())).is_err(), "{path}");
            assert!(put(&clone, &Change::new(path, Action::Delete)).is_err(), "{path}");
        }
        let names = |folder: &Path| fs::read_dir(folder).expect("it is read").count();
        assert_eq!((names(&outside), names(&clone.join(".git"))), (1, 0));
        put(&clone, &Change::new("a/b", write())).expect("a plain path");
        assert_eq!(fs::read(clone.join("a/b")).expect("it is there"), b"x");
    }
}
