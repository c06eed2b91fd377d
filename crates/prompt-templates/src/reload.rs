//! The folder of a store, and how it is read again.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::load::{Listing, Loaded};
use crate::publish::Shared;
use crate::set::{Applied, Change};
use crate::stats::count;
use crate::{Error, ErrorKind, LoadError, Prompts};

/// What a load of the folder did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reload {
    /// Templates in the folder.
    pub loaded: usize,
    /// Those that are new or have a new text; the others were not compiled again.
    pub changed: usize,
    /// Templates that are no longer there.
    pub removed: usize,
}

/// The folder of a store.
#[derive(Debug)]
pub(crate) struct Dir {
    pub(crate) path: PathBuf,
    /// Held from reading to publishing, so that no older state of the folder follows a newer one.
    seen: Mutex<Seen>,
}

/// What is known of the files of a folder.
#[derive(Debug, Default)]
struct Seen {
    /// The files when they were last read, whatever came of it.
    last: Option<Listing>,
    /// What was loaded last without a fault.
    loaded: Vec<Loaded>,
}

impl Dir {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), seen: Mutex::default() }
    }
}

impl Prompts {
    /// Reads the folder again, and publishes what has changed. Blocks on reading the files, and on
    /// another reload that is under way.
    ///
    /// It is all or nothing: if one file is bad, the templates stay what they were.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the folder and the files in it, also with templates compiled by
    /// call that include one of them; [`ErrorKind::Io`] if the store has no folder.
    pub fn reload(&self) -> Result<Reload, LoadError> {
        let (dir, mut seen) = self.lock_dir()?;
        let listing = crate::load::list(&dir.path);
        self.load(dir, &mut seen, listing, false)
    }

    /// Reads the folder again if a file has another time or length than when it was last read, or came,
    /// or went; returns `None` if none has. Blocks on asking for these, and on reading if one has.
    ///
    /// Only files that have changed are read. A folder that could not be loaded is not read again before
    /// something in it changes. A change that leaves time and length as they were is not seen;
    /// [`reload`](Self::reload) reads every file.
    ///
    /// # Errors
    ///
    /// As for [`reload`](Self::reload).
    pub fn reload_if_changed(&self) -> Result<Option<Reload>, LoadError> {
        let (dir, mut seen) = self.lock_dir()?;
        let listing = crate::load::list(&dir.path);
        if seen.last.as_ref().is_some_and(|last| last.is_same(&listing)) {
            return Ok(None);
        }
        self.load(dir, &mut seen, listing, true).map(Some)
    }

    /// Does what [`reload_if_changed`](Self::reload_if_changed) does, for who knows which files have changed:
    /// no others are asked. Paths are as in the folder that the store was made with.
    ///
    /// Files that came or went, folders, links, and paths that lead out of the folder are no less right:
    /// then all files are asked.
    ///
    /// ```
    /// use prompt_templates::{Context, Prompts};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let file = dir.path().join("greet.prompt.md");
    /// # std::fs::write(&file, "Hi")?;
    /// let prompts = Prompts::load_dir(dir.path())?;
    /// std::fs::write(&file, "Hello")?;
    /// assert_eq!(prompts.reload_files(&[&file])?.map(|reload| reload.changed), Some(1));
    /// assert_eq!(prompts.render("greet", &Context::new())?, "Hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`reload`](Self::reload).
    pub fn reload_files(&self, files: &[impl AsRef<Path>]) -> Result<Option<Reload>, LoadError> {
        let (dir, mut seen) = self.lock_dir()?;
        let changed = seen.last.as_ref().and_then(|last| last.look_at(&dir.path, files));
        let listing = match (changed, seen.last.take()) {
            (Some(changed), Some(last)) if changed.is_empty() => {
                seen.last = Some(last);
                return Ok(None);
            }
            (Some(changed), Some(last)) => last.with(changed),
            (_, last) => {
                let listing = crate::load::list(&dir.path);
                if last.is_some_and(|last| last.is_same(&listing)) {
                    seen.last = Some(listing);
                    return Ok(None);
                }
                listing
            }
        };
        self.load(dir, &mut seen, listing, true).map(Some)
    }

    fn lock_dir(&self) -> Result<(&Dir, MutexGuard<'_, Seen>), Error> {
        let Some(dir) = &self.dir else {
            return Err(Error::new(ErrorKind::Io, "the store has no folder to load"));
        };
        Ok((dir, dir.seen.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Loads the files of a listing that was made before they are read: what changes meanwhile is found
    /// the next time.
    fn load(
        &self,
        dir: &Dir,
        seen: &mut Seen,
        listing: Listing,
        trusts_stamps: bool,
    ) -> Result<Reload, LoadError> {
        let Shared { dialect, events, .. } = &*self.shared;
        let read = crate::load::read(&dir.path, &listing, dialect, &seen.loaded, trusts_stamps);
        seen.last = Some(listing);
        count(&events.compiles, read.compiled);
        let result = if read.errors.is_empty() {
            let all = read.templates.iter().map(|loaded| Arc::clone(&loaded.compiled));
            self.publish(Change::Load(all.collect()))
        } else {
            Err(LoadError::new(read.errors))
        };
        count(if result.is_ok() { &events.reloads } else { &events.reload_failures }, 1);
        if result.is_ok() {
            seen.loaded = read.templates;
        }
        let Applied { loaded, changed, removed, .. } = result?;
        Ok(Reload { loaded, changed, removed })
    }
}

/// Returns everything that is wrong with the templates of a folder, ordered by file.
///
/// An empty list means that [`Prompts::load_dir`] accepts the folder. For a store with functions of its
/// own there is [`Builder::check_dir`](crate::Builder::check_dir).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// std::fs::write(dir.path().join("a.prompt.md"), "{% if x %}")?;
/// std::fs::write(dir.path().join("b.prompt.md"), "{% include \"c\" %}")?;
/// let errors = prompt_templates::check_dir(dir.path());
/// assert_eq!(errors.len(), 2);
/// assert_eq!(errors[0].line(), Some(1));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn check_dir(dir: impl AsRef<Path>) -> Vec<Error> {
    Prompts::builder().check_dir(dir)
}
