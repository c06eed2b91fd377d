//! The files of records: `open/` has the batches that are not finished, `done/` the others.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gix::ObjectId;
use gix::refs::FullName;

use super::{Built, Event, Key, Passed, Record, Unchanged, Wire};
use crate::store::crc32;
use crate::{ApplyError, Outcome, disk, stops};

/// The first line of each file. Another number is another format.
const HEADER: &[u8] = b"batchyard batch 2\n";
/// That of a format with fewer kinds of events.
const HEADER_BEFORE: &[u8] = b"batchyard batch 1\n";
const HEADER_NAME: &[u8] = b"batchyard batch ";

/// What is done is forgotten, an input as a whole, when it is older than this, or when there is more of
/// it: so many inputs, so many bytes.
const MAX_AGE: Duration = Duration::from_hours(30 * 24);
const MAX_DONE: usize = 1000;
const MAX_BYTES: u64 = 256 << 20;

/// The records of one repository. Only for the one writer.
#[derive(Debug)]
pub(crate) struct Records {
    open: PathBuf,
    done: PathBuf,
}

/// What is known of one input that is done.
#[derive(Debug, Default)]
struct Input {
    written: Option<SystemTime>,
    bytes: u64,
    paths: Vec<PathBuf>,
}

/// A record that is not in its place yet.
#[derive(Debug)]
pub(crate) struct NewRecord {
    key: Key,
    temporary: PathBuf,
    path: PathBuf,
    fsyncs: u32,
}

/// The record of a batch that is being carried out.
#[derive(Debug)]
pub(crate) struct OpenRecord {
    file: File,
    path: PathBuf,
    /// Where it goes when it is done; it is removed if nobody will ask for it.
    done: Option<PathBuf>,
    fsyncs: u32,
}

impl Records {
    pub(crate) fn in_folder(state: &Path) -> Records {
        Records { open: state.join("open"), done: state.join("done") }
    }

    /// Makes what is not there yet, once in a repository, and makes its names durable together.
    pub(crate) fn prepare(&self, more: &Path) -> io::Result<()> {
        if self.open.is_dir() && self.done.is_dir() && more.exists() {
            return Ok(());
        }
        fs::create_dir_all(&self.open)?;
        fs::create_dir_all(&self.done)?;
        for folder in [&self.open, &self.done] {
            disk::note(|| disk::Change::MakeFolder(folder.clone()));
        }
        if !more.exists() {
            disk::write(more, b"")?;
        }
        disk::sync_folder(more.parent().unwrap_or(more))
    }

    /// The batches that are not finished, the oldest first.
    ///
    /// # Errors
    /// A file cannot be read, is damaged, or was written by a newer version.
    pub(crate) fn unfinished(&self) -> Result<Vec<(PathBuf, Record)>, ApplyError> {
        let mut found = Vec::new();
        let paths = list(&self.open).map_err(|error| ApplyError::State {
            path: self.open.clone(),
            reason: error.to_string(),
        })?;
        for path in paths {
            if path.extension().is_some() {
                // It was never put in place.
                let _ = fs::remove_file(&path);
                continue;
            }
            let written = fs::metadata(&path).and_then(|data| data.modified()).ok();
            found.push((written, path));
        }
        found.sort();
        let read = |(_, path): (_, PathBuf)| read(&path).map(|record| (path, record));
        found.into_iter().map(read).collect()
    }

    /// What became of a batch that is done.
    ///
    /// # Errors
    /// As [`unfinished`](Records::unfinished).
    pub(crate) fn done(&self, key: &Key) -> Result<Option<Record>, ApplyError> {
        let path = self.path_of(key);
        if path.is_file() { read(&path).map(Some) } else { Ok(None) }
    }

    /// Where the record of a batch is that has ended.
    pub(crate) fn path_of(&self, key: &Key) -> PathBuf {
        self.done.join(key.to_string())
    }

    /// Where the record of a batch is that has not ended, if there is one.
    pub(crate) fn open_path_of(&self, key: &Key) -> Option<PathBuf> {
        Some(self.open.join(key.to_string())).filter(|path| path.exists())
    }

    /// Writes down durably what is about to be done, and what of it a gate has let pass; it counts when
    /// it is put in its place.
    pub(crate) fn write(
        &self,
        key: Key,
        built: &Built,
        passed: &Passed,
        unchanged: &Unchanged,
    ) -> io::Result<NewRecord> {
        let mut fsyncs = 0;
        for folder in [&self.open, &self.done] {
            fsyncs += disk::make_folder(folder)?;
        }
        let path = self.open.join(key.to_string());
        let temporary = path.with_extension("new");
        let mut bytes = HEADER.to_vec();
        put_frame(built, &mut bytes);
        if !passed.is_empty() {
            put_frame(&Event::Passed(passed.clone()), &mut bytes);
        }
        if !unchanged.is_empty() {
            put_frame(&Event::Unchanged(unchanged.clone()), &mut bytes);
        }
        disk::write_synced(&temporary, &bytes)?;
        stops::reach("record written");
        Ok(NewRecord { key, temporary, path, fsyncs: fsyncs + 1 })
    }

    /// Puts a record in its place: from now on whoever writes next finishes it. Nobody will ask for what
    /// became of a batch that `is_kept` is false for. Meanwhile `sync` makes durable where its objects are:
    /// nothing has moved before both are, so of one that a power cut leaves without its objects nothing is
    /// done, and it fails.
    pub(crate) fn begin(
        &self,
        new: NewRecord,
        is_kept: bool,
        sync: impl Fn() -> io::Result<()> + Sync,
    ) -> io::Result<OpenRecord> {
        let NewRecord { key, temporary, path, fsyncs } = new;
        disk::rename(&temporary, &path)?;
        stops::reach("record in place");
        let open = || {
            disk::sync_folder(&self.open)?;
            File::options().append(true).open(&path)
        };
        let (synced, file) = disk::together(sync, open);
        // Nobody is to finish what is said to have failed, not after a power cut either.
        let file = synced.and(file).inspect_err(|_| {
            let _ = disk::remove(&path).and_then(|()| disk::sync_folder(&self.open));
        })?;
        let done = is_kept.then(|| self.path_of(&key));
        Ok(OpenRecord { file, path, done, fsyncs: fsyncs + 1 })
    }

    /// Goes on with a batch that another process began, which may have been killed before it made the name
    /// of the record durable.
    pub(crate) fn resume(&self, path: PathBuf) -> io::Result<OpenRecord> {
        disk::sync_folder(&self.open)?;
        let text = fs::read(&path)?;
        let file = File::options().append(true).open(&path)?;
        // What was being written when the process ended is cut off.
        let whole = frames(&text[HEADER.len().min(text.len())..]);
        let len = HEADER.len() + whole.iter().map(|frame| FRAME + frame.len()).sum::<usize>();
        file.set_len(len as u64)?;
        let done = path.file_name().map(|name| self.done.join(name));
        Ok(OpenRecord { file, path, done, fsyncs: 1 })
    }

    /// Whether it is not known yet what became of the batch with a record of that name.
    pub(crate) fn is_unheard(&self, name: &str) -> bool {
        let path = self.done.join(name);
        self.open.join(name).exists() || path.exists() && !is_over(&path)
    }

    /// Forgets what nobody will ask for any more.
    pub(crate) fn prune(&self) {
        let oldest = SystemTime::now().checked_sub(MAX_AGE);
        let mut inputs: BTreeMap<Key, Input> = BTreeMap::new();
        for path in list(&self.done).unwrap_or_default() {
            let key = path.file_name().and_then(|name| name.to_str()).and_then(Key::from_name);
            let data = fs::metadata(&path).ok();
            let (Some(key), Some(data)) = (key, data) else {
                let _ = fs::remove_file(&path);
                continue;
            };
            let input = inputs.entry(key.input()).or_default();
            input.bytes += data.len();
            input.written = input.written.max(data.modified().ok());
            input.paths.push(path);
        }
        let mut inputs: Vec<Input> = inputs.into_values().collect();
        inputs.sort_by_key(|input| std::cmp::Reverse(input.written));
        let mut bytes = 0;
        for (n, input) in inputs.into_iter().enumerate() {
            bytes += input.bytes;
            // The last one in any case, however large it is.
            let is_kept = n == 0 || n < MAX_DONE && bytes <= MAX_BYTES;
            // What nobody has heard of would be done twice, as long as it can be asked for.
            let is_over = || input.paths.iter().all(|path| is_over(path));
            if input.written < oldest || !is_kept && is_over() {
                input.paths.iter().for_each(|path| drop(fs::remove_file(path)));
            }
        }
    }
}

impl OpenRecord {
    /// The name of its file, which no other record has.
    pub(crate) fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Whether anybody will ask for what became of the batch.
    pub(crate) fn is_kept(&self) -> bool {
        self.done.is_some()
    }

    /// How many files and folders were made durable so far.
    pub(crate) fn fsyncs(&self) -> u32 {
        self.fsyncs
    }

    /// Notes durably which commits are pushed in place of the tips of their branches, and which commits
    /// were made again for that.
    pub(crate) fn catch_up(
        &mut self,
        tips: Vec<(FullName, ObjectId)>,
        remade: Vec<(ObjectId, ObjectId)>,
    ) -> io::Result<()> {
        self.append(&Event::CaughtUp(tips, remade))
    }

    /// Notes durably what became of the operations.
    pub(crate) fn finish(&mut self, outcomes: Vec<Outcome>) -> io::Result<()> {
        stops::reach("before done");
        if self.done.is_some() {
            self.append(&Event::Done(outcomes))?;
            stops::reach("done");
        }
        self.close()
    }

    /// Puts away the record of a batch that is done. Without outcomes it is one that nobody knows the
    /// end of yet.
    pub(crate) fn close(&self) -> io::Result<()> {
        match &self.done {
            Some(done) => disk::rename(&self.path, done),
            None => disk::remove(&self.path),
        }
    }

    fn append(&mut self, event: &Event) -> io::Result<()> {
        let mut bytes = Vec::new();
        put_frame(event, &mut bytes);
        self.fsyncs += 1;
        disk::append_synced(&self.file, &self.path, &bytes)
    }
}

/// What stands before each value: its length and its checksum.
const FRAME: usize = 12;

fn put_frame(value: &impl Wire, out: &mut Vec<u8>) {
    let mut bytes = Vec::new();
    value.put(&mut bytes);
    bytes.len().put(out);
    crc32(&bytes).put(out);
    out.extend_from_slice(&bytes);
}

/// The frames that are whole, up to the first that is not.
fn frames(mut text: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Some(frame) = take_frame(&mut text) {
        frames.push(frame);
    }
    frames
}

fn take_frame<'a>(text: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, sum) = (usize::take(text)?, u32::take(text)?);
    let (frame, rest) = text.split_at_checked(len)?;
    *text = rest;
    (crc32(frame) == sum).then_some(frame)
}

/// Whether nobody needs to know more of a batch. One that another version has written may be needed by
/// that one.
fn is_over(path: &Path) -> bool {
    read(path).is_ok_and(|record| record.done.is_some())
}

fn read(path: &Path) -> Result<Record, ApplyError> {
    let refuse = |reason: String| ApplyError::State { path: path.to_owned(), reason };
    let text = fs::read(path).map_err(|error| refuse(error.to_string()))?;
    parse(&text).map_err(|reason| refuse(reason.to_owned()))
}

/// Reads a record; the error is what is wrong with it.
fn parse(text: &[u8]) -> Result<Record, &'static str> {
    let damaged = "it is damaged; move it away if its batch does not matter";
    let before = text.strip_prefix(HEADER_BEFORE);
    let Some(body) = text.strip_prefix(HEADER).or(before) else {
        return Err(if text.starts_with(HEADER_NAME) {
            "another version of this program wrote it; use that one, or move it away"
        } else {
            damaged
        });
    };
    let frames = frames(body);
    let (first, events) = frames.split_first().ok_or(damaged)?;
    let built: Built = whole(first).ok_or(damaged)?;
    let unchanged = if before.is_some() { made_by_others(&built) } else { Unchanged::new() };
    let mut record = Record {
        built,
        passed: Passed::new(),
        unchanged,
        caught_up: BTreeMap::new(),
        remade: BTreeMap::new(),
        done: None,
    };
    for event in events {
        match whole(event).ok_or(damaged)? {
            Event::CaughtUp(tips, remade) => {
                record.caught_up.extend(tips);
                record.remade.extend(remade);
            }
            Event::Done(outcomes) => record.done = Some(outcomes),
            Event::Passed(passed) => record.passed = passed,
            Event::Unchanged(unchanged) => record.unchanged = unchanged,
        }
    }
    let count = record.built.operations.len();
    let is_inside = |index: &usize| *index < count;
    let is_complete = record.built.outcomes.len() == count
        && record.built.order.iter().all(is_inside)
        && record.built.pending.iter().all(|p| p.indexes().all(|index| index < count))
        && record.built.branches.values().all(|b| b.indexes().all(|index| index < count))
        && record.built.last_push.values().all(|(_, push)| is_inside(push))
        && record.unchanged.iter().all(|(index, other)| is_inside(index) && is_inside(other))
        && record.done.as_ref().is_none_or(|done| done.len() == record.built.order.len());
    if is_complete { Ok(record) } else { Err(damaged) }
}

/// What the format before did not say: which operations have found the commit of another one there. It is the
/// one that made the commit.
fn made_by_others(built: &Built) -> Unchanged {
    let of = |(index, end): (usize, &Option<Outcome>)| {
        let Some(Outcome::NoChange { commit, .. }) = end else { return None };
        Some((index, built.pending.iter().find_map(|p| p.made(*commit))?))
    };
    built.outcomes.iter().enumerate().filter_map(of).collect()
}

fn whole<T: Wire>(mut bytes: &[u8]) -> Option<T> {
    T::take(&mut bytes).filter(|_| bytes.is_empty())
}

/// What is in a folder; one that is not there is empty.
fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| entry.map(|entry| entry.path())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::tests::{built, outcomes};

    fn text(built: &Built, events: &[Event]) -> Vec<u8> {
        let mut text = HEADER.to_vec();
        put_frame(built, &mut text);
        for event in events {
            put_frame(event, &mut text);
        }
        text
    }

    #[test]
    fn what_was_being_written_at_the_end_is_as_if_it_was_not_there() {
        let built = built(2, outcomes());
        let name = FullName::try_from("refs/heads/x").expect("a name");
        let id = ObjectId::null(gix::hash::Kind::Sha1);
        let begun = text(&built, &[]).len();
        let caught_up = Event::CaughtUp(vec![(name.clone(), id)], vec![(id, id)]);
        let passed = Event::Passed([(name.clone(), [id].into())].into());
        let done = Event::Done(outcomes()[..built.order.len()].to_vec());
        let unchanged = Event::Unchanged([(1, 0)].into());
        let len_of = |event: &Event| text(&built, std::slice::from_ref(event)).len() - begun;
        let judged = begun + len_of(&passed);
        let noted = judged + len_of(&unchanged);
        let middle = noted + len_of(&caught_up);
        let all = text(&built, &[passed, unchanged, caught_up, done]);
        for len in 0..=all.len() {
            let record = parse(&all[..len]);
            assert_eq!(record.is_ok(), len >= begun, "{len}");
            let Ok(record) = record else { continue };
            assert_eq!(record.passed.contains_key(&name), len >= judged);
            assert_eq!(record.unchanged.contains_key(&1), len >= noted);
            assert_eq!(record.caught_up.contains_key(&name), len >= middle);
            assert_eq!(record.remade.len(), usize::from(len >= middle));
            assert_eq!(record.done.is_some(), len == all.len());
        }
    }

    #[test]
    fn a_record_of_an_older_version_is_read_and_one_of_a_newer_is_left_alone() {
        let built = built(2, outcomes());
        let body = text(&built, &[])[HEADER.len()..].to_vec();
        let record = parse(&[HEADER_BEFORE, &body].concat()).expect("it is read");
        assert!(record.unchanged.is_empty());
        // Which operation has made a commit that another one found there, it does not say.
        let mut found = crate::record::tests::built(2, Vec::new());
        let commit = ObjectId::empty_tree(gix::hash::Kind::Sha1);
        found.outcomes[1] = Some(Outcome::NoChange { commit, left_out: Vec::new() });
        let text_of = |header: &[u8]| [header, &text(&found, &[])[HEADER.len()..]].concat();
        let unchanged = |header| parse(&text_of(header)).expect("it is read").unchanged;
        assert_eq!((unchanged(HEADER_BEFORE), unchanged(HEADER)), ([(1, 0)].into(), [].into()));
        let why = parse(&[b"batchyard batch 3\n", body.as_slice()].concat()).unwrap_err();
        assert!(why.contains("another version"), "{why}");
        // It names an operation that there is none of.
        assert!(parse(&text(&built, &[Event::Unchanged([(2, 0)].into())])).is_err());
    }

    proptest! {
        #[test]
        fn what_is_no_record_is_refused(bytes: Vec<u8>, at: prop::sample::Index, new: u8) {
            prop_assert!(parse(&bytes).is_err());
            let with_header = [HEADER, &bytes].concat();
            prop_assert!(parse(&with_header).is_err());
            // One byte of the first frame that is another does not go unseen.
            let mut damaged = text(&built(2, outcomes()), &[]);
            let at = at.index(damaged.len());
            prop_assume!(damaged[at] != new);
            damaged[at] = new;
            prop_assume!(!damaged.starts_with(HEADER_BEFORE));
            prop_assert!(parse(&damaged).is_err());
        }
    }
}
