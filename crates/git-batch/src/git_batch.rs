//! The handle: a repository and its remote, with a queue in front.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use batch_core::{Batcher, Close, SubmitError, Ticket};
use gix::refs::FullName;

use crate::earlier::Earlier;
use crate::processor::GitProcessor;
use crate::record::Key;
use crate::repository::{Repository, Run};
use crate::{
    ApplyError, Extent, Merge, OpenError, Operation, OperationKind, Outcome, Report, Settings,
    Strategy, guard,
};

/// Turns the commits, merges and pushes of many tasks into few batches, each with one push.
///
/// No work tree and no index is read or written, `HEAD`, the configuration, `refs/remotes` and
/// `FETCH_HEAD` stay as they are. Several handles and several processes may work on one
/// repository: they take turns, batch by batch.
///
/// # Examples
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let init = std::process::Command::new("git")
/// #     .current_dir(&dir)
/// #     .args(["-c", "init.defaultBranch=main", "init", "-q"])
/// #     .status()?;
/// # assert!(init.success());
/// # let config = "[remote \"origin\"]\n\turl = /nowhere\n[user]\n\tname = A\n\temail = a@b\n";
/// # let path = dir.path().join(".git/config");
/// # std::fs::write(&path, std::fs::read_to_string(&path)? + config)?;
/// # let dir = dir.path();
/// use git_batch::{Commit, GitBatch, OpErrorKind, Operation, Outcome, Settings};
///
/// let git = GitBatch::open(dir, Settings::default())?;
/// // The remote of this repository cannot be reached, and the path leads out of it.
/// let commit = Commit::new("task", "Add a note").write("../note.txt", "hello\n");
/// let report = git.apply(vec![Operation::commit("a", commit), Operation::push("b", "task")])?;
/// assert!(matches!(
///     report.get("a"),
///     Some(Outcome::Failed(error)) if error.kind == OpErrorKind::InvalidPath
/// ));
/// assert!(matches!(report.get("b"), Some(Outcome::Skipped { .. })));
/// assert_eq!(report.pushes(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct GitBatch {
    batcher: Batcher<GitProcessor>,
}

impl GitBatch {
    /// Opens the repository whose work tree or git directory is `dir`, a folder inside it does
    /// not count. Reads only: nothing is written, and the remote is not asked.
    ///
    /// Variables of the environment that begin with `GIT_` are ignored.
    ///
    /// # Errors
    /// `dir` is no repository, the remote is not configured, the repository uses what cannot be
    /// handled without harm (a partial clone without trees, an unknown extension, what the executor of
    /// the settings cannot do), or the git program is missing or too old.
    pub fn open(dir: impl AsRef<Path>, settings: Settings) -> Result<GitBatch, OpenError> {
        let repository = Repository::open(dir.as_ref(), settings)?;
        let max_items = repository.settings.max_items.unwrap_or(10);
        let linger = repository.settings.linger;
        let batcher = Batcher::builder(GitProcessor::new(repository))
            .max_batch_items(max_items)
            .linger(linger)
            .max_block(None)
            .delivery_timeout(None)
            .build()
            .map_err(OpenError::Thread)?;
        Ok(GitBatch { batcher })
    }

    /// Runs all operations and returns when the last one has its outcome: in one batch with one
    /// push, unless `max_items` is set or an operation is to run after a push.
    ///
    /// Operations on one branch run in the order given, each commit on top of the one before.
    /// What is wrong with one operation fails that one alone, and moves no ref for it.
    ///
    /// An input that is known from an earlier run, with what its worktrees contain and where its
    /// branches stand, is not done again: what landed then is reported once more
    /// ([`Report::replayed`]), and what failed is tried again. An input that was interrupted is
    /// finished, by whoever writes to the repository next.
    ///
    /// Blocks while another writer is in the repository, up to the time set with
    /// [`Settings::with_wait`].
    ///
    /// # Errors
    /// Nothing was done: two operations have one id, the writer's lock could not be had, or the
    /// repository cannot be opened any more.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a batch owns its contents, so that it can give them up as it writes them"
    )]
    pub fn apply(&self, operations: Vec<Operation>) -> Result<Report, ApplyError> {
        self.run(&operations, |remote, operations| Run::Once {
            key: Key::of_content(remote, operations),
            name: None,
        })
    }

    /// As [`apply`](GitBatch::apply), for an input that has a name: another input with that name and
    /// with the same ids of operations is the same input, whatever else it contains.
    ///
    /// # Errors
    /// As [`apply`](GitBatch::apply), or the name was given to other operations before.
    #[expect(clippy::needless_pass_by_value, reason = "a batch owns its contents, as in `apply`")]
    pub fn apply_as(&self, name: &str, operations: Vec<Operation>) -> Result<Report, ApplyError> {
        self.run(&operations, |remote, _| Run::Once {
            key: Key::of_name(remote, name),
            name: Some(name),
        })
    }

    /// Says what [`apply`](GitBatch::apply) would do: everything is built in memory and checked, the
    /// remote is asked what it has, and nothing is written, moved or pushed, but for commits of the
    /// remote that have to be fetched.
    ///
    /// An outcome of [`Outcome::Landed`] means that the operation would be tried. What hooks say, and
    /// whether what the remote has got meanwhile can be merged, is not known before it is.
    ///
    /// # Errors
    /// As [`apply`](GitBatch::apply).
    pub fn preview(&self, operations: &[Operation]) -> Result<Report, ApplyError> {
        self.run(operations, |_, _| Run::Dry)
    }

    fn run<'n>(
        &self,
        operations: &[Operation],
        how: impl FnOnce(&str, &[&Operation]) -> Run<'n>,
    ) -> Result<Report, ApplyError> {
        if let Some(id) = repeated(operations.iter().map(|op| op.id.as_str())) {
            return Err(ApplyError::DuplicateId { id });
        }
        let repository = self.repository();
        let max_items = repository.settings.max_items.unwrap_or(usize::MAX);
        let none = Earlier::default();
        let operations: Vec<&Operation> = operations.iter().collect();
        let how = how(&repository.settings.remote, &operations);
        repository.run(&operations, max_items, &none, &how)
    }

    /// Hands over one operation; it shares a batch, and a push, with others that come soon.
    ///
    /// The ticket gives the outcome. Blocks only while the queue is full. `after` names operations
    /// that were submitted before through this handle; the last 10,000 are known. Of a group, what comes
    /// into one batch stands or falls together; [`apply`](GitBatch::apply) never cuts one.
    ///
    /// # Errors
    /// The operation comes back inside the error if it cannot be queued.
    pub fn submit(
        &self,
        operation: Operation,
    ) -> Result<Ticket<Outcome, ApplyError>, SubmitError<Operation>> {
        self.batcher.submit(operation)
    }

    /// Seals the batch that is open, so that it runs now.
    pub fn flush(&self) -> batch_core::Flush {
        self.batcher.flush()
    }

    /// Returns the queue in front of the repository, with its figures and its history.
    pub fn batcher(&self) -> &Batcher<GitProcessor> {
        &self.batcher
    }

    /// Stops taking operations and waits, at most for `timeout`, until the queue is empty.
    /// What was not sent comes back.
    pub fn close(&self, timeout: Duration) -> Vec<Operation> {
        let report = self.batcher.close(Close::Drain, timeout);
        report.leftovers.into_iter().map(|(_, operation)| operation).collect()
    }

    /// Merges local branches, in the order given, onto `onto` as the remote has it now, and pushes
    /// `onto` once. The report has one outcome per branch, by the branch's name; `Landed` means
    /// that the remote confirmed it.
    ///
    /// Of two branches that clash the first lands, the other is a [`Outcome::Conflict`]. If
    /// `onto` moves at the remote meanwhile, the merges are done again on top of what is there,
    /// a few times. The local branch follows if it exists, is behind and is checked out nowhere.
    ///
    /// With a gate ([`Settings::with_gate`]) only what has passed it as a whole is pushed; the
    /// branches that it fails with are left out.
    ///
    /// # Errors
    /// Nothing was done: a branch is named twice, `onto` is no branch name, the writer's lock
    /// could not be had, or the repository cannot be opened any more.
    pub fn land(
        &self,
        onto: &str,
        branches: &[String],
        strategy: Strategy,
    ) -> Result<Report, ApplyError> {
        self.land_branches(onto, branches, strategy, Extent::All)
    }

    /// Says what [`land`](GitBatch::land) would do, as [`preview`](GitBatch::preview) does for
    /// [`apply`](GitBatch::apply). The gate runs, and what it says is kept.
    ///
    /// # Errors
    /// As [`land`](GitBatch::land).
    pub fn preview_land(
        &self,
        onto: &str,
        branches: &[String],
        strategy: Strategy,
    ) -> Result<Report, ApplyError> {
        self.land_branches(onto, branches, strategy, Extent::Preview)
    }

    /// Does operations of any kind as [`land`](GitBatch::land) does: the branch `onto` starts at what the
    /// remote has of it now, the gate looks at what becomes of it, and all that is to be pushed leaves
    /// in one push at the end. If `onto` moves at the remote meanwhile, what is done to it is done
    /// again; other commits stay as they are. The report has one outcome for each operation.
    ///
    /// Nothing can come `after` a push. A local branch that waits for what is done to `onto`, and that nothing
    /// of the push needs, moves when the remote has that; what is pushed itself leaves with `onto`, whatever
    /// the remote says of that. `extent` says how much is done.
    ///
    /// # Errors
    /// Nothing was done: two operations have one id, and as for [`land`](GitBatch::land).
    pub fn land_with(
        &self,
        onto: &str,
        operations: &[Operation],
        extent: Extent,
    ) -> Result<Report, ApplyError> {
        if let Some(id) = repeated(operations.iter().map(|op| op.id.as_str())) {
            return Err(ApplyError::DuplicateId { id });
        }
        let operations: Vec<&Operation> = operations.iter().collect();
        self.repository().land(&operations, &onto_name(onto)?, extent)
    }

    fn land_branches(
        &self,
        onto: &str,
        branches: &[String],
        strategy: Strategy,
        extent: Extent,
    ) -> Result<Report, ApplyError> {
        if let Some(id) = repeated(branches.iter().map(String::as_str)) {
            return Err(ApplyError::DuplicateId { id });
        }
        let name = onto_name(onto)?;
        let mut operations: Vec<Operation> = branches
            .iter()
            .map(|source| {
                let (source, into) = (source.clone(), onto.to_owned());
                let merge = Merge { source: source.clone(), into, strategy, message: None };
                Operation::new(source, OperationKind::Merge(merge))
            })
            .collect();
        operations.push(Operation::push("", onto));
        let operations: Vec<&Operation> = operations.iter().collect();
        let mut report = self.repository().land(&operations, &name, extent)?;
        // The last one is the push.
        report.outcomes.pop();
        Ok(report)
    }

    fn repository(&self) -> &Repository {
        self.batcher.processor().repository()
    }
}

fn onto_name(onto: &str) -> Result<FullName, ApplyError> {
    guard::refname::branch(onto).map_err(|error| ApplyError::InvalidBranch {
        name: onto.to_owned(),
        reason: error.to_string(),
    })
}

fn repeated<S: AsRef<str> + Ord + Copy>(mut ids: impl Iterator<Item = S>) -> Option<String> {
    let mut seen = BTreeSet::new();
    ids.find(|id| !seen.insert(*id)).map(|id| id.as_ref().to_owned())
}
