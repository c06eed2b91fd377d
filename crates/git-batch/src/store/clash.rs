//! Branches that cannot stand beside each other: one name as a folder of the other.

use std::fs;
use std::io;
use std::path::Path;

use bstr::{BString, ByteSlice};
use gix::refs::FullName;

use super::Store;
use super::refs::path_of;
use crate::{OpError, OpErrorKind};

impl Store {
    /// A branch whose name is a folder of `branch`'s name, or the other way round.
    pub(crate) fn clashing_branch(&self, branch: &FullName) -> Result<Option<FullName>, OpError> {
        self.executor.clashing_branch(self, branch)
    }

    /// Whether there is a ref of exactly that name, where refs are files. gix would look for it in the
    /// places of all kinds of refs.
    pub(super) fn has_ref(&self, name: &FullName) -> Result<bool, gix::Error> {
        if fs::symlink_metadata(self.common_dir.join(path_of(name)))
            .is_ok_and(|data| !data.is_dir())
        {
            return Ok(true);
        }
        match self.repo.refs.cached_packed_buffer()? {
            None => Ok(false),
            Some(packed) => Ok(packed.try_find(name.as_ref())?.is_some()),
        }
    }

    /// The same, where refs are files.
    pub(super) fn clashing_file(&self, branch: &FullName) -> Result<Option<FullName>, OpError> {
        let fault = |error: &dyn std::error::Error| {
            OpError::repository("cannot list the local branches", error)
        };
        let name = branch.as_bstr();
        for slash in name.find_iter("/").skip(2) {
            // A name that no ref can have, such as `a.` above `a./b`, is in nobody's way.
            let Ok(above) = FullName::try_from(BString::from(&name[..slash])) else { continue };
            if self.has_ref(&above).map_err(|error| fault(&error))? {
                return Ok(Some(above));
            }
        }
        // gix lists what is below a prefix only if Windows could have a folder of that name.
        let mut below = name.to_owned();
        below.push(b'/');
        let loose = first_ref_below(&self.common_dir.join(path_of(branch)), &below);
        if let Some(found) = loose.map_err(|error| fault(&error))? {
            return Ok(Some(found));
        }
        let packed = self.repo.refs.cached_packed_buffer().map_err(|error| fault(&error))?;
        let Some(packed) = packed else { return Ok(None) };
        let mut found = packed.iter_prefixed(below).map_err(|error| fault(&error))?;
        let first = found.next().transpose().map_err(|error| fault(&error))?;
        Ok(first.map(|found| found.name.to_owned()))
    }
}

/// Refuses a branch whose name would be a folder of another's, or inside it.
pub(crate) fn clashes(name: &FullName, other: &FullName) -> OpError {
    let (name, other) = (name.shorten(), other.shorten());
    let message = format!("branch {name:?} cannot exist beside branch {other:?}");
    OpError::new(OpErrorKind::BranchClash, message)
}

/// The first loose ref in a folder, `name` being the folder's own with a slash. Files whose names no
/// ref can have, such as locks, are none.
fn first_ref_below(folder: &Path, name: &BString) -> io::Result<Option<FullName>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let mut full = name.clone();
        full.extend_from_slice(entry.file_name().as_encoded_bytes());
        let found = if entry.file_type()?.is_dir() {
            full.push(b'/');
            first_ref_below(&entry.path(), &full)?
        } else {
            FullName::try_from(full).ok()
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}
