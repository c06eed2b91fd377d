use std::time::Duration;

use crate::draft::MAX_CHUNK_BYTES;

/// Tells what to do with lines that are no lesson.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Report them and go on.
    #[default]
    Lenient,
    /// Stop at the first with an error.
    Strict,
}

/// Tells when written lessons are forced to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fsync {
    /// Leave it to the operating system: a power failure can lose lessons, a crash cannot.
    Never,
    /// Once a batch, before any of its `add` calls returns.
    #[default]
    OnBatch,
    /// As `OnBatch`, and with the file's metadata such as its time.
    Always,
}

/// Holds the settings of an index.
///
/// ```
/// use lessons_index::{Fsync, Mode, Options};
///
/// let options = Options::default().with_mode(Mode::Strict).with_fsync(Fsync::Never);
/// assert_eq!(options.max_line_bytes(), 16 << 20);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    pub(crate) mode: Mode,
    pub(crate) fsync: Fsync,
    pub(crate) max_line_bytes: usize,
    pub(crate) max_file_bytes: u64,
    pub(crate) max_faults: usize,
    pub(crate) auto_compact: Option<u64>,
    pub(crate) is_eager: bool,
    pub(crate) lock_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            fsync: Fsync::default(),
            max_line_bytes: 16 << 20,
            max_file_bytes: u64::MAX,
            max_faults: 1_000,
            auto_compact: Some(1 << 20),
            is_eager: true,
            lock_timeout: Duration::from_mins(1),
        }
    }
}

impl Options {
    /// Sets what to do with broken lines; [`Mode::Lenient`] by default.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets when to force writes to the disk; [`Fsync::OnBatch`] by default.
    #[must_use]
    pub fn with_fsync(mut self, fsync: Fsync) -> Self {
        self.fsync = fsync;
        self
    }

    /// Sets the longest line that is read or written, in bytes without its end; 16 MiB by default.
    #[must_use]
    pub fn with_max_line_bytes(mut self, bytes: usize) -> Self {
        self.max_line_bytes = bytes.min(MAX_CHUNK_BYTES);
        self
    }

    /// Sets the longest file that is taken into memory or written; no cap by default.
    ///
    /// A longer one is [`OpenError::TooLarge`](crate::OpenError::TooLarge) before any of it is
    /// read, and what is in memory stays. A lesson that would make it longer is
    /// [`WriteError::Full`](crate::WriteError::Full), before any of it is written; compaction makes
    /// room.
    #[must_use]
    pub fn with_max_file_bytes(mut self, bytes: u64) -> Self {
        self.max_file_bytes = bytes;
        self
    }

    /// Sets from which length on a file is compacted when over half of it does not hold any more;
    /// 1 MiB by default, `None` for never. It is done by the call that wrote last, after the
    /// others have their answers.
    #[must_use]
    pub fn with_auto_compact(mut self, from_bytes: Option<u64>) -> Self {
        self.auto_compact = from_bytes;
        self
    }

    /// Sets whether a thread builds the indexes for text after loading; otherwise, and before it
    /// is done, the first query that needs one builds it. Yes by default.
    #[must_use]
    pub fn with_eager_text(mut self, is_eager: bool) -> Self {
        self.is_eager = is_eager;
        self
    }

    /// Sets how long a write waits for the lock that another process holds; a minute by default,
    /// which is longer than any write or compaction of ours takes.
    ///
    /// Then it is [`WriteError::Held`](crate::WriteError::Held), which names the process where the
    /// system tells, and nothing is written. What else waits for the same index, a refresh too,
    /// waits meanwhile.
    #[must_use]
    pub fn with_lock_timeout(mut self, time: Duration) -> Self {
        self.lock_timeout = time;
        self
    }

    /// Sets how many faults a report keeps in full; 1,000 by default. Counts are exact always.
    #[must_use]
    pub fn with_max_faults(mut self, faults: usize) -> Self {
        self.max_faults = faults;
        self
    }

    /// Returns the longest line that is read or written, in bytes without its end.
    pub fn max_line_bytes(&self) -> usize {
        self.max_line_bytes
    }
}
