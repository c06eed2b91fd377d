//! The process groups of the programs at work, for a process that has to end at once.

use std::collections::BTreeSet;
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// A child that leads a process group of its own, until this is dropped: that has to be before it is
/// waited for, as its number can be another's from then on.
#[derive(Debug)]
pub(crate) struct Running(i32);

impl Running {
    pub(crate) fn of(leader: &Child) -> Running {
        let group = leader.id().cast_signed();
        groups().insert(group);
        Running(group)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        groups().remove(&self.0);
    }
}

/// Ends all programs that this crate has started in this process and has not seen the end of, with what
/// they have started in turn: git and its connections, and gates.
///
/// They are in process groups of their own, so that Ctrl-C at a terminal reaches the caller alone and a
/// push in progress comes to its end. A caller that ends without waiting for that calls this first. What
/// had begun is finished or taken back by who writes to the repository next, as after a crash. Does not
/// block; calls that wait for such a program return with an error soon after.
pub fn end_all() {
    for group in groups().iter().copied().filter_map(Pid::from_raw) {
        // It fails only for a group that has ended by itself.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

fn groups() -> MutexGuard<'static, BTreeSet<i32>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}
