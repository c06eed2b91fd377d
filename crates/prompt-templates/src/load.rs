//! Templates from a folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::compiled::Compiled;
use crate::dialect::Dialect;
use crate::position::Position;
use crate::set::{Change, Set, Terms};
use crate::stats::Counters;
use crate::{Error, ErrorKind, LoadError};

/// What the files of templates end in.
const SUFFIX: &str = ".prompt.md";

/// What a folder holds.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) templates: Vec<Arc<Compiled>>,
    /// Everything that is wrong, ordered by file.
    pub(crate) errors: Vec<Error>,
    /// Texts that had to be compiled.
    pub(crate) compiled: usize,
    /// The names of files that did not compile.
    failed: Vec<String>,
}

/// Returns everything that is wrong with the templates of a folder, ordered by file.
pub(crate) fn check_dir(dir: &Path, dialect: &Arc<Dialect>) -> Vec<Error> {
    let read = read_dir(dir, dialect, |_| None);
    let mut errors = read.errors;
    let terms = Terms::new(0, usize::MAX, Counters::default());
    let loaded = Set::default().apply(&Change::Load(read.templates), &terms);
    let unlinked = loaded.err().map(LoadError::into_errors).unwrap_or_default();
    // A file that does not compile is no reason to say of others that they include what is not there.
    let is_own = |error: &Error| {
        error.kind() != ErrorKind::UnknownInclude
            || error.name().is_none_or(|name| !read.failed.iter().any(|failed| failed == name))
    };
    errors.extend(unlinked.into_iter().filter(is_own));
    errors.sort_by_key(|error| (error.file().map(Path::to_owned), error.line()));
    errors
}

/// Reads and compiles every template under a folder. A text that `old` has is not compiled again.
pub(crate) fn read_dir(
    dir: &Path,
    dialect: &Arc<Dialect>,
    old: impl Fn(&str) -> Option<Arc<Compiled>>,
) -> Read {
    let mut files = Vec::new();
    let mut read = Read::default();
    if let Err(error) = find(dir, &mut files) {
        read.errors.push(error);
    }
    files.sort();
    let root = dir.canonicalize().ok();
    for path in files {
        let name = match name(dir, &path) {
            Ok(name) => name,
            Err(error) => {
                read.errors.push(error);
                continue;
            }
        };
        let compiled = text(&name, &path, root.as_deref()).and_then(|text| match old(&name) {
            Some(old) if *old.text == *text && old.path.as_ref() == Some(&path) => Ok(old),
            _ => {
                read.compiled += 1;
                Compiled::new(&name, Some(&path), &text, dialect).map(Arc::new)
            }
        });
        match compiled {
            Ok(compiled) => read.templates.push(compiled),
            Err(error) => {
                read.errors.push(error);
                read.failed.push(name);
            }
        }
    }
    read
}

/// The files of a folder, with the time of the last change and the length of each.
pub(crate) type Stamps = BTreeMap<PathBuf, Option<(SystemTime, u64)>>;

/// Returns the present stamps of the template files under a folder; what cannot be read has none.
pub(crate) fn stamps(dir: &Path) -> Stamps {
    let mut files = Vec::new();
    if find(dir, &mut files).is_err() {
        files.push(dir.to_owned());
    }
    let stamp = |path: PathBuf| {
        let stamp =
            fs::metadata(&path).ok().and_then(|data| Some((data.modified().ok()?, data.len())));
        (path, stamp)
    };
    files.into_iter().map(stamp).collect()
}

/// Collects the template files under a folder.
fn find(dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), Error> {
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        let fail = |error: &std::io::Error| {
            Error::new(ErrorKind::Io, format!("cannot read the folder: {error}")).path(Some(&dir))
        };
        for entry in fs::read_dir(&dir).map_err(|error| fail(&error))? {
            let entry = entry.map_err(|error| fail(&error))?;
            let kind = entry.file_type().map_err(|error| fail(&error))?;
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            if name.starts_with(b".") || name.starts_with(b"~$") {
                continue;
            }
            if kind.is_dir() {
                dirs.push(entry.path());
            } else if name.ends_with(SUFFIX.as_bytes()) {
                files.push(entry.path());
            }
        }
    }
    Ok(())
}

/// Returns the name that a file gives its template.
fn name(dir: &Path, path: &Path) -> Result<String, Error> {
    let parts = path.strip_prefix(dir).unwrap_or(path).iter().map(|part| part.to_str());
    let name = parts.collect::<Option<Vec<_>>>().map(|parts| parts.join("/"));
    let name = name.as_deref().and_then(|name| name.strip_suffix(SUFFIX)).map(str::to_owned);
    name.ok_or_else(|| Error::new(ErrorKind::Name, "the file name is not UTF-8").path(Some(path)))
}

fn text(name: &str, path: &Path, root: Option<&Path>) -> Result<String, Error> {
    let fail = |kind, message| Error::new(kind, message).template(name).path(Some(path));
    let cannot_read = |error| fail(ErrorKind::Io, format!("cannot read the file: {error}"));
    // A pipe would be waited for, and a device read without end.
    if !fs::metadata(path).map_err(cannot_read)?.is_file() {
        return Err(fail(ErrorKind::Io, "it is a folder, device or pipe, not a file".to_owned()));
    }
    // A link within the folder is how some tools change all files at once.
    let target = path.canonicalize().map_err(cannot_read)?;
    if root.is_some_and(|root| !target.starts_with(root)) {
        let message = "it is a link that leaves the folder".to_owned();
        return Err(fail(ErrorKind::Io, message).help("put the file into the folder"));
    }
    let bytes = fs::read(path).map_err(cannot_read)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned();
        fail(ErrorKind::Io, "the file is not UTF-8".to_owned()).at(Position::of(&before, valid))
    })?;
    // An editor's byte-order mark is no part of a prompt.
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}
