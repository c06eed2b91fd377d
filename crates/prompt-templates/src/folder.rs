//! The template files under a folder, and what of them has to be read again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use std::{fs, io, mem};

use crate::compiled::Compiled;
use crate::handle::{self, Handle, stamp_of_file};
use crate::sighting::{News, Sighting};
use crate::{Error, ErrorKind};

/// What the files of templates end in.
const SUFFIX: &str = ".prompt.md";

/// Whether what looks as it did is taken to be what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    Stamps,
    /// Every folder is listed, and every file is stale.
    Nothing,
}

/// All folders with template files, as they were when they were last looked at, and what was read.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// By path.
    folders: BTreeMap<PathBuf, Folder>,
    /// Why a folder cannot be listed; those after it are left out.
    pub(crate) error: Option<Error>,
    /// Whether anything has been seen to change that nobody was told.
    pub(crate) is_changed: bool,
    /// Whether other files are there than those that were last published.
    pub(crate) is_regrouped: bool,
    is_known: bool,
    #[cfg(test)]
    listings: usize,
}

#[derive(Debug)]
struct Folder {
    sighting: Sighting,
    /// Folders in it, with what stands in front of the names of their files; nothing where that is no
    /// text.
    inner: Vec<(PathBuf, Option<String>)>,
    /// Ordered by the names of the templates.
    files: Vec<File>,
    /// Files whose names are no text, in order.
    unnamed: Vec<PathBuf>,
}

/// A template file.
#[derive(Debug)]
pub(crate) struct File {
    /// The path in the folder of the store, with `/`.
    path: String,
    name_in_folder: handle::Name,
    pub(crate) is_link: bool,
    sighting: Sighting,
    /// Whether what was read of it may not be what it holds.
    pub(crate) is_stale: bool,
    /// Whether what was read of it may not be what was last published.
    pub(crate) is_new: bool,
    /// What came of reading it last.
    pub(crate) content: Option<Result<Arc<Compiled>, Error>>,
}

impl Tree {
    /// Looks at all folders and files, and finds out which have to be read.
    ///
    /// A folder is listed only if it has changed or may have: what comes, goes or gets another name
    /// changes the folder it is in. Each file is asked once, because writing into one changes no folder.
    pub(crate) fn look(&mut self, dir: &Path, trust: Trust, clock: &dyn Fn() -> Instant) {
        let start = clock();
        let mut old = mem::take(&mut self.folders);
        let had_error = self.error.take().is_some();
        let mut is_regrouped = !mem::replace(&mut self.is_known, true);
        let mut paths = vec![(dir.to_owned(), Some(String::new()))];
        while let Some((path, prefix)) = paths.pop() {
            let mut folder = old.remove(&path).unwrap_or_else(|| Folder::new(start));
            let looked = Handle::open(&path).and_then(|handle| {
                let news = folder.sighting.update(handle.stamp(), start, clock);
                let is_sure = news == News::Same && folder.sighting.stamp.is_some();
                if trust == Trust::Nothing || !is_sure {
                    #[cfg(test)]
                    {
                        self.listings += 1;
                    }
                    is_regrouped |= folder.list(&path, prefix.as_deref(), start)?;
                }
                for file in &mut folder.files {
                    let stamp = handle.stamp_of(&file.name_in_folder, file.is_link);
                    let news = file.sighting.update(stamp, start, clock);
                    file.is_stale |= news != News::Same || trust == Trust::Nothing;
                    self.is_changed |= news == News::Changed;
                }
                Ok(())
            });
            if let Err(error) = looked {
                let message = format!("cannot read the folder: {error}");
                self.error = Some(Error::new(ErrorKind::Io, message).path(Some(&path)));
                break;
            }
            paths.extend(folder.inner.iter().rev().cloned());
            self.folders.insert(path, folder);
        }
        let gone =
            old.values().any(|folder| !folder.files.is_empty() || !folder.unnamed.is_empty());
        is_regrouped |= gone || had_error != self.error.is_some();
        self.is_changed |= is_regrouped;
        self.is_regrouped |= is_regrouped;
    }

    /// Looks at some files only, all others being as they were.
    ///
    /// Returns whether that is enough. It is not for what needs a look at the folder: a file that came or
    /// went, a folder, a link, or what is not in the folder.
    pub(crate) fn look_at(
        &mut self,
        dir: &Path,
        paths: &[impl AsRef<Path>],
        clock: &dyn Fn() -> Instant,
    ) -> bool {
        let start = clock();
        let is_plain = self.is_known && self.error.is_none() && !self.files().any(|f| f.is_link);
        is_plain
            && paths.iter().all(|path| self.look_at_one(dir, path.as_ref(), start, clock).is_some())
    }

    fn look_at_one(
        &mut self,
        dir: &Path,
        path: &Path,
        start: Instant,
        clock: &dyn Fn() -> Instant,
    ) -> Option<()> {
        let path = path.strip_prefix(dir).ok()?;
        if path.iter().any(|part| is_passed_over(part.as_encoded_bytes())) {
            return Some(());
        }
        let whole = dir.join(path);
        let stamp = stamp_of_file(&whole)?;
        let Some(name) = path.to_str()?.strip_suffix(SUFFIX) else { return Some(()) };
        let name = name.replace(std::path::MAIN_SEPARATOR, "/");
        let files = &mut self.folders.get_mut(whole.parent()?)?.files;
        let index = files.binary_search_by(|file| file.name().cmp(&name)).ok()?;
        let file = &mut files[index];
        let news = file.sighting.update(Some(stamp), start, clock);
        file.is_stale |= news != News::Same;
        self.is_changed |= news == News::Changed;
        Some(())
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        self.folders.values().flat_map(|folder| &folder.files)
    }

    pub(crate) fn files_mut(&mut self) -> impl Iterator<Item = &mut File> {
        self.folders.values_mut().flat_map(|folder| &mut folder.files)
    }

    /// Returns the files whose names are no text.
    pub(crate) fn unnamed(&self) -> impl Iterator<Item = &PathBuf> {
        self.folders.values().flat_map(|folder| &folder.unnamed)
    }
}

impl Folder {
    fn new(now: Instant) -> Self {
        let sighting = Sighting::none(now);
        Self { sighting, inner: Vec::new(), files: Vec::new(), unnamed: Vec::new() }
    }

    /// Lists the folder; returns whether files came or went. What is known of the others is kept.
    fn list(&mut self, path: &Path, prefix: Option<&str>, now: Instant) -> io::Result<bool> {
        let (mut inner, mut found, mut unnamed) = (Vec::new(), Vec::new(), Vec::new());
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let name = entry.file_name();
            let bytes = name.as_encoded_bytes();
            if is_passed_over(bytes) {
                continue;
            }
            let text = prefix.zip(name.to_str()).map(|(prefix, name)| format!("{prefix}{name}"));
            if kind.is_dir() {
                inner.push((entry.path(), text.map(|text| text + "/")));
            } else if bytes.ends_with(SUFFIX.as_bytes()) {
                match text {
                    Some(path) => found.push(File::new(path, kind.is_symlink(), now)),
                    None => unnamed.push(entry.path()),
                }
            }
        }
        inner.sort_unstable();
        unnamed.sort_unstable();
        found.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        let mut is_changed = unnamed != self.unnamed;
        let mut old = mem::take(&mut self.files).into_iter().peekable();
        for file in &mut found {
            while old.next_if(|old| old.name() < file.name()).is_some() {
                is_changed = true;
            }
            match old.next_if(|old| old.path == file.path && old.is_link == file.is_link) {
                Some(old) => *file = old,
                None => is_changed = true,
            }
        }
        is_changed |= old.next().is_some();
        (self.inner, self.files, self.unnamed) = (inner, found, unnamed);
        Ok(is_changed)
    }
}

impl File {
    fn new(path: String, is_link: bool, now: Instant) -> Self {
        let sighting = Sighting::none(now);
        let name_in_folder = handle::name(path.rsplit('/').next().unwrap_or(&path));
        Self {
            path,
            name_in_folder,
            is_link,
            sighting,
            is_stale: true,
            is_new: true,
            content: None,
        }
    }

    /// Returns the name of the template.
    pub(crate) fn name(&self) -> &str {
        self.path.strip_suffix(SUFFIX).unwrap_or(&self.path)
    }

    /// Returns the path in the folder of the store.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns whether it was read, and something was wrong.
    pub(crate) fn is_bad(&self) -> bool {
        matches!(self.content, Some(Err(_)))
    }
}

/// Returns whether a file or folder is hidden, or what an office program leaves beside a file it has open.
fn is_passed_over(name: &[u8]) -> bool {
    name.starts_with(b".") || name.starts_with(b"~$")
}

#[cfg(test)]
mod tests;
