//! What a caller asks for: commits, merges and pushes, as plain data.

use std::path::PathBuf;

use bstr::BString;
use gix::ObjectId;

/// One piece of work on one branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The caller's name for it, unique inside one input. It never reaches git.
    pub id: String,
    /// What is to be done.
    pub kind: OperationKind,
    /// Ids of operations that must succeed first; if one does not, this one is skipped.
    pub after: Vec<String>,
    /// The name of the group that it belongs to: all operations of a group are done, or none is.
    /// Their pushes are one atomic push of their own, and only after that their local branches move.
    pub group: Option<String>,
}

/// What an [`Operation`] does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationKind {
    /// Adds one commit to a branch, or makes the branch.
    Commit(Commit),
    /// Merges one local branch into another.
    Merge(Merge),
    /// Publishes a local branch under the same name at the remote.
    Push(Push),
}

/// One commit: a message and the changes against its parent, given one by one or taken from a
/// worktree.
///
/// The parent is the tip of `branch`; a branch that does not exist yet starts at `base`.
/// The order of `changes` carries no meaning: deletions are done before writes, and two changes
/// of one path are an error.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Commit {
    /// The short name of the branch, such as `agent/7`.
    pub branch: String,
    /// Where a new branch starts: a branch, a tag or any other revision. By default the remote's
    /// default branch (see [`RemoteState::default_branch`](crate::publish::RemoteState::default_branch)).
    /// A branch that exists must have it as an ancestor.
    pub base: Option<String>,
    /// The message, as bytes; a newline is added at its end if there is none.
    pub message: BString,
    /// Who wrote it; by default the user of the git configuration.
    pub author: Option<Author>,
    /// What differs from the parent.
    pub changes: Vec<Change>,
    /// Where to find what differs; excludes `changes`.
    pub worktree: Option<Worktree>,
}

/// A worktree of the repository, whose content is to become a commit on the branch that is checked
/// out there. That branch moves, and with it the worktree's index, so that `git status` is clean
/// afterwards; the files are only read.
///
/// The content is what `git add` would take, with its filters, line ends and ignore rules; what
/// changes while the batch runs stays uncommitted. Submodules stay as they are. What is untracked
/// and looks like a secret, and what is too large, is left out and named in the outcome.
///
/// A worktree in the middle of a merge or rebase, with another branch or a detached `HEAD`, fails
/// the operation; so does an index that stays locked longer than
/// [`Settings::with_worktree_wait`](crate::Settings::with_worktree_wait).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Worktree {
    /// The top of the worktree: a linked one, or the main one.
    pub dir: PathBuf,
    /// The files and folders to take, from the top of the worktree, with `/` between their parts;
    /// what is gone there is deleted. `None` takes all.
    pub files: Option<Vec<BString>>,
}

/// A name and an e-mail address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Author {
    /// The name, without `<`, `>` and newlines.
    pub name: String,
    /// The address, without `<`, `>` and newlines.
    pub email: String,
}

/// One changed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The path from the root of the tree, with `/` between its parts; any bytes git allows.
    pub path: BString,
    /// What happens at the path.
    pub action: Action,
    /// The object that the parent must have at the path; the null id means none. Anything else
    /// there makes the commit a conflict, so that old knowledge undoes nobody's work.
    pub expect: Option<ObjectId>,
}

/// What happens at the path of a [`Change`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Puts `content` there, byte for byte: no filter and no line-end conversion runs. A file in
    /// the way of a folder, or a folder in the way of a file, is replaced; a symlink or a submodule
    /// in the way of a folder is an error, unless the same commit deletes it.
    Write {
        /// The content; for a symlink its target.
        content: Vec<u8>,
        /// The kind of entry; not [`Mode::Submodule`].
        mode: Mode,
    },
    /// Removes the file, or the folder with all that is in it.
    Delete,
    /// Puts an object there that the repository has already.
    Object {
        /// A blob; for [`Mode::Submodule`] a commit, which need not be here.
        oid: ObjectId,
        /// The kind of entry.
        mode: Mode,
    },
    /// Puts there what the parent has at `from`, a file or a folder. With a [`Action::Delete`] of
    /// `from` this is a rename.
    Copy {
        /// The path in the parent.
        from: BString,
    },
}

/// The kind of a tree entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// A file, `100644`.
    #[default]
    File,
    /// A file that can be run, `100755`.
    Executable,
    /// A symbolic link, `120000`.
    Symlink,
    /// A commit of another repository, `160000`.
    Submodule,
}

/// One merge of a local branch into another local branch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Merge {
    /// The branch whose commits are taken.
    pub source: String,
    /// The branch that moves.
    pub into: String,
    /// How the result is recorded.
    pub strategy: Strategy,
    /// The message of the new commit; by default one that names both branches.
    pub message: Option<BString>,
}

/// How a merge is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Strategy {
    /// Always one new commit with two parents, as `git merge --no-ff`.
    #[default]
    Merge,
    /// One new commit with one parent and the content of the merge.
    Squash,
    /// No new commit: the branch moves to the tip of the source, or the operation fails.
    FastForward,
    /// The commits of the source are made again, one by one, on top of the branch: author, message
    /// and encoding stay. Those that change nothing there are left out. Merge commits fail it.
    Rebase,
}

/// One push of a local branch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Push {
    /// The short name of the branch, the same at both ends.
    pub branch: String,
}

impl Operation {
    /// Returns an operation that waits for no other and belongs to no group.
    pub fn new(id: impl Into<String>, kind: OperationKind) -> Operation {
        Operation { id: id.into(), kind, after: Vec::new(), group: None }
    }

    /// Returns an operation that makes a commit.
    pub fn commit(id: impl Into<String>, commit: Commit) -> Operation {
        Operation::new(id, OperationKind::Commit(commit))
    }

    /// Returns an operation that merges `source` into `into` with a merge commit.
    pub fn merge(
        id: impl Into<String>,
        source: impl Into<String>,
        into: impl Into<String>,
    ) -> Operation {
        let merge = Merge { source: source.into(), into: into.into(), ..Merge::default() };
        Operation::new(id, OperationKind::Merge(merge))
    }

    /// Returns an operation that pushes `branch`.
    pub fn push(id: impl Into<String>, branch: impl Into<String>) -> Operation {
        let push = Push { branch: branch.into() };
        Operation::new(id, OperationKind::Push(push))
    }

    /// Adds the id of an operation that must succeed before this one.
    #[must_use]
    pub fn after(mut self, id: impl Into<String>) -> Operation {
        self.after.push(id.into());
        self
    }

    /// Puts it into a group, of which all is done or nothing.
    #[must_use]
    pub fn in_group(mut self, name: impl Into<String>) -> Operation {
        self.group = Some(name.into());
        self
    }
}

impl Commit {
    /// Returns a commit on `branch` without changes.
    pub fn new(branch: impl Into<String>, message: impl Into<BString>) -> Commit {
        Commit { branch: branch.into(), message: message.into(), ..Commit::default() }
    }

    /// Sets where the branch starts if it is new.
    #[must_use]
    pub fn with_base(mut self, base: impl Into<String>) -> Commit {
        self.base = Some(base.into());
        self
    }

    /// Sets the author.
    #[must_use]
    pub fn with_author(mut self, author: Author) -> Commit {
        self.author = Some(author);
        self
    }

    /// Adds a plain file with `content` at `path`.
    #[must_use]
    pub fn write(self, path: impl Into<BString>, content: impl Into<Vec<u8>>) -> Commit {
        self.change(Change::new(
            path,
            Action::Write { content: content.into(), mode: Mode::default() },
        ))
    }

    /// Adds the deletion of `path`.
    #[must_use]
    pub fn delete(self, path: impl Into<BString>) -> Commit {
        self.change(Change::new(path, Action::Delete))
    }

    /// Takes the content from a worktree.
    #[must_use]
    pub fn with_worktree(mut self, worktree: Worktree) -> Commit {
        self.worktree = Some(worktree);
        self
    }

    /// Adds any change.
    #[must_use]
    pub fn change(mut self, change: Change) -> Commit {
        self.changes.push(change);
        self
    }
}

impl Worktree {
    /// Takes all that differs in a worktree.
    pub fn all(dir: impl Into<PathBuf>) -> Worktree {
        Worktree { dir: dir.into(), files: None }
    }

    /// Takes some files and folders of a worktree.
    pub fn files<P: Into<BString>>(
        dir: impl Into<PathBuf>,
        files: impl IntoIterator<Item = P>,
    ) -> Worktree {
        Worktree { dir: dir.into(), files: Some(files.into_iter().map(Into::into).collect()) }
    }
}

impl Change {
    /// Returns a change that expects nothing of the parent.
    pub fn new(path: impl Into<BString>, action: Action) -> Change {
        Change { path: path.into(), action, expect: None }
    }

    /// Sets what the parent must have at the path; the null id means nothing.
    #[must_use]
    pub fn with_expect(mut self, expect: ObjectId) -> Change {
        self.expect = Some(expect);
        self
    }
}

impl Author {
    /// Returns an author.
    pub fn new(name: impl Into<String>, email: impl Into<String>) -> Author {
        Author { name: name.into(), email: email.into() }
    }
}
