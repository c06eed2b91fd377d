//! An index of the lessons that agents learned, over one JSON Lines file.
//!
//! Agents fail in the same ways again and again. A lesson says what failed, how often, and what
//! resolved it. This crate keeps lessons in a file that any tool can read, finds them in
//! microseconds, and lets many threads and processes add to the file without losing a line.
//!
//! ```
//! use lessons_index::{Lesson, LessonsIndex, Options};
//!
//! let dir = tempfile::tempdir()?;
//! let index = LessonsIndex::open(dir.path().join("lessons.jsonl"), Options::default())?;
//! index.add(
//!     Lesson::builder("oom-1")
//!         .failure_type("oom")
//!         .failure_msg("linker: out of memory")
//!         .resolution("link with fewer jobs")
//!         .build()?,
//! )?;
//! let snapshot = index.snapshot();
//! let found = snapshot.query().failure_type("oom").contains("OUT OF")?.limit(5).run();
//! assert_eq!(found[0].resolution, "link with fewer jobs");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Concepts
//!
//! * **The file is the truth.** One JSON object a line; the last line with an id is the lesson.
//!   Keys that this crate does not know stay byte for byte ([`Lesson::raw`]).
//! * **Loading is total.** A broken line is reported with its number, its place, its kind and its
//!   first bytes ([`LoadReport`]), and the lines around it count. Blank lines, byte order marks,
//!   `\r\n` and a missing last line end are fine. Strict mode ([`Mode`]) stops at the first fault.
//! * **A [`Snapshot`] never changes.** Readers take no lock and see a batch whole or not at all.
//!   Every order is total, so the same question has the same answer.
//! * **Adding is batched.** The calls that come while the file is being written share the next
//!   write: one lock, one append, one sync, one publication, however many they are.
//! * **Processes share the file.** Writers hold a lock on `<file>.lock` (beside the file itself
//!   if the path is a symbolic link), take in what others wrote, end a torn last line (it is never
//!   deleted) and append. They wait for a lock for a minute at most ([`Options`]).
//!   [`LessonsIndex::refresh`] parses the appended bytes only, and [`LessonsIndex::watch`] calls it
//!   by itself. Readers need neither the lock nor the right to write.
//! * **Failures are counted by what they say.** [`LessonsIndex::record`] finds the lesson of the
//!   same failure by its [`Fingerprint`], under the lock of the file, and counts it up;
//!   [`Snapshot::seen_before`] looks without counting.
//! * **Recall ranks.** [`Snapshot::recall`] finds the lessons that say most about a task or an
//!   error, within a budget of tokens, and says why.
//! * **What is replaced or removed goes.** [`LessonsIndex::compact`] writes the file anew without
//!   it; from 1 MiB on that happens by itself once more than half is dead. [`merge_files`] merges
//!   two versions of a file by id, for git.
//!
//! # Limits
//!
//! * Linux and macOS, on file systems where locks work.
//! * The lessons are in memory, with their lines. A line may have 16 MiB by default.
//! * Programs that append without the lock must write whole lines in one write, and open the file
//!   for each: what they write in the moment of a compaction, or ever after to a file that they
//!   keep open, is lost ([`Options::with_auto_compact`] turns those off that come by themselves). A
//!   failed write of ours is then not always undone ([`WriteError::Torn`] says so).
//! * A batch is seen whole or not at all by the readers of the index that it was added through.
//!   Another process that reads in the middle of the write sees the lines so far, and a process
//!   that is killed there leaves them.
//! * A file with several hard links is not compacted.
//! * `refresh` compares size, time of change and the last 4 KiB. A change in place of bytes farther
//!   from the end, while the file grows or within 20 ms of a change before (2 s where times are
//!   whole seconds), is not noticed;
//!   `reload` is right when nobody is at it, and [`LessonsIndex::verify`] tells whether there is need to.
//! * Who removes the lock file while somebody writes lets a second writer in. Each line is still
//!   whole, but a compaction at that moment can lose what the other appends.
//! * A failure is counted apart where names in its message stand in quotes that are not ASCII, such
//!   as `‘foo’`: fingerprints are stored, and stay what they are.
//! * UTF-16 is reported, not read.
//! * Words for recall are runs of letters, digits and `_`: languages without blanks between words
//!   are found by [`Query::contains`] only.
//!
//! # Performance
//!
//! A segment keeps its lines as they were read, in memory once, and columns of what queries
//! compare: about 90 bytes a lesson, and about 300 more once text was searched and ranked. A
//! look-up by id costs a hash look-up in each of O(log n) segments and copies nothing; an
//! exact field is a list, newest first. A search for text looks only into blocks of 4 messages
//! whose parts of three and five bytes fit, and is one scan of memory at worst. Publishing appends to a page of 512
//! lessons, whatever the size; full pages are merged into segments by a thread in the background.
//! The indexes for text are built by such a thread after loading, or by the first query that needs
//! them.
//!
//! The measurements are in `docs/perf.md`.
#![forbid(unsafe_code)]

mod assemble;
mod bits;
mod bulk;
mod check;
mod classify;
mod column;
mod common;
mod compact;
mod cursor;
mod deaths;
mod disk;
mod draft;
mod error;
mod failure;
mod fast;
mod fault;
mod fingerprint;
mod fold;
mod grammar;
mod hash;
mod index;
mod intake;
mod lesson;
mod lists;
mod lock;
mod marks;
mod mask;
#[cfg(feature = "measure")]
#[doc(hidden)]
pub mod measure;
mod members;
mod memory;
mod merge;
mod messages;
mod numbers;
mod op;
mod opened;
mod options;
mod order;
mod parse;
mod path;
mod place;
mod plain;
mod planes;
mod query;
mod rank;
mod reader;
mod recall;
mod record;
mod report;
mod rows;
mod scan;
mod seen;
mod segment;
mod select;
mod shared;
mod signature;
mod snapshot;
mod source;
mod stamp;
mod state;
mod store;
mod sync;
mod table;
mod tail;
mod terms;
mod text;
mod verify;
mod view;
mod walk;
mod watch;
mod writer;

pub use check::{check, check_each};
pub use compact::{CompactError, Compacted, Compaction};
pub use cursor::{Cursor, InvalidCursor};
pub use error::{AddError, EmptyNeedle, InvalidLesson, OpenError, WriteError};
pub use failure::Failure;
pub use fault::{EXCERPT_MAX_BYTES, Fault, FaultKind, LineError};
pub use fingerprint::Fingerprint;
pub use index::{LessonsIndex, Refresh, WriteStats};
pub use lesson::{Lesson, LessonBuilder};
pub use merge::{MergeError, Merged, merge_files};
pub use op::Feedback;
pub use options::{Fsync, Mode, Options};
pub use order::Sort;
pub use query::Query;
pub use recall::{Recall, Recalled, Why};
pub use report::LoadReport;
pub use shared::LastLoad;
pub use snapshot::{Snapshot, Stats};
pub use verify::Verified;
pub use view::LessonRef;
pub use watch::Watch;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
