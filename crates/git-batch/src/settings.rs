//! How a [`GitBatch`](crate::GitBatch) batches.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::{Author, Gate};

/// The settings of a [`GitBatch`](crate::GitBatch).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    pub(crate) remote: String,
    pub(crate) max_items: Option<usize>,
    pub(crate) linger: Duration,
    pub(crate) wait: Option<Duration>,
    pub(crate) author: Option<Author>,
    pub(crate) max_file_bytes: u64,
    pub(crate) worktree_wait: Duration,
    pub(crate) push_options: Vec<String>,
    pub(crate) on_moved: OnMoved,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) allowed: BTreeSet<Guard>,
    pub(crate) hooks: BTreeSet<Hook>,
    pub(crate) gate: Option<Gate>,
    pub(crate) executor: ExecutorKind,
    pub(crate) max_refs_per_push: Option<usize>,
}

/// Who writes objects and moves refs in the local repository. The same operations give the same
/// commits and refs in any case, and pushes are made by the git program in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum ExecutorKind {
    /// The git program where it is needed (refs in a reftable, a reference-transaction hook), gix
    /// elsewhere.
    #[default]
    Auto,
    /// gix and code of this crate: few processes. What it cannot do is refused when the repository is
    /// opened.
    Gix,
    /// The git program: a process for each step and each merge.
    GitProgram,
}

/// A hook of the repository that runs only where it is asked for.
///
/// What needs no asking: `pre-push` runs once for each push, with all its refs, as git does it, and
/// hooks of the remote run there. What cannot be had: `pre-commit`, which looks at a work tree and an
/// index, `prepare-commit-msg` and `post-commit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Hook {
    /// `commit-msg`, for each commit and for each merge that makes one: it can change the message, or
    /// refuse it, which fails the operation. One process each.
    CommitMsg,
}

/// A check that refuses what git would take and is most likely a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Guard {
    /// A commit that deletes more than half of the files, and at least 20.
    MassDeletion,
    /// Content given as bytes for a new path that looks like a secret, as [`guard::secret`] tells.
    ///
    /// [`guard::secret`]: crate::guard::secret
    Secrets,
    /// A new path or branch that another one equals but for upper and lower case.
    CaseClashes,
    /// A commit of a submodule, given with its id, that the submodule's own repository here has not
    /// pushed: nobody else could check it out. Where the submodule is not cloned, nothing is known.
    Submodules,
}

/// What a push does where the remote's branch has commits that the local one lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum OnMoved {
    /// Merges the remote's commits into the local branch and pushes the result.
    #[default]
    Merge,
    /// Makes the commits of the local branch again on top of the remote's and pushes those.
    Rebase,
    /// Fails with a transient [`Outcome::Rejected`](crate::Outcome::Rejected).
    Fail,
}

/// How much of a landing is done ([`GitBatch::land_with`](crate::GitBatch::land_with)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum Extent {
    /// Nothing: all is built and checked in memory, and the gate looks at it.
    Preview,
    /// The local branches move, if the gate lets the whole pass; nothing is pushed. An outcome of what
    /// would be pushed says whether that would be tried.
    Local,
    /// All of it.
    #[default]
    All,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            remote: "origin".to_owned(),
            max_items: None,
            linger: Duration::from_secs(5),
            wait: None,
            author: None,
            max_file_bytes: 100 << 20,
            worktree_wait: Duration::from_secs(10),
            push_options: Vec::new(),
            on_moved: OnMoved::default(),
            time_limit: Some(Duration::from_mins(30)),
            allowed: BTreeSet::new(),
            hooks: BTreeSet::new(),
            gate: None,
            executor: ExecutorKind::default(),
            max_refs_per_push: None,
        }
    }
}

impl Settings {
    /// Sets the remote to push to; by default `origin`.
    #[must_use]
    pub fn with_remote(mut self, name: impl Into<String>) -> Settings {
        self.remote = name.into();
        self
    }

    /// Sets how many operations one batch holds at most; zero counts as one. By default 10 for
    /// [`submit`](crate::GitBatch::submit) and no limit for [`apply`](crate::GitBatch::apply).
    #[must_use]
    pub fn with_max_items(mut self, count: usize) -> Settings {
        self.max_items = Some(count.max(1));
        self
    }

    /// Sets how long [`submit`](crate::GitBatch::submit) keeps a batch open for more, counted from
    /// its oldest operation; by default 5 seconds.
    #[must_use]
    pub fn with_linger(mut self, linger: Duration) -> Settings {
        self.linger = linger;
        self
    }

    /// Sets how long to wait for another process that writes to the same repository; by default
    /// without end.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Settings {
        self.wait = Some(wait);
        self
    }

    /// Sets who makes commits and merges when neither the operation nor the git configuration
    /// names somebody.
    #[must_use]
    pub fn with_author(mut self, author: Author) -> Settings {
        self.author = Some(author);
        self
    }

    /// Sets the size of the largest file that is committed, in bytes; by default 100 MiB, the most
    /// that GitHub takes.
    #[must_use]
    pub fn with_max_file_bytes(mut self, bytes: u64) -> Settings {
        self.max_file_bytes = bytes;
        self
    }

    /// Sets what a push does where the remote's branch has moved; by default it merges.
    ///
    /// The local branch follows when the remote has confirmed the push, unless it is checked out.
    #[must_use]
    pub fn with_on_moved(mut self, on_moved: OnMoved) -> Settings {
        self.on_moved = on_moved;
        self
    }

    /// Sets how long one call of git may take, a push or a fetch above all; by default 30 minutes.
    /// `None` waits without end.
    #[must_use]
    pub fn with_time_limit(mut self, limit: Option<Duration>) -> Settings {
        self.time_limit = limit;
        self
    }

    /// Allows what a guard refuses otherwise.
    #[must_use]
    pub fn allowing(mut self, guard: Guard) -> Settings {
        self.allowed.insert(guard);
        self
    }

    /// Runs a hook of the repository, if there is one.
    #[must_use]
    pub fn with_hook(mut self, hook: Hook) -> Settings {
        self.hooks.insert(hook);
        self
    }

    /// Sets the command that every landing has to pass before it is pushed; see
    /// [`GitBatch::land`](crate::GitBatch::land). By default there is none.
    #[must_use]
    pub fn with_gate(mut self, gate: Gate) -> Settings {
        self.gate = Some(gate);
        self
    }

    /// Sets who writes to the local repository; by default gix, and the git program where gix cannot.
    #[must_use]
    pub fn with_executor(mut self, executor: ExecutorKind) -> Settings {
        self.executor = executor;
        self
    }

    /// Sets how many branches one push moves at most, for servers that limit it; zero counts as one.
    /// Groups are never cut: one that is larger is refused by such a server. By default there is no
    /// limit but that of a command line.
    #[must_use]
    pub fn with_max_refs_per_push(mut self, count: usize) -> Settings {
        self.max_refs_per_push = Some(count.max(1));
        self
    }

    /// Adds a push option, which the hooks of the remote get with every push.
    #[must_use]
    pub fn with_push_option(mut self, option: impl Into<String>) -> Settings {
        self.push_options.push(option.into());
        self
    }

    /// Sets how long one batch waits, in all, for worktrees whose index is locked by another git; by
    /// default 10 seconds. Their operations fail then, the others do not.
    #[must_use]
    pub fn with_worktree_wait(mut self, wait: Duration) -> Settings {
        self.worktree_wait = wait;
        self
    }
}
