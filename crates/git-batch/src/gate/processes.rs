//! Processes of a gate whose own process is gone.
//!
//! Each has in its environment which run it belongs to, so it is known whatever became of its parents,
//! and no other process is taken for it. One that has begun a session of its own (a server of builds, an
//! agent for keys) was set apart to serve others too, and stays, as it does when a gate ends by itself.

use std::ffi::OsStr;
#[cfg(target_os = "linux")]
use std::fs;

#[cfg(target_os = "linux")]
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// The variable that names the run.
pub(super) const VARIABLE: &str = "BATCHYARD_GATE";

/// How often it is looked for more: who starts a process can be faster than the look.
#[cfg(target_os = "linux")]
const MAX_LOOKS: usize = 10;

/// The session of this process, as it is written down for who may have to end what it starts.
pub(super) fn session() -> String {
    session_of("self").unwrap_or_default()
}

/// Ends all processes of a run that are still in the session that it began in, as far as the system shows
/// what is in their environment.
#[cfg(target_os = "linux")]
pub(super) fn end(run: &OsStr, session: &str) {
    let entry = [VARIABLE.as_bytes(), b"=", run.as_encoded_bytes()].concat();
    for _ in 0..MAX_LOOKS {
        let ids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = ids.filter_map(|found| found.file_name().to_str()?.parse::<i32>().ok());
        let mut ended = 0;
        for pid in ids.filter_map(Pid::from_raw) {
            ended += usize::from(end_one(pid, session, &entry));
        }
        if ended == 0 {
            return;
        }
    }
}

/// Elsewhere they run to their end.
#[cfg(not(target_os = "linux"))]
pub(super) fn end(_: &OsStr, _: &str) {}

/// Ends a process of that session with that entry in its environment.
#[cfg(target_os = "linux")]
fn end_one(pid: Pid, session: &str, entry: &[u8]) -> bool {
    // What is read after this is about that one, or the signal reaches nobody.
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    let id = pid.as_raw_nonzero().to_string();
    let is_of_run = session_of(&id).is_some_and(|found| found == session)
        && fs::read(format!("/proc/{id}/environ"))
            .is_ok_and(|text| text.split(|byte| *byte == 0).any(|found| found == entry));
    is_of_run && pid != getpid() && pidfd_send_signal(&handle, Signal::KILL).is_ok()
}

/// The number of a session; zero in a container whose processes were begun outside of it.
#[cfg(target_os = "linux")]
fn session_of(id: &str) -> Option<String> {
    let stat = fs::read(format!("/proc/{id}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // Behind the name, which may be anything: the state, the parent, the group, the session.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(3).map(str::to_owned)
}

#[cfg(not(target_os = "linux"))]
fn session_of(_: &str) -> Option<String> {
    None
}
