use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
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
#[derive(Clone, Copy, Debug)]
enum Wake {
    #[cfg(feature = "watch")]
    Changed,
    Stop,
}

impl Prompts {
    /// Starts a thread that looks for changes of the folder every `interval` and reloads it; see
    /// [`reload_if_changed`](Self::reload_if_changed).
    ///
    /// With the feature `watch` the system wakes the thread when something changes, and `interval` is
    /// for what the system misses, such as network folders. `outcome` is called on the thread after
    /// each reload, also after one that failed and left everything as it was; it should not block.
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
            while goes_on(&woken, interval) {
                match prompts.reload_if_changed() {
                    Ok(None) => {}
                    Ok(Some(reload)) => outcome(Ok(reload)),
                    Err(errors) => outcome(Err(errors)),
                }
            }
        };
        let thread = std::thread::Builder::new().name("prompts-watch".to_owned()).spawn(run);
        Ok(Watch {
            #[cfg(feature = "watch")]
            _system: system,
            wake,
            thread: Some(thread.map_err(cannot)?),
        })
    }
}

impl Drop for Watch {
    /// Ends the thread, and waits for a reload that is under way.
    fn drop(&mut self) {
        let _ = self.wake.send(Wake::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic of the user's function has been reported by the thread.
            let _ = thread.join();
        }
    }
}

/// Waits for a change or for the interval; returns whether to look.
fn goes_on(woken: &Receiver<Wake>, interval: Duration) -> bool {
    match woken.recv_timeout(interval) {
        Err(RecvTimeoutError::Timeout) => true,
        Err(RecvTimeoutError::Disconnected) | Ok(Wake::Stop) => false,
        // Changes come in bursts: whatever is there already is one look.
        #[cfg(feature = "watch")]
        Ok(Wake::Changed) => woken.try_iter().all(|wake| matches!(wake, Wake::Changed)),
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
    // An error means that something was missed: worth a look as well.
    let tell = move |_: notify::Result<notify::Event>| {
        let _ = wake.send(Wake::Changed);
    };
    let mut watcher = notify::recommended_watcher(tell).map_err(fail)?;
    watcher.watch(dir, RecursiveMode::Recursive).map_err(fail)?;
    Ok(watcher)
}
