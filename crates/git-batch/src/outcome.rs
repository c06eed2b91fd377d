//! What became of each operation, and what the batch cost.

use std::collections::BTreeSet;
use std::time::Duration;

use bstr::BString;
use gix::ObjectId;

use crate::porcelain;
pub use crate::porcelain::Class;

/// The end of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It is done. For a commit or merge: the local branch has moved, or, for a branch that is
    /// checked out and pushed in the same batch, the remote confirmed it. For a push: the remote
    /// confirmed it.
    Landed {
        /// The commit that the operation made or published.
        commit: ObjectId,
        /// What a commit from a worktree left out, sorted by path.
        left_out: Vec<LeftOut>,
    },
    /// There was nothing to do: the content was there already.
    NoChange {
        /// The tip of the branch, which stays as it was.
        commit: ObjectId,
        /// What a commit from a worktree left out, sorted by path.
        left_out: Vec<LeftOut>,
    },
    /// Two changes of the same place clash; nothing moved.
    Conflict {
        /// The paths that clash, sorted.
        paths: Vec<BString>,
        /// The operations of this batch that it clashes with, as far as they are known.
        with: Vec<String>,
    },
    /// The remote refused it. A commit that was to be pushed stays in the local branch.
    Rejected {
        /// Whether the same push can succeed later.
        class: Class,
        /// What git or the remote gave as the reason.
        reason: String,
    },
    /// Another change took its place: the remote has the commit that was to be pushed, and more on
    /// top of it.
    Superseded,
    /// It was not tried, because an operation that it needs did not succeed.
    Skipped {
        /// The id of that operation.
        because: String,
    },
    /// It cannot be done as it was asked; nothing moved.
    Failed(OpError),
}

/// A path of a worktree that was not committed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct LeftOut {
    /// The path, from the top of the worktree.
    pub path: BString,
    /// Why.
    pub why: Omission,
}

/// Why a path of a worktree was not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Omission {
    /// An untracked file that looks like a secret; what was added with `git add` counts as tracked.
    Secret,
    /// The file is over the limit of [`Settings::with_max_file_bytes`](crate::Settings::with_max_file_bytes).
    TooLarge,
    /// The file was named, but git ignores it.
    Ignored,
    /// Another commit of a submodule; commits from a worktree leave submodules as they are.
    Submodule,
    /// A pipe, a socket or a device stands where a file was.
    Special,
}

impl Omission {
    /// Returns the reason as one word, as the `batchyard` program prints it.
    pub fn as_str(self) -> &'static str {
        match self {
            Omission::Secret => "secret",
            Omission::TooLarge => "too_large",
            Omission::Ignored => "ignored",
            Omission::Submodule => "submodule",
            Omission::Special => "special",
        }
    }
}

impl Outcome {
    pub(crate) fn landed(commit: ObjectId) -> Outcome {
        Outcome::Landed { commit, left_out: Vec::new() }
    }

    pub(crate) fn no_change(commit: ObjectId) -> Outcome {
        Outcome::NoChange { commit, left_out: Vec::new() }
    }

    /// Tells whether what was asked for holds now: [`Outcome::Landed`] or [`Outcome::NoChange`].
    pub fn is_success(&self) -> bool {
        matches!(self, Outcome::Landed { .. } | Outcome::NoChange { .. })
    }

    /// Tells whether a push was refused because somebody else has moved the branch at the remote,
    /// before the push or meanwhile: what is there has to be looked at before it is tried again.
    ///
    /// Knows it by the words of git, which are the same for every remote; one that says it in other
    /// words is a refusal like all others.
    ///
    /// ```
    /// use git_batch::{Class, Outcome};
    ///
    /// let refused = |reason: &str| Outcome::Rejected {
    ///     class: Class::Transient,
    ///     reason: reason.to_owned(),
    /// };
    /// assert!(refused("cannot lock ref 'refs/heads/a': is at 1 but expected 2").is_moved());
    /// assert!(!refused("cannot lock ref 'refs/heads/a': File exists").is_moved());
    /// ```
    pub fn is_moved(&self) -> bool {
        let Outcome::Rejected { class: Class::Transient, reason } = self else { return false };
        porcelain::is_moved(reason)
    }
}

/// What is wrong with one operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct OpError {
    /// The kind, for callers that branch.
    pub kind: OpErrorKind,
    /// What is wrong, with the value at fault, and what helps.
    pub message: String,
}

/// The kinds of [`OpError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OpErrorKind {
    /// The name is no branch name.
    InvalidBranch,
    /// A path may not stand in a tree, or two changes of it contradict each other.
    InvalidPath,
    /// A change is none that git can store.
    InvalidChange,
    /// The attributes of the repository send the path through a filter, such as Git LFS, that is not
    /// run for content given as bytes; or it failed for a file of a worktree.
    Filtered,
    /// The message is empty or holds a NUL byte.
    InvalidMessage,
    /// The author's name or address is none that git can store.
    InvalidIdentity,
    /// Nobody is named as author or committer.
    MissingIdentity,
    /// There is no such local branch.
    UnknownBranch,
    /// There is no such revision to start from.
    UnknownBase,
    /// The branch exists and does not contain the base.
    BaseNotAncestor,
    /// The parent has nothing at the path.
    UnknownPath,
    /// The repository does not have the object.
    UnknownObject,
    /// The branch is checked out in a work tree.
    CheckedOut,
    /// The branch cannot move to the source without a merge.
    NotFastForward,
    /// The two branches have no commit in common.
    UnrelatedHistories,
    /// A branch with merge commits cannot be rebased.
    NotLinear,
    /// The branch name clashes with a branch below or above it.
    BranchClash,
    /// Somebody else moved the local branch meanwhile, or holds its lock.
    BranchMoved,
    /// `after` leads back to the operation itself.
    Cycle,
    /// `after` names no operation of this input.
    UnknownDependency,
    /// Another operation of the same batch has the same id.
    DuplicateId,
    /// The folder is no worktree of the repository, or stands on no branch.
    InvalidWorktree,
    /// Another branch is checked out in the worktree.
    OtherBranch,
    /// Somebody else is at work in the worktree: its index is locked, or a merge or rebase is not
    /// finished.
    WorktreeBusy,
    /// The worktree holds a repository that is no submodule.
    NestedRepository,
    /// The commit would delete most of the files.
    MassDeletion,
    /// A new file looks like a secret.
    Secret,
    /// A file is over the limit of [`Settings::with_max_file_bytes`](crate::Settings::with_max_file_bytes).
    TooLarge,
    /// A new path equals another one but for upper and lower case.
    PathClash,
    /// A commit of a submodule was not pushed from there.
    Submodule,
    /// A hook refused the commit.
    Hook,
    /// The gate failed with it, or cannot be run.
    Gate,
    /// The remote could not be asked.
    Remote,
    /// Reading or writing the repository failed.
    Repository,
}

/// Gives each kind its word, in both directions.
macro_rules! names {
    ($($kind:ident => $name:literal,)*) => {
        impl OpErrorKind {
            /// Returns the kind as one word, as the `batchyard` program prints it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(OpErrorKind::$kind => $name,)*
                }
            }

            /// The kind of that word.
            pub(crate) fn from_name(name: &str) -> Option<OpErrorKind> {
                match name {
                    $($name => Some(OpErrorKind::$kind),)*
                    _ => None,
                }
            }
        }
    };
}

names! {
    InvalidBranch => "invalid_branch",
    InvalidPath => "invalid_path",
    InvalidChange => "invalid_change",
    Filtered => "filtered",
    InvalidMessage => "invalid_message",
    InvalidIdentity => "invalid_identity",
    MissingIdentity => "missing_identity",
    UnknownBranch => "unknown_branch",
    UnknownBase => "unknown_base",
    BaseNotAncestor => "base_not_ancestor",
    UnknownPath => "unknown_path",
    UnknownObject => "unknown_object",
    CheckedOut => "checked_out",
    NotFastForward => "not_fast_forward",
    UnrelatedHistories => "unrelated_histories",
    NotLinear => "not_linear",
    BranchClash => "branch_clash",
    BranchMoved => "branch_moved",
    Cycle => "cycle",
    UnknownDependency => "unknown_dependency",
    DuplicateId => "duplicate_id",
    InvalidWorktree => "invalid_worktree",
    OtherBranch => "other_branch",
    WorktreeBusy => "worktree_busy",
    NestedRepository => "nested_repository",
    MassDeletion => "mass_deletion",
    Secret => "secret",
    TooLarge => "too_large",
    PathClash => "path_clash",
    Submodule => "submodule",
    Hook => "hook",
    Gate => "gate",
    Remote => "remote",
    Repository => "repository",
}

impl OpError {
    pub(crate) fn new(kind: OpErrorKind, message: impl Into<String>) -> OpError {
        OpError { kind, message: message.into() }
    }

    /// An error of the repository below, with all its causes in one line.
    pub(crate) fn repository(doing: &str, error: &dyn std::error::Error) -> OpError {
        OpError::new(OpErrorKind::Repository, format!("{doing}: {}", causes(error)))
    }
}

/// The error and its causes, from the outside in, without repetitions.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !cause_text.is_empty() && !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// The outcomes of one input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The id and the outcome of each operation, in the order of the input.
    pub outcomes: Vec<(String, Outcome)>,
    /// One receipt per batch, in the order in which they ran; one more each time that a batch goes on after
    /// the gate has looked at what the remote had got.
    pub receipts: Vec<Receipt>,
    /// The ids of operations whose outcome was known from an earlier run of the same input.
    pub replayed: BTreeSet<String>,
}

impl Report {
    /// Returns the outcome of the operation `id`.
    pub fn get(&self, id: &str) -> Option<&Outcome> {
        self.outcomes.iter().find(|(other, _)| other == id).map(|(_, outcome)| outcome)
    }

    /// Returns the sum of all receipts.
    pub fn receipt(&self) -> Receipt {
        self.receipts.iter().cloned().fold(Receipt::default(), Receipt::and)
    }

    /// Returns how many push commands ran against the remote.
    pub fn pushes(&self) -> u32 {
        self.receipts.iter().map(|receipt| receipt.pushes).sum()
    }
}

/// What one batch did and cost; the remote's own log can be checked against it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// Push commands run against the remote.
    pub pushes: u32,
    /// Every ref that moved, in the order of their names.
    pub refs: Vec<RefChange>,
    /// The size of the packs written to the local object database.
    pub bytes: u64,
    /// `git` programs started.
    pub processes: u32,
    /// Calls that made files and folders durable, each of them `fsync` or, for many folders, `syncfs`.
    pub fsyncs: u32,
    /// How often a gate ran; verdicts that were known do not count.
    pub gate_runs: u32,
    /// Wall time from the lock to the last answer.
    pub seconds: Duration,
}

impl Receipt {
    /// The sum of both.
    pub(crate) fn and(mut self, mut other: Receipt) -> Receipt {
        self.pushes += other.pushes;
        self.refs.append(&mut other.refs);
        self.refs.sort();
        self.bytes += other.bytes;
        self.processes += other.processes;
        self.fsyncs += other.fsyncs;
        self.gate_runs += other.gate_runs;
        self.seconds += other.seconds;
        self
    }
}

/// One ref that moved.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct RefChange {
    /// The full name.
    pub name: BString,
    /// Where it moved.
    pub place: Place,
    /// What it was; `None` if it is new.
    pub old: Option<ObjectId>,
    /// What it is.
    pub new: ObjectId,
}

/// Where a ref lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Place {
    /// In the local repository.
    Local,
    /// At the remote.
    Remote,
}

impl Place {
    /// Returns the place as one word, as the `batchyard` program prints it.
    pub fn as_str(self) -> &'static str {
        match self {
            Place::Local => "local",
            Place::Remote => "remote",
        }
    }
}
