use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::Value;

use crate::compact::{beside, create_private, keep_owners};
use crate::disk::{self, Folder};
use crate::error::{OpenError, WriteError};
use crate::fault::{Fault, FaultKind};
use crate::intake::Lines;
use crate::lesson::Lesson;
use crate::lock::{Sidecar, SidecarLock};
use crate::members::{self, Members};
use crate::options::Options;
use crate::path::{open_regular, target_of};
use crate::scan::{Line, Scanner};
use crate::stamp;

/// Says what a merge of two files did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Merged {
    /// Lessons and tombstones that are in the result.
    pub lessons: u64,
    /// Those that both sides had changed, and that were merged key by key.
    pub combined: u64,
    /// Those that only one side had added or changed.
    pub taken: u64,
}

/// Says why two files were not merged; both are as they were before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] OpenError),
    /// A file has lines that are no text or markers of a merge conflict.
    #[error("{path:?}, {fault}; repair it and merge again")]
    Fault {
        /// The file.
        path: PathBuf,
        /// The first such line.
        fault: Box<Fault>,
    },
    /// The result cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Merges two files that come from a third, and writes the result in place of `ours`.
///
/// It is a merge driver for git: lessons are merged by id, so that two branches that both appended
/// never conflict. Of a lesson that both sides changed, each key is merged for itself: counters
/// take what both sides added, `last_seen` the later, `first_seen` the earlier time; of two other
/// values that differ the one of the side that was seen later holds. The same two sides give the
/// same lessons, whichever is ours. A tombstone holds against a lesson that was not seen after
/// it. Broken lines of either side stay; a lesson that a side with new broken lines does not have
/// stays too, since it may be in one of them.
///
/// Holds the lock of `ours` if that has a lock file, which files that git made for a merge have
/// not.
///
/// # Errors
///
/// Returns [`MergeError`] when a file cannot be read or written, the lock is held by another
/// process for a minute, or a file holds markers of a conflict or bytes that are no UTF-8.
pub fn merge_files(
    base: impl AsRef<Path>,
    ours: impl AsRef<Path>,
    theirs: impl AsRef<Path>,
) -> Result<Merged, MergeError> {
    let (base, theirs) = (Side::read(base.as_ref())?, Side::read(theirs.as_ref())?);
    let path = target_of(ours.as_ref());
    let _lock = lock(&path)?;
    let ours = Side::read(&path)?;
    let (text, merged) = merge(&base, &ours, &theirs);
    write(&path, &text)?;
    Ok(merged)
}

/// Is one of the three files.
struct Side {
    /// The last line of each id, in the order of the file.
    lines: Vec<Lesson>,
    places: HashMap<String, usize>,
    broken: Vec<Vec<u8>>,
}

impl Side {
    fn read(path: &Path) -> Result<Self, MergeError> {
        let unreadable = |source| OpenError::Read { path: path.to_owned(), source };
        let (mut file, _) = open_regular(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(unreadable)?;
        let options = Options::default();
        let mut side = Self { lines: Vec::new(), places: HashMap::new(), broken: Vec::new() };
        let mut lines = Lines::new(&options);
        let mut scanner = Scanner::new(usize::MAX >> 1);
        let mut take = |line: Line<'_>| match lines.examine(line) {
            Some(Ok((record, raw))) => {
                side.put(Lesson::of(record, raw));
                Ok(())
            }
            Some(Err(fault)) if is_fatal(fault.kind) => Err(Box::new(fault)),
            Some(Err(_)) => {
                side.broken.push(line.bytes.to_vec());
                Ok(())
            }
            None => Ok(()),
        };
        let mut read = scanner.feed(&bytes, &mut take);
        if let (Ok(()), Some(line)) = (&read, scanner.tail()) {
            read = take(line);
        }
        read.map_err(|fault| MergeError::Fault { path: path.to_owned(), fault })?;
        Ok(side)
    }

    /// A later line of an id stands where that line stands.
    fn put(&mut self, lesson: Lesson) {
        let place = self.lines.len();
        if let Some(old) = self.places.insert(lesson.id.clone(), place) {
            self.lines[old] = Lesson::blank();
        }
        self.lines.push(lesson);
    }

    fn get(&self, id: &str) -> Option<&Lesson> {
        self.places.get(id).map(|place| &self.lines[*place])
    }

    /// Returns whether lessons may be in lines that have been broken since.
    fn may_hide(&self, base: &Self) -> bool {
        let known: HashSet<&Vec<u8>> = base.broken.iter().collect();
        self.broken.iter().any(|line| !known.contains(line))
    }

    fn lessons(&self) -> impl Iterator<Item = &Lesson> {
        self.lines.iter().filter(|lesson| !lesson.id.is_empty())
    }
}

fn is_fatal(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::ConflictMarker | FaultKind::Utf16 | FaultKind::NotUtf8)
}

fn merge(base: &Side, ours: &Side, theirs: &Side) -> (Vec<u8>, Merged) {
    let (mut text, mut merged) = (Vec::new(), Merged::default());
    let (we_hide, they_hide) = (ours.may_hide(base), theirs.may_hide(base));
    let mut put = |line: &str, merged: &mut Merged| {
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
        merged.lessons += 1;
    };
    for lesson in ours.lessons() {
        let before = base.get(&lesson.id);
        match (theirs.get(&lesson.id), before) {
            (Some(other), _) if other.raw() == lesson.raw() => put(lesson.raw(), &mut merged),
            (Some(other), Some(before)) if before.raw() == lesson.raw() => {
                merged.taken += 1;
                put(other.raw(), &mut merged);
            }
            (Some(other), Some(before)) if before.raw() == other.raw() => {
                merged.taken += 1;
                put(lesson.raw(), &mut merged);
            }
            (Some(other), before) => {
                merged.combined += 1;
                put(&combine(before, lesson, other), &mut merged);
            }
            // They compacted it away, and we did not touch it.
            (None, Some(before)) if before.raw() == lesson.raw() && !they_hide => {}
            (None, _) => {
                merged.taken += 1;
                put(lesson.raw(), &mut merged);
            }
        }
    }
    for lesson in theirs.lessons().filter(|lesson| ours.get(&lesson.id).is_none()) {
        let before = base.get(&lesson.id);
        if we_hide || before.is_none_or(|before| before.raw() != lesson.raw()) {
            merged.taken += 1;
            put(lesson.raw(), &mut merged);
        }
    }
    let known: HashSet<&Vec<u8>> = ours.broken.iter().chain(&base.broken).collect();
    let new = theirs.broken.iter().filter(|line| !known.contains(line));
    for line in ours.broken.iter().chain(new) {
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    (text, merged)
}

/// Merges two lines of one id that both differ from the one before.
fn combine(base: Option<&Lesson>, ours: &Lesson, theirs: &Lesson) -> String {
    // The side that was seen later. At equal times what is removed is, and the bytes of the line
    // tell other lines apart.
    let rank = |lesson: &Lesson| (when(lesson), lesson.is_tombstone(), lesson.raw().to_owned());
    let [older, newer] = if rank(ours) <= rank(theirs) { [ours, theirs] } else { [theirs, ours] };
    if ours.is_tombstone() || theirs.is_tombstone() {
        return newer.raw().to_owned();
    }
    let (Ok(old), Ok(new)) = (Members::of(older.raw()), Members::of(newer.raw())) else {
        return newer.raw().to_owned();
    };
    let before = base.and_then(|base| Members::of(base.raw()).ok());
    let [before, old, new_values] = [before.as_ref(), Some(&old), Some(&new)].map(values);
    let names = new_values.in_order.iter().chain(&old.in_order).map(|(name, _)| name.as_str());
    let of_sides = names.map(|name| {
        let [before, old, new] = [&before, &old, &new_values].map(|values| values.get(name));
        (name, if new == before { old } else { new }.map(str::to_owned))
    });
    // The last change of a key holds.
    let mut changes: HashMap<&str, Option<String>> = HashMap::new();
    let mut names: Vec<&str> = Vec::new();
    for (name, value) in of_sides.chain(counters(base, ours, theirs)) {
        if changes.insert(name, value).is_none() {
            names.push(name);
        }
    }
    let changes: Vec<(&str, Option<String>)> =
        names.into_iter().filter_map(|name| changes.remove_entry(name)).collect();
    new.with(&changes)
}

/// Returns what both sides counted together.
fn counters(
    base: Option<&Lesson>,
    ours: &Lesson,
    theirs: &Lesson,
) -> Vec<(&'static str, Option<String>)> {
    // What was removed before counted for nothing: each side began anew.
    let base = base.filter(|base| !base.is_tombstone());
    let mut changes = Vec::new();
    let mut count = |key, of: fn(&Lesson) -> u64| {
        let (before, ours, theirs) = (base.map_or(0, of), of(ours), of(theirs));
        let both = u128::from(ours) + u128::from(theirs);
        let sum = both.saturating_sub(u128::from(before)).min(u128::from(u64::MAX));
        if sum != u128::from(ours) || sum != u128::from(theirs) {
            changes.push((key, Some(sum.to_string())));
        }
    };
    count("times_seen", |lesson| lesson.times_seen);
    count("helpful", |lesson| lesson.helpful);
    count("harmful", |lesson| lesson.harmful);
    let quote = |time: Timestamp| Some(members::quote(&time.to_string()));
    if ours.last_seen != theirs.last_seen {
        let last = ours.last_seen.max(theirs.last_seen);
        changes.push(("last_seen", last.and_then(quote)));
    }
    if ours.first_seen != theirs.first_seen {
        let first = [ours.first_seen, theirs.first_seen].into_iter().flatten().min();
        changes.push(("first_seen", first.and_then(quote)));
    }
    changes
}

fn when(lesson: &Lesson) -> Option<Timestamp> {
    if !lesson.is_tombstone() {
        return lesson.last_seen;
    }
    let value: Option<Value> = serde_json::from_str(lesson.raw()).ok();
    let text = value.as_ref().and_then(|value| value.get("deleted_at")?.as_str());
    text.and_then(|text| stamp::parse(text).ok().flatten())
}

/// Holds the members of a line whose keys can be decoded.
#[derive(Default)]
struct Values<'a> {
    in_order: Vec<(String, &'a str)>,
    /// The place of the last value of each key.
    last: HashMap<String, usize>,
}

impl<'a> Values<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        self.last.get(name).map(|at| self.in_order[*at].1)
    }
}

fn values<'a>(members: Option<&Members<'a>>) -> Values<'a> {
    let mut values = Values::default();
    for (key, value) in members.map_or(&[][..], |members| &members.0) {
        if let Some(key) = members::decode(key) {
            values.last.insert(key.clone(), values.in_order.len());
            values.in_order.push((key, value.get()));
        }
    }
    values
}

/// Takes the lock of a file that writers share.
fn lock(data: &Path) -> Result<Option<SidecarLock>, WriteError> {
    let path = Sidecar::path_of(data);
    if !path.exists() {
        return Ok(None);
    }
    Sidecar::default().lock(&path, Options::default().lock_timeout).map(Some)
}

/// Puts a new file in place of an old one.
fn write(path: &Path, text: &[u8]) -> Result<(), WriteError> {
    let fresh = beside(path, ".", &format!(".merge-{}", std::process::id()));
    let put = || {
        let mut file = create_private(&fresh)?;
        file.write_all(text)?;
        let old = fs::metadata(path)?;
        keep_owners(&file, &old)?;
        file.set_permissions(old.permissions())?;
        disk::sync_all(&file)?;
        disk::rename(&fresh, path)?;
        Folder::of(path)?.sync()
    };
    put().map_err(|source| {
        let _ = fs::remove_file(&fresh);
        WriteError::Write { path: path.to_owned(), source }
    })
}
