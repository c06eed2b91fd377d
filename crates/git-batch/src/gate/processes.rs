//! Processes of a gate whose own process is gone.
//!
//! Each has in its environment which run it belongs to, so it is known whatever became of its parents,
//! and no other process is taken for it.

use std::ffi::OsStr;
#[cfg(target_os = "linux")]
use std::fs;

#[cfg(target_os = "linux")]
use rustix::process::{
    Pid, PidfdFlags, Signal, getpgid, kill_process_group, pidfd_open, pidfd_send_signal,
};

/// The variable that names the run.
pub(super) const VARIABLE: &str = "BATCHYARD_GATE";

/// How often it is looked for more: who starts a process can be faster than the look.
#[cfg(target_os = "linux")]
const MAX_LOOKS: usize = 10;

/// Ends all processes of a run, as far as the system shows what is in their environment.
#[cfg(target_os = "linux")]
pub(super) fn end(run: &OsStr) {
    let entry = [VARIABLE.as_bytes(), b"=", run.as_encoded_bytes()].concat();
    for _ in 0..MAX_LOOKS {
        let ids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = ids.filter_map(|found| found.file_name().to_str()?.parse::<i32>().ok());
        let mut ended = 0;
        for pid in ids.filter_map(Pid::from_raw) {
            ended += usize::from(end_one(pid, &entry));
        }
        if ended == 0 {
            return;
        }
    }
}

/// Elsewhere they run to their end.
#[cfg(not(target_os = "linux"))]
pub(super) fn end(_: &OsStr) {}

/// Ends a process with that entry in its environment, and the group that it leads.
#[cfg(target_os = "linux")]
fn end_one(pid: Pid, entry: &[u8]) -> bool {
    // What is read after this is about that one, or the signal reaches nobody.
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    let is_of_run = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()))
        .is_ok_and(|text| text.split(|byte| *byte == 0).any(|found| found == entry));
    if !is_of_run || pid == rustix::process::getpid() {
        return false;
    }
    if getpgid(Some(pid)) == Ok(pid) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    pidfd_send_signal(&handle, Signal::KILL).is_ok()
}
