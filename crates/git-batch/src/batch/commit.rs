//! Builds one commit.

use std::collections::{BTreeMap, BTreeSet};

use bstr::{BString, ByteSlice};
use gix::ObjectId;
use gix::objs::tree::EntryKind;

use super::{Batch, Built, Step, branch_name};
use crate::store::{NewCommit, TreeEdit, check_message};
use crate::{Action, Change, Commit, Mode, OpError, OpErrorKind, Outcome, guard};

impl Batch<'_, '_> {
    pub(super) fn commit(&mut self, index: usize, position: usize, commit: &Commit) -> Built {
        let name = branch_name(&commit.branch)?;
        let message = check_message(commit.message.as_bstr())?;
        check_changes(&commit.changes)?;
        self.check_ids(&commit.changes)?;
        let (author, committer) = self.session.signer.sign(commit.author.as_ref())?;
        self.check_movable(&name, position)?;

        let mut needs = BTreeSet::new();
        let tip = self.branch(&name)?.tip;
        let parent = match (tip, &commit.base) {
            (Some(tip), None) => Some(tip),
            (Some(tip), Some(base)) => {
                let base_commit = self.named_base(base)?;
                if !self.session.store.is_ancestor(base_commit, tip)? {
                    return Err(base_not_ancestor(&commit.branch, base).into());
                }
                Some(tip)
            }
            (None, base) => {
                self.check_clash(&name)?;
                match base {
                    Some(base) => {
                        let id = self.named_base(base)?;
                        needs.extend(self.last_step_at(base));
                        Some(id)
                    }
                    None => self.default_base()?,
                }
            }
        };

        let old_tree = match parent {
            Some(parent) => self.session.store.tree_of(parent)?,
            None => self.session.store.empty_tree(),
        };
        let stale = self.stale_paths(old_tree, &commit.changes)?;
        if !stale.is_empty() {
            let with = self.who_changed(&name, &stale)?;
            return Err(Outcome::Conflict { paths: stale, with });
        }
        let new_tree = self.edit(old_tree, &commit.changes)?;
        self.check_filters(new_tree, &commit.changes)?;
        self.check_guards(old_tree, new_tree, &commit.changes)?;
        self.check_submodules(new_tree, &commit.changes)?;
        if new_tree == old_tree {
            return Err(match parent {
                Some(commit) => Outcome::no_change(commit),
                None => OpError::new(
                    OpErrorKind::InvalidChange,
                    "the first commit of the repository would be empty",
                )
                .into(),
            });
        }
        let message = self.hooked(message, None)?;
        let subject = message.lines().next().unwrap_or_default().as_bstr().to_owned();
        let id = self.session.store.write_commit(NewCommit {
            tree: new_tree,
            parents: parent.into_iter().collect(),
            author,
            committer,
            message,
        })?;
        let message = [b"commit: ".as_slice(), &subject].concat().into();
        self.advance(name, id, Step { operation: index, old_tree, new_tree, message }, needs)
    }

    /// Refuses ids of another hash than the repository's.
    fn check_ids(&self, changes: &[Change]) -> Result<(), OpError> {
        let hash = self.session.store.hash_kind();
        for Change { path, action, expect } in changes {
            let object = match action {
                Action::Object { oid, .. } => Some(*oid),
                _ => None,
            };
            if let Some(id) = object.into_iter().chain(*expect).find(|id| id.kind() != hash) {
                return Err(OpError::new(
                    OpErrorKind::InvalidChange,
                    format!(
                        "path {path:?}: {id} is no object id of this repository, which uses {hash}"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// The paths where the parent has another object than the change expects, sorted.
    fn stale_paths(&self, tree: ObjectId, changes: &[Change]) -> Result<Vec<BString>, OpError> {
        let store = &self.session.store;
        let mut stale = BTreeSet::new();
        for change in changes {
            let Some(expect) = change.expect else { continue };
            let found = store.entry_at(tree, change.path.as_bstr())?.map(|(_, id)| id);
            if found.unwrap_or_else(|| store.null_id()) != expect {
                stale.insert(change.path.clone());
            }
        }
        Ok(stale.into_iter().collect())
    }

    /// Refuses content that git would not store as it is given.
    fn check_filters(&self, tree: ObjectId, changes: &[Change]) -> Result<(), OpError> {
        let written: Vec<_> = changes
            .iter()
            .filter(|change| {
                matches!(change.action, Action::Write { mode: Mode::File | Mode::Executable, .. })
            })
            .map(|change| change.path.as_bstr())
            .collect();
        match self.session.store.filtered(tree, &written)? {
            None => Ok(()),
            Some((path, filter)) => Err(OpError::new(
                OpErrorKind::Filtered,
                format!(
                    "path {path:?} goes through the filter {filter:?}, which is not supported: \
                     commit it with git, or give the object that the filter makes"
                ),
            )),
        }
    }

    fn edit(&self, base: ObjectId, changes: &[Change]) -> Result<ObjectId, OpError> {
        let store = &self.session.store;
        let mut tree = TreeEdit::new(store, base)?;
        let mut deletions: Vec<&BString> = changes
            .iter()
            .filter(|change| change.action == Action::Delete)
            .map(|change| &change.path)
            .collect();
        // What is inside goes before the folder itself, so that both are found.
        deletions.sort_by(|a, b| b.cmp(a));
        for path in deletions {
            if !tree.remove(store, path.as_bstr())? {
                return Err(unknown_path(path));
            }
        }
        for Change { path, action, .. } in changes {
            let (mode, id) = match action {
                Action::Delete => continue,
                Action::Write { content, mode } => {
                    (kind_of(*mode).into(), store.write_blob(content)?)
                }
                Action::Object { oid, mode } => {
                    if *mode != Mode::Submodule && !store.is_blob(*oid) {
                        return Err(OpError::new(
                            OpErrorKind::UnknownObject,
                            format!("object {oid} for path {path:?} is no blob of the repository"),
                        ));
                    }
                    (kind_of(*mode).into(), *oid)
                }
                Action::Copy { from } => {
                    let (mode, id) =
                        store.entry_at(base, from.as_bstr())?.ok_or_else(|| unknown_path(from))?;
                    check_place(path, mode.kind())?;
                    (mode, id)
                }
            };
            tree.put(store, path.as_bstr(), mode, id)?;
        }
        tree.write(store)
    }
}

/// Checks what can be checked without the parent.
fn check_changes(changes: &[Change]) -> Result<(), OpError> {
    let mut seen: BTreeMap<&[u8], bool> = BTreeMap::new();
    for change in changes {
        check_path(change)?;
        check_content(change)?;
        if seen.insert(&change.path, change.action == Action::Delete).is_some() {
            return Err(OpError::new(
                OpErrorKind::InvalidPath,
                format!("path {:?} is changed twice in one commit", change.path),
            ));
        }
    }
    // A path that is written cannot be the folder of another one that is written.
    for (path, _) in seen.iter().filter(|(_, is_deletion)| !**is_deletion) {
        let above = path.find_iter("/").map(|slash| &path[..slash]);
        if let Some(outer) = above.into_iter().find(|above| seen.get(above) == Some(&false)) {
            return Err(OpError::new(
                OpErrorKind::InvalidPath,
                format!(
                    "{:?} is written as a file and as the folder of {:?}",
                    outer.as_bstr(),
                    path.as_bstr()
                ),
            ));
        }
    }
    Ok(())
}

fn check_path(change: &Change) -> Result<(), OpError> {
    let kind = match &change.action {
        Action::Write { mode, .. } | Action::Object { mode, .. } => kind_of(*mode),
        // What is copied is not known yet.
        Action::Delete | Action::Copy { .. } => EntryKind::Blob,
    };
    check_place(&change.path, kind)
}

/// Checks that an entry of that kind may stand at `path`.
fn check_place(path: &BString, kind: EntryKind) -> Result<(), OpError> {
    let check = match kind {
        EntryKind::Blob | EntryKind::BlobExecutable => guard::path::check,
        EntryKind::Link => guard::path::check_symlink,
        EntryKind::Tree | EntryKind::Commit => guard::path::check_not_a_file,
    };
    check(path.as_bstr()).map_err(|error| OpError::new(OpErrorKind::InvalidPath, error.to_string()))
}

fn check_content(change: &Change) -> Result<(), OpError> {
    let refuse = |why: &str| {
        Err(OpError::new(OpErrorKind::InvalidChange, format!("path {:?} {why}", change.path)))
    };
    match &change.action {
        Action::Write { mode: Mode::Submodule, .. } => {
            refuse("is a submodule and needs an object id, not content")
        }
        Action::Write { mode: Mode::Symlink, content }
            if content.is_empty() || content.contains(&0) =>
        {
            refuse("is a symlink whose target is empty or holds a NUL byte")
        }
        Action::Object { oid, .. } if oid.is_null() => refuse("names the null object"),
        _ => Ok(()),
    }
}

fn kind_of(mode: Mode) -> EntryKind {
    match mode {
        Mode::File => EntryKind::Blob,
        Mode::Executable => EntryKind::BlobExecutable,
        Mode::Symlink => EntryKind::Link,
        Mode::Submodule => EntryKind::Commit,
    }
}

fn unknown_path(path: &BString) -> OpError {
    OpError::new(OpErrorKind::UnknownPath, format!("the parent has nothing at path {path:?}"))
}

pub(super) fn base_not_ancestor(branch: &str, base: &str) -> OpError {
    OpError::new(
        OpErrorKind::BaseNotAncestor,
        format!("branch {branch:?} exists and does not contain its base {base:?}"),
    )
}

/// Refuses two sources of content at once.
pub(super) fn two_sources(branch: &str) -> OpError {
    OpError::new(
        OpErrorKind::InvalidChange,
        format!("the commit on {branch:?} has both changes and a worktree; give one of them"),
    )
}
