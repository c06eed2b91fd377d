//! The file behind an index: reading it whole, reading what was appended, appending to it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bulk::{self, Loaded};
use crate::compact::{self, CompactError, Compacted, Compaction};
use crate::disk::{self, Folder};
use crate::draft::Draft;
use crate::error::{OpenError, WriteError};
use crate::intake::Intake;
use crate::lesson::Lesson;
use crate::lock::{Sidecar, SidecarLock};
use crate::opened::Opened;
use crate::options::{Fsync, Options};
use crate::path::{open_regular, refuse_other_kinds, target_of};
use crate::report::Summary;
use crate::seen::{Look, Seen, slide};

/// Bytes read at a time.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// Room for what comes behind the end that is known.
const MIN_CHUNK_BYTES: u64 = 8 << 10;

/// Follows a file.
pub(crate) struct Source {
    path: PathBuf,
    options: Options,
    intake: Intake,
    /// What the file was when it was read; `None` if there was none, or if the last reading
    /// failed half way.
    seen: Option<Seen>,
    /// Whether that was so, and what is published is from before.
    is_stale: bool,
    is_cleared: bool,
    /// What is read, but not published.
    pending: Pending,
    sidecar: Sidecar,
    /// The file as it was opened to append last.
    file: Option<Arc<Opened>>,
    /// Whether a power failure cannot take that file out of its folder any more.
    is_entry_synced: bool,
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
    file: Arc<Opened>,
    /// Where symbolic links lead to.
    target: PathBuf,
    held: SidecarLock,
}

impl Source {
    pub(crate) fn new(path: PathBuf, options: Options) -> Self {
        Self {
            path,
            intake: Intake::new(&options),
            options,
            seen: None,
            is_stale: false,
            is_cleared: false,
            pending: Pending::default(),
            sidecar: Sidecar::default(),
            file: None,
            is_entry_synced: false,
        }
    }

    /// Returns what is to be published, with the counts that go with it.
    pub(crate) fn take_pending(&mut self) -> (Pending, Summary) {
        (std::mem::take(&mut self.pending), self.intake.summary())
    }

    /// Counts from here on only, for an index that was emptied until the next whole reading.
    pub(crate) fn clear(&mut self) {
        self.intake.forget_counts();
        self.is_cleared = true;
    }

    /// Returns whether the file holds lessons that are not published.
    pub(crate) fn is_cleared(&self) -> bool {
        self.is_cleared
    }

    /// Makes the next reading a whole one.
    pub(crate) fn distrust(&mut self) {
        self.seen = None;
        self.is_stale = true;
        self.pending = Pending::default();
    }

    /// Reads the file from the start; a missing one is empty.
    pub(crate) fn reload(&mut self) -> Result<(), OpenError> {
        match open_regular(&self.path) {
            Ok((file, look)) => self.read_whole(&file, &look),
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
            Ok((file, look)) => self.catch_up(&file, &look),
            Err(OpenError::Missing { .. }) if self.seen.is_none() && !self.is_stale => Ok(()),
            Err(OpenError::Missing { .. }) => {
                self.start_over();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Takes the lock and reads what others wrote, which is pending then. A lock that is held
    /// already stays, so that nobody gets in between, unless others would lock another file by now.
    pub(crate) fn lock(&mut self, held: Option<Locked>) -> Result<Locked, WriteError> {
        let target = target_of(&self.path);
        let sidecar = Sidecar::path_of(&target);
        let held = match held.map(|locked| locked.held).filter(|held| held.is_at(&sidecar)) {
            Some(held) => held,
            None => self.lock_only(&target)?,
        };
        let (file, look) = self.open()?;
        self.catch_up(file.file(), &look)?;
        Ok(Locked { file, target, held })
    }

    /// Opens the file to append, if it is not open.
    fn open(&mut self) -> Result<(Arc<Opened>, Look), WriteError> {
        let failed = |source| WriteError::Open { path: self.path.clone(), source };
        if let Ok(there) = Look::at(&self.path) {
            if let Some(file) = self.file.as_ref().filter(|file| file.is(&there.metadata)) {
                return Ok((Arc::clone(file), there));
            }
            // A pipe would take the lessons and keep none.
            refuse_other_kinds(&self.path, there.metadata.file_type())?;
        }
        let file = OpenOptions::new().read(true).append(true).create(true).open(&self.path);
        let file = file.map_err(failed)?;
        let look = Look::of(&file).map_err(failed)?;
        refuse_other_kinds(&self.path, look.metadata.file_type())?;
        let file = Arc::new(Opened::new(file).map_err(failed)?);
        self.file = Some(Arc::clone(&file));
        // Whoever created it, or put it in place, may have been killed right behind that.
        self.is_entry_synced = false;
        Ok((file, look))
    }

    fn lock_only(&mut self, target: &Path) -> Result<SidecarLock, WriteError> {
        self.sidecar.lock(&Sidecar::path_of(target), self.options.lock_timeout)
    }

    /// Appends lessons as one write; if there are none, has on the disk what is there. Returns
    /// `false` if the file was removed, renamed or replaced meanwhile, by somebody who does not know
    /// the lock: then nobody will find them there.
    pub(crate) fn append(
        &mut self,
        locked: &Locked,
        lessons: &[Arc<Lesson>],
    ) -> Result<bool, WriteError> {
        let file = locked.file.file();
        let mut bytes = Vec::with_capacity(lessons.iter().map(|l| l.raw().len() + 1).sum());
        // A last line without an end, whole or torn, must not be glued to ours.
        if self.intake.is_inside_line() && !lessons.is_empty() {
            bytes.push(b'\n');
        }
        for lesson in lessons {
            bytes.extend_from_slice(lesson.raw().as_bytes());
            bytes.push(b'\n');
        }
        let start = self.len();
        let len = start + bytes.len() as u64;
        if len > self.options.max_file_bytes {
            let (path, max) = (self.path.clone(), self.options.max_file_bytes);
            return Err(WriteError::Full { path, bytes: len, max });
        }
        if let Err(source) = self.write(file, &bytes, &locked.target) {
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
        let Some(now) = self.look_again(&locked.file).map_err(WriteError::Unread)? else {
            self.distrust();
            return Ok(false);
        };
        self.take_in(file, &now, start, &bytes).map_err(WriteError::Unread)?;
        Ok(true)
    }

    /// Returns the error of a file that was replaced while it was written, and could not be written
    /// since.
    pub(crate) fn replaced(&self, source: Option<WriteError>) -> WriteError {
        WriteError::Replaced { path: self.path.clone(), source: source.map(Box::new) }
    }

    /// Returns `None` if another file stands under the name, or none. The one that was written may have
    /// another name by now: programs that keep a backup rename it, and put a new one in its place.
    fn look_again(&self, file: &Opened) -> Result<Option<Look>, OpenError> {
        match Look::at(&self.path) {
            Ok(there) => Ok(file.is(&there.metadata).then_some(there)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // It cannot be said, so it is the same.
            Err(_) => {
                let failed = |source| OpenError::Read { path: self.path.clone(), source };
                Look::of(file.file()).map(Some).map_err(failed)
            }
        }
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
        self.refresh().map_err(CompactError::Unread)?;
        Ok(done)
    }

    /// Reads what was just written from memory, or the file if more than that is new in it.
    fn take_in(
        &mut self,
        file: &File,
        now: &Look,
        start: u64,
        bytes: &[u8],
    ) -> Result<(), OpenError> {
        if now.len() != start + bytes.len() as u64 {
            // Somebody who does not know the lock wrote at the same time.
            return self.catch_up(file, now);
        }
        self.take(bytes).map_err(|fault| self.broken(fault))?;
        self.settle()?;
        self.note(now, now.len(), bytes);
        Ok(())
    }

    fn write(&mut self, file: &File, bytes: &[u8], target: &Path) -> io::Result<()> {
        disk::append(file, bytes)?;
        match self.options.fsync {
            Fsync::Never => return Ok(()),
            Fsync::OnBatch => disk::sync_data(file)?,
            Fsync::Always => disk::sync_all(file)?,
        }
        if !self.is_entry_synced {
            Folder::of(target)?.sync()?;
            self.is_entry_synced = true;
        }
        Ok(())
    }

    fn catch_up(&mut self, file: &File, look: &Look) -> Result<(), OpenError> {
        let Some(seen) = &self.seen else { return self.read_whole(file, look) };
        if seen.is_unchanged(&look.metadata) {
            return Ok(());
        }
        let offset = seen.offset;
        // With a time to compare, the same length and another time is a change in place.
        let is_rewritten = look.len() == offset && seen.is_sure();
        let is_other = !seen.is_same_file(&look.metadata) || look.len() < offset;
        if is_other || is_rewritten || !seen.holds(file) {
            return self.read_whole(file, look);
        }
        if look.len() == offset {
            self.note(look, offset, &[]);
            return Ok(());
        }
        self.refuse_too_large(look)?;
        self.read_from(file, look, offset)?;
        if self.intake.has_changed_tail() {
            return self.read_whole(file, look);
        }
        Ok(())
    }

    /// Keeps what there is, rather than to take in more than is wanted in memory.
    fn refuse_too_large(&self, look: &Look) -> Result<(), OpenError> {
        let (bytes, max) = (look.len(), self.options.max_file_bytes);
        if bytes > max {
            return Err(OpenError::TooLarge { path: self.path.clone(), bytes, max });
        }
        Ok(())
    }

    fn read_whole(&mut self, file: &File, look: &Look) -> Result<(), OpenError> {
        self.refuse_too_large(look)?;
        self.start_over();
        let read = self.read_all(file, look);
        self.after(read)?;
        if self.is_mixed(file, look).unwrap_or(true) {
            // The next reading is a whole one, when the file may be quiet.
            if let Some(seen) = &mut self.seen {
                seen.is_mixed = true;
            }
        }
        Ok(())
    }

    /// Returns whether bytes that were read are others by now: who cuts a file and writes it again
    /// meanwhile leaves the start of the old one with the end of the new one in memory, and that end
    /// is all that the next refresh compares.
    fn is_mixed(&self, file: &File, look: &Look) -> io::Result<bool> {
        if !look.is_changed(&Look::of(file)?) {
            return Ok(false);
        }
        let mut now = vec![0; CHUNK_BYTES];
        let mut at = 0;
        for chunk in self.pending.fresh.iter().flatten().flat_map(|draft| &draft.chunks) {
            for read in chunk.chunks(CHUNK_BYTES) {
                let now = &mut now[..read.len()];
                file.read_exact_at(now, at)?;
                if now != read {
                    return Ok(true);
                }
                at += read.len() as u64;
            }
        }
        Ok(false)
    }

    /// Reads the whole lines in bulk, and what is behind them bit by bit.
    fn read_all(&mut self, file: &File, look: &Look) -> Result<(), OpenError> {
        let mut window = Vec::new();
        let loaded = bulk::load(file, look.len(), &self.options, |b| slide(&mut window, b))
            .map_err(|source| OpenError::Read { path: self.path.clone(), source })?;
        let Loaded { drafts, intake, rest, offset } = loaded.map_err(|fault| self.broken(fault))?;
        self.intake = intake;
        self.pending.fresh = Some(drafts);
        self.take(&rest).map_err(|fault| self.broken(fault))?;
        slide(&mut window, &rest);
        self.read_to_end(file, look, offset + rest.len() as u64, window)
    }

    /// Forgets what was read; what is published stays until the next reading is complete.
    fn start_over(&mut self) {
        self.intake = Intake::new(&self.options);
        self.seen = None;
        self.is_stale = false;
        self.is_cleared = false;
        self.pending = Pending { lessons: Vec::new(), fresh: Some(Vec::new()), is_changed: true };
    }

    fn read_from(&mut self, file: &File, look: &Look, from: u64) -> Result<(), OpenError> {
        let before = self.seen.take();
        let window = before.as_ref().map(|seen| seen.window.clone()).unwrap_or_default();
        let read = self.read_to_end(file, look, from, window);
        self.after(read)?;
        if let (Some(before), Some(seen)) = (before, &mut self.seen) {
            // It may have been cut and written anew since that was asked.
            seen.is_mixed = !before.holds(file);
        }
        Ok(())
    }

    /// Half a reading must be neither published nor gone on with.
    fn after(&mut self, read: Result<(), OpenError>) -> Result<(), OpenError> {
        if read.is_err() {
            self.intake = Intake::new(&self.options);
            self.distrust();
        }
        read
    }

    fn read_to_end(
        &mut self,
        file: &File,
        look: &Look,
        from: u64,
        mut window: Vec<u8>,
    ) -> Result<(), OpenError> {
        let room = look.len().saturating_sub(from).saturating_add(1);
        // It may have grown since that look, by any length.
        let room = room.max(MIN_CHUNK_BYTES);
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
        self.seen = Some(Seen::new(look, offset, window));
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
    fn note(&mut self, look: &Look, offset: u64, bytes: &[u8]) {
        let mut window = self.seen.take().map(|seen| seen.window).unwrap_or_default();
        slide(&mut window, bytes);
        self.seen = Some(Seen::new(look, offset, window));
    }

    fn broken(&self, fault: crate::Fault) -> OpenError {
        OpenError::Fault { path: self.path.clone(), fault: Box::new(fault) }
    }
}

/// Cuts off what a failed write left, unless it is not ours.
fn undo(file: &File, start: u64, written: u64) -> io::Result<Look> {
    let len = file.metadata()?.len();
    if len < start || len > start + written {
        return Err(io::Error::other("another process changes the file without its lock"));
    }
    if len > start {
        file.set_len(start)?;
    }
    Look::of(file)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::options::Mode;

    /// It was synced by the append that created the file only, and by nobody if that one was killed
    /// or had nothing to append.
    #[test]
    fn the_first_append_to_a_file_syncs_its_folder_whoever_created_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lessons.jsonl");
        let lesson = [Arc::new(Lesson::parse_line("{\"id\":\"a\"}").unwrap())];
        let mut source = Source::new(path.clone(), Options::default());
        drop(source.lock(None).unwrap());
        assert!(path.exists() && !source.is_entry_synced);
        for _ in 0..2 {
            let locked = source.lock(None).unwrap();
            source.append(&locked, &lesson).unwrap();
            assert!(source.is_entry_synced);
        }
        // Another file in its place, as a compaction puts it there.
        fs::copy(&path, dir.path().join("new")).unwrap();
        fs::rename(dir.path().join("new"), &path).unwrap();
        let locked = source.lock(None).unwrap();
        assert!(!source.is_entry_synced);
        source.append(&locked, &lesson).unwrap();
        assert!(source.is_entry_synced);
    }

    /// Behind the end that was known, it was read byte by byte.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_that_grows_while_it_is_loaded_is_read_on_in_pieces() {
        const LESSONS: usize = 20_000;
        let reads = || {
            let io = fs::read_to_string("/proc/thread-self/io").unwrap();
            let count = io.lines().find_map(|line| line.strip_prefix("syscr: "));
            count.unwrap().parse::<usize>().unwrap()
        };
        for known in [0, 1] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("lessons.jsonl");
            let line = |n| format!("{{\"id\":\"{n}\"}}\n");
            let lines =
                |range: std::ops::Range<usize>| range.map(line).collect::<Vec<String>>().concat();
            fs::write(&path, lines(0..known)).unwrap();
            let file = File::open(&path).unwrap();
            let look = Look::of(&file).unwrap();
            fs::write(&path, lines(0..LESSONS)).unwrap();
            let mut source = Source::new(path, Options::default());
            let before = reads();
            source.read_whole(&file, &look).unwrap();
            assert!(reads() - before < 100, "{known}: {} reads", reads() - before);
            let rows = source.pending.fresh.iter().flatten().map(|draft| draft.rows.len());
            assert_eq!(rows.sum::<usize>() + source.pending.lessons.len(), LESSONS);
        }
    }

    /// Its end is all that a refresh compares, so that lessons of before stayed for good.
    #[test]
    fn a_file_that_is_written_anew_while_it_is_read_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lessons.jsonl");
        fs::write(&path, "{\"id\":\"a\"}\n{\"id\":\"b\"}\n").unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let look = Look::of(&file).unwrap();
        let mut source = Source::new(path, Options::default());
        source.read_whole(&file, &look).unwrap();
        assert!(!source.is_mixed(&file, &look).unwrap());
        file.write_all_at(b"{\"id\":\"c\"}\n", 22).unwrap();
        assert!(!source.is_mixed(&file, &look).unwrap(), "what is behind is read next");
        file.write_all_at(b"{\"id\":\"x\"}\n", 0).unwrap();
        assert!(source.is_mixed(&file, &look).unwrap());

        // As if that had come while it was read.
        let read = |source: &mut Source| {
            source.refresh().unwrap();
            source.take_pending().0.fresh.map(|drafts| drafts.iter().map(|d| d.rows.len()).sum())
        };
        read(&mut source);
        assert_eq!(read(&mut source), None);
        source.seen.as_mut().unwrap().is_mixed = true;
        assert_eq!(read(&mut source), Some(3_usize));
        assert_eq!(read(&mut source), None);

        // The same between a look at the end that is known and the reading of what is behind it.
        // That is so long that the next look sees nothing else.
        let long = format!("{{\"id\":\"d\",\"failure_msg\":\"{}\"}}\n", "x".repeat(9_000));
        file.write_all_at(long.as_bytes(), 33).unwrap();
        file.write_all_at(b"{\"id\":\"y\"}\n", 0).unwrap();
        let from = source.len();
        source.read_from(&file, &Look::of(&file).unwrap(), from).unwrap();
        source.take_pending();
        assert_eq!(read(&mut source), Some(4_usize));
        assert_eq!(read(&mut source), None);
    }

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
        let now = Look::of(&file).unwrap();
        let error = source.take_in(&file, &now, 11, ours).map_err(WriteError::Unread).unwrap_err();
        assert!(error.to_string().contains("written"), "{error}");
        assert!(matches!(error, WriteError::Unread(OpenError::Fault { .. })), "{error:?}");
        assert!(error.has_changed_file());
    }
}
