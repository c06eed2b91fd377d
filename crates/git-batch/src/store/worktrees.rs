//! Which branches are checked out, and where.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bstr::ByteSlice;
use gix::refs::FullName;

use super::Store;
use super::refs::path_of;
use crate::{OpError, OpErrorKind};

impl Store {
    /// The branches that a work tree stands on, is rebasing or is bisecting, each with the place.
    pub(crate) fn checked_out(&self) -> BTreeMap<FullName, PathBuf> {
        let mut found = BTreeMap::new();
        let is_bare = self.repo.config_snapshot().boolean("core.bare").unwrap_or(false);
        if !is_bare {
            let place = self.common_dir.parent().unwrap_or(&self.common_dir);
            collect(&self.common_dir, place, &mut found);
        }
        let linked = fs::read_dir(self.common_dir.join("worktrees"));
        for entry in linked.into_iter().flatten().flatten() {
            let git_dir = entry.path();
            let place = fs::read(git_dir.join("gitdir")).unwrap_or_default();
            let place = gix::path::from_bstr(place.trim_ascii().as_bstr()).unwrap_or_default();
            let place = place.parent().unwrap_or(&git_dir).to_owned();
            collect(&git_dir, &place, &mut found);
        }
        // Who stands on a symbolic branch stands on the one behind it.
        for (mut name, place) in found.clone() {
            for _ in 0..MAX_DEPTH {
                let content = fs::read(self.common_dir.join(path_of(&name))).unwrap_or_default();
                let Some(target) = symbolic(&content).and_then(full_name) else { break };
                found.entry(target.clone()).or_insert_with(|| place.clone());
                name = target;
            }
        }
        found
    }
}

/// How many symbolic refs git follows in a row.
const MAX_DEPTH: usize = 5;

/// Refuses to move a branch under somebody's feet.
pub(crate) fn is_checked_out(name: &FullName, place: &Path) -> OpError {
    OpError::new(
        OpErrorKind::CheckedOut,
        format!(
            "branch {:?} is checked out at {} and is not moved; push it in the same batch to move \
             the remote's branch only",
            name.shorten(),
            place.display()
        ),
    )
}

fn collect(git_dir: &Path, place: &Path, found: &mut BTreeMap<FullName, PathBuf>) {
    for file in ["HEAD", "rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"] {
        let Ok(content) = fs::read(git_dir.join(file)) else { continue };
        let name = match file {
            "HEAD" => symbolic(&content),
            _ => Some(content.trim_ascii()),
        };
        if let Some(name) = name.and_then(full_name) {
            found.insert(name, place.to_owned());
        }
    }
}

/// The name in a symbolic ref, `None` if it is none. Only ASCII has blanks that no name can hold.
fn symbolic(content: &[u8]) -> Option<&[u8]> {
    content.strip_prefix(b"ref:").map(<[u8]>::trim_ascii)
}

/// The full name of a branch; a bisect notes the short one.
fn full_name(name: &[u8]) -> Option<FullName> {
    let full = if name.starts_with(b"refs/") {
        name.as_bstr().to_owned()
    } else {
        [b"refs/heads/".as_slice(), name].concat().into()
    };
    FullName::try_from(full).ok()
}
