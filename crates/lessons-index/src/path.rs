//! From a path to a file, if it is one.

use std::fs::{self, File, FileType};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::OpenError;
use crate::seen::Look;

/// Opens a file for reading; anything but a regular file is an error, and is not waited for.
pub(crate) fn open_regular(path: &Path) -> Result<(File, Look), OpenError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => OpenError::Missing { path: path.to_owned() },
        _ => OpenError::Read { path: path.to_owned(), source },
    };
    refuse_other_kinds(path, fs::metadata(path).map_err(failed)?.file_type())?;
    let file = File::open(path).map_err(failed)?;
    let look = Look::of(&file).map_err(failed)?;
    Ok((file, look))
}

/// Refuses what is no regular file.
pub(crate) fn refuse_other_kinds(path: &Path, kind: FileType) -> Result<(), OpenError> {
    if kind.is_file() {
        return Ok(());
    }
    let found = if kind.is_dir() { "a folder" } else { "a device, pipe or socket" };
    Err(OpenError::NotAFile { path: path.to_owned(), found })
}

/// Returns the folder that a file is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Returns the path that symbolic links in place of the file lead to, whether it exists or not.
///
/// Links in the folders above make no difference: the lock stands beside the file in any case.
pub(crate) fn target_of(path: &Path) -> PathBuf {
    /// As many as Linux follows.
    const MAX_LINKS: usize = 40;
    let mut target = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(next) = fs::read_link(&target) else { break };
        target = folder_of(&target).join(next);
    }
    target
}
