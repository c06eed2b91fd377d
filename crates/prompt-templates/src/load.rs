//! Templates from a folder.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
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

/// A template, and the file that it was read from as it was then.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) compiled: Arc<Compiled>,
    file: File,
}

/// Bytes of a file: 16 MiB. What is longer is no prompt, and would be held twice while it compiles.
const MAX_LENGTH: u64 = 16 << 20;

/// What a folder holds.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// Ordered by path.
    pub(crate) templates: Vec<Loaded>,
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
struct File {
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
    let Read { templates, mut errors, failed, .. } = read(dir, &list(dir), dialect, &[], false);
    let templates = templates.into_iter().map(|loaded| loaded.compiled).collect();
    let terms = Terms::new(0, usize::MAX, Counters::default());
    let loaded = Set::default().apply(&Change::Load(templates), &terms);
    let unlinked = loaded.err().map(LoadError::into_errors).unwrap_or_default();
    // A file that does not compile is no reason to say of others that they include what is not there.
    let is_own = |error: &Error| {
        error.kind() != ErrorKind::UnknownInclude
            || error.name().is_none_or(|name| !failed.iter().any(|failed| failed == name))
    };
    errors.extend(unlinked.into_iter().filter(is_own));
    errors.sort_by_key(|error| (error.file().map(Path::to_owned), error.line()));
    errors
}

/// Reads and compiles the files of a listing. A text that is among the `old` ones, which were read of
/// the same folder, is not compiled again; and a file that is stamped as it was then is not read, if
/// stamps are to be trusted.
pub(crate) fn read(
    dir: &Path,
    listing: &Listing,
    dialect: &Arc<Dialect>,
    old: &[Loaded],
    trusts_stamps: bool,
) -> Read {
    let prefix = dir.to_str();
    let mut read = Read { errors: listing.error.iter().cloned().collect(), ..Read::default() };
    read.templates.reserve(listing.files.len());
    let root = OnceCell::new();
    // Both are ordered by path, so one is walked along the other.
    let mut old = old.iter().peekable();
    for (path, &file) in &listing.files {
        while old.next_if(|old| old.path() < Some(path.as_os_str())).is_some() {}
        let old = old.next_if(|old| old.path() == Some(path.as_os_str()));
        if let Some(same) = old.filter(|old| trusts_stamps && old.file.is_known_as(file)) {
            read.templates.push(Loaded { compiled: Arc::clone(&same.compiled), file });
            continue;
        }
        let path = Path::new(path);
        let name = match name(dir, prefix, path) {
            Ok(name) => name,
            Err(error) => {
                read.errors.push(error);
                continue;
            }
        };
        let root = || root.get_or_init(|| dir.canonicalize().ok()).as_deref();
        let root = if file.is_link { root() } else { None };
        let compiled = text(&name, path, root).and_then(|text| match old {
            Some(old) if *old.compiled.text == *text => Ok(Arc::clone(&old.compiled)),
            _ => {
                read.compiled += 1;
                Compiled::new(&name, Some(path), &text, dialect).map(Arc::new)
            }
        });
        match compiled {
            Ok(compiled) => read.templates.push(Loaded { compiled, file }),
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
            let file_name = entry.file_name();
            let name = file_name.as_encoded_bytes();
            if name.starts_with(b".") || name.starts_with(b"~$") {
                continue;
            }
            if kind.is_dir() {
                dirs.push(entry.path());
            } else if name.ends_with(SUFFIX.as_bytes()) {
                // As `entry.path()` does, in one piece of memory.
                let mut path = PathBuf::with_capacity(dir.as_os_str().len() + 1 + name.len());
                path.push(&dir);
                path.push(&file_name);
                let is_link = kind.is_symlink();
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

impl Loaded {
    fn path(&self) -> Option<&OsStr> {
        self.compiled.path.as_deref().map(Path::as_os_str)
    }
}

impl File {
    /// Returns whether it is certain that a file is the same as it was.
    fn is_known_as(self, now: Self) -> bool {
        self.stamp.is_some() && self == now
    }
}

impl Listing {
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
    let data = fs::metadata(path).map_err(cannot_read)?;
    if !data.is_file() {
        return Err(fail(ErrorKind::Io, "it is a folder, device or pipe, not a file".to_owned()));
    }
    if data.len() > MAX_LENGTH {
        let message = format!("the file has {} bytes, over {MAX_LENGTH}", data.len());
        return Err(fail(ErrorKind::Io, message).help("what is so long belongs into the data"));
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
