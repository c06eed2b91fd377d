//! Refuses what is most likely a mistake, though git would take it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bstr::{BStr, BString, ByteSlice};
use gix::ObjectId;
use gix::refs::FullName;

use super::Batch;
use crate::guard::{modules, secret};
use crate::store::clashes;
use crate::{Action, Change, Guard, Mode, OpError, OpErrorKind};

/// How many files a commit deletes before it is looked at as a mistake.
const MANY: usize = 20;

impl Batch<'_, '_> {
    /// Checks a commit whose tree is built.
    pub(super) fn check_guards(
        &self,
        old_tree: ObjectId,
        new_tree: ObjectId,
        changes: &[Change],
    ) -> Result<(), OpError> {
        if changes.iter().any(|change| change.action == Action::Delete) {
            self.check_deletions(old_tree, new_tree)?;
        }
        let written = changes.iter().filter(|change| change.action != Action::Delete);
        written.clone().try_for_each(|change| self.check_content(old_tree, change))?;
        let paths: Vec<&BString> = written.map(|change| &change.path).collect();
        self.check_paths(old_tree, new_tree, &paths)
    }

    /// Refuses a commit that deletes most of what was there: a work tree that was emptied, or half
    /// checked out, looks like that.
    pub(super) fn check_deletions(
        &self,
        old_tree: ObjectId,
        new_tree: ObjectId,
    ) -> Result<(), OpError> {
        if self.is_allowed(Guard::MassDeletion) {
            return Ok(());
        }
        let diff = self.session.store.diff(old_tree, new_tree)?;
        // What is there under another name has only moved.
        let deleted = diff.deletions.saturating_sub(diff.additions);
        if deleted < MANY {
            return Ok(());
        }
        let before = self.session.store.count_files(old_tree)?;
        if deleted * 2 <= before {
            return Ok(());
        }
        Err(OpError::new(
            OpErrorKind::MassDeletion,
            format!(
                "the commit would delete {deleted} of {before} files; allow it in the settings or \
                 commit it with git if that is meant"
            ),
        ))
    }

    fn check_content(&self, old_tree: ObjectId, change: &Change) -> Result<(), OpError> {
        let Action::Write { content, mode } = &change.action else { return Ok(()) };
        let path = change.path.as_bstr();
        let max = self.session.settings.max_file_bytes;
        if u64::try_from(content.len()).is_ok_and(|len| len > max) {
            let message =
                format!("path {path:?} has {} bytes, and {max} is the most", content.len());
            return Err(OpError::new(OpErrorKind::TooLarge, message));
        }
        let is_secret = *mode != Mode::Symlink
            && (secret::is_secret_path(path) || secret::holds_private_key(content));
        if is_secret
            && !self.is_allowed(Guard::Secrets)
            && self.session.store.entry_at(old_tree, path)?.is_none()
        {
            return Err(OpError::new(
                OpErrorKind::Secret,
                format!(
                    "path {path:?} looks like a secret; allow it in the settings if it is none"
                ),
            ));
        }
        Ok(())
    }

    /// Checks the names and the settings of submodules that a commit brings.
    pub(super) fn check_paths(
        &self,
        old_tree: ObjectId,
        new_tree: ObjectId,
        paths: &[&BString],
    ) -> Result<(), OpError> {
        for path in paths.iter().filter(|path| is_modules(path.as_bstr())) {
            let content = self.session.store.file_at(new_tree, path.as_bstr())?;
            if let Some(why) = content.and_then(|content| modules::fault(&content)) {
                let message =
                    format!("path {path:?}: {why}, which git refuses to fetch or to check out");
                return Err(OpError::new(OpErrorKind::InvalidChange, message));
            }
        }
        self.check_case(old_tree, new_tree, paths)
    }

    /// Refuses a new name that another one beside it equals but for upper and lower case: on some
    /// systems only one of the two files can be checked out.
    fn check_case(
        &self,
        old_tree: ObjectId,
        new_tree: ObjectId,
        paths: &[&BString],
    ) -> Result<(), OpError> {
        if self.is_allowed(Guard::CaseClashes) {
            return Ok(());
        }
        let store = &self.session.store;
        // The names that are new in each folder; each folder is looked at once.
        let mut folders: BTreeMap<&BStr, BTreeMap<&BStr, bool>> = BTreeMap::new();
        for path in paths {
            let mut start = 0;
            for end in path.find_iter("/").chain([path.len()]) {
                let (above, name) = (path[..start].as_bstr(), path[start..end].as_bstr());
                start = end + 1;
                let names = folders.entry(above).or_default();
                if !names.contains_key(name) {
                    let is_new = store.entry_at(old_tree, path[..end].as_bstr())?.is_none();
                    names.insert(name, is_new);
                }
            }
        }
        for (above, names) in folders {
            if !names.values().any(|is_new| *is_new) {
                continue;
            }
            let mut folded: BTreeMap<Vec<u8>, BString> = BTreeMap::new();
            for name in store.names_in(new_tree, above)? {
                let is_new = names.get(name.as_bstr()).is_some_and(|is_new| *is_new);
                match folded.entry(name.to_lowercase()) {
                    Entry::Vacant(free) => drop(free.insert(name)),
                    Entry::Occupied(other) => {
                        let other = other.get();
                        if is_new || names.get(other.as_bstr()).is_some_and(|is_new| *is_new) {
                            return Err(case_clash(above, &name, other));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Refuses a new branch that another one equals but for upper and lower case: on some systems
    /// both are one file.
    pub(super) fn check_branch_case(&mut self, name: &FullName) -> Result<(), OpError> {
        if self.is_allowed(Guard::CaseClashes) {
            return Ok(());
        }
        if self.folded.is_none() {
            let mut folded: BTreeMap<Vec<u8>, FullName> = BTreeMap::new();
            for known in self.session.store.local_branches()? {
                folded.insert(known.as_bstr().to_lowercase(), known);
            }
            self.folded = Some(folded);
        }
        let folded = self.folded.get_or_insert_default();
        match folded.get(&name.as_bstr().to_lowercase()) {
            Some(other) if other != name => Err(clashes(name, other)),
            _ => {
                folded.insert(name.as_bstr().to_lowercase(), name.clone());
                Ok(())
            }
        }
    }

    fn is_allowed(&self, guard: Guard) -> bool {
        self.session.settings.allowed.contains(&guard)
    }
}

fn case_clash(above: &BStr, name: &BString, other: &BString) -> OpError {
    OpError::new(
        OpErrorKind::PathClash,
        format!(
            "path {:?}: {name:?} and {other:?} differ in upper and lower case only; choose another \
             name",
            BString::from([above.as_bytes(), name].concat())
        ),
    )
}

fn is_modules(path: &BStr) -> bool {
    let name = path.rsplit_once_str("/").map_or(path.as_bytes(), |(_, name)| name);
    name.eq_ignore_ascii_case(b".gitmodules")
}
