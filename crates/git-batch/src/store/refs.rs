//! Moves local branches by compare-and-swap, each alone in its success or failure.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bstr::{BString, ByteSlice};
use gix::ObjectId;
use gix::refs::FullName;

use super::capture::{Checkout, PathUpdate, PreparedIndex};
use super::packed_refs::{self, PackedRefs};
use super::ref_locks::{self, RefLocks};
use super::reflog::remove_empty;
use super::{Signer, Store, check_not_checked_out, clashes};
use crate::record::wire_struct;
use crate::{OpError, OpErrorKind, disk, stops};

/// How long to wait for somebody who has the lock of one ref, and of all refs together: as long as
/// git itself waits by default.
pub(super) const PATIENCE: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(1));

/// Where a loose ref is written before it takes its place.
const TEMPORARY: &str = "batchyard/ref";

/// One branch that is to move.
#[derive(Debug, Clone)]
pub(crate) struct RefMove {
    pub(crate) name: FullName,
    /// What it must be; `None` means that it must not exist.
    pub(crate) old: Option<ObjectId>,
    pub(crate) new: ObjectId,
    /// The line of the reflog.
    pub(crate) message: BString,
    /// The work tree that moves with it.
    pub(crate) worktree: Option<WorktreeMove>,
    /// Whether an earlier process may have moved it already.
    pub(crate) is_again: bool,
    /// Where it may have moved instead.
    pub(crate) instead: Option<ObjectId>,
}

impl RefMove {
    /// Whether a branch that is at `found` has been moved by an earlier process.
    pub(super) fn has_arrived(&self, store: &Store, found: Option<ObjectId>) -> bool {
        let is_in = |new| found.is_some_and(|found| store.contains(found, new));
        self.is_again && (is_in(self.new) || self.instead.is_some_and(is_in))
    }
}

/// A work tree whose content became the commit that its branch moves to.
#[derive(Debug, Clone)]
pub(crate) struct WorktreeMove {
    pub(crate) checkout: Checkout,
    /// What its index is to know of that.
    pub(crate) updates: BTreeMap<BString, PathUpdate>,
}

wire_struct!(WorktreeMove { checkout, updates });

/// Whether a branch moved.
pub(crate) type Moved = Result<(), OpError>;

/// The branches that cannot move, each with the reason.
pub(crate) type Faults = Vec<(FullName, OpError)>;

impl Store {
    /// Removes locks of refs that a killed writer left. Only for the one writer.
    pub(crate) fn sweep_ref_locks(&self) {
        ref_locks::sweep(&self.common_dir);
    }

    /// Moves all branches; that is durable after [`Store::sync_names`]. New and packed ones move in
    /// one rename of `packed-refs`; so do loose ones if there are many, each as its loose file is removed.
    /// The index of a work tree that moves with its branch is brought up to date under its lock, so that no
    /// git can commit there what the branch had before.
    ///
    /// An error names the branches that somebody else moved or locked; then none has moved.
    /// Otherwise there is one result for each, in the order given.
    pub(crate) fn move_refs(
        &mut self,
        moves: &[RefMove],
        signer: &Signer,
    ) -> Result<Vec<Moved>, Faults> {
        self.executor.move_refs(self, moves, signer)
    }

    /// The same, where refs are files.
    pub(super) fn move_files(
        &mut self,
        moves: &[RefMove],
        signer: &Signer,
    ) -> Result<Vec<Moved>, Faults> {
        let mut locks = self.lock(moves)?;
        self.fsyncs += locks.fsyncs;
        let is_loose: Vec<bool> =
            moves.iter().map(|m| self.common_dir.join(path_of(&m.name)).is_file()).collect();
        let all: Vec<&RefMove> = moves.iter().collect();
        // One alone is written in its place. More go to `packed-refs`, and so does one beside those
        // that go there anyway: each by itself would cost two calls of `fsync`.
        let packs_all = moves.len() > 1;
        let packed: Vec<&RefMove> = moves
            .iter()
            .zip(&is_loose)
            .filter(|(_, loose)| packs_all || !**loose)
            .map(|(m, _)| m)
            .collect();
        if !packed.is_empty() {
            locks
                .take(Path::new(packed_refs::NAME), Instant::now() + PATIENCE.1)
                .map_err(|error| faults(&packed, &error))?;
        }
        stops::reach("refs locked");
        let mut file = PackedRefs::read(&self.common_dir).map_err(|error| faults(&all, &error))?;
        // All of it has been looked at before, but much can have happened since: a batch can take
        // long to build, and others need no more than the locks that are held only now.
        let _ = self.repo.refs.force_refresh_packed_buffer();
        let checked_out = self.checked_out();
        let mut arrived: BTreeSet<FullName> = BTreeSet::new();
        each(moves, |m| {
            let found = self.value_of(m, &file).map_err(|error| not_moved(m, &error))?;
            if m.has_arrived(self, found) {
                arrived.insert(m.name.clone());
                return Ok(());
            }
            check_unmoved(m, found).map_err(|error| not_moved(m, &error))?;
            let own = m.worktree.as_ref().map(|own| own.checkout.git_dir.as_path());
            check_not_checked_out(&checked_out, &m.name, own)?;
            if m.old.is_none() { self.check_room(m) } else { Ok(()) }
        })?;
        let mut indexes = self.prepare_indexes(moves)?;
        stops::reach("index prepared");

        let packed: Vec<&RefMove> =
            packed.into_iter().filter(|m| !arrived.contains(&m.name)).collect();
        for m in &packed {
            file.set(m.name.as_bstr(), m.new);
        }
        let committer = signer.reflog_bytes();
        let begins = self.begins_reflogs();
        // Before the branches, as git does: a line too many is no harm, one too few is.
        let log = || {
            each(moves, |m| {
                if arrived.contains(&m.name) {
                    return Ok(());
                }
                self.log_move(m, &committer, begins).map_err(|error| not_moved(m, &error))
            })
        };
        let forget_logs = || {
            let not_there = moves.iter().filter(|m| !arrived.contains(&m.name));
            not_there.for_each(|m| self.forget_log(m));
        };
        let new_file = if packed.is_empty() {
            log().inspect_err(|_| forget_logs())?;
            None
        } else {
            // The disk has its work while the others are made.
            let (new_file, logged) = disk::together(|| file.prepare(), log);
            let new_file = new_file.map_err(|error| faults(&packed, &error));
            Some(logged.and(new_file).inspect_err(|_| forget_logs())?)
        };
        stops::reach("reflogs written");
        if let Some(new_file) = new_file {
            let put = new_file.commit().map_err(|error| faults(&packed, &error));
            put.inspect_err(|_| forget_logs())?;
            stops::reach("packed refs moved");
            self.fsyncs += 1;
            if is_loose.contains(&true) {
                // A loose file goes only when what comes in its place is there for certain.
                self.note_synced(disk::sync_refs(&self.common_dir));
            } else {
                self.names.insert(self.common_dir.clone());
            }
        }
        let mut results = Vec::with_capacity(moves.len());
        if !arrived.is_empty() {
            // What has arrived may be in the packed refs, put in place by a process that was killed
            // before it synced their name.
            self.names.insert(self.common_dir.clone());
        }
        for (m, is_loose) in moves.iter().zip(is_loose) {
            let written = match is_loose && !arrived.contains(&m.name) {
                true if packs_all => disk::remove(&self.common_dir.join(path_of(&m.name))),
                true => self.write_loose(m),
                false => Ok(()),
            };
            stops::reach("ref moved");
            // An earlier process may have been killed before it came to that.
            if packs_all && is_loose || arrived.contains(&m.name) {
                self.note_name(m);
            }
            if let (Ok(()), Some(index)) = (&written, indexes.remove(&m.name)) {
                // The branch has moved. An index that does not follow shows the commit as undone,
                // but loses nothing.
                let _ = index.commit();
                stops::reach("index moved");
            }
            results.push(written.map_err(|error| not_moved(m, &error)));
        }
        // Nobody has to wait for the disk.
        drop(locks);
        stops::reach("refs moved");
        // The time of the file is too coarse on some file systems to show that it is another.
        let _ = self.repo.refs.force_refresh_packed_buffer();
        Ok(results)
    }

    /// Takes the locks of all branches, or names those that cannot be had.
    fn lock(&self, moves: &[RefMove]) -> Result<RefLocks, Faults> {
        let all: Vec<&RefMove> = moves.iter().collect();
        let indexes = moves.iter().filter_map(|m| self.index_of(m));
        let files: Vec<PathBuf> = moves
            .iter()
            .map(|m| path_of(&m.name))
            .chain([packed_refs::NAME.into()])
            .chain(indexes)
            .collect();
        let mut locks =
            RefLocks::begin(&self.common_dir, &files).map_err(|error| faults(&all, &error))?;
        let end = Instant::now() + PATIENCE.1;
        each(moves, |m| {
            let taken = locks.take(&path_of(&m.name), end.min(Instant::now() + PATIENCE.0));
            taken.map_err(|error| match self.clashing_branch(&m.name) {
                // Its lock would have to be inside the other branch.
                Ok(Some(found)) if m.old.is_none() => clashes(&m.name, &found),
                _ => not_moved(m, &error),
            })
        })?;
        self.take_indexes(&mut locks, moves, end)?;
        Ok(locks)
    }

    /// Takes the locks of the indexes that change with their branches.
    pub(super) fn take_indexes(
        &self,
        locks: &mut RefLocks,
        moves: &[RefMove],
        end: Instant,
    ) -> Result<(), Faults> {
        each(moves, |m| {
            let Some(index) = self.index_of(m) else { return Ok(()) };
            let taken = locks.take(&index, end.min(Instant::now() + PATIENCE.0));
            taken.map_err(|error| {
                OpError::new(
                    OpErrorKind::WorktreeBusy,
                    format!("branch {:?} is not moved: {error}", m.name.shorten()),
                )
            })
        })
    }

    /// The index of the work tree that moves with a branch, below the common directory; none where somebody
    /// has removed that meanwhile.
    pub(super) fn index_of(&self, m: &RefMove) -> Option<PathBuf> {
        let git_dir = &m.worktree.as_ref()?.checkout.git_dir;
        if !git_dir.is_dir() {
            return None;
        }
        Some(git_dir.strip_prefix(&self.common_dir).ok()?.join("index"))
    }

    /// Writes the new indexes of all work trees that still stand on the branch that moves.
    pub(super) fn prepare_indexes(
        &self,
        moves: &[RefMove],
    ) -> Result<BTreeMap<FullName, PreparedIndex>, Faults> {
        let state = self.common_dir.join("batchyard");
        let mut prepared = BTreeMap::new();
        each(moves, |m| {
            let Some(WorktreeMove { checkout, updates }) = &m.worktree else { return Ok(()) };
            if checkout.is_on_branch() {
                let index = self.prepare_index(checkout, updates, &state)?;
                prepared.insert(m.name.clone(), index);
            }
            Ok(())
        })?;
        Ok(prepared)
    }

    /// Whether `commit` is `tip` or before it.
    pub(crate) fn contains(&self, tip: ObjectId, commit: ObjectId) -> bool {
        tip == commit || self.has_object(tip) && self.is_ancestor(commit, tip) == Ok(true)
    }

    /// Refuses a new branch that another one is in the way of. Only with its lock.
    fn check_room(&self, m: &RefMove) -> Result<(), OpError> {
        if let Some(found) = self.clashing_branch(&m.name)? {
            return Err(clashes(&m.name, &found));
        }
        let folder = self.common_dir.join(path_of(&m.name));
        if !folder.is_dir() {
            return Ok(());
        }
        remove_empty(&folder).map_err(|error| {
            let (name, folder) = (m.name.shorten(), folder.display());
            let message =
                format!("branch {name:?} cannot be made while {folder} is in use: {error}");
            OpError::new(OpErrorKind::BranchClash, message)
        })
    }

    /// What a branch is now. Only with its lock.
    fn value_of(&self, m: &RefMove, packed: &PackedRefs) -> io::Result<Option<ObjectId>> {
        match fs::read(self.common_dir.join(path_of(&m.name))) {
            Ok(text) => ObjectId::from_hex(text.trim_ascii_end())
                .map(Some)
                .map_err(|_| io::Error::other("it is a symbolic ref, or broken")),
            // A folder is what a branch that is gone has left.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::IsADirectory
                ) =>
            {
                packed.get(m.name.as_bstr())
            }
            Err(error) => Err(error),
        }
    }

    fn write_loose(&mut self, m: &RefMove) -> io::Result<()> {
        let (temporary, path) = (self.common_dir.join(TEMPORARY), path_of(&m.name));
        disk::write_synced(&temporary, format!("{}\n", m.new).as_bytes())?;
        disk::rename(&temporary, &self.common_dir.join(&path))?;
        self.fsyncs += 1;
        self.note_name(m);
        Ok(())
    }

    /// Notes that the name of a loose ref has to be made durable.
    fn note_name(&mut self, m: &RefMove) {
        let path = self.common_dir.join(path_of(&m.name));
        self.names.extend(path.parent().map(Path::to_owned));
    }
}

pub(super) fn check_unmoved(m: &RefMove, found: Option<ObjectId>) -> io::Result<()> {
    match found {
        found if found == m.old => Ok(()),
        Some(found) => Err(io::Error::other(format!("somebody else has moved it to {found}"))),
        None => Err(io::Error::other("somebody else has deleted it")),
    }
}

/// Runs `check` for each branch; an error names all that it failed for.
pub(super) fn each(
    moves: &[RefMove],
    mut check: impl FnMut(&RefMove) -> Result<(), OpError>,
) -> Result<(), Faults> {
    let fault = |m: &RefMove| check(m).err().map(|error| (m.name.clone(), error));
    let found: Faults = moves.iter().filter_map(fault).collect();
    if found.is_empty() { Ok(()) } else { Err(found) }
}

pub(super) fn faults(moves: &[&RefMove], error: &io::Error) -> Faults {
    moves.iter().map(|m| (m.name.clone(), not_moved(m, error))).collect()
}

pub(super) fn not_moved(m: &RefMove, error: &io::Error) -> OpError {
    let name = m.name.shorten().to_str_lossy();
    let message = format!("branch {name:?} cannot be moved: {error}");
    OpError::new(OpErrorKind::BranchMoved, message)
}

/// The path of a loose ref below the common directory.
pub(super) fn path_of(name: &FullName) -> PathBuf {
    gix::path::from_bstr(name.as_bstr()).unwrap_or_default().into_owned()
}
