//! The `git` program as a child process that neither the environment nor a user's settings can
//! mislead.
//!
//! The network half of this crate is the `git` program, because only it honours every credential
//! helper, SSH setting and hook that a user has. What must not reach it is everything that would
//! make the same call do something else: see [`Git::command`].

mod child;
mod running;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub(crate) use self::running::Running;
pub use self::running::end_all;

/// The oldest git that has every option used here (`--attr-source`, `merge-tree --write-tree`).
const MIN_VERSION: (u32, u32) = (2, 41);

/// Environment variables beginning with `GIT_` that are passed on: how to reach a remote and
/// where the user's settings are. All others name a repository, an index, objects, an identity or
/// a trace, and would make the child work on something else than it was asked to.
const KEPT: [&str; 9] = [
    // Where credentials, proxies and `insteadOf` are configured.
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
    // Settings for one command: git itself passes them on from repository to repository, and CI
    // systems hand over tokens by them. What matters here is set after them and wins.
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_ASKPASS",
    // Removing a limit on transports would loosen it.
    "GIT_ALLOW_PROTOCOL",
    "GIT_PROTOCOL_FROM_USER",
    // Where a git that is not installed system-wide finds its own parts.
    "GIT_EXEC_PATH",
];

/// As [`KEPT`], by prefix.
const KEPT_PREFIXES: [&str; 6] =
    ["GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_", "GIT_HTTP_", "GIT_PROXY_", "GIT_SSH", "GIT_SSL_"];

/// Settings that hold for every call, over those of the user and the repository.
const SETTINGS: [&str; 12] = [
    // No housekeeping in the back: it would hold locks, and prune what no ref reaches yet.
    "gc.auto=0",
    "maintenance.auto=false",
    // A push moves the refs it names and no others.
    "push.followTags=false",
    "push.recurseSubmodules=no",
    "push.gpgSign=false",
    "submodule.recurse=false",
    // What is given as an id is one: git need not look for refs that are called so, six times each.
    "core.warnAmbiguousRefs=false",
    // Output is read by this crate.
    "color.ui=false",
    "color.push=false",
    "color.remote=false",
    "color.transport=false",
    "advice.pushUpdateRejected=false",
];

/// Runs the `git` program against one repository.
///
/// Cheap to clone. Each [`run`](Git::run) is one process; nothing is kept open between runs.
#[derive(Debug, Clone)]
pub struct Git {
    program: OsString,
    repository: PathBuf,
    work_dir: PathBuf,
    time_limit: Option<Duration>,
    max_stdout: usize,
    max_stderr: usize,
    stop: Option<Arc<AtomicBool>>,
}

/// What a finished `git` left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Output {
    /// The exit status; `None` if a signal ended the process.
    pub code: Option<i32>,
    /// All of standard output.
    pub stdout: Vec<u8>,
    /// Standard error; what is over the limit was dropped.
    pub stderr: Vec<u8>,
}

impl Output {
    /// Returns true if git ended with status 0.
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }
}

/// Why the `git` program gave no output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GitError {
    /// There is no folder where the git directory should be.
    #[error("{path:?} is no git directory; give the path of a repository's .git folder")]
    NotAFolder {
        /// The path at fault.
        path: PathBuf,
    },
    /// The program could not be started.
    #[error("cannot run the program {program:?}; is git installed and on PATH?")]
    Spawn {
        /// The program.
        program: OsString,
        /// What the system said.
        source: io::Error,
    },
    /// The program is older than this crate needs.
    #[error("{program:?} is {found:?}; install git {}.{} or newer", MIN_VERSION.0, MIN_VERSION.1)]
    TooOld {
        /// The program.
        program: OsString,
        /// What it said when asked for its version.
        found: String,
    },
    /// Reading from the program failed.
    #[error("reading the output of {program:?} failed")]
    Read {
        /// The program.
        program: OsString,
        /// What the system said.
        source: io::Error,
    },
    /// The program ran longer than it may and was ended.
    #[error(
        "{program:?} was still running after {limit:?} and was ended; raise the time limit if the remote is slow"
    )]
    TimedOut {
        /// The program.
        program: OsString,
        /// How long it might run.
        limit: Duration,
    },
    /// The program, or one that it had started such as a hook, asked something on the terminal, where
    /// nothing answers it, and was ended.
    #[error(
        "{program:?} or a hook of it was stopped as it asked for something on the terminal, and was ended; \
         use an agent or a credential helper that does not ask, and hooks that need no answer"
    )]
    Stopped {
        /// The program.
        program: OsString,
    },
    /// The program wrote more to standard output than is kept, and was ended.
    #[error("{program:?} wrote more than {limit} bytes and was ended")]
    TooMuchOutput {
        /// The program.
        program: OsString,
        /// The most that is kept, in bytes.
        limit: usize,
    },
}

impl Git {
    /// Returns a runner for the repository whose git directory is `git_dir` (the `.git` folder of
    /// a checkout, the folder of a bare repository, or that of a linked worktree).
    ///
    /// Starts one process, to learn the version of git.
    ///
    /// # Errors
    /// `git_dir` is no folder, or git is missing or older than 2.41.
    pub fn open(git_dir: &Path) -> Result<Git, GitError> {
        Git::open_with(OsStr::new("git"), git_dir)
    }

    /// As [`open`](Git::open), with another program than the `git` on `PATH`.
    ///
    /// # Errors
    /// As [`open`](Git::open).
    pub fn open_with(program: &OsStr, git_dir: &Path) -> Result<Git, GitError> {
        let no_folder = || GitError::NotAFolder { path: git_dir.to_owned() };
        let repository = git_dir.canonicalize().map_err(|_| no_folder())?;
        if !repository.is_dir() {
            return Err(no_folder());
        }
        let git = Git {
            program: program.to_owned(),
            work_dir: work_dir(&repository),
            repository,
            time_limit: Some(Duration::from_mins(30)),
            max_stdout: 256 << 20,
            max_stderr: 64 << 10,
            stop: None,
        };
        let version = git.run(["version"], None)?;
        let text = String::from_utf8_lossy(&version.stdout).trim().to_owned();
        if !version.is_success() || parse_version(&text).is_none_or(|found| found < MIN_VERSION) {
            return Err(GitError::TooOld { program: git.program, found: text });
        }
        Ok(git)
    }

    /// The same runner for another git directory of the same repository.
    pub(crate) fn in_git_dir(&self, git_dir: &Path) -> Git {
        Git { repository: git_dir.to_owned(), work_dir: work_dir(git_dir), ..self.clone() }
    }

    /// Sets how long one run may take, 30 minutes by default; `None` waits without end.
    #[must_use]
    pub fn with_time_limit(mut self, limit: Option<Duration>) -> Git {
        self.time_limit = limit;
        self
    }

    /// Ends a run, as if its time was up, soon after somebody sets the flag.
    pub(crate) fn stopped_by(mut self, flag: Arc<AtomicBool>) -> Git {
        self.stop = Some(flag);
        self
    }

    /// Sets how much of standard output is read before the run fails, 256 MiB by default.
    #[must_use]
    pub fn with_max_stdout(mut self, bytes: usize) -> Git {
        self.max_stdout = bytes;
        self
    }

    /// Returns the git directory, absolute and without symlinks.
    pub fn git_dir(&self) -> &Path {
        &self.repository
    }

    /// Returns the command that [`run`](Git::run) would start, up to `args`.
    ///
    /// It names the repository by `--git-dir` and stands where git itself would stand, at the top
    /// of the checkout or in the bare repository, so that relative URLs and hooks work. Variables
    /// that begin with `GIT_` are removed, but for those that say how to reach a remote; messages
    /// are in English; nothing asks on a terminal, SSH neither; nothing runs in the background. Hooks
    /// run.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            if !is_kept(&name) {
                command.env_remove(name);
            }
        }
        let ways = ["SSH_ASKPASS_REQUIRE", "GIT_SSH_COMMAND", "GIT_SSH"];
        if ways.into_iter().all(|name| std::env::var_os(name).is_none()) {
            // It is not in the foreground of a terminal, so SSH would be stopped there and not answered.
            command.env("SSH_ASKPASS_REQUIRE", "force");
        }
        command
            .env("LC_ALL", "C")
            .env("GIT_TERMINAL_PROMPT", "0")
            .current_dir(&self.work_dir)
            .stdin(Stdio::null())
            .arg("--no-pager")
            .arg("--git-dir")
            .arg(&self.repository);
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        command
    }

    /// Runs `git` with `args`, gives it `stdin` to read, and waits for its end.
    ///
    /// Blocks up to the time limit. Arguments go to git as they are, never through a shell.
    ///
    /// # Errors
    /// The program could not be started, ran too long or wrote too much. A status other than zero
    /// is no error here: see [`Output::code`].
    pub fn run<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
        stdin: Option<&[u8]>,
    ) -> Result<Output, GitError> {
        let mut command = self.command();
        command.args(args);
        self.finish(command, stdin)
    }

    /// Runs a command made by [`command`](Git::command) to its end.
    pub(crate) fn finish(
        &self,
        command: Command,
        stdin: Option<&[u8]>,
    ) -> Result<Output, GitError> {
        let limits = child::Limits {
            time: self.time_limit,
            stdout: self.max_stdout,
            stderr: self.max_stderr,
            stop: self.stop.clone(),
        };
        child::run(command, stdin.map(<[u8]>::to_vec), &limits)
    }
}

/// Returns where git stands when it is started by hand in the repository.
fn work_dir(git_dir: &Path) -> PathBuf {
    let checkout_of = |dot_git: &Path| dot_git.parent().map(Path::to_owned);
    if git_dir.file_name() == Some(OsStr::new(".git")) {
        return checkout_of(git_dir).unwrap_or_else(|| git_dir.to_owned());
    }
    // A linked worktree's git directory names the `.git` file of its checkout.
    std::fs::read_to_string(git_dir.join("gitdir"))
        .ok()
        .and_then(|text| checkout_of(&git_dir.join(text.trim_end())))
        .filter(|checkout| checkout.is_dir())
        .unwrap_or_else(|| git_dir.to_owned())
}

fn is_kept(name: &OsStr) -> bool {
    // A name that is no UTF-8 is none of git's, unless it was made to look like one.
    let name = name.to_string_lossy();
    !name.starts_with("GIT_")
        || KEPT.contains(&&*name)
        || KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Reads `git version 2.47.3`, with anything after the second number.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("git version ")?.split(['.', '-', ' ']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_all_platforms_are_read() {
        for (text, version) in [
            ("git version 2.47.3", Some((2, 47))),
            ("git version 2.39.5 (Apple Git-154)", Some((2, 39))),
            ("git version 2.45.1.windows.1", Some((2, 45))),
            ("git version 3.0-rc1", Some((3, 0))),
            ("usage: git", None),
        ] {
            assert_eq!(parse_version(text), version, "{text}");
        }
    }

    #[test]
    fn only_variables_that_reach_a_remote_are_kept() {
        for name in ["PATH", "HOME", "SSH_AUTH_SOCK", "GIT_SSH_COMMAND", "GIT_CONFIG_KEY_0"] {
            assert!(is_kept(OsStr::new(name)), "{name}");
        }
        for name in [
            "GIT_DIR",
            "GIT_COMMON_DIR",
            "GIT_WORK_TREE",
            "GIT_INDEX_FILE",
            "GIT_OBJECT_DIRECTORY",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES",
            "GIT_NAMESPACE",
            "GIT_QUARANTINE_PATH",
            "GIT_SHALLOW_FILE",
            "GIT_CONFIG",
            "GIT_TRACE",
            "GIT_PUSH_OPTION_COUNT",
            "GIT_REDIRECT_STDERR",
        ] {
            assert!(!is_kept(OsStr::new(name)), "{name}");
        }
    }
}
