//! One run of the command, from its start to the end of all that it started.

use std::collections::VecDeque;
use std::io::{self, PipeReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::{Gate, Scratch, processes};
use crate::program::Running;
use crate::publish::scrub;

/// How much of the end of the output is kept.
const KEPT: usize = 4 << 10;

/// How long the output may stay open when the process group is gone: who has left the group can hold
/// it open for ever.
const GRACE: Duration = Duration::from_millis(500);

/// How often it is looked whether the run is to end.
const LOOK: Duration = Duration::from_millis(100);

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ran {
    Passed,
    Failed {
        /// What it was, with the end of the output.
        why: String,
        /// Whether another run would say the same.
        is_lasting: bool,
    },
}

/// Runs the command in a folder of its own and waits for its end.
///
/// # Errors
/// It could not be started.
pub(crate) fn run(gate: &Gate, scratch: &Scratch) -> io::Result<Ran> {
    let (reader, writer) = io::pipe()?;
    let mut command = command(gate, &scratch.tree());
    command.env(processes::VARIABLE, scratch.mark());
    command.stdout(writer.try_clone()?).stderr(writer);
    let (mut child, running) = match Running::spawn(&mut command, Signal::KILL) {
        Err(error) if is_missing(gate, &scratch.tree(), &error) => {
            let command = scrub::line(gate.to_string().as_bytes());
            let why = format!("the gate `{command}` cannot be run on the merged tree: {error}");
            // A tree with other files is another tree.
            return Ok(Ran::Failed { why, is_lasting: true });
        }
        spawned => spawned?,
    };
    // It holds the writing end of the pipe.
    drop(command);
    let kept = Arc::new(Mutex::new(VecDeque::new()));
    let (output_end, output) = mpsc::channel::<()>();
    let keeping = Arc::clone(&kept);
    let reading = spawn("gate-output", move || {
        keep_last(reader, &keeping);
        drop(output_end);
    });
    let ended = reading.and_then(|()| wait(&child, gate));
    // Not waited for yet, so the number of the group cannot be another's.
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    drop(running);
    let status = child.wait()?;
    // Either all has been read, or somebody holds it open: what was printed is there in both cases.
    let _ = output.recv_timeout(GRACE);
    let printed: Vec<u8> = kept.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect();
    Ok(verdict(gate, ended?, status, &printed))
}

/// Whether the fault is that of the tree: the program is one of its files, and is not there or cannot be
/// run.
fn is_missing(gate: &Gate, tree: &Path, error: &io::Error) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let program = Path::new(&gate.argv[0]);
    if !has_folder(gate) || program.is_absolute() {
        return false;
    }
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::NOEXEC | Errno::LOOP) => true,
        // Where nothing may be run in the folder for the trees, it is no fault of one of them.
        Some(Errno::ACCESS) => std::fs::metadata(tree.join(program))
            .is_ok_and(|data| !data.is_file() || data.permissions().mode() & 0o111 == 0),
        _ => false,
    }
}

/// Whether the program is named with its folder.
fn has_folder(gate: &Gate) -> bool {
    Path::new(&gate.argv[0]).components().count() > 1
        || gate.argv[0].as_encoded_bytes().contains(&b'/')
}

fn command(gate: &Gate, tree: &Path) -> Command {
    let program = Path::new(&gate.argv[0]);
    let mut command =
        if has_folder(gate) { Command::new(tree.join(program)) } else { Command::new(program) };
    for (name, _) in std::env::vars_os() {
        if !gate.sees(&name) {
            command.env_remove(name);
        }
    }
    {
        use std::os::unix::process::CommandExt;
        command.process_group(0);
    }
    command
        // A git that it runs must not find a repository around the tree.
        .env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree))
        .args(&gate.argv[1..])
        .current_dir(tree)
        .stdin(Stdio::null());
    command
}

/// Waits until the process has ended, but does not take its status; false if time was up before.
fn wait(child: &Child, gate: &Gate) -> io::Result<bool> {
    let Some(pid) = Pid::from_raw(child.id().cast_signed()) else { return Ok(true) };
    let (sender, ended) = mpsc::channel();
    spawn("gate-wait", move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(pid), options), Err(Errno::INTR)) {}
        // Nobody may listen any more.
        let _ = sender.send(());
    })?;
    let started = Instant::now();
    loop {
        let left = gate.time_limit.map(|limit| limit.saturating_sub(started.elapsed()));
        if left == Some(Duration::ZERO) {
            return Ok(false);
        }
        let pause = left.map_or(LOOK, |left| left.min(LOOK));
        if ended.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return Ok(true);
        }
        if gate.is_stopped() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "it was stopped"));
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// Reads to the end, so that the command is never held up, and keeps the last of it: some more than is
/// shown, so that a secret is known as one that the cut goes through.
fn keep_last(mut reader: PipeReader, kept: &Mutex<VecDeque<u8>>) {
    let mut buffer = [0; 8 << 10];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend(&buffer[..count]);
                let too_many = kept.len().saturating_sub(2 * KEPT);
                kept.drain(..too_many);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// The end of what was printed, from the beginning of a line on where there is one.
fn last_of(printed: &str) -> &str {
    let from = printed.len().saturating_sub(KEPT);
    if from == 0 {
        return printed;
    }
    let from = printed.ceil_char_boundary(from);
    let end = &printed[from..];
    end.find('\n').map_or(end, |line| &end[line + 1..])
}

fn verdict(gate: &Gate, has_ended: bool, status: ExitStatus, printed: &[u8]) -> Ran {
    if has_ended && status.success() {
        return Ran::Passed;
    }
    let how = match (has_ended, gate.time_limit, status.code()) {
        (false, Some(limit), _) => format!("was still running after {limit:?} and was ended"),
        (_, _, Some(code)) => format!("ended with status {code}"),
        (_, _, None) => format!("was ended by a signal ({status})"),
    };
    let command = scrub::line(gate.to_string().as_bytes());
    let mut why = format!("the gate `{command}` {how} on the merged tree");
    let printed = scrub::text(printed);
    let printed = last_of(&printed).trim();
    if !printed.is_empty() {
        why.push_str(": ");
        why.push_str(printed);
    }
    // By these a shell says that it could not run something: that may be there the next time.
    let is_verdict = |code| code != 126 && code != 127;
    Ran::Failed { why, is_lasting: has_ended && status.code().is_some_and(is_verdict) }
}
