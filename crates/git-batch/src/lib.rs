//! Commits, merges and pushes of many tasks in one push.
//!
//! N agents finish N tasks: by hand that is N checkouts, N commits and N pushes. Here each task is
//! an [`Operation`] that carries its content. A batch of them becomes objects in memory, one pack
//! on disk, one move of the local branches and **one** push, and each operation still has an
//! [`Outcome`] of its own: a bad one fails alone.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let git = |args: &str| {
//! #     let mut command = std::process::Command::new("git");
//! #     command.current_dir(&dir).args(args.split(' ')).env("GIT_CONFIG_GLOBAL", "/dev/null");
//! #     assert!(command.output().unwrap().status.success(), "{args}");
//! # };
//! # git("init -q --bare remote.git");
//! # git("init -q -b main work");
//! # git("-C work remote add origin ../remote.git");
//! # git("-C work -c user.name=A -c user.email=a@b commit -q --allow-empty -m Start");
//! # git("-C work push -q origin main");
//! # let work = dir.path().join("work");
//! use git_batch::{Author, Commit, GitBatch, Operation, Settings};
//!
//! let settings = Settings::default().with_author(Author::new("Yard", "yard@example.com"));
//! let git = GitBatch::open(&work, settings)?;
//! let report = git.apply(vec![
//!     Operation::commit("a", Commit::new("agent/1", "Add a note").write("note.txt", "hello\n")),
//!     Operation::commit("b", Commit::new("agent/2", "Add a list").write("list.txt", "1\n2\n")),
//!     Operation::push("push a", "agent/1"),
//!     Operation::push("push b", "agent/2"),
//! ])?;
//! assert!(report.outcomes.iter().all(|(_, outcome)| outcome.is_success()));
//! assert_eq!(report.pushes(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Concepts
//! * **Input at once or one by one**: [`GitBatch::apply`] runs a whole input in one batch;
//!   [`GitBatch::submit`] queues single operations, which share a batch with what comes within
//!   5 seconds, up to 10.
//! * **Order**: first come, first served on each branch, also through `after`; nothing is promised
//!   across branches. What is `after` a commit that moves at the remote only, or starts at it, comes when the
//!   remote has it, and is pushed by one push more; what waits for each other in that way is done at once.
//! * **Parent**: the tip of the local branch, or what the same input has landed on it at the remote only. A new
//!   branch starts at its `base`, by default the remote's default branch, fetched if need be.
//! * **Isolation**: what is wrong with one operation fails it and skips what depends on it. The
//!   push is not atomic: each ref has a lease of its own and is refused alone. Where the remote
//!   refuses all, halves are pushed until the culprit is alone. What may pass, a remote that moved
//!   above all ([`OnMoved`]), is tried again when the others have landed.
//! * **Groups** ([`Operation::in_group`]) are the exception: all of one is done, or nothing. A group
//!   whose remote has moved or is busy is brought together and pushed again, as a whole. Branches that
//!   it does not push move before its push, and back if that is refused; only what others have built
//!   on one of them meanwhile keeps it, and its operation says so.
//! * **Gate** ([`Settings::with_gate`]): a command that has to pass before anything is pushed. It
//!   runs on the merged tree in a folder of its own, without any lock; what it fails with is found by
//!   halving and left out, and what it said of a tree is known to the next batch.
//! * **Content** is given with the operation, or taken from a [`Worktree`]: what an agent left in a
//!   worktree of its own becomes a commit on the branch that is checked out there.
//! * **Nothing is overwritten**: local branches move by compare-and-swap, the remote's only
//!   forward. A branch that is checked out is moved by a commit from its own worktree alone; for
//!   others, with a push in the same batch, only the remote's branch moves.
//! * **Untouched**: files of work trees, `HEAD`, configuration, `refs/remotes` and `FETCH_HEAD`, and
//!   every index but that of a worktree whose content was committed. All own state is in
//!   `<git dir>/batchyard/`, fetched commits in `refs/batchyard/`; only the files that a gate looks at
//!   are in a temporary folder, as long as it runs.
//! * **Merges** of branches that changed different files put the changes of one onto the tree of the
//!   other; others are made in memory by gix where its verdict is known to equal git's; where a
//!   rename, a merge attribute, several merge bases or a conflict is in play, `git merge-tree`
//!   decides.
//! * **Two executors** ([`ExecutorKind`]): gix, and the git program where gix cannot. The tests hold
//!   them against each other: the same operations give the same commits and refs.
//! * **Exactly once**: before the first ref moves, what a batch is about to do is written down. Who
//!   writes to the repository next finishes what a killed process had begun, with the same commits;
//!   what each ref is, here and at the remote, says what is left of it. The same input again, or one
//!   of the same name ([`GitBatch::apply_as`]), is answered with what became of it, wherever its
//!   branches are now.
//! * **Receipts** say what a batch did and cost, and can be held against the remote's reflog.
//!
//! # Limits
//! * Needs the `git` program, 2.41 or newer, for the network and for the merges named above.
//! * Content given as bytes is stored byte for byte: line ends are not converted, and a path whose
//!   attributes name a filter (as Git LFS does) is refused. From a worktree it is stored as
//!   `git add` does; a file that goes through a filter costs a process.
//! * Of the hooks for commits only `commit-msg` can run, where it is asked for ([`Hook`]); `pre-push`
//!   and all hooks of the remote do run. Commits are signed if `commit.gpgSign` says so.
//! * A merge depends on its commits alone: attributes count as they stand in the branch merged into
//!   and in `info/attributes`, merge drivers and `merge.*` settings of the user do not.
//! * Where refs are in a reftable, or a reference-transaction hook is to be heard, the git program
//!   does what gix does elsewhere ([`ExecutorKind`]): a few processes a branch, and one to look for what is
//!   held of earlier batches. Killed, it leaves locks behind that nobody but you can remove. Worktrees in a
//!   reftable cannot be committed from.
//! * In a partial clone the contents that a merge looks at are fetched, in one call. Clones that lack
//!   trees, unknown extensions and unknown ways to keep refs are refused on opening.
//! * A batch lives in memory until its pack is written; of one that is killed before that, nothing is
//!   left, and nothing has moved. What is queued with [`GitBatch::submit`] is lost with the process
//!   then, as its tickets are.
//! * What became of an input is known for 30 days, of the last 1,000, by the name of its remote, wherever
//!   that is; where a remote has not said what became of a push, the commits are kept in
//!   `refs/batchyard/unheard/` until it does, for as long. A landing is not remembered: done again, it finds
//!   that all is there.
//! * Where the disk says that it has lost something, a branch that has moved may move back in a power cut.
//!   The record of the batch stays open then, each next batch tries to make it durable, and the same
//!   input is refused until that is done. File systems that cannot make folders durable are trusted.
//! * A killed process leaves the refs and indexes locked that it was just moving, until another batch
//!   runs in the repository.
//! * Locks of refs that a killed run left are removed by the next one, and no others; on a file
//!   system without hard links they stay.
//! * A path has at most 4,096 bytes and 512 folders, a component of a branch's name 250 bytes.
//! * Each batch leaves one pack; `git maintenance run` joins them.
//! * Linux and macOS.
//!
//! # Performance
//! A batch costs one pack, at most one rename of `packed-refs`, and three processes: one to list the
//! remote's refs and one for its settings, which run while the batch is built (with a gate, after it), and
//! one to push. It makes all that durable with eight `fsync` calls: three and then two of them at once, so
//! that it waits for the disk five times. Where branches are loose, there is one more
//! for each of up to two folders that they are in, and one `syncfs` for more (one for each off Linux, on FUSE,
//! and where `syncfs` fails); two for each group that changes a branch which it does not push; and once in a
//! repository two for the folder of the state. A commit costs the trees on the way to its paths; one from a
//! worktree looks at the times of all files there and reads those that may have changed.
#![forbid(unsafe_code)]

mod batch;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod disk;
#[cfg(not(feature = "testing"))]
mod disk;
mod earlier;
mod error;
mod gate;
mod git_batch;
pub mod guard;
mod landing;
mod lock;
mod operation;
mod outcome;
mod passage;
mod plan;
mod porcelain;
mod processor;
pub mod program;
pub mod publish;
mod record;
mod repository;
mod settings;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod stops;
#[cfg(not(feature = "testing"))]
mod stops;
mod store;

pub use error::{ApplyError, OpenError};
pub use gate::Gate;
pub use git_batch::GitBatch;
pub use gix::ObjectId;
pub use operation::{
    Action, Author, Change, Commit, Merge, Mode, Operation, OperationKind, Push, Strategy, Worktree,
};
pub use outcome::{
    Class, LeftOut, Omission, OpError, OpErrorKind, Outcome, Place, Receipt, RefChange, Report,
};
pub use processor::GitProcessor;
pub use settings::{ExecutorKind, Extent, Guard, Hook, OnMoved, Settings};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
