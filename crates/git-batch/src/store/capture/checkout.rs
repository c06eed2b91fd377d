//! The work tree that a folder is, checked to be one of this repository.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bstr::ByteSlice;
use gix::refs::FullName;

use super::super::Store;
use super::super::worktrees::{full_name, symbolic};
use crate::record::wire_struct;
use crate::{OpError, OpErrorKind};

/// A work tree of this repository and the branch that it stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checkout {
    /// The top of the work tree, without symlinks.
    pub(crate) top: PathBuf,
    /// Its own git directory: where its `HEAD` and its index are.
    pub(crate) git_dir: PathBuf,
    pub(crate) branch: FullName,
}

wire_struct!(Checkout { top, git_dir, branch });

/// Files and folders that stand in the git directory while git waits for somebody to go on.
const UNFINISHED: [(&str, &str); 5] = [
    ("MERGE_HEAD", "merge"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase"),
];

impl Store {
    /// The work tree whose top is `dir`.
    pub(crate) fn checkout(&self, dir: &Path) -> Result<Checkout, OpError> {
        let refuse = |why: &str| {
            OpError::new(OpErrorKind::InvalidWorktree, format!("{} {why}", dir.display()))
        };
        let top =
            dir.canonicalize().map_err(|error| refuse(&format!("cannot be read: {error}")))?;
        let git_dir = git_dir_of(&top)
            .map_err(|error| refuse(&format!("is no work tree of git: {error}")))?
            .ok_or_else(|| {
                refuse("is not the top of a work tree; name the folder that holds its .git")
            })?;
        let is_ours = if git_dir == self.common_dir {
            !self.repo.config_snapshot().boolean("core.bare").unwrap_or(false)
        } else {
            // Both must name each other: a copy of a work tree names one that is not its own.
            git_dir.parent() == Some(&self.common_dir.join("worktrees"))
                && linked_top(&git_dir).is_some_and(|named| named == top)
        };
        if !is_ours {
            return Err(refuse(&format!(
                "is no work tree of the repository {}; list those with `git worktree list`",
                self.common_dir.display()
            )));
        }
        if self.common_dir.join("reftable").is_dir() {
            return Err(refuse(
                "belongs to a repository that keeps its refs in a reftable; commit there with git, \
                 or give the changes",
            ));
        }
        check_finished(&top, &git_dir)?;
        let head = fs::read(git_dir.join("HEAD"))
            .map_err(|error| refuse(&format!("has no HEAD that can be read: {error}")))?;
        let branch = symbolic(&head)
            .and_then(full_name)
            .filter(|name| name.as_bstr().starts_with(b"refs/heads/"))
            .ok_or_else(|| {
                refuse("has no branch checked out (detached HEAD); switch to a branch there first")
            })?;
        Ok(Checkout { top, git_dir, branch })
    }
}

impl Checkout {
    pub(super) fn index(&self) -> PathBuf {
        self.git_dir.join("index")
    }

    fn index_lock(&self) -> PathBuf {
        self.git_dir.join("index.lock")
    }

    /// Waits until nobody holds the lock of the index, at most until `end`.
    pub(crate) fn wait_for_index(&self, end: Instant) -> Result<(), OpError> {
        let lock = self.index_lock();
        let mut pause = Duration::from_millis(1);
        while fs::symlink_metadata(&lock).is_ok() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(OpError::new(
                    OpErrorKind::WorktreeBusy,
                    format!(
                        "{} is held by another git; run again when it has ended, or remove the \
                         file if none is running",
                        lock.display()
                    ),
                ));
            }
            std::thread::park_timeout(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Whether nobody holds the lock of the index.
    pub(super) fn is_index_free(&self) -> bool {
        fs::symlink_metadata(self.index_lock()).is_err()
    }

    /// Whether the branch is still checked out there.
    pub(crate) fn is_on_branch(&self) -> bool {
        let head = fs::read(self.git_dir.join("HEAD")).unwrap_or_default();
        symbolic(&head).and_then(full_name).as_ref() == Some(&self.branch)
    }
}

fn check_finished(top: &Path, git_dir: &Path) -> Result<(), OpError> {
    let unfinished = UNFINISHED.iter().find(|(name, _)| git_dir.join(name).exists());
    let Some((_, what)) = unfinished else { return Ok(()) };
    let top = top.display();
    Err(OpError::new(
        OpErrorKind::WorktreeBusy,
        format!("{top} is in the middle of a {what}; finish or abort it there first"),
    ))
}

/// The git directory that the `.git` in a folder is or names; `None` if there is none.
fn git_dir_of(top: &Path) -> io::Result<Option<PathBuf>> {
    let dot_git = top.join(".git");
    let data = match fs::symlink_metadata(&dot_git) {
        Ok(data) => data,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !data.is_file() {
        return dot_git.canonicalize().map(Some);
    }
    let text = fs::read(&dot_git)?;
    let Some(named) = text.strip_prefix(b"gitdir: ") else {
        return Err(io::Error::other("its .git file names no folder"));
    };
    let named = gix::path::from_bstr(named.trim_ascii_end().as_bstr()).unwrap_or_default();
    top.join(named).canonicalize().map(Some)
}

/// The top of the work tree that a linked git directory belongs to.
fn linked_top(git_dir: &Path) -> Option<PathBuf> {
    let text = fs::read(git_dir.join("gitdir")).ok()?;
    let named = gix::path::from_bstr(text.trim_ascii_end().as_bstr()).ok()?;
    // Since git 2.48 it may be relative.
    git_dir.join(named).parent()?.canonicalize().ok()
}
