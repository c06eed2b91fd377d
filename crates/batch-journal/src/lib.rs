//! Accepted work that survives `kill -9` and power loss: a [`Journal`] on SQLite.
//!
//! What is worth money or cannot be asked for twice must not be lost with the process that accepted
//! it. A batcher with a journal accepts an item once it is on the disk, and forgets it once its work
//! is done; what was between the two when the process died comes back at the next start, under the
//! same ids.
//!
//! ```
//! use batch_core::Journal;
//! use batch_journal::{Bytes, Options, SqliteJournal, status};
//!
//! let dir = tempfile::tempdir()?;
//! let journal = SqliteJournal::open(dir.path(), Bytes, Options::default())?;
//!
//! let items = [b"one".to_vec(), b"two".to_vec()];
//! let first = journal.reserve(2);
//! let second = batch_core::ItemId { seq: first.seq + 1, ..first };
//! journal.append(&[(first, &items[0]), (second, &items[1])])?;
//! journal.ack(&[first])?;
//!
//! // From any process, at any time.
//! assert_eq!(status(dir.path())?.oldest, Some(second));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Concepts
//!
//! * **At least once.** An item whose work was done just before the process died comes back. Its
//!   [`ItemId`](batch_core::ItemId) is the key by which that can be noticed; none is given out twice.
//! * **Group commit.** Calls that come while a transaction runs share the next one, and its sync.
//!   One of the callers writes for all; no thread is started.
//! * **Acknowledging is cheap.** It does not wait for the storage: a killed process has forgotten
//!   nothing, and after a loss of power the last acknowledged items may come back.
//! * **One owner, readers beside it.** A lock of the operating system, which dies with the process;
//!   who comes second learns who the owner is, or waits. An owner whose lock file was taken away stops
//!   at its next write once somebody else has opened the journal; nothing looks at the lock file. [`status`] and the program `sqlite3` read at any time.
//! * **Nothing is made up.** Each item has a checksum, and each transaction one over all of them: a
//!   file that is damaged, or whose parts are not of one time, is refused with its name.
//! * **A failed write stops the journal** when it leaves the file in doubt. What was accepted before
//!   stays, what shared the write was not accepted, and nothing more is until it is opened anew. A
//!   full disk refuses what does not fit and goes on.
//!
//! # Files
//!
//! | in the folder | is |
//! |---|---|
//! | `journal.db` | the SQLite file: `item(epoch, seq, sum, payload)`, and `ledger` with the checksum of all |
//! | `journal.db-wal`, `journal.db-shm` | what of it SQLite has not yet moved there; they belong to it |
//! | `journal.new` | the data file while it is made; what is left of one is removed, whoever made it |
//! | `journal.lock` | the lock; its text names the owner and means nothing when nobody holds it |
//!
//! A folder that is made has mode 0700 and its files 0600. To copy a journal, copy all files while
//! nobody owns it, or use `sqlite3 journal.db ".backup copy.db"`.
//!
//! # Limits
//!
//! * Linux and macOS, on a local file system: network file systems have no locks to rely on.
//! * A copy that is restored gives ids out again that were used after it was made.
//! * The log may lose its newest end to damage without a trace, as SQLite takes a broken frame for
//!   the end; what comes back is then what was stored at an earlier moment.
//! * A program that reads for long in one transaction keeps the log from being moved to the file,
//!   and the log grows meanwhile. One that writes for longer than 5 s has the calls refused that wait
//!   by then.
//! * The threads of a batcher let go of its journal soon after the last handle is gone, or after what a
//!   processor keeps is over, and not with it: who opens it again at once says how long to
//!   [`wait`](Options::wait).
//! * A `fork` without `exec` must not use the journal in the child.
//! * [`unacked`](Journal::unacked) returns all items in memory, and writes wait for it.
//!
//! # Performance
//!
//! An `append` costs one sync for all who call at the time; checkpoints add a few for each 4 MiB.
//! Room of acknowledged items is used again; a file that grew is shrunk when it is opened and
//! nothing is stored. Opening reads ids and checksums of what is stored.
#![forbid(unsafe_code)]

mod codec;
mod error;
mod file;
mod group;
mod journal;
mod options;
mod owner;
mod seal;
mod status;
mod store;

#[doc(no_inline)]
pub use batch_core::{Journal, JournalError, JournalErrorKind};
pub use codec::{Bytes, Codec};
pub use error::OpenError;
pub use journal::SqliteJournal;
pub use options::{Durability, Options};
pub use status::{Status, status};
pub use store::WriteStats;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
