use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use batch_core::Batcher;

use crate::compact::{CompactError, Compacted, Compaction};
use crate::error::{AddError, OpenError};
use crate::failure::Failure;
use crate::lesson::Lesson;
use crate::op::{Feedback, Op, Outcome};
use crate::options::Options;
use crate::path::{folder_of, open_regular};
use crate::report::LoadReport;
use crate::shared::{LastLoad, Shared};
use crate::snapshot::Snapshot;
use crate::source::Source;
use crate::verify::Verified;
use crate::writer::{self, Writer};

/// Is an index over a file of lessons that many threads and processes share.
///
/// Clones are handles to the same index. Readers take a [`snapshot`](Self::snapshot) and never
/// wait; writers append to the file and then publish.
///
/// ```
/// use lessons_index::{Lesson, LessonsIndex, Options};
///
/// let dir = tempfile::tempdir()?;
/// let index = LessonsIndex::open(dir.path().join("lessons.jsonl"), Options::default())?;
/// index.add(Lesson::builder("oom-1").failure_type("oom").times_seen(2).build()?)?;
/// index.add(Lesson::builder("oom-1").failure_type("oom").times_seen(3).build()?)?;
///
/// let lesson = index.snapshot().get("oom-1").expect("just added");
/// assert_eq!(lesson.times_seen, 3);
/// assert_eq!(index.report().duplicates, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LessonsIndex {
    shared: Arc<Shared>,
    writer: Batcher<Writer>,
    path: PathBuf,
    options: Options,
}

/// Counts what was added through an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteStats {
    /// Lessons that were accepted, those still waiting for their write included.
    pub accepted: u64,
    /// Lessons that are in the file.
    pub added: u64,
    /// Appends, each with one lock, one write, one sync and one publication; failed ones count.
    pub writes: u64,
    /// How often the file was compacted.
    pub compactions: u64,
}

/// Says what a refresh found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refresh {
    /// The file is as it was.
    Unchanged,
    /// Lines were appended.
    Appended {
        /// How many of them are lessons that are new or changed.
        records: usize,
    },
    /// The file was cut, replaced or written in place, and was read whole.
    Reloaded,
}

impl LessonsIndex {
    /// Opens an index over a file and reads it. A missing file is empty, and is created by the
    /// first lesson that is added.
    ///
    /// Blocks while the file is read. Takes no lock and writes nothing.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError`] when the path is a folder, device or pipe, its folder is missing, or
    /// it cannot be read; in strict mode also for the first broken line.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        let path = path.as_ref();
        if path.file_name().is_none() {
            let (path, found) = (path.to_owned(), "a path without a file name");
            return Err(OpenError::NotAFile { path, found });
        }
        // A process that goes to another folder keeps its file.
        let path = &std::path::absolute(path)
            .map_err(|source| OpenError::Read { path: path.to_owned(), source })?;
        let folder = folder_of(path);
        if !folder.is_dir() {
            let (path, folder) = (path.to_owned(), folder.to_owned());
            return Err(OpenError::NoFolder { path, folder });
        }
        let source = Source::new(path.to_owned(), options.clone());
        let shared = Arc::new(Shared::load(source)?);
        let writer = Writer::start(Arc::clone(&shared), options.max_line_bytes)
            .map_err(|source| OpenError::Writer { path: path.to_owned(), source })?;
        Ok(Self { shared, writer, path: path.to_owned(), options })
    }

    /// Opens an index over a file that exists.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and [`OpenError::Missing`] when there is no such file.
    pub fn open_existing(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        open_regular(path.as_ref())?;
        Self::open(path, options)
    }

    /// Returns the index as it is now. A few nanoseconds; never waits.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { state: self.shared.current() }
    }

    /// Returns what the file holds, as far as it was read. Never waits.
    pub fn report(&self) -> LoadReport {
        let state = self.shared.current();
        state.summary.report(state.alive)
    }

    /// Returns the file, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns how many lessons were added through this index and its clones, in how many writes.
    pub fn write_stats(&self) -> WriteStats {
        let stats = self.writer.stats();
        WriteStats {
            accepted: stats.accepted,
            added: stats.completed,
            writes: stats.calls,
            compactions: self.shared.compactions(),
        }
    }

    /// Returns why the file was not compacted when that was due by itself the last time; `None` if it
    /// was, or never was due. The call that wrote last does not tell, since its lessons are in the file.
    ///
    /// Until it is seen to, the file grows: markers of a merge conflict stay until somebody resolves
    /// them.
    pub fn failed_compaction(&self) -> Option<Arc<CompactError>> {
        self.shared.failed_compaction()
    }

    /// Returns when the file was last read whole, and how long that took.
    pub fn last_load(&self) -> LastLoad {
        self.shared.last_load()
    }

    /// Adds a lesson, or replaces the one with its id, and returns it as it is stored.
    ///
    /// Blocks until it is in the file (on the disk, with [`Fsync::OnBatch`](crate::Fsync)) and in
    /// the snapshots to come. Calls at the same time share one lock, one write, one sync and one
    /// publication. A caller that gives up waiting cannot take the lesson back.
    ///
    /// # Errors
    ///
    /// Returns [`AddError`] when the lesson has no id or its line is over the cap, and when the
    /// file cannot be locked, read or written; the file is then as it was before, unless
    /// [`WriteError`](crate::WriteError) says otherwise.
    pub fn add(&self, lesson: Lesson) -> Result<Arc<Lesson>, AddError> {
        let op = self.put(lesson)?;
        present(writer::one(&self.writer, op)?)
    }

    /// Adds many lessons and returns the answer for each, in order. A lesson that cannot be
    /// stored stops none of the others.
    ///
    /// Blocks as [`add`](Self::add); written in batches of up to 1,000 lessons or 64 MiB, each
    /// of which is in the file and in a snapshot as a whole, or not at all.
    pub fn add_all(
        &self,
        lessons: impl IntoIterator<Item = Lesson>,
    ) -> Vec<Result<Arc<Lesson>, AddError>> {
        let ops = lessons.into_iter().map(|lesson| self.put(lesson)).collect();
        writer::all(&self.writer, ops).into_iter().map(|done| present(done?)).collect()
    }

    /// Counts a failure: the lesson with its [`Fingerprint`](crate::Fingerprint) is seen once
    /// more, or, if there is none, a new one gets the id `fp-` and the fingerprint. Returns it.
    ///
    /// Exact across threads and processes: the count is taken under the lock of the file. Blocks
    /// as [`add`](Self::add).
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub fn record(&self, failure: Failure) -> Result<Arc<Lesson>, AddError> {
        present(writer::one(&self.writer, Op::Record(Box::new(failure)))?)
    }

    /// Counts many failures and returns the answer for each, in order. Blocks as
    /// [`add_all`](Self::add_all).
    pub fn record_all(
        &self,
        failures: impl IntoIterator<Item = Failure>,
    ) -> Vec<Result<Arc<Lesson>, AddError>> {
        let ops = failures.into_iter().map(|failure| Ok(Op::Record(Box::new(failure)))).collect();
        writer::all(&self.writer, ops).into_iter().map(|done| present(done?)).collect()
    }

    /// Counts what somebody thinks of a lesson, for [`recall`](Snapshot::recall). Returns it, or
    /// `None` if there is none with this id. Blocks as [`add`](Self::add).
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub fn feedback(
        &self,
        id: impl Into<String>,
        feedback: Feedback,
    ) -> Result<Option<Arc<Lesson>>, AddError> {
        Ok(writer::one(&self.writer, Op::Vote { id: id.into(), feedback })??)
    }

    /// Removes a lesson and returns it, or `None` if there is none with this id. Blocks as
    /// [`add`](Self::add).
    ///
    /// The file gets a line that says so; the text of the lesson is in the file until it is
    /// [compacted](Self::compact).
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub fn forget(&self, id: impl Into<String>) -> Result<Option<Arc<Lesson>>, AddError> {
        Ok(writer::one(&self.writer, Op::Forget { id: id.into() })??)
    }

    /// Writes the file anew without the lines that no longer hold: those that a later line with
    /// their id replaces, and those of removed lessons. All others stay in order and byte for
    /// byte, but for blanks around them.
    ///
    /// Blocks all writers, of other processes too; readers see the old file or the new one. A
    /// process that appends without the lock can lose what it writes in the moment of the rename.
    ///
    /// # Errors
    ///
    /// Returns [`CompactError`] when the file cannot be locked, read or written, or has markers of
    /// a merge conflict; it is then as it was before.
    pub fn compact(&self, policy: &Compaction) -> Result<Compacted, CompactError> {
        self.shared.compact(policy)
    }

    /// Reads what other processes appended. Parses the new bytes only, unless the file was cut,
    /// replaced or written in place; then it is read whole.
    ///
    /// Blocks while it reads, and while a write is going on. [`add`](Self::add) does it too.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError`] as [`open`](Self::open); the snapshot then stays as it was.
    pub fn refresh(&self) -> Result<Refresh, OpenError> {
        self.shared.refresh()
    }

    /// Reads the whole file again; readers keep the old snapshot until that is done.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError`] as [`open`](Self::open); the snapshot then stays as it was.
    pub fn reload(&self) -> Result<(), OpenError> {
        self.shared.reload()
    }

    /// Takes in what is new, reads the whole file beside that, and says which lessons differ: those
    /// of a change in place that [`refresh`](Self::refresh) cannot see, and all after a
    /// [`clear`](Self::clear). Changes nothing else.
    ///
    /// Blocks while it reads, and all writers of this index; takes the memory of the index again.
    /// What another process writes meanwhile may be among the differences.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError`] as [`open`](Self::open).
    pub fn verify(&self) -> Result<Verified, OpenError> {
        self.shared.verify(&self.path)
    }

    /// Empties the index in memory. The file stays as it is: [`reload`](Self::reload) brings its
    /// lessons back, [`refresh`](Self::refresh) and [`add`](Self::add) bring new ones only.
    /// [`record`](Self::record), [`feedback`](Self::feedback) and [`forget`](Self::forget) depend on
    /// what is known, so that they read the file again first, and so does [`compact`](Self::compact).
    pub fn clear(&self) {
        self.shared.clear();
    }

    #[cfg(feature = "measure")]
    pub(crate) fn publish_only(&self, lesson: Arc<Lesson>) {
        self.shared.publish_only(lesson);
    }

    fn put(&self, lesson: Lesson) -> Result<Op, AddError> {
        Ok(Op::Put(Arc::new(lesson.stored(self.options.max_line_bytes)?)))
    }
}

/// Returns the lesson of a change that always has one.
fn present(outcome: Outcome) -> Result<Arc<Lesson>, AddError> {
    Ok(outcome?.expect("only looking for an id can find nothing"))
}

impl fmt::Debug for LessonsIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LessonsIndex")
            .field("path", &self.path)
            .field("snapshot", &self.snapshot())
            .finish_non_exhaustive()
    }
}
