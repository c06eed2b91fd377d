//! Templates from a folder.

use std::cell::OnceCell;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use crate::compiled::Compiled;
use crate::dialect::Dialect;
use crate::folder::{File, Tree, Trust};
use crate::position::Position;
use crate::set::{Change, Set, Terms};
use crate::stats::Counters;
use crate::{Error, ErrorKind, LoadError};

/// Bytes of a file: 16 MiB. What is longer is no prompt, and would be held twice while it compiles.
const MAX_LENGTH: u64 = 16 << 20;

/// Returns everything that is wrong with the templates of a folder, ordered by file.
pub(crate) fn check_dir(dir: &Path, dialect: &Arc<Dialect>) -> Vec<Error> {
    let mut tree = Tree::default();
    tree.look(dir, Trust::Nothing, &Instant::now);
    read(dir, &mut tree, dialect);
    let mut errors = errors(&tree);
    let terms = Terms::new(0, usize::MAX, Counters::default());
    let loaded = Set::default().apply(&Change::Load(templates(&tree, |_| true)), &terms);
    let unlinked = loaded.err().map(LoadError::into_errors).unwrap_or_default();
    // A file that does not compile is no reason to say of others that they include what is not there.
    let is_bad = |name: &str| tree.files().any(|file| file.is_bad() && file.name() == name);
    let is_own = |error: &Error| {
        error.kind() != ErrorKind::UnknownInclude || error.name().is_none_or(|name| !is_bad(name))
    };
    errors.extend(unlinked.into_iter().filter(is_own));
    errors.sort_by_key(|error| (error.file().map(Path::to_owned), error.line()));
    errors
}

/// Reads the stale files and compiles those with a new text; returns how many had to be compiled.
/// Sees to it that the tree counts as changed if any has.
pub(crate) fn read(dir: &Path, tree: &mut Tree, dialect: &Arc<Dialect>) -> usize {
    let root = OnceCell::new();
    let mut compiled = 0;
    let mut is_changed = tree.is_changed;
    for file in tree.files_mut() {
        // What could not be read is tried again with whatever else has changed.
        let is_read_again = file.is_stale || is_changed && file.is_bad();
        if !is_read_again {
            continue;
        }
        let path = dir.join(file.path());
        let root = || root.get_or_init(|| dir.canonicalize().ok()).as_deref();
        let root = if file.is_link { root() } else { None };
        let new = text(file.name(), &path, root).and_then(|text| match &file.content {
            Some(Ok(old)) if *old.text == *text => Ok(Arc::clone(old)),
            _ => {
                compiled += 1;
                Compiled::new(file.name(), Some(&path), &text, dialect).map(Arc::new)
            }
        });
        if !is_same(file, &new) {
            is_changed = true;
            file.is_new = true;
        }
        file.content = Some(new);
        file.is_stale = false;
    }
    tree.is_changed = is_changed;
    compiled
}

/// Returns whether a reading comes to the same as the one before it: to the same text, or to the same error.
fn is_same(file: &File, new: &Result<Arc<Compiled>, Error>) -> bool {
    match (&file.content, new) {
        (Some(Ok(old)), Ok(new)) => Arc::ptr_eq(old, new),
        (Some(Err(old)), Err(new)) => format!("{old:#}") == format!("{new:#}"),
        _ => false,
    }
}

/// Returns what has been read of some files, ordered by name.
pub(crate) fn templates(tree: &Tree, is_wanted: impl Fn(&File) -> bool) -> Vec<Arc<Compiled>> {
    let files = tree.files().filter(|file| is_wanted(file));
    let read = files.filter_map(|file| file.content.as_ref()?.as_ref().ok());
    let mut templates: Vec<_> = read.map(Arc::clone).collect();
    templates.sort_by(|a, b| a.name.cmp(&b.name));
    templates
}

/// Returns everything that is wrong with the folders and files, ordered by file.
pub(crate) fn errors(tree: &Tree) -> Vec<Error> {
    let no_text =
        |path: &PathBuf| Error::new(ErrorKind::Name, "the file name is not UTF-8").path(Some(path));
    let bad = tree.files().filter_map(|file| file.content.as_ref()?.as_ref().err());
    let mut errors: Vec<_> = tree.error.iter().chain(bad).cloned().collect();
    errors.extend(tree.unnamed().map(no_text));
    errors.sort_by(|a, b| a.file().cmp(&b.file()));
    errors
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
