//! The command that must succeed on the merged tree before anything is pushed.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::git::{Git, absolute};

/// Variables that a command which may run what a model wrote must not see.
const SECRETS: [&str; 2] = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"];

/// Checks the tree of `commit` out into `folder`, runs `argv` there, and removes the folder.
///
/// There is no shell. What the command prints goes to stderr. The repository's own work tree and
/// index are not touched.
///
/// # Errors
///
/// Why the tree may not be pushed, in one sentence.
pub(crate) fn run(
    repository: &Path,
    commit: &str,
    argv: &[String],
    folder: &Path,
) -> Result<(), String> {
    let folder = absolute(folder).map_err(|stop| stop.message().to_owned())?;
    let index = folder.with_extension("index");
    let result =
        check_out(repository, commit, &folder, &index).and_then(|()| execute(argv, &folder));
    let _ = fs::remove_dir_all(&folder);
    let _ = fs::remove_file(&index);
    result
}

fn check_out(repository: &Path, commit: &str, folder: &Path, index: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot prepare the gate's folder: {error}");
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    fs::create_dir_all(folder).map_err(failed)?;
    let git = Git::at(repository).with_checkout(folder, index);
    git.run(["read-tree", commit])?;
    git.run(["checkout-index", "--all", "--quiet"])?;
    Ok(())
}

fn execute(argv: &[String], folder: &Path) -> Result<(), String> {
    let (program, rest) = argv.split_first().ok_or("the gate names no program")?;
    let named = argv.join(" ");
    // A path with a slash is one in the checkout, as a reader of the plan would expect.
    let program = if program.contains('/') { folder.join(program) } else { program.into() };
    let mut command = Command::new(program);
    for (key, _) in std::env::vars_os() {
        let is_secret = SECRETS.iter().any(|secret| key == *secret);
        if is_secret || key.as_encoded_bytes().starts_with(b"GIT_") {
            command.env_remove(key);
        }
    }
    // What runs git there must not find the repository around it.
    command.env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(folder));
    let status = command
        .args(rest)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(io::stderr())
        .status()
        .map_err(|error| format!("the gate `{named}` cannot be run: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("the gate `{named}` failed: {status}")) }
}
