//! Which branches are checked out, and where.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bstr::ByteSlice;
use gix::refs::FullName;

use super::Store;

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
            let place = gix::path::from_bstr(place.trim().as_bstr()).unwrap_or_default();
            let place = place.parent().unwrap_or(&git_dir).to_owned();
            collect(&git_dir, &place, &mut found);
        }
        found
    }
}

fn collect(git_dir: &Path, place: &Path, found: &mut BTreeMap<FullName, PathBuf>) {
    for (file, prefix) in [
        ("HEAD", "ref: "),
        ("rebase-merge/head-name", ""),
        ("rebase-apply/head-name", ""),
        ("BISECT_START", ""),
    ] {
        let Ok(content) = fs::read(git_dir.join(file)) else { continue };
        let Some(name) = content.trim().strip_prefix(prefix.as_bytes()) else { continue };
        // A bisect notes the short name.
        let full = if name.starts_with(b"refs/") {
            name.as_bstr().to_owned()
        } else {
            [b"refs/heads/".as_slice(), name].concat().into()
        };
        if let Ok(name) = FullName::try_from(full) {
            found.insert(name, place.to_owned());
        }
    }
}
