//! Templates from a folder.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
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

/// The template files under a folder, without what they say.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// By path; as text, which is compared many times faster than its parts.
    files: BTreeMap<OsString, File>,
    /// Why the folder cannot be listed.
    error: Option<Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct File {
    is_link: bool,
    stamp: Option<Stamp>,
}

/// What changes when a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    /// Which file it is, and when the system last changed it: a tool that keeps times cannot keep these.
    system: (u64, i64, i64),
}

/// Returns everything that is wrong with the templates of a folder, ordered by file.
pub(crate) fn check_dir(dir: &Path, dialect: &Arc<Dialect>) -> Vec<Error> {
    let read = read(dir, &list(dir), dialect, |_, _| None);
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

/// What is known of a file before it is read.
pub(crate) enum Known {
    /// It says what it said when this was compiled.
    Same(Arc<Compiled>),
    /// This was compiled of it; it may say something else now.
    Old(Arc<Compiled>),
}

/// Reads and compiles the files of a listing. What is known to be the same is not read, and a text that
/// is known is not compiled again.
pub(crate) fn read(
    dir: &Path,
    listing: &Listing,
    dialect: &Arc<Dialect>,
    known: impl Fn(&str, &Path) -> Option<Known>,
) -> Read {
    let prefix = dir.to_str();
    let mut read = Read { errors: listing.error.iter().cloned().collect(), ..Read::default() };
    let root = dir.canonicalize().ok();
    for (path, file) in &listing.files {
        let path = Path::new(path);
        let name = match name(dir, prefix, path) {
            Ok(name) => name,
            Err(error) => {
                read.errors.push(error);
                continue;
            }
        };
        let old = match known(&name, path) {
            Some(Known::Same(compiled)) => {
                read.templates.push(compiled);
                continue;
            }
            Some(Known::Old(compiled)) => Some(compiled),
            None => None,
        };
        let root = root.as_deref().filter(|_| file.is_link);
        let compiled = text(&name, path, root).and_then(|text| match old {
            Some(old) if *old.text == *text => Ok(old),
            _ => {
                read.compiled += 1;
                Compiled::new(&name, Some(path), &text, dialect).map(Arc::new)
            }
        });
        match compiled {
            Ok(compiled) => read.templates.push(compiled),
            Err(error) => {
                read.errors.push(error);
                read.failed.push(name.into_owned());
            }
        }
    }
    read
}

/// Finds the template files under a folder.
pub(crate) fn list(dir: &Path) -> Listing {
    let mut listing = Listing::default();
    listing.error = find(dir, &mut listing.files).err();
    listing
}

fn find(dir: &Path, files: &mut BTreeMap<OsString, File>) -> Result<(), Error> {
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
                let (path, is_link) = (entry.path(), kind.is_symlink());
                let data = if is_link { fs::metadata(&path) } else { entry.metadata() };
                let stamp = data.ok().as_ref().map(stamp);
                files.insert(path.into_os_string(), File { is_link, stamp });
            }
        }
    }
    Ok(())
}

fn stamp(data: &fs::Metadata) -> Stamp {
    #[cfg(unix)]
    let system = {
        use std::os::unix::fs::MetadataExt;
        (data.ino(), data.ctime(), data.ctime_nsec())
    };
    #[cfg(not(unix))]
    let system = (0, 0, 0);
    Stamp { modified: data.modified().ok(), length: data.len(), system }
}

impl Listing {
    /// Returns whether a file is here as it is in another listing.
    pub(crate) fn agrees(&self, other: &Self, path: &Path) -> bool {
        let path = path.as_os_str();
        let here = self.files.get(path).filter(|file| file.stamp.is_some());
        here.is_some() && here == other.files.get(path)
    }

    /// Returns whether every file is as it is in another listing.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.files == other.files && self.error.is_some() == other.error.is_some()
    }
}

/// Returns the name that a file gives its template.
fn name<'p>(dir: &Path, prefix: Option<&str>, path: &'p Path) -> Result<Cow<'p, str>, Error> {
    let name = match (path.to_str(), prefix) {
        (Some(path), Some(prefix)) => {
            path.strip_prefix(prefix).map(|name| name.trim_start_matches(std::path::is_separator))
        }
        _ => path.strip_prefix(dir).unwrap_or(path).to_str(),
    };
    let name = name.and_then(|name| name.strip_suffix(SUFFIX)).ok_or_else(|| {
        Error::new(ErrorKind::Name, "the file name is not UTF-8").path(Some(path))
    })?;
    Ok(match std::path::MAIN_SEPARATOR {
        '/' => Cow::Borrowed(name),
        separator => Cow::Owned(name.replace(separator, "/")),
    })
}

/// Reads a file; if it is a link, what it leads to has to be under `root`.
fn text(name: &str, path: &Path, root: Option<&Path>) -> Result<String, Error> {
    let fail = |kind, message| Error::new(kind, message).template(name).path(Some(path));
    let cannot_read = |error| fail(ErrorKind::Io, format!("cannot read the file: {error}"));
    // A pipe would be waited for, and a device read without end.
    if !fs::metadata(path).map_err(cannot_read)?.is_file() {
        return Err(fail(ErrorKind::Io, "it is a folder, device or pipe, not a file".to_owned()));
    }
    // A link within the folder is how some tools change all files at once.
    if let Some(root) = root
        && !path.canonicalize().map_err(cannot_read)?.starts_with(root)
    {
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
