//! Why a repository is not taken, and why an input is not begun.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a repository could not be opened. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no repository at the path.
    #[error("{path:?} is not a git repository; name its work tree or its git directory: {reason}")]
    NotARepository {
        /// The path at fault.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// The repository has no remote of that name.
    #[error("{path:?} has no remote {name:?}; it has {known:?}")]
    UnknownRemote {
        /// The repository.
        path: PathBuf,
        /// The name at fault.
        name: String,
        /// The remotes that there are.
        known: Vec<String>,
    },
    /// The repository uses what this crate cannot handle without harm.
    #[error("{path:?} {what}, which is not supported yet; use the git program there")]
    Unsupported {
        /// The repository.
        path: PathBuf,
        /// What it uses.
        what: String,
    },
    /// The `git` program cannot be run.
    #[error("the git program cannot be run: {0}")]
    Git(String),
    /// The batching engine could not start its thread.
    #[error("the batching thread could not be started")]
    Thread(#[source] io::Error),
}

/// Why nothing of an input was done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// Two operations have one id, so their outcomes could not be told apart.
    #[error("two operations have the id {id:?}; give each its own")]
    DuplicateId {
        /// The id at fault.
        id: String,
    },
    /// The name given to [`land`](crate::GitBatch::land) is no branch name.
    #[error("cannot land onto {name:?}: {reason}")]
    InvalidBranch {
        /// The name at fault.
        name: String,
        /// The rule that it breaks.
        reason: String,
    },
    /// Another process holds the writer's lock of the repository.
    #[error("another process writes to this repository: {path:?} is still locked after {waited:?}")]
    Busy {
        /// The lock file.
        path: PathBuf,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The state folder or the lock in it cannot be written.
    #[error("cannot take the writer's lock {path:?}")]
    Lock {
        /// The file or folder at fault.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What an earlier run left cannot be used.
    #[error("cannot use the record {path:?} of an earlier batch: {reason}")]
    State {
        /// The file at fault.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// An earlier run of the same input was cut off while it pushed, and the remote cannot be asked
    /// what it has got: run again when it can.
    #[error(
        "an earlier run of this input was cut off while it pushed, and the remote {remote:?} cannot \
         be asked what it has got; run again when it can be reached, or after 30 days, when what is \
         known of it is forgotten and all is done anew"
    )]
    Unheard {
        /// The name of the remote.
        remote: String,
    },
    /// The batch id stands for an input with other operations.
    #[error("the batch id {id:?} was used for other operations before; choose another one")]
    OtherInput {
        /// The id at fault.
        id: String,
    },
    /// The repository cannot be opened any more.
    #[error("the repository cannot be opened any more")]
    Open(#[from] OpenError),
}
