//! Why a remote could not be asked.

use super::{Class, scrub};
use crate::program::{GitError, Output};

/// Why a remote could not be asked, or gave no answer for any ref.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The `git` program could not be run to its end.
    #[error("git could not be run to its end")]
    Git(#[from] GitError),
    /// The `git` program failed without an answer for any ref.
    #[error("cannot {action} {remote:?}: {stderr}")]
    Failed {
        /// What was tried: `push to`, `fetch from`, `list the refs of`.
        action: &'static str,
        /// The remote, without credentials.
        remote: String,
        /// What git said, or its status if it said nothing; without credentials.
        stderr: String,
        /// Whether trying again can help.
        class: Class,
    },
    /// The remote, or a ref of it, has a name that cannot be one.
    #[error("{name:?} is no name of a {what}; check the settings")]
    BadName {
        /// What was to be named: `remote` or `ref`.
        what: &'static str,
        /// The name at fault.
        name: String,
    },
    /// The remote does not have a ref that was asked for.
    #[error("{remote:?} has no ref {name:?}; list its refs with `git ls-remote`")]
    MissingRef {
        /// The remote, without credentials.
        remote: String,
        /// The ref that it lacks.
        name: String,
    },
    /// The remote answered what is no list of refs.
    #[error("{remote:?} answered {line:?}, which is no line about a ref")]
    BadAnswer {
        /// The remote, without credentials.
        remote: String,
        /// The line at fault.
        line: String,
    },
    /// A file for the many refs of a push could not be written.
    #[error("cannot write the refs of a push to a file")]
    File(#[source] std::io::Error),
    /// The repository could not be read.
    #[error("cannot read the repository")]
    Repository(#[source] gix::Error),
}

impl PublishError {
    /// Returns whether trying again can help: a network that failed, or a remote that was busy.
    pub fn class(&self) -> Class {
        match self {
            PublishError::Failed { class, .. } => *class,
            PublishError::Git(GitError::TimedOut { .. }) => Class::Transient,
            _ => Class::Permanent,
        }
    }

    /// Whether a push that gave this error was begun, so that the remote may have seen it.
    pub(crate) fn has_run(&self) -> bool {
        match self {
            PublishError::Failed { .. } => true,
            PublishError::Git(error) => {
                !matches!(error, GitError::Spawn { .. } | GitError::NotAFolder { .. })
            }
            _ => false,
        }
    }

    pub(super) fn failed(action: &'static str, remote: &str, output: &Output) -> PublishError {
        let said = scrub::excerpt(&output.stderr);
        let stderr = match (said.is_empty(), output.code) {
            (false, _) => said,
            (true, Some(code)) => format!("git ended with status {code} and gave no reason"),
            (true, None) => "git was ended by a signal".to_owned(),
        };
        let class = classify(&stderr);
        PublishError::Failed { action, remote: scrub::line(remote.as_bytes()), stderr, class }
    }
}

/// Says whether a failure of the whole call can pass. What is not known is taken for final.
fn classify(stderr: &str) -> Class {
    /// Beats the list below: ssh adds "could not read from remote repository" to everything.
    const PERMANENT: [&str; 6] = [
        "permission denied",
        "authentication failed",
        "could not read username",
        "could not read password",
        "host key verification failed",
        "not found",
    ];
    const TRANSIENT: [&str; 15] = [
        "could not resolve host",
        "connection refused",
        "connection reset",
        "connection timed out",
        "connection closed",
        "operation timed out",
        "network is unreachable",
        "no route to host",
        "early eof",
        "hung up unexpectedly",
        "unexpected disconnect",
        "returned error: 429",
        "returned error: 5",
        "rpc failed",
        // Also said while a `git worktree add` is not finished: its `HEAD` is no commit yet.
        "did not send all necessary objects",
    ];
    let stderr = stderr.to_ascii_lowercase();
    let is_in = |list: &[&str]| list.iter().any(|known| stderr.contains(known));
    if !is_in(&PERMANENT) && is_in(&TRANSIENT) { Class::Transient } else { Class::Permanent }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_failures_pass_and_refusals_do_not() {
        for (stderr, class) in [
            ("fatal: unable to access 'x': Could not resolve host: nowhere", Class::Transient),
            ("error: RPC failed; HTTP 502 curl 22", Class::Transient),
            ("fatal: the remote end hung up unexpectedly", Class::Transient),
            ("The requested URL returned error: 503", Class::Transient),
            ("git@h: Permission denied (publickey).\nfatal: Could not read", Class::Permanent),
            ("fatal: Authentication failed for 'https://h/'", Class::Permanent),
            ("fatal: 'nope' does not appear to be a git repository", Class::Permanent),
            ("remote: Repository not found.\nfatal: early EOF", Class::Permanent),
        ] {
            assert_eq!(classify(stderr), class, "{stderr}");
        }
    }
}
