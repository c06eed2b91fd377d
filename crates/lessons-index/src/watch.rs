use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::OpenError;
use crate::index::{LessonsIndex, Refresh};

/// Is a thread that refreshes an index when its file changes. Dropping it ends the thread.
///
/// ```
/// use std::io::Write;
/// use std::time::Duration;
/// use lessons_index::{LessonsIndex, Options};
///
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("lessons.jsonl");
/// let index = LessonsIndex::open(&path, Options::default())?;
/// let (tell, told) = std::sync::mpsc::channel();
/// let watch = index.watch(Duration::from_millis(20), move |refreshed| {
///     let _ = tell.send(refreshed.is_ok());
/// })?;
/// // As another program does.
/// std::fs::write(&path, "{\"id\":\"a\"}\n")?;
/// while index.snapshot().find("a").is_none() {
///     assert!(told.recv()?);
/// }
/// drop(watch);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping it ends the watch"]
pub struct Watch {
    #[cfg(feature = "watch")]
    _system: notify::RecommendedWatcher,
    wake: Sender<Wake>,
    thread: Option<JoinHandle<()>>,
}

/// Looks come no faster than this.
const LEAST_INTERVAL: Duration = Duration::from_millis(1);

/// Why the thread wakes before its time.
#[derive(Debug)]
enum Wake {
    /// The file may have changed.
    #[cfg(feature = "watch")]
    Changed,
    Stop,
}

impl LessonsIndex {
    /// Starts a thread that [refreshes](Self::refresh) this index every `interval`, so that readers
    /// see what other processes append without asking for it. Less than a millisecond counts as one.
    ///
    /// With the feature `watch` the system wakes the thread when the file changes, and `interval` is
    /// for what the system misses, such as changes on network folders: an event is a reason to look,
    /// and nothing depends on it. A look at a file that has not changed costs a look at its metadata.
    ///
    /// `outcome` is called on the thread after each refresh that changed something, and after one
    /// that failed and left the snapshot as it was: once, until the file can be read again or
    /// something else is wrong with it. It should not block, and it may drop the watch. What this
    /// index wrote itself is published by who wrote it, and told to nobody. The watch keeps the index.
    /// A panic in `outcome` ends the thread, and with it the watch
    /// ([`is_running`](Watch::is_running)).
    ///
    /// # Errors
    ///
    /// Returns [`OpenError::Watch`] if no thread or no watch can be had.
    pub fn watch(
        &self,
        interval: Duration,
        mut outcome: impl FnMut(Result<Refresh, OpenError>) + Send + 'static,
    ) -> Result<Watch, OpenError> {
        let (wake, woken) = channel();
        let cannot = |source| OpenError::Watch { path: self.path().to_owned(), source };
        #[cfg(feature = "watch")]
        let system = system::watch(self.path(), wake.clone()).map_err(cannot)?;
        let (index, interval) = (self.clone(), interval.max(LEAST_INTERVAL));
        let run = move || {
            let mut told = None;
            while is_time(&woken, interval) {
                let refreshed = index.refresh();
                let error = refreshed.as_ref().err().map(ToString::to_string);
                let is_news = match &refreshed {
                    Ok(found) => *found != Refresh::Unchanged,
                    Err(_) => error != told,
                };
                told = error;
                if is_news {
                    outcome(refreshed);
                }
            }
        };
        let thread = thread::Builder::new().name("lessons-watch".to_owned()).spawn(run);
        Ok(Watch {
            #[cfg(feature = "watch")]
            _system: system,
            wake,
            thread: Some(thread.map_err(cannot)?),
        })
    }
}

impl Watch {
    /// Returns whether the index is still refreshed: until `outcome` panics. Never waits.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Watch {
    /// Ends the thread, and waits for a refresh that is under way, unless it is `outcome` that drops it.
    fn drop(&mut self) {
        let _ = self.wake.send(Wake::Stop);
        let is_other = |thread: &JoinHandle<()>| thread.thread().id() != thread::current().id();
        if let Some(thread) = self.thread.take().filter(is_other) {
            // A panic of the user's function has been reported by the thread.
            let _ = thread.join();
        }
    }
}

/// Waits for a change or for the interval; returns whether the watch goes on.
fn is_time(woken: &Receiver<Wake>, interval: Duration) -> bool {
    match woken.recv_timeout(interval) {
        Err(RecvTimeoutError::Timeout) => true,
        Err(RecvTimeoutError::Disconnected) | Ok(Wake::Stop) => false,
        // Changes come in bursts: whatever is there already is one look.
        #[cfg(feature = "watch")]
        Ok(Wake::Changed) => !woken.try_iter().any(|wake| matches!(wake, Wake::Stop)),
    }
}

#[cfg(feature = "watch")]
mod system {
    use std::ffi::OsString;
    use std::io;
    use std::path::Path;
    use std::sync::mpsc::Sender;

    use notify::event::{AccessKind, AccessMode, EventKind};
    use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};

    use super::Wake;
    use crate::path::{folder_of, target_of};

    /// Has the system wake the thread. The folder is watched, because the file may be replaced, or
    /// may not be there yet.
    pub(super) fn watch(path: &Path, wake: Sender<Wake>) -> io::Result<RecommendedWatcher> {
        let target = target_of(path);
        let names: Vec<OsString> =
            [path, &target].into_iter().filter_map(Path::file_name).map(Into::into).collect();
        let tell = move |event: notify::Result<Event>| {
            if is_news(&event, &names) {
                let _ = wake.send(Wake::Changed);
            }
        };
        let mut watcher = notify::recommended_watcher(tell).map_err(io::Error::other)?;
        let mut folders = vec![folder_of(path), folder_of(&target)];
        folders.dedup();
        for folder in folders {
            watcher.watch(folder, RecursiveMode::NonRecursive).map_err(io::Error::other)?;
        }
        Ok(watcher)
    }

    /// Returns whether the file may have changed. That somebody opened or read it is nothing: the
    /// thread does so itself, and would wake itself without end.
    pub(super) fn is_news(event: &notify::Result<Event>, names: &[OsString]) -> bool {
        // The system has missed something.
        let Ok(event) = event else { return true };
        let is_change = match event.kind {
            EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
            _ => true,
        };
        let is_ours = |path: &std::path::PathBuf| {
            path.file_name().is_some_and(|found| names.iter().any(|name| name == found))
        };
        event.need_rescan()
            || is_change && (event.paths.is_empty() || event.paths.iter().any(is_ours))
    }
}

#[cfg(all(test, feature = "watch"))]
mod tests {
    use notify::event::{AccessKind, AccessMode, CreateKind, EventKind, Flag, ModifyKind};
    use notify::{Error, Event};

    use super::system::is_news;

    #[test]
    fn changes_of_the_file_are_news_and_looks_at_it_are_not() {
        let names = ["a.jsonl".into()];
        let of = |kind, path: &str| is_news(&Ok(Event::new(kind).add_path(path.into())), &names);
        let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
        let changes = [EventKind::Create(CreateKind::Any), EventKind::Modify(ModifyKind::Any)];
        for kind in changes.into_iter().chain([written, EventKind::Any]) {
            assert!(of(kind, "/x/a.jsonl"), "{kind:?}");
            // The lock is touched by each write, and so is what a compaction writes.
            assert!(!of(kind, "/x/a.jsonl.lock"), "{kind:?}");
        }
        let opened = AccessKind::Open(AccessMode::Any);
        for kind in [opened, AccessKind::Close(AccessMode::Read), AccessKind::Any] {
            assert!(!of(EventKind::Access(kind), "/x/a.jsonl"), "{kind:?}");
        }
        let missed = Event::new(EventKind::Other).add_path("b".into()).set_flag(Flag::Rescan);
        let nowhere = Event::new(EventKind::Modify(ModifyKind::Any));
        for event in [Ok(missed), Ok(nowhere), Err(Error::generic("overflow"))] {
            assert!(is_news(&event, &names));
        }
    }
}
