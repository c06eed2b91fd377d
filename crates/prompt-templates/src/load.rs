//! Templates from a folder.

use std::cell::OnceCell;
use std::fs;
use std::io::Read as _;
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
    /// Ordered by name.
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
    /// By the name of the template, in order. It is the path in the folder without the ending.
    files: Vec<(String, File)>,
    /// Files whose names are no text, in order.
    unnamed: Vec<PathBuf>,
    /// Why the folder cannot be listed.
    error: Option<Error>,
}

/// Files of a listing, by their places in it, as they are by now.
#[derive(Debug)]
pub(crate) struct Changed(Vec<(usize, File)>);

impl Changed {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
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
    let mut read = Read { errors: listing.error.iter().cloned().collect(), ..Read::default() };
    read.templates.reserve(listing.files.len());
    let no_text =
        |path: &PathBuf| Error::new(ErrorKind::Name, "the file name is not UTF-8").path(Some(path));
    read.errors.extend(listing.unnamed.iter().map(no_text));
    let root = OnceCell::new();
    // Both are ordered by name, so one is walked along the other.
    let mut old = old.iter().peekable();
    for (name, file) in &listing.files {
        while old.next_if(|old| *old.compiled.name < **name).is_some() {}
        let old = old.next_if(|old| *old.compiled.name == **name);
        if let Some(same) = old.filter(|old| trusts_stamps && old.file.is_known_as(*file)) {
            read.templates.push(Loaded { compiled: Arc::clone(&same.compiled), file: *file });
            continue;
        }
        let path = dir.join(format!("{name}{SUFFIX}"));
        let root = || root.get_or_init(|| dir.canonicalize().ok()).as_deref();
        let root = if file.is_link { root() } else { None };
        let compiled = text(name, &path, root).and_then(|text| match old {
            Some(old) if *old.compiled.text == *text => Ok(Arc::clone(&old.compiled)),
            _ => {
                read.compiled += 1;
                Compiled::new(name, Some(&path), &text, dialect).map(Arc::new)
            }
        });
        match compiled {
            Ok(compiled) => read.templates.push(Loaded { compiled, file: *file }),
            Err(error) => {
                read.errors.push(error);
                read.failed.push(name.clone());
            }
        }
    }
    read.errors.sort_by(|a, b| a.file().cmp(&b.file()));
    read
}

/// Finds the template files under a folder.
pub(crate) fn list(dir: &Path) -> Listing {
    let mut listing = Listing::default();
    listing.error = find(dir, &mut listing).err();
    listing.files.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    listing.unnamed.sort_unstable();
    listing
}

fn find(dir: &Path, listing: &mut Listing) -> Result<(), Error> {
    // With what stands in front of the names of their files; nothing where that is no text.
    let mut dirs = vec![(dir.to_owned(), Some(String::new()))];
    while let Some((dir, prefix)) = dirs.pop() {
        let fail = |error: &std::io::Error| {
            Error::new(ErrorKind::Io, format!("cannot read the folder: {error}")).path(Some(&dir))
        };
        for entry in fs::read_dir(&dir).map_err(|error| fail(&error))? {
            let entry = entry.map_err(|error| fail(&error))?;
            let kind = entry.file_type().map_err(|error| fail(&error))?;
            let name = entry.file_name();
            let bytes = name.as_encoded_bytes();
            if is_passed_over(bytes) {
                continue;
            }
            if kind.is_dir() {
                let name = name.to_str();
                let prefix =
                    prefix.as_ref().zip(name).map(|(prefix, name)| format!("{prefix}{name}/"));
                dirs.push((entry.path(), prefix));
            } else if bytes.ends_with(SUFFIX.as_bytes()) {
                let Some((prefix, mut name)) = prefix.as_ref().zip(name.into_string().ok()) else {
                    listing.unnamed.push(entry.path());
                    continue;
                };
                name.truncate(name.len() - SUFFIX.len());
                if !prefix.is_empty() {
                    name.insert_str(0, prefix);
                }
                let is_link = kind.is_symlink();
                let data = if is_link { fs::metadata(entry.path()) } else { entry.metadata() };
                let stamp = data.ok().as_ref().map(stamp);
                listing.files.push((name, File { is_link, stamp }));
            }
        }
    }
    Ok(())
}

/// Returns whether a file or folder is hidden, or what an office program leaves beside a file it has open.
fn is_passed_over(name: &[u8]) -> bool {
    name.starts_with(b".") || name.starts_with(b"~$")
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

impl File {
    /// Returns whether it is certain that a file is the same as it was.
    fn is_known_as(self, now: Self) -> bool {
        self.stamp.is_some() && self == now
    }
}

impl Listing {
    /// Looks at some files only, all others being as they were; returns those that have changed.
    ///
    /// Returns `None` if that cannot be known without a look at the folder: a file that came or went, a
    /// folder, a link, or what is not in the folder.
    pub(crate) fn look_at(&self, dir: &Path, files: &[impl AsRef<Path>]) -> Option<Changed> {
        if self.error.is_some() || self.files.iter().any(|(_, file)| file.is_link) {
            return None;
        }
        let mut changed = Vec::new();
        for path in files {
            let path = path.as_ref().strip_prefix(dir).ok()?;
            if path.iter().any(|part| is_passed_over(part.as_encoded_bytes())) {
                continue;
            }
            let data = fs::symlink_metadata(dir.join(path)).ok().filter(fs::Metadata::is_file)?;
            let Some(name) = path.to_str()?.strip_suffix(SUFFIX) else { continue };
            let name = name.replace(std::path::MAIN_SEPARATOR, "/");
            let index = self.files.binary_search_by(|(other, _)| other.as_str().cmp(&name)).ok()?;
            let now = File { is_link: false, stamp: Some(stamp(&data)) };
            if self.files[index].1 != now {
                changed.push((index, now));
            }
        }
        Some(Changed(changed))
    }

    /// Returns the listing with what has changed in it.
    pub(crate) fn with(mut self, changed: Changed) -> Self {
        for (index, file) in changed.0 {
            self.files[index].1 = file;
        }
        self
    }

    /// Returns whether every file is as it is in another listing.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.files == other.files
            && self.unnamed == other.unnamed
            && self.error.is_some() == other.error.is_some()
    }
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
    let mut bytes = Vec::with_capacity(usize::try_from(data.len()).unwrap_or_default());
    // It may grow meanwhile; what is cut off then is read the next time.
    let file = fs::File::open(path).map_err(cannot_read)?;
    file.take(MAX_LENGTH).read_to_end(&mut bytes).map_err(cannot_read)?;
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
