//! Which branches are checked out, and where.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bstr::ByteSlice;
use gix::refs::FullName;

use super::Store;
use super::refs::path_of;
use crate::{OpError, OpErrorKind};

/// The branches that are checked out, each with the places.
pub(crate) type CheckedOut = BTreeMap<FullName, Vec<Place>>;

/// A work tree that stands on a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) git_dir: PathBuf,
    pub(super) top: PathBuf,
}

impl Store {
    /// The branches that a work tree stands on, is rebasing or is bisecting, each with the places.
    pub(crate) fn checked_out(&self) -> CheckedOut {
        self.executor.checked_out(self)
    }

    /// The same, as far as the files of the work trees say it.
    pub(super) fn checked_out_by_files(&self) -> CheckedOut {
        let mut found = CheckedOut::new();
        let is_bare = self.repo.config_snapshot().boolean("core.bare").unwrap_or(false);
        if !is_bare {
            let top = self.common_dir.parent().unwrap_or(&self.common_dir);
            collect(&self.common_dir, top, &mut found);
        }
        let linked = fs::read_dir(self.common_dir.join("worktrees"));
        for entry in linked.into_iter().flatten().flatten() {
            let git_dir = entry.path();
            let named = fs::read(git_dir.join("gitdir")).unwrap_or_default();
            let named = gix::path::from_bstr(named.trim_ascii().as_bstr()).unwrap_or_default();
            let top = named.parent().unwrap_or(&git_dir).to_owned();
            collect(&git_dir, &top, &mut found);
        }
        // Who stands on a symbolic branch stands on the one behind it.
        for (mut name, places) in found.clone() {
            for _ in 0..MAX_DEPTH {
                let content = fs::read(self.common_dir.join(path_of(&name))).unwrap_or_default();
                let Some(target) = symbolic(&content).and_then(full_name) else { break };
                found.entry(target.clone()).or_insert_with(|| places.clone());
                name = target;
            }
        }
        found
    }
}

/// How many symbolic refs git follows in a row.
const MAX_DEPTH: usize = 5;

/// Refuses to move a branch under somebody's feet; `own` is the git directory of a work tree that
/// is to move with it.
pub(crate) fn check_not_checked_out(
    checked_out: &CheckedOut,
    name: &FullName,
    own: Option<&Path>,
) -> Result<(), OpError> {
    let places = checked_out.get(name).map_or(&[][..], Vec::as_slice);
    let Some(place) = places.iter().find(|place| Some(place.git_dir.as_path()) != own) else {
        return Ok(());
    };
    let (name, top) = (name.shorten(), place.top.display());
    let hint = match own {
        Some(_) => "switch one of the two work trees to another branch",
        None => "push it in the same batch to move the remote's branch only",
    };
    Err(OpError::new(
        OpErrorKind::CheckedOut,
        format!("branch {name:?} is checked out at {top} and is not moved; {hint}"),
    ))
}

fn collect(git_dir: &Path, top: &Path, found: &mut CheckedOut) {
    for file in ["HEAD", "rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"] {
        let Ok(content) = fs::read(git_dir.join(file)) else { continue };
        let name = match file {
            "HEAD" => symbolic(&content),
            _ => Some(content.trim_ascii()),
        };
        if let Some(name) = name.and_then(full_name) {
            let place = Place { git_dir: git_dir.to_owned(), top: top.to_owned() };
            found.entry(name).or_default().push(place);
        }
    }
}

/// The name in a symbolic ref, `None` if it is none. Only ASCII has blanks that no name can hold.
pub(super) fn symbolic(content: &[u8]) -> Option<&[u8]> {
    content.strip_prefix(b"ref:").map(<[u8]>::trim_ascii)
}

/// The full name of a branch; a bisect notes the short one.
pub(super) fn full_name(name: &[u8]) -> Option<FullName> {
    let full = if name.starts_with(b"refs/") {
        name.as_bstr().to_owned()
    } else {
        [b"refs/heads/".as_slice(), name].concat().into()
    };
    FullName::try_from(full).ok()
}
