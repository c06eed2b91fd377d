//! One child process from start to end: output with limits, and an end when time is up.
//!
//! The end of a run is the end of standard output, not of both streams: a process left behind by
//! git (an SSH connection that is kept open for the next call, a daemon started by a hook) can
//! hold standard error open for hours.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[cfg(unix)]
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::{GitError, Output, Running};

/// How long standard error may stay open after standard output has ended.
const STDERR_GRACE: Duration = Duration::from_millis(500);
/// How often it is looked whether somebody still needs the output.
const LOOK: Duration = Duration::from_millis(50);
/// How often it is looked whether the child was stopped.
#[cfg(unix)]
const LOOK_STOPPED: Duration = Duration::from_millis(250);
#[cfg(not(unix))]
const LOOK_STOPPED: Duration = Duration::MAX;
/// How long git has to remove its lock files after it was asked to end.
#[cfg(unix)]
const TERM_GRACE: Duration = Duration::from_secs(2);

pub(super) struct Limits {
    pub(super) time: Option<Duration>,
    pub(super) stdout: usize,
    pub(super) stderr: usize,
    /// Somebody who does not need the output any more.
    pub(super) stop: Option<Arc<AtomicBool>>,
}

impl Limits {
    /// Waits for the end of standard output, until time is up, nobody needs it or the child is stopped.
    fn wait(
        &self,
        child: &Child,
        stdout_end: &mpsc::Receiver<End>,
        started: Instant,
    ) -> Result<End, RecvTimeoutError> {
        loop {
            let left = self.time.map(|limit| limit.saturating_sub(started.elapsed()));
            let look = self.stop.as_ref().map_or(LOOK_STOPPED, |_| LOOK);
            let pause = left.map_or(look, |left| left.min(look));
            let end = stdout_end.recv_timeout(pause);
            let is_over = left == Some(pause)
                || self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::SeqCst));
            if is_over || !matches!(end, Err(RecvTimeoutError::Timeout)) {
                return end;
            }
            if is_stopped(child) {
                return Ok(End::Stopped);
            }
        }
    }
}

/// How the reading of standard output ended.
enum End {
    Complete,
    TooMuch,
    Failed(io::Error),
    /// The child was stopped, and would be for ever.
    Stopped,
}

/// Says whether the system has stopped the child: it is in the background of a terminal, and it or one of
/// its group asked for something there.
#[cfg(unix)]
fn is_stopped(child: &Child) -> bool {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let asks = [Signal::TTIN, Signal::TTOU].map(|signal| Some(signal.as_raw()));
    Pid::from_raw(child.id().cast_signed())
        .and_then(|pid| waitid(WaitId::Pid(pid), options).ok().flatten())
        .is_some_and(|status| asks.contains(&status.stopping_signal()))
}

#[cfg(not(unix))]
fn is_stopped(_: &Child) -> bool {
    false
}

pub(super) fn run(
    mut command: Command,
    stdin: Option<Vec<u8>>,
    limits: &Limits,
) -> Result<Output, GitError> {
    let program = command.get_program().to_owned();
    if stdin.is_some() {
        command.stdin(Stdio::piped());
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt;
        // Ctrl-C at a terminal is for whoever waits for git, and not for git.
        command.process_group(0);
    }
    let started = Instant::now();
    let (mut child, running) = Running::spawn(&mut command, Signal::TERM)
        .map_err(|source| GitError::Spawn { program: program.clone(), source })?;

    let streams = match Streams::open(&mut child, stdin, limits) {
        Ok(streams) => streams,
        Err(source) => {
            drop(running);
            end_by_force(&mut child);
            return Err(GitError::Read { program, source });
        }
    };
    let failure = match limits.wait(&child, &streams.stdout_end, started) {
        Ok(End::Complete) => return streams.collect(child, running, program),
        Ok(End::Stopped) => GitError::Stopped { program },
        Ok(End::TooMuch) => GitError::TooMuchOutput { program, limit: limits.stdout },
        Ok(End::Failed(source)) => GitError::Read { program, source },
        Err(RecvTimeoutError::Timeout) => {
            GitError::TimedOut { program, limit: limits.time.unwrap_or_default() }
        }
        Err(RecvTimeoutError::Disconnected) => {
            GitError::Read { program, source: io::ErrorKind::BrokenPipe.into() }
        }
    };
    drop(running);
    stop(child, &streams.stdout_end);
    Err(failure)
}

/// The three streams of a child, each served by a thread of its own, so that none can block
/// another. A thread ends with its stream.
struct Streams {
    stdout: Kept,
    stdout_end: mpsc::Receiver<End>,
    stderr: Kept,
    stderr_end: mpsc::Receiver<End>,
}

impl Streams {
    fn open(child: &mut Child, stdin: Option<Vec<u8>>, limits: &Limits) -> io::Result<Streams> {
        if let (Some(bytes), Some(mut pipe)) = (stdin, child.stdin.take()) {
            // A child that ends early breaks the pipe; its status says why.
            thread("git-stdin", move || drop(pipe.write_all(&bytes)))?;
        }
        let pipes = child.stdout.take().zip(child.stderr.take());
        let (out, err) = pipes.expect("both were asked for as pipes");
        let (stdout, stderr) = (Kept::default(), Kept::default());
        let (stdout_end, stderr_end) = (
            read_to_limit(out, limits.stdout, stdout.clone())?,
            read_and_drop_rest(err, limits.stderr, stderr.clone())?,
        );
        Ok(Streams { stdout, stdout_end, stderr, stderr_end })
    }

    fn collect(
        self,
        mut child: Child,
        running: Running,
        program: OsString,
    ) -> Result<Output, GitError> {
        drop(running);
        let status = child.wait().map_err(|source| GitError::Read { program, source })?;
        // Either it ended, or somebody else holds it: what git wrote is there in both cases.
        let _ = self.stderr_end.recv_timeout(STDERR_GRACE);
        Ok(Output { code: status.code(), stdout: self.stdout.take(), stderr: self.stderr.take() })
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// Ends the child and its process group, such as an SSH connection of its: first by asking, so that it
/// removes its lock files, then by force.
///
/// It has not been waited for yet, so its process id cannot be another's.
fn stop(mut child: Child, stdout_end: &mpsc::Receiver<End>) {
    #[cfg(unix)]
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        let asked = kill_process_group(group, Signal::TERM);
        // What is stopped hears of it only then.
        let _ = kill_process_group(group, Signal::CONT);
        if asked.is_ok() {
            let _ = stdout_end.recv_timeout(TERM_GRACE);
        }
        let _ = kill_process_group(group, Signal::KILL);
    }
    #[cfg(not(unix))]
    let _ = stdout_end;
    end_by_force(&mut child);
}

fn end_by_force(child: &mut Child) {
    // Both fail only if the child has ended already.
    let _ = child.kill();
    let _ = child.wait();
}

/// Bytes that are there for the taking even if their stream never ends.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        // A panic between two whole appends leaves whole bytes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.lock())
    }
}

fn read_to_limit(
    stream: impl Read + Send + 'static,
    max: usize,
    kept: Kept,
) -> io::Result<mpsc::Receiver<End>> {
    spawn_reader("git-stdout", stream, move |bytes| {
        let mut kept = kept.lock();
        let fits = bytes.len() <= max - kept.len();
        if fits {
            kept.extend_from_slice(bytes);
        }
        fits
    })
}

fn read_and_drop_rest(
    stream: impl Read + Send + 'static,
    max: usize,
    kept: Kept,
) -> io::Result<mpsc::Receiver<End>> {
    spawn_reader("git-stderr", stream, move |bytes| {
        let mut kept = kept.lock();
        let room = (max - kept.len()).min(bytes.len());
        kept.extend_from_slice(&bytes[..room]);
        true
    })
}

/// Reads `stream` to its end on a thread of its own, or until `keep` says that it is too much.
fn spawn_reader(
    name: &str,
    mut stream: impl Read + Send + 'static,
    mut keep: impl FnMut(&[u8]) -> bool + Send + 'static,
) -> io::Result<mpsc::Receiver<End>> {
    let (report, end) = mpsc::channel();
    thread(name, move || {
        let mut buffer = vec![0; 64 << 10];
        let how = loop {
            match stream.read(&mut buffer) {
                Ok(0) => break End::Complete,
                Ok(len) if keep(&buffer[..len]) => {}
                Ok(_) => break End::TooMuch,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break End::Failed(error),
            }
        };
        drop(stream);
        // Nobody listens any more if time was up.
        let _ = report.send(how);
    })?;
    Ok(end)
}
