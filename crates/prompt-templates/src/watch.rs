#[cfg(feature = "watch")]
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::{Error, ErrorKind, LoadError, Prompts, Reload};

/// A thread that reloads the folder of a store when it changes. Dropping it ends the thread.
///
/// ```
/// use std::time::Duration;
/// use prompt_templates::Prompts;
///
/// # let dir = tempfile::tempdir()?;
/// # let file = dir.path().join("greet.prompt.md");
/// # std::fs::write(&file, "Hi")?;
/// let prompts = Prompts::load_dir(dir.path())?;
/// let (tell, told) = std::sync::mpsc::channel();
/// let watch = prompts.watch(Duration::from_millis(20), move |outcome| {
///     let _ = tell.send(outcome.is_ok());
/// })?;
/// std::fs::write(&file, "Hello")?;
/// assert!(told.recv()?);
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

/// Why the thread wakes before its time.
#[derive(Debug)]
enum Wake {
    /// These files may have changed.
    #[cfg(feature = "watch")]
    Changed(Vec<PathBuf>),
    /// The system has missed something.
    #[cfg(feature = "watch")]
    Missed,
    Stop,
}

/// Where the thread is to look.
enum Look {
    All,
    #[cfg(feature = "watch")]
    Files(Vec<PathBuf>),
}

impl Prompts {
    /// Starts a thread that looks for changes of the folder every `interval` and reloads it; see
    /// [`reload_if_changed`](Self::reload_if_changed).
    ///
    /// With the feature `watch` the system wakes the thread when something changes, and `interval` is
    /// for what the system misses, such as network folders. `outcome` is called on the thread after
    /// each reload, also after one that failed and left everything as it was; it should not block, and it
    /// may drop the watch. A bad folder is told once, and again when something in it has changed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the store has no folder, or no thread or watch can be had.
    pub fn watch(
        &self,
        interval: Duration,
        mut outcome: impl FnMut(Result<Reload, LoadError>) + Send + 'static,
    ) -> Result<Watch, Error> {
        let Some(dir) = &self.dir else {
            return Err(Error::new(ErrorKind::Io, "the store has no folder to watch"));
        };
        let (wake, woken) = channel();
        #[cfg(feature = "watch")]
        let system = system_watch(&dir.path, wake.clone())?;
        let cannot = |error: std::io::Error| {
            let message = format!("cannot start a thread to watch the folder: {error}");
            Error::new(ErrorKind::Io, message).path(Some(&dir.path))
        };
        let prompts = self.clone();
        let run = move || {
            while let Some(look) = next(&woken, interval) {
                let reload = match look {
                    Look::All => prompts.reload_if_changed(),
                    #[cfg(feature = "watch")]
                    Look::Files(files) => prompts.reload_files(&files),
                };
                if let Some(reload) = reload.transpose() {
                    outcome(reload);
                }
            }
        };
        let thread = thread::Builder::new().name("prompts-watch".to_owned()).spawn(run);
        Ok(Watch {
            #[cfg(feature = "watch")]
            _system: system,
            wake,
            thread: Some(thread.map_err(cannot)?),
        })
    }
}

impl Drop for Watch {
    /// Ends the thread, and waits for a reload that is under way, unless it is `outcome` that drops it.
    fn drop(&mut self) {
        let _ = self.wake.send(Wake::Stop);
        let is_other = |thread: &JoinHandle<()>| thread.thread().id() != thread::current().id();
        if let Some(thread) = self.thread.take().filter(is_other) {
            // A panic of the user's function has been reported by the thread.
            let _ = thread.join();
        }
    }
}

/// Waits for a change or for the interval; returns where to look, unless the watch has ended.
fn next(woken: &Receiver<Wake>, interval: Duration) -> Option<Look> {
    match woken.recv_timeout(interval) {
        Err(RecvTimeoutError::Timeout) => Some(Look::All),
        Err(RecvTimeoutError::Disconnected) | Ok(Wake::Stop) => None,
        // Changes come in bursts: whatever is there already is one look.
        #[cfg(feature = "watch")]
        Ok(first) => {
            let mut look = Look::Files(Vec::new());
            for wake in std::iter::once(first).chain(woken.try_iter()) {
                match (wake, &mut look) {
                    (Wake::Stop, _) => return None,
                    (Wake::Changed(more), Look::Files(files)) => files.extend(more),
                    (Wake::Changed(_), Look::All) => {}
                    (Wake::Missed, _) => look = Look::All,
                }
            }
            Some(look)
        }
    }
}

/// Has the system wake the thread.
#[cfg(feature = "watch")]
fn system_watch(
    dir: &std::path::Path,
    wake: Sender<Wake>,
) -> Result<notify::RecommendedWatcher, Error> {
    use notify::{RecursiveMode, Watcher};

    let fail = |error: notify::Error| {
        Error::new(ErrorKind::Io, format!("cannot watch the folder: {error}")).path(Some(dir))
    };
    let tell = move |event: notify::Result<notify::Event>| {
        if let Some(news) = news(event) {
            let _ = wake.send(news);
        }
    };
    let mut watcher = notify::recommended_watcher(tell).map_err(fail)?;
    watcher.watch(dir, RecursiveMode::Recursive).map_err(fail)?;
    Ok(watcher)
}

/// Returns what there is to look at. That somebody opened or read a file is nothing: the thread does so
/// itself, and would wake itself without end.
#[cfg(feature = "watch")]
fn news(event: notify::Result<notify::Event>) -> Option<Wake> {
    use notify::EventKind;
    use notify::event::{AccessKind, AccessMode};

    let Ok(event) = event else { return Some(Wake::Missed) };
    let is_change = match event.kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        _ => true,
    };
    if event.need_rescan() || is_change && event.paths.is_empty() {
        return Some(Wake::Missed);
    }
    is_change.then_some(Wake::Changed(event.paths))
}

#[cfg(all(test, feature = "watch"))]
mod tests {
    use notify::event::{AccessKind, AccessMode, CreateKind, EventKind, Flag, ModifyKind};
    use notify::{Error, Event};

    use super::*;

    /// Opening the folder to look at it is an event as well: the watch would never rest.
    #[test]
    fn a_look_does_not_wake_the_watch_again() {
        let news = |kind| news(Ok(Event::new(kind).add_path("a".into())));
        let opened = AccessKind::Open(AccessMode::Any);
        let read = AccessKind::Close(AccessMode::Read);
        for kind in [opened, read, AccessKind::Read, AccessKind::Any] {
            assert!(news(EventKind::Access(kind)).is_none(), "{kind:?}");
        }
        let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
        let others = [EventKind::Create(CreateKind::Any), EventKind::Modify(ModifyKind::Any)];
        for kind in others.into_iter().chain([written, EventKind::Any]) {
            assert!(
                matches!(news(kind), Some(Wake::Changed(paths)) if paths.len() == 1),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn what_the_system_missed_is_looked_for_in_the_whole_folder() {
        let missed = Event::new(EventKind::Other).add_path("a".into()).set_flag(Flag::Rescan);
        let nowhere = Event::new(EventKind::Modify(ModifyKind::Any));
        for event in [Ok(missed), Ok(nowhere), Err(Error::generic("overflow"))] {
            assert!(matches!(news(event), Some(Wake::Missed)));
        }
    }
}
