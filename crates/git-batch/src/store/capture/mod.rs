//! What an agent left in its work tree, as the changes of one commit.
//!
//! The work tree and its index are only read here. Neither is locked meanwhile: a git that finds
//! the index locked gives up, and that would be an agent's. Instead the index is looked at again
//! afterwards, and where it has changed all is read once more.

mod checkout;
mod clean;
mod folder;
mod index;
mod scan;
mod tracked;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use bstr::{BStr, BString, ByteSlice};
use gix::ObjectId;
use gix::index::entry::Mode;
use gix::objs::tree::EntryMode;

use self::clean::Rules;
use self::folder::Folder;
use self::index::Known;
use self::scan::{Options, Scan, Sight, Stored};
use self::tracked::Index;
use super::Store;
use super::open::options;
use crate::program::Git;
use crate::{LeftOut, Omission, OpError, OpErrorKind};

pub(crate) use self::checkout::Checkout;
pub(crate) use self::index::{PathUpdate, PreparedIndex, sweep_indexes};

/// What is to be captured, and for which commit.
pub(crate) struct Request<'a> {
    pub(crate) checkout: &'a Checkout,
    /// The paths, or all.
    pub(crate) files: Option<&'a [BString]>,
    /// The tree of the parent.
    pub(crate) tree: ObjectId,
    /// Files over that size are left out.
    pub(crate) max_file_bytes: u64,
    /// Git in that work tree.
    pub(crate) git: &'a Git,
    /// The folder of the writer.
    pub(crate) state: &'a Path,
    /// Until when to wait for somebody who holds the index.
    pub(crate) end: Instant,
}

impl Request<'_> {
    fn is_in_scope(&self, path: &BStr) -> bool {
        self.files.is_none_or(|files| files.iter().any(|named| is_at_or_below(path, named)))
    }
}

/// What was captured.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    /// What differs from the tree of the parent; `None` is a deletion.
    pub(crate) changes: BTreeMap<BString, Option<(EntryMode, ObjectId)>>,
    /// What the index is to know of it.
    pub(crate) updates: BTreeMap<BString, PathUpdate>,
    pub(crate) left_out: Vec<LeftOut>,
}

/// How often a work tree is read whose index keeps changing.
const MAX_READS: u32 = 5;

impl Store {
    /// Reads what the work tree has. The blobs go to the memory of this store.
    pub(crate) fn capture(&mut self, request: &Request<'_>) -> Result<Captured, OpError> {
        let checkout = request.checkout;
        for _ in 0..MAX_READS {
            checkout.wait_for_index(request.end)?;
            let index = Index::read(self, checkout)?;
            let captured = self.capture_once(request, &index);
            // Whoever held the lock meanwhile may have been changing files.
            if checkout.is_index_free() && index.is_current(checkout) {
                return captured;
            }
        }
        Err(OpError::new(
            OpErrorKind::WorktreeBusy,
            format!(
                "the index of {} changes all the time; run again when the work there is done",
                checkout.top.display()
            ),
        ))
    }

    fn capture_once(&mut self, request: &Request<'_>, index: &Index) -> Result<Captured, OpError> {
        let top = &request.checkout.top;
        let fault = |error: &dyn std::error::Error| {
            OpError::repository(&format!("cannot read {}", top.display()), error)
        };
        let repo = gix::open_opts(top, options()).map_err(|error| fault(&error))?;
        let rules = Rules::read(self, &repo, &index.file, request.git, request.state)?;
        let config = repo.config_snapshot();
        let options = Options {
            has_modes: config.boolean("core.fileMode").unwrap_or(true),
            has_symlinks: config.boolean("core.symlinks").unwrap_or(true),
            is_sparse: config.boolean("core.sparseCheckout").unwrap_or(false),
            stat: stat_options(),
            max_file_bytes: request.max_file_bytes,
        };
        let mut scan = Scan {
            index,
            rules,
            seen: BTreeMap::new(),
            new: BTreeMap::new(),
            left_out: BTreeMap::new(),
            options,
        };
        let folder = Folder::open(top).map_err(|error| fault(&error))?;
        match request.files {
            None => scan.all(&folder)?,
            Some(files) => {
                files.iter().try_for_each(|path| scan.path(&folder, path.as_bstr()))?;
            }
        }
        scan.again(&folder, |path| request.is_in_scope(path))?;
        let processes = scan.rules.processes();
        let captured = Difference::new(self, request, index)?.of(scan)?;
        self.processes.set(self.processes.get() + processes);
        Ok(captured)
    }
}

/// As strict as can be: what does not match for sure is compared by its content.
fn stat_options() -> gix::index::entry::stat::Options {
    gix::index::entry::stat::Options { use_nsec: true, ..Default::default() }
}

/// Finds out what is to change in the tree of the parent, and then in the index.
struct Difference<'a> {
    store: &'a Store,
    request: &'a Request<'a>,
    index: &'a Index,
    /// The files of the parent, where the index is not known to have the same.
    parent: Option<BTreeMap<BString, (EntryMode, ObjectId)>>,
    captured: Captured,
    left_out: BTreeMap<BString, Omission>,
}

impl<'a> Difference<'a> {
    fn new(
        store: &'a Store,
        request: &'a Request<'a>,
        index: &'a Index,
    ) -> Result<Difference<'a>, OpError> {
        let parent = if index.tree == Some(request.tree) {
            None
        } else {
            let files = store.files_of(request.tree)?;
            Some(files.into_iter().map(|(path, mode, id)| (path, (mode, id))).collect())
        };
        let captured = Captured::default();
        Ok(Difference { store, request, index, parent, captured, left_out: BTreeMap::new() })
    }

    fn of(mut self, scan: Scan<'_>) -> Result<Captured, OpError> {
        self.left_out = scan.left_out;
        self.check_named(&scan.new)?;
        for (at, entry) in self.index.entries.iter().enumerate() {
            if !self.request.is_in_scope(entry.path.as_bstr()) {
                continue;
            }
            let path = entry.path.as_bstr();
            match scan.seen.get(&at) {
                Some(Sight::Passed) => self.keep(path, entry.mode, entry.id)?,
                // Known to be as in the index.
                Some(Sight::Found(found))
                    if (found.mode, found.id) == (entry.mode, entry.id) && !entry.is_intended() =>
                {
                    self.keep(path, entry.mode, entry.id)?;
                }
                Some(Sight::Found(found)) => self.put(path, Some(Known::of(entry)), *found),
                None if entry.mode.is_submodule() || entry.is_assumed() || entry.is_skipped() => {
                    self.keep(path, entry.mode, entry.id)?;
                }
                None => self.delete(path, Some(Known::of(entry))),
            }
        }
        for (path, found) in scan.new {
            self.put(path.as_bstr(), None, found);
        }
        // What the index has no more.
        let gone: Vec<BString> = self
            .parent
            .iter()
            .flatten()
            .filter(|(path, (mode, _))| {
                !mode.is_commit()
                    && self.request.is_in_scope(path.as_bstr())
                    && self.index.find(path.as_bstr()).is_none()
                    && !self.captured.updates.contains_key(*path)
            })
            .map(|(path, _)| path.clone())
            .collect();
        for path in gone {
            self.captured.changes.insert(path, None);
        }
        let left_out = self.left_out.into_iter().map(|(path, why)| LeftOut { path, why });
        self.captured.left_out = left_out.collect();
        Ok(self.captured)
    }

    /// Takes what the index has, by whoever it was staged.
    fn keep(&mut self, path: &BStr, mode: Mode, id: ObjectId) -> Result<(), OpError> {
        let Some(mode) = mode.to_tree_entry_mode() else { return Ok(()) };
        if self.parent_has(path) == Some((mode, id)) {
            return Ok(());
        }
        if mode.is_commit() || self.is_submodule(path) {
            self.left_out.insert(path.to_owned(), Omission::Submodule);
            return Ok(());
        }
        // Nothing may reach it but that index.
        self.store.copy_blob(id)?;
        self.captured.changes.insert(path.to_owned(), Some((mode, id)));
        Ok(())
    }

    fn put(&mut self, path: &BStr, was: Option<Known>, found: Stored) {
        let Some(mode) = found.mode.to_tree_entry_mode() else { return };
        if self.is_submodule(path) {
            self.left_out.insert(path.to_owned(), Omission::Submodule);
            return;
        }
        if self.parent_has(path) != Some((mode, found.id)) {
            self.captured.changes.insert(path.to_owned(), Some((mode, found.id)));
        }
        let update = PathUpdate { was, now: Some(found) };
        self.captured.updates.insert(path.to_owned(), update);
    }

    fn delete(&mut self, path: &BStr, was: Option<Known>) {
        if self.is_submodule(path) {
            self.left_out.insert(path.to_owned(), Omission::Submodule);
            return;
        }
        if self.parent_has(path).is_some() {
            self.captured.changes.insert(path.to_owned(), None);
        }
        self.captured.updates.insert(path.to_owned(), PathUpdate { was, now: None });
    }

    fn parent_has(&self, path: &BStr) -> Option<(EntryMode, ObjectId)> {
        match &self.parent {
            Some(files) => files.get(path).copied(),
            None => self.index.find(path).and_then(|at| {
                let entry = &self.index.entries[at];
                Some((entry.mode.to_tree_entry_mode()?, entry.id))
            }),
        }
    }

    fn is_submodule(&self, path: &BStr) -> bool {
        self.parent_has(path).is_some_and(|(mode, _)| mode.is_commit())
    }

    /// Refuses a path that is nowhere: not in the work tree, the index or the parent.
    fn check_named(&self, new: &BTreeMap<BString, Stored>) -> Result<(), OpError> {
        for named in self.request.files.unwrap_or_default() {
            let below = |path: &BString| is_at_or_below(path.as_bstr(), named);
            let is_known = self.index.find(named.as_bstr()).is_some()
                || !self.index.below(named.as_bstr()).is_empty()
                || new.keys().any(below)
                || self.left_out.keys().any(below)
                || self.parent.iter().flatten().any(|(path, _)| below(path));
            if !is_known {
                return Err(OpError::new(
                    OpErrorKind::UnknownPath,
                    format!(
                        "there is nothing at path {named:?}, neither in the work tree nor in the parent"
                    ),
                ));
            }
        }
        Ok(())
    }
}

fn is_at_or_below(path: &BStr, named: &BString) -> bool {
    path.strip_prefix(named.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}
