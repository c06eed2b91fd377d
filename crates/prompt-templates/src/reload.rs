//! The folder of a store, and how it is read again.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::folder::{Tree, Trust};
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
    tree: Mutex<Tree>,
}

impl Dir {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), tree: Mutex::default() }
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
        let (dir, mut tree) = self.lock_dir()?;
        tree.look(&dir.path, Trust::Nothing, &Instant::now);
        self.read(dir, &mut tree);
        // Whatever calls have made of the templates.
        tree.is_regrouped = true;
        self.load(&mut tree)
    }

    /// Reads the folder again if a file has another time or length than when it was last read, or came,
    /// or went; returns `None` if none has. Blocks on asking for these, and on reading if one has.
    ///
    /// Each file is asked for its times, length and number; only those that have changed are read. A
    /// folder is listed only if its own times or number have changed, on Unix. What changed within the
    /// last 100 ms, or 3 s where the file system counts whole seconds, is listed and read again at each
    /// call, and once after that: two changes within one tick of a clock look like one. A folder that
    /// could not be loaded is not read again before something in it changes.
    ///
    /// It is assumed that the clock of the file system ticks within these times and is not set back, and
    /// that what comes, goes or gets another name changes the time of its folder. Where that does not
    /// hold, as on some network and user-space file systems, [`reload`](Self::reload) lists every
    /// folder and reads every file.
    ///
    /// # Errors
    ///
    /// As for [`reload`](Self::reload).
    pub fn reload_if_changed(&self) -> Result<Option<Reload>, LoadError> {
        let (dir, mut tree) = self.lock_dir()?;
        tree.look(&dir.path, Trust::Stamps, &Instant::now);
        self.load_changes(dir, &mut tree)
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
        let (dir, mut tree) = self.lock_dir()?;
        if !tree.look_at(&dir.path, files, &Instant::now) {
            tree.look(&dir.path, Trust::Stamps, &Instant::now);
        }
        self.load_changes(dir, &mut tree)
    }

    fn lock_dir(&self) -> Result<(&Dir, MutexGuard<'_, Tree>), Error> {
        let Some(dir) = &self.dir else {
            return Err(Error::new(ErrorKind::Io, "the store has no folder to load"));
        };
        Ok((dir, dir.tree.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Reads what a look has found to be stale, and publishes it if anything has changed.
    fn load_changes(&self, dir: &Dir, tree: &mut Tree) -> Result<Option<Reload>, LoadError> {
        self.read(dir, tree);
        if tree.is_changed { self.load(tree).map(Some) } else { Ok(None) }
    }

    /// Reads files that were looked at before: what changes meanwhile is found the next time.
    fn read(&self, dir: &Dir, tree: &mut Tree) {
        let Shared { dialect, events, .. } = &*self.shared;
        count(&events.compiles, crate::load::read(&dir.path, tree, dialect));
    }

    /// Publishes what has been read, if nothing is wrong with it.
    fn load(&self, tree: &mut Tree) -> Result<Reload, LoadError> {
        let events = &self.shared.events;
        // Whatever comes of it, it is told once.
        tree.is_changed = false;
        let errors = crate::load::errors(tree);
        let result =
            if errors.is_empty() { self.publish_files(tree) } else { Err(LoadError::new(errors)) };
        count(if result.is_ok() { &events.reloads } else { &events.reload_failures }, 1);
        let Applied { changed, removed, .. } = result?;
        tree.is_regrouped = false;
        let mut loaded = 0;
        for file in tree.files_mut() {
            file.is_new = false;
            loaded += 1;
        }
        Ok(Reload { loaded, changed, removed })
    }

    /// Publishes the files that are new, or all of them if others are concerned.
    fn publish_files(&self, tree: &Tree) -> Result<Applied, LoadError> {
        if !tree.is_regrouped {
            let new = crate::load::templates(tree, |file| file.is_new);
            let applied = self.publish(Change::Reload(new))?;
            if !applied.wants_all {
                return Ok(applied);
            }
        }
        self.publish(Change::Load(crate::load::templates(tree, |_| true)))
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
