//! The process groups of the programs at work, for a process that has to end at once.

use std::collections::BTreeMap;
use std::io;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

static GROUPS: Mutex<Groups> = Mutex::new(Groups { running: BTreeMap::new(), is_ending: false });

struct Groups {
    /// How each is ended at once.
    running: BTreeMap<i32, Signal>,
    /// Nothing is started any more.
    is_ending: bool,
}

/// A child that leads a process group of its own, until this is dropped: that has to be before it is
/// waited for, as its number can be another's from then on.
#[derive(Debug)]
pub(crate) struct Running(i32);

impl Running {
    /// Starts a command that leads a group, unless all are ended by now. None is started that is not
    /// known: whoever ends all waits for the start.
    ///
    /// `end` is how it ends at once: git cleans up its lock files where it is asked to.
    pub(crate) fn spawn(command: &mut Command, end: Signal) -> io::Result<(Child, Running)> {
        let mut groups = groups();
        if groups.is_ending {
            return Err(io::Error::other("this process is about to end"));
        }
        let child = command.spawn()?;
        let group = child.id().cast_signed();
        groups.running.insert(group, end);
        Ok((child, Running(group)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        groups().running.remove(&self.0);
    }
}

/// Ends all programs that this crate has started in this process and has not seen the end of, with what
/// they have started in turn: git and its connections, and gates.
///
/// They are in process groups of their own, so that Ctrl-C at a terminal reaches the caller alone and a
/// push in progress comes to its end. A caller that ends without waiting for that calls this first; no
/// other program is started from then on. What had begun is finished or taken back by who writes to the
/// repository next, as after a crash. Does not block; calls that wait for such a program return with an
/// error soon after.
pub fn end_all() {
    let mut groups = groups();
    groups.is_ending = true;
    for (&group, &end) in &groups.running {
        // It fails only for a group that has ended by itself.
        let _ = Pid::from_raw(group).map(|group| kill_process_group(group, end));
    }
}

fn groups() -> MutexGuard<'static, Groups> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}
