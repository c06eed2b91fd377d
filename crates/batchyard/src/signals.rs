//! SIGINT and SIGTERM: the first ends the command in order, the second ends it at once.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use llm_batch::Stop;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::exit::{self, Exit};
use crate::output::{Output, complain};

/// What a signal does; shared by the command and the thread that watches for signals.
///
/// While a command only waits (for a provider, for stdin), a signal ends the process: all that
/// matters is on disk by then. While a command writes (refs, a push), the signal is noted, and
/// the command ends by itself when the write is over. The second signal ends the process and the
/// programs that it waits for; the third ends the process in the handler itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt {
    seen: Arc<AtomicBool>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Writes in progress.
    writes: usize,
    /// The command that goes on with the work, if there is something to go on with.
    resume: Option<String>,
    /// The work is done: what is left is to say so.
    is_finished: bool,
    /// Ends the wait for a provider; what was submitted goes on there.
    wait: Option<Stop>,
}

impl Interrupt {
    /// Starts to watch for signals.
    pub(crate) fn watch(output: &Output) -> io::Result<Interrupt> {
        let interrupt = Interrupt::default();
        let (mut wake, notify) = UnixStream::pair()?;
        let twice = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            let status = i32::from(Exit::Interrupted.code());
            signal_hook::flag::register_conditional_shutdown(signal, status, Arc::clone(&twice))?;
            signal_hook::flag::register(signal, Arc::clone(&interrupt.seen))?;
            signal_hook::low_level::pipe::register(signal, notify.try_clone()?)?;
        }
        let watcher = interrupt.clone();
        let output = output.clone();
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
        };
        let watch = move || {
            if wake.read_exact(&mut [0]).is_err() {
                return;
            }
            // On a thread of its own: nobody may be reading what it says.
            let (first, said) = (watcher.clone(), output.clone());
            if spawn("signal", Box::new(move || first.first(&said))).is_err() {
                watcher.first(&output);
            }
            if wake.read_exact(&mut [0]).is_ok() {
                twice.store(true, Ordering::SeqCst);
                git_batch::program::end_all();
                output.flush();
                std::process::exit(i32::from(Exit::Interrupted.code()));
            }
        };
        spawn("signals", Box::new(watch))?;
        Ok(interrupt)
    }

    /// Returns whether a signal came.
    pub(crate) fn seen(&self) -> bool {
        self.seen.load(Ordering::SeqCst)
    }

    /// Returns what a signal sets.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.seen)
    }

    /// Notes that the work is done and only has to be told: a signal changes nothing about it any more.
    pub(crate) fn finish(&self) {
        let mut state = self.lock();
        (state.resume, state.is_finished) = (None, true);
    }

    /// Returns whether a signal came before the work was done.
    pub(crate) fn has_cut_short(&self) -> bool {
        self.seen() && !self.lock().is_finished
    }

    /// Ends the command here if a signal came; for the places between two steps.
    pub(crate) fn check(&self) -> Result<(), exit::Stop> {
        if self.seen() { Err(exit::Stop::unfinished("stopped between two steps")) } else { Ok(()) }
    }

    /// Sets the command that goes on with the work after a signal.
    pub(crate) fn resume_with(&self, command: Option<String>) {
        self.lock().resume = command;
    }

    /// Runs a wait for a provider in such a way that a signal makes it save its state and end.
    pub(crate) fn stopping<T>(&self, wait: &Stop, run: impl FnOnce() -> T) -> T {
        self.lock().wait = Some(wait.clone());
        let result = self.shielded(run);
        self.lock().wait = None;
        result
    }

    /// Runs a write to its end even if a signal comes.
    pub(crate) fn shielded<T>(&self, write: impl FnOnce() -> T) -> T {
        self.lock().writes += 1;
        let result = write();
        self.lock().writes -= 1;
        result
    }

    /// Tells the user how to go on, once the work has stopped because of a signal.
    pub(crate) fn say_goodbye(&self) {
        goodbye(self.lock().resume.as_deref());
    }

    fn first(&self, output: &Output) {
        let state = self.lock();
        if let Some(wait) = &state.wait {
            complain("interrupted: saving the state; a second signal ends at once");
            wait.stop();
            return;
        }
        if state.writes > 0 {
            complain("interrupted: ending the write in progress; a second signal ends at once");
            return;
        }
        if state.is_finished {
            return;
        }
        output.flush();
        goodbye(state.resume.as_deref());
        std::process::exit(i32::from(Exit::Interrupted.code()));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn goodbye(resume: Option<&str>) {
    match resume {
        Some(command) => complain(format!("interrupted; to go on, run again: {command}")),
        None => complain("interrupted"),
    }
}
