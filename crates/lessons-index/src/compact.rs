use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};

use crate::disk::{self, Folder};
use crate::error::{OpenError, WriteError};
use crate::fault::{Fault, FaultKind};
use crate::intake::Lines;
use crate::options::Options;
use crate::path::{folder_of, open_regular};
use crate::scan::{Line, Scanner};
use crate::source::CHUNK_BYTES;
use crate::stamp;

/// Says what a compaction keeps.
///
/// ```
/// use lessons_index::{Compaction, Lesson, LessonsIndex, Options};
///
/// let dir = tempfile::tempdir()?;
/// let index = LessonsIndex::open(dir.path().join("lessons.jsonl"), Options::default())?;
/// for times in 1..=3 {
///     index.add(Lesson::builder("a").times_seen(times).build()?)?;
/// }
/// let done = index.compact(&Compaction::default())?;
/// assert_eq!((done.kept, done.dropped), (1, 2));
/// assert_eq!(index.snapshot().get("a").expect("it is kept").times_seen, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Compaction {
    keep_tombstones: SignedDuration,
    quarantine: bool,
}

impl Default for Compaction {
    fn default() -> Self {
        Self { keep_tombstones: SignedDuration::from_hours(30 * 24), quarantine: false }
    }
}

impl Compaction {
    /// Sets how long the mark of a removed lesson stays, so that a merge with an older copy of the
    /// file does not bring it back; 30 days by default.
    #[must_use]
    pub fn with_keep_tombstones(mut self, time: SignedDuration) -> Self {
        self.keep_tombstones = time;
        self
    }

    /// Sets whether broken lines move to `<file>.quarantine`; by default they stay where they are,
    /// and the markers of a merge conflict are an error. A last line without an end always stays,
    /// unless it is such a marker: somebody who does not know the lock may be writing the rest.
    #[must_use]
    pub fn with_quarantine(mut self, is_on: bool) -> Self {
        self.quarantine = is_on;
        self
    }
}

/// Says what a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// Lessons and tombstones that are in the file.
    pub kept: u64,
    /// Lines that no longer held.
    pub dropped: u64,
    /// Broken lines that were moved.
    pub quarantined: u64,
    /// How long the file was.
    pub bytes_before: u64,
    /// How long it is.
    pub bytes_after: u64,
}

/// Says why a file was not compacted; it is as it was before, except after
/// [`Unsynced`](Self::Unsynced) and [`Unread`](Self::Unread).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompactError {
    /// The file cannot be locked or read.
    #[error(transparent)]
    File(#[from] WriteError),
    /// A merge conflict is not resolved.
    #[error("the file has markers of a merge conflict, {fault}; resolve it, or quarantine them")]
    Conflict {
        /// The first of them.
        fault: Box<Fault>,
    },
    /// The file has several names, of which only one would name the new file.
    #[error(
        "{path:?} has {links} names, and would lose the others; remove them, or use links by name"
    )]
    Linked {
        /// The file.
        path: PathBuf,
        /// How many names it has.
        links: u64,
    },
    /// The new file cannot be written.
    #[error("cannot write {path:?} to compact its neighbour; the file is as it was before")]
    Write {
        /// What was to be written.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is compacted, but what is in it now cannot be read; the snapshot stays as it was.
    #[error("the file is compacted, but cannot be read back")]
    Unread(#[source] OpenError),
    /// The new file is in place, but a power failure may bring the old one back, or lose what was
    /// appended without the lock in that moment.
    #[error("{path:?} is compacted, but that is not sure to be on the disk; compact it again")]
    Unsynced {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Writes a file anew, next to it, and puts that in its place. The caller holds the lock.
pub(crate) fn compact(
    path: &Path,
    options: &Options,
    policy: &Compaction,
) -> Result<Compacted, CompactError> {
    let (old, look) = match open_regular(path) {
        Ok(found) => found,
        // A file that is not there yet is empty.
        Err(OpenError::Missing { .. }) => return Ok(Compacted::default()),
        Err(error) => return Err(WriteError::Refresh(error).into()),
    };
    let links = look.metadata.nlink();
    if links > 1 {
        return Err(CompactError::Linked { path: path.to_owned(), links });
    }
    let mut job = Job { path, options, policy, old, done: Compacted::default() };
    let last = job.last_of_each_id()?;
    let fresh = beside(path, ".", ".compact");
    let written = job.write(&fresh, &look.metadata, &last);
    if written.is_err() {
        // It is of no use to anybody. After the rename there is none.
        let _ = fs::remove_file(&fresh);
    }
    written.map(|()| job.done)
}

struct Job<'a> {
    path: &'a Path,
    options: &'a Options,
    policy: &'a Compaction,
    old: File,
    done: Compacted,
}

impl Job<'_> {
    /// Returns the number of the last line with each id.
    fn last_of_each_id(&self) -> Result<HashMap<String, u64>, CompactError> {
        let mut last = HashMap::new();
        let mut conflict = None;
        let mut lines = Lines::new(self.options);
        self.for_each_line(u64::MAX, |line| {
            match lines.examine(line) {
                Some(Ok((record, _))) => {
                    last.insert(record.id.into_owned(), line.number);
                }
                Some(Err(fault)) if fault.kind == FaultKind::ConflictMarker => {
                    conflict.get_or_insert(fault);
                }
                _ => {}
            }
            Ok(())
        })
        .map_err(|source| self.unreadable(source))?;
        match conflict {
            Some(fault) if !self.policy.quarantine => {
                Err(CompactError::Conflict { fault: Box::new(fault) })
            }
            _ => Ok(last),
        }
    }

    fn write(
        &mut self,
        fresh: &Path,
        metadata: &fs::Metadata,
        last: &HashMap<String, u64>,
    ) -> Result<(), CompactError> {
        let failed = |source| CompactError::Write { path: fresh.to_owned(), source };
        let new = create_private(fresh).map_err(failed)?;
        let mut out = BufWriter::with_capacity(CHUNK_BYTES, &new);
        let end = self.copy(metadata.len(), last, &mut out).map_err(failed)?;
        out.flush().map_err(failed)?;
        drop(out);
        if self.done.quarantined > 0 {
            self.put_in_quarantine(metadata)?;
        }
        keep_owners(&new, metadata).map_err(failed)?;
        new.set_permissions(metadata.permissions()).map_err(failed)?;
        let end = self.copy_behind(end, &new).map_err(failed)?;
        disk::sync_all(&new).map_err(failed)?;
        let folder = Folder::of(self.path).map_err(failed)?;
        if self.done.quarantined > 0 {
            // What moved aside must not be lost when the rename is not.
            folder.sync().map_err(failed)?;
        }
        disk::rename(fresh, self.path).map_err(failed)?;
        self.finish(end, &new, &folder)
            .map_err(|source| CompactError::Unsynced { path: self.path.to_owned(), source })
    }

    /// Does what is to be done behind the rename.
    fn finish(&mut self, end: u64, new: &File, folder: &Folder) -> io::Result<()> {
        // Those who append without the lock may have done so until the last moment.
        let copied = self.copy_behind(end, new)?;
        if copied > end {
            disk::sync_all(new)?;
        }
        folder.sync()?;
        self.done.bytes_before = copied;
        self.done.bytes_after = new.metadata()?.len();
        Ok(())
    }

    /// Copies the lines that hold; broken ones too, if they are to stay. Returns where it stopped.
    ///
    /// A last line without an end stays without one, because somebody who does not know the lock may
    /// be writing the rest of it.
    fn copy(
        &mut self,
        len: u64,
        last: &HashMap<String, u64>,
        out: &mut impl Write,
    ) -> io::Result<u64> {
        let mut lines = Lines::new(self.options);
        let horizon = Timestamp::now().saturating_sub(self.policy.keep_tombstones).ok();
        let mut done = self.done;
        let old = &self.old;
        let end = self.for_each_line(len, |line| match lines.examine(line) {
            Some(Ok((record, raw))) => {
                let is_old = || record.is_tombstone && line.terminated && is_before(raw, horizon);
                if last.get(&*record.id) != Some(&line.number) || is_old() {
                    done.dropped += 1;
                    return Ok(());
                }
                done.kept += 1;
                if !line.terminated {
                    return copy_range(old, line.offset, line.len, out);
                }
                out.write_all(raw.as_bytes())?;
                out.write_all(b"\n")
            }
            Some(Err(fault)) if self.is_moved(&line, &fault) => {
                done.quarantined += 1;
                Ok(())
            }
            Some(Err(_)) => {
                copy_range(old, line.offset, line.len, out)?;
                if line.terminated { out.write_all(b"\n") } else { Ok(()) }
            }
            None => Ok(()),
        })?;
        self.done = done;
        Ok(end)
    }

    /// Returns whether a broken line moves aside. A last one without an end stays, since its rest may
    /// be on the way, unless it is a marker of a conflict.
    fn is_moved(&self, line: &Line<'_>, fault: &Fault) -> bool {
        self.policy.quarantine && (line.terminated || fault.kind == FaultKind::ConflictMarker)
    }

    /// Hands on all lines up to `len`, or to the end. Returns where it stopped.
    fn for_each_line(
        &self,
        len: u64,
        mut on_line: impl FnMut(Line<'_>) -> io::Result<()>,
    ) -> io::Result<u64> {
        let mut scanner = Scanner::new(self.options.max_line_bytes);
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut offset = 0;
        while offset < len {
            let room = usize::try_from(len - offset).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            match self.old.read_at(&mut chunk[..room], offset) {
                Ok(0) => break,
                Ok(count) => {
                    scanner.feed(&chunk[..count], &mut on_line)?;
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(line) = scanner.tail() {
            on_line(line)?;
        }
        Ok(offset)
    }

    /// Copies what was appended since, as it is. Returns where it stopped.
    fn copy_behind(&self, end: u64, mut new: &File) -> io::Result<u64> {
        let len = self.old.metadata()?.len();
        if len > end {
            copy_range(&self.old, end, len - end, &mut new)?;
        }
        Ok(len.max(end))
    }

    /// Appends the broken lines to a file beside, which nobody may read who may not read this one.
    fn put_in_quarantine(&self, metadata: &fs::Metadata) -> Result<(), CompactError> {
        let path = beside(self.path, "", ".quarantine");
        let append = || -> io::Result<()> {
            let mode = metadata.permissions().mode() & 0o777;
            let file = OpenOptions::new().append(true).create(true).mode(mode).open(&path)?;
            let mut out = BufWriter::with_capacity(CHUNK_BYTES, &file);
            let mut lines = Lines::new(self.options);
            self.for_each_line(metadata.len(), |line| {
                if let Some(Err(fault)) = lines.examine(line)
                    && self.is_moved(&line, &fault)
                {
                    copy_range(&self.old, line.offset, line.len, &mut out)?;
                    out.write_all(b"\n")?;
                }
                Ok(())
            })?;
            out.flush()?;
            disk::sync_all(&file)
        };
        append().map_err(|source| CompactError::Write { path: path.clone(), source })
    }

    fn unreadable(&self, source: io::Error) -> CompactError {
        let path = self.path.to_owned();
        WriteError::Refresh(OpenError::Read { path, source }).into()
    }
}

/// Gives a new file the owner and the group of the old one.
///
/// Only root can give a file away; who cannot has made one of its own. But the members of the group
/// must be able to do with it what they could before.
pub(crate) fn keep_owners(new: &File, old: &fs::Metadata) -> io::Result<()> {
    let group = Some(old.gid());
    let kept = fchown(new, Some(old.uid()), group).or_else(|_| fchown(new, None, group));
    let (of_group, of_others) = (old.mode() >> 3 & 0o7, old.mode() & 0o7);
    kept.or_else(|error| {
        let loses = of_group & !of_others != 0 && new.metadata()?.gid() != old.gid();
        if loses { Err(error) } else { Ok(()) }
    })
}

/// Returns whether a tombstone is from before a time; one whose time is no time is kept.
fn is_before(raw: &str, horizon: Option<Timestamp>) -> bool {
    let value: Option<serde_json::Value> = serde_json::from_str(raw).ok();
    let time = value.as_ref().and_then(|value| value.get("deleted_at")?.as_str());
    let time = time.and_then(|text| stamp::parse(text).ok().flatten());
    time.zip(horizon).is_some_and(|(time, horizon)| time < horizon)
}

fn copy_range(file: &File, mut from: u64, len: u64, out: &mut impl Write) -> io::Result<()> {
    let end = from + len;
    let mut chunk = vec![0; CHUNK_BYTES.min(usize::try_from(len).unwrap_or(CHUNK_BYTES))];
    while from < end {
        let room = usize::try_from(end - from).unwrap_or(chunk.len()).min(chunk.len());
        file.read_exact_at(&mut chunk[..room], from)?;
        out.write_all(&chunk[..room])?;
        from += room as u64;
    }
    Ok(())
}

/// Creates a file that only its owner may read, until it has the permissions of another. What a
/// killed process left under this name goes; a link is not followed.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Others may append once it is in place.
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)
}

/// Returns the name of a file in the same folder.
pub(crate) fn beside(path: &Path, before: &str, after: &str) -> PathBuf {
    let mut name = std::ffi::OsString::from(before);
    name.push(path.file_name().unwrap_or_default());
    name.push(after);
    folder_of(path).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who appends without the lock may do so right behind the rename.
    #[test]
    fn what_is_copied_behind_the_rename_comes_behind_what_others_appended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        let mut ours = create_private(&path).unwrap();
        ours.write_all(b"ours\n").unwrap();
        let mut theirs = OpenOptions::new().append(true).open(&path).unwrap();
        theirs.write_all(b"theirs\n").unwrap();
        ours.write_all(b"late\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"ours\ntheirs\nlate\n");
    }
}
