//! The file behind an index: reading it whole, reading what was appended, appending to it.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::bulk::{self, Loaded};
use crate::compact::{self, CompactError, Compacted, Compaction};
use crate::draft::Draft;
use crate::error::{OpenError, WriteError};
use crate::intake::Intake;
use crate::lesson::Lesson;
use crate::lock::{self, Sidecar, SidecarLock};
use crate::options::{Fsync, Options};
use crate::report::Summary;

/// Bytes read at a time.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// Bytes before the place of reading that are compared before it is trusted.
const WINDOW_BYTES: usize = 4096;

/// Follows a file.
pub(crate) struct Source {
    path: PathBuf,
    options: Options,
    intake: Intake,
    /// What the file was when it was read; `None` if there was none, or if the last reading
    /// failed half way.
    seen: Option<Seen>,
    /// What is read, but not published.
    pending: Pending,
    sidecar: Sidecar,
    /// The file as it was opened to append last.
    file: Option<Arc<File>>,
}

struct Seen {
    device: u64,
    inode: u64,
    /// Bytes that are read.
    offset: u64,
    /// The last of them.
    window: Vec<u8>,
    /// When the file was written last; `None` if it may have grown since that time was taken.
    modified: Option<SystemTime>,
}

/// Is a change to the index that is to be published.
#[derive(Default)]
pub(crate) struct Pending {
    /// Replaces all there is.
    pub(crate) fresh: Option<Vec<Draft>>,
    /// Comes after that.
    pub(crate) lessons: Vec<Arc<Lesson>>,
    pub(crate) is_changed: bool,
}

/// Is the file with its lock, read to its end.
pub(crate) struct Locked {
    file: Arc<File>,
    /// Where symbolic links lead to, if the file was not there before.
    created: Option<PathBuf>,
    _lock: SidecarLock,
}

impl Source {
    pub(crate) fn new(path: PathBuf, options: Options) -> Self {
        Self {
            path,
            intake: Intake::new(&options),
            options,
            seen: None,
            pending: Pending::default(),
            sidecar: Sidecar::default(),
            file: None,
        }
    }

    /// Returns what is to be published, with the counts that go with it.
    pub(crate) fn take_pending(&mut self) -> (Pending, Summary) {
        (std::mem::take(&mut self.pending), self.intake.summary())
    }

    /// Counts from here on only, for an index that was emptied.
    pub(crate) fn forget_counts(&mut self) {
        self.intake.forget_counts();
    }

    /// Makes the next reading a whole one.
    pub(crate) fn distrust(&mut self) {
        self.seen = None;
        self.pending = Pending::default();
    }

    /// Reads the file from the start; a missing one is empty.
    pub(crate) fn reload(&mut self) -> Result<(), OpenError> {
        match open_regular(&self.path) {
            Ok((file, metadata)) => self.read_whole(&file, &metadata),
            Err(OpenError::Missing { .. }) => {
                self.start_over();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Reads what was appended since the last time, or the whole file if it is another.
    pub(crate) fn refresh(&mut self) -> Result<(), OpenError> {
        if let Some(seen) = &self.seen
            && let Ok(now) = fs::metadata(&self.path)
            && seen.is_unchanged(&now)
        {
            return Ok(());
        }
        match open_regular(&self.path) {
            Ok((file, metadata)) => self.catch_up(&file, &metadata),
            Err(OpenError::Missing { .. }) if self.seen.is_none() => Ok(()),
            Err(OpenError::Missing { .. }) => {
                self.start_over();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Takes the lock and reads what others wrote, which is pending then.
    pub(crate) fn lock(&mut self) -> Result<Locked, WriteError> {
        let target = target_of(&self.path);
        let lock = self.lock_only(&target)?;
        let cannot_open = |source| WriteError::Open { path: self.path.clone(), source };
        let (file, metadata, is_new) = self.open().map_err(cannot_open)?;
        self.file = Some(Arc::clone(&file));
        self.catch_up(&file, &metadata)?;
        Ok(Locked { file, created: is_new.then_some(target), _lock: lock })
    }

    /// Opens the file to append, if it is not open, and says whether it is new.
    fn open(&self) -> io::Result<(Arc<File>, Metadata, bool)> {
        let there = fs::metadata(&self.path);
        if let (Ok(there), Some(file)) = (&there, &self.file)
            && lock::is_same(there, &file.metadata()?)
        {
            return Ok((Arc::clone(file), there.clone(), false));
        }
        let is_new = there.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let file = OpenOptions::new().read(true).append(true).create(true).open(&self.path)?;
        let metadata = file.metadata()?;
        Ok((Arc::new(file), metadata, is_new))
    }

    fn lock_only(&mut self, target: &Path) -> Result<SidecarLock, WriteError> {
        let path = Sidecar::path_of(target);
        self.sidecar.lock(&path).map_err(|source| WriteError::Lock { path, source })
    }

    /// Appends lessons as one write.
    pub(crate) fn append(
        &mut self,
        locked: &Locked,
        lessons: &[Arc<Lesson>],
    ) -> Result<(), WriteError> {
        let file = &*locked.file;
        let mut bytes = Vec::with_capacity(lessons.iter().map(|l| l.raw().len() + 1).sum());
        // A last line without an end, whole or torn, must not be glued to ours.
        if self.intake.is_inside_line() {
            bytes.push(b'\n');
        }
        for lesson in lessons {
            bytes.extend_from_slice(lesson.raw().as_bytes());
            bytes.push(b'\n');
        }
        let start = self.seen.as_ref().map_or(0, |seen| seen.offset);
        if let Err(source) = self.write(file, &bytes, locked.created.as_ref()) {
            let path = self.path.clone();
            return Err(match undo(file, start, bytes.len() as u64) {
                Ok(now) => {
                    // The file is what was read, only its time is new.
                    self.note(&now, start, &[]);
                    WriteError::Write { path, source }
                }
                Err(undo) => WriteError::Torn { path, source, undo },
            });
        }
        self.take_in(file, start, &bytes).map_err(WriteError::Unread)
    }

    /// Returns how long the file is, as far as it was read.
    pub(crate) fn len(&self) -> u64 {
        self.seen.as_ref().map_or(0, |seen| seen.offset)
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Writes the file anew without what does not hold any more, and reads that.
    pub(crate) fn compact(&mut self, policy: &Compaction) -> Result<Compacted, CompactError> {
        let target = target_of(&self.path);
        let _lock = self.lock_only(&target)?;
        let done = compact::compact(&target, &self.options, policy)?;
        self.refresh().map_err(WriteError::Unread)?;
        Ok(done)
    }

    /// Reads what was just written from memory, or the file if more than that is new in it.
    fn take_in(&mut self, file: &File, start: u64, bytes: &[u8]) -> Result<(), OpenError> {
        let cannot_read = |source| OpenError::Read { path: self.path.clone(), source };
        let now = file.metadata().map_err(cannot_read)?;
        if now.len() != start + bytes.len() as u64 {
            // Somebody who does not know the lock wrote at the same time.
            return self.catch_up(file, &now);
        }
        self.take(bytes).map_err(|fault| self.broken(fault))?;
        self.settle()?;
        self.note(&now, now.len(), bytes);
        Ok(())
    }

    fn write(&self, mut file: &File, bytes: &[u8], new: Option<&PathBuf>) -> io::Result<()> {
        file.write_all(bytes)?;
        if self.options.fsync != Fsync::Never {
            match self.options.fsync {
                Fsync::Always => file.sync_all()?,
                _ => file.sync_data()?,
            }
            if let Some(path) = new {
                File::open(folder_of(path))?.sync_all()?;
            }
        }
        Ok(())
    }

    fn catch_up(&mut self, file: &File, metadata: &Metadata) -> Result<(), OpenError> {
        let Some(seen) = &self.seen else { return self.read_whole(file, metadata) };
        let is_same_file = (seen.device, seen.inode) == (metadata.dev(), metadata.ino());
        if !is_same_file || metadata.len() < seen.offset {
            return self.read_whole(file, metadata);
        }
        let offset = seen.offset;
        if metadata.len() == offset {
            let now = metadata.modified().ok();
            if now.is_some() && now == seen.modified {
                return Ok(());
            }
            // Written in place, unless the time was taken while somebody appended.
            if seen.modified.is_some() || !seen.holds(file) {
                return self.read_whole(file, metadata);
            }
            self.note(metadata, offset, &[]);
            return Ok(());
        }
        if !seen.holds(file) {
            return self.read_whole(file, metadata);
        }
        self.read_from(file, metadata, offset)?;
        if self.intake.has_changed_tail() {
            return self.read_whole(file, metadata);
        }
        Ok(())
    }

    fn read_whole(&mut self, file: &File, metadata: &Metadata) -> Result<(), OpenError> {
        self.start_over();
        let read = self.read_all(file, metadata);
        self.after(read)
    }

    /// Reads the whole lines in bulk, and what is behind them bit by bit.
    fn read_all(&mut self, mut file: &File, metadata: &Metadata) -> Result<(), OpenError> {
        let mut window = Vec::new();
        let loaded = file
            .rewind()
            .and_then(|()| {
                bulk::load(file, metadata.len(), &self.options, |b| slide(&mut window, b))
            })
            .map_err(|source| OpenError::Read { path: self.path.clone(), source })?;
        let Loaded { drafts, intake, rest, offset } = loaded.map_err(|fault| self.broken(fault))?;
        self.intake = intake;
        self.pending.fresh = Some(drafts);
        self.take(&rest).map_err(|fault| self.broken(fault))?;
        slide(&mut window, &rest);
        self.read_to_end(file, metadata, offset + rest.len() as u64, window)
    }

    /// Forgets what was read; what is published stays until the next reading is complete.
    fn start_over(&mut self) {
        self.intake = Intake::new(&self.options);
        self.seen = None;
        self.pending = Pending { lessons: Vec::new(), fresh: Some(Vec::new()), is_changed: true };
    }

    fn read_from(&mut self, file: &File, metadata: &Metadata, from: u64) -> Result<(), OpenError> {
        let window = self.seen.take().map(|seen| seen.window).unwrap_or_default();
        let read = self.read_to_end(file, metadata, from, window);
        self.after(read)
    }

    /// Half a reading must be neither published nor gone on with.
    fn after(&mut self, read: Result<(), OpenError>) -> Result<(), OpenError> {
        if read.is_err() {
            self.intake = Intake::new(&self.options);
            self.pending = Pending::default();
        }
        read
    }

    fn read_to_end(
        &mut self,
        file: &File,
        metadata: &Metadata,
        from: u64,
        mut window: Vec<u8>,
    ) -> Result<(), OpenError> {
        let room = metadata.len().saturating_sub(from).saturating_add(1);
        let mut chunk = vec![0; CHUNK_BYTES.min(usize::try_from(room).unwrap_or(CHUNK_BYTES))];
        let mut offset = from;
        loop {
            let count = match file.read_at(&mut chunk, offset) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(OpenError::Read { path: self.path.clone(), source }),
            };
            self.take(&chunk[..count]).map_err(|fault| self.broken(fault))?;
            offset += count as u64;
            slide(&mut window, &chunk[..count]);
        }
        self.settle()?;
        self.seen = Some(Seen { window, ..Seen::at(metadata, offset) });
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), crate::Fault> {
        let pending = &mut self.pending;
        pending.is_changed = true;
        self.intake.feed(bytes, |lesson| pending.lessons.push(lesson), |_| {})
    }

    fn settle(&mut self) -> Result<(), OpenError> {
        let pending = &mut self.pending;
        let settled = self.intake.settle(|lesson| pending.lessons.push(lesson), |_| {});
        settled.map_err(|fault| self.broken(fault))
    }

    /// Notes that the file is read up to `offset`, which ends with `bytes`.
    fn note(&mut self, metadata: &Metadata, offset: u64, bytes: &[u8]) {
        let mut window = self.seen.take().map(|seen| seen.window).unwrap_or_default();
        slide(&mut window, bytes);
        self.seen = Some(Seen { window, ..Seen::at(metadata, offset) });
    }

    fn broken(&self, fault: crate::Fault) -> OpenError {
        OpenError::Fault { path: self.path.clone(), fault: Box::new(fault) }
    }
}

impl Seen {
    /// Returns whether a file is the one that was read, to its end and as it was.
    fn is_unchanged(&self, now: &Metadata) -> bool {
        (self.device, self.inode, self.offset) == (now.dev(), now.ino(), now.len())
            && self.modified.is_some()
            && self.modified == now.modified().ok()
    }

    /// Returns whether the bytes before the place of reading are still those that were read.
    fn holds(&self, file: &File) -> bool {
        let mut now = vec![0; self.window.len()];
        let from = self.offset - self.window.len() as u64;
        file.read_exact_at(&mut now, from).is_ok() && now == self.window
    }

    fn at(metadata: &Metadata, offset: u64) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            offset,
            window: Vec::new(),
            modified: metadata.modified().ok().filter(|_| metadata.len() == offset),
        }
    }
}

/// Opens a file for reading; anything but a regular file is an error, and is not waited for.
pub(crate) fn open_regular(path: &Path) -> Result<(File, Metadata), OpenError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => OpenError::Missing { path: path.to_owned() },
        _ => OpenError::Read { path: path.to_owned(), source },
    };
    let kind = fs::metadata(path).map_err(failed)?.file_type();
    if !kind.is_file() {
        let found = if kind.is_dir() { "a folder" } else { "a device, pipe or socket" };
        return Err(OpenError::NotAFile { path: path.to_owned(), found });
    }
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    Ok((file, metadata))
}

/// Returns the folder that a file is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Returns the path that symbolic links in place of the file lead to, whether it exists or not.
///
/// Links in the folders above make no difference: the lock stands beside the file in any case.
fn target_of(path: &Path) -> PathBuf {
    /// As many as Linux follows.
    const MAX_LINKS: usize = 40;
    let mut target = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(next) = fs::read_link(&target) else { break };
        target = folder_of(&target).join(next);
    }
    target
}

/// Cuts off what a failed write left, unless it is not ours.
fn undo(file: &File, start: u64, written: u64) -> io::Result<Metadata> {
    let len = file.metadata()?.len();
    if len < start || len > start + written {
        return Err(io::Error::other("another process changes the file without its lock"));
    }
    if len > start {
        file.set_len(start)?;
    }
    file.metadata()
}

fn slide(window: &mut Vec<u8>, bytes: &[u8]) {
    window.extend_from_slice(&bytes[bytes.len().saturating_sub(WINDOW_BYTES)..]);
    window.drain(..window.len().saturating_sub(WINDOW_BYTES));
}

/// Reads anything, in pieces.
pub(crate) fn for_each_chunk<E>(
    mut input: impl Read,
    on_error: impl Fn(io::Error) -> E,
    mut sink: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match input.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => sink(&chunk[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(on_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Mode;

    #[test]
    fn an_error_after_the_write_does_not_say_that_nothing_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lessons.jsonl");
        fs::write(&path, "{\"id\":\"a\"}\n").unwrap();
        let mut source = Source::new(path.clone(), Options::default().with_mode(Mode::Strict));
        source.reload().unwrap();
        // Our line, and one of somebody who wrote without the lock right behind it.
        let ours = b"{\"id\":\"b\"}\n";
        let mut file = OpenOptions::new().read(true).append(true).open(&path).unwrap();
        file.write_all(ours).unwrap();
        file.write_all(b"broken\n").unwrap();
        let error = source.take_in(&file, 11, ours).map_err(WriteError::Unread).unwrap_err();
        assert!(error.to_string().contains("written"), "{error}");
        assert!(matches!(error, WriteError::Unread(OpenError::Fault { .. })), "{error:?}");
        assert!(error.has_changed_file());
    }
}
