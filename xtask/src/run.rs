//! Running other programs.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;

use crate::Failure;
use crate::count::Counts;

/// Variables that cargo sets for the program it runs. Some build scripts ask to be run again when
/// one of them changes, so a cargo started with them would rebuild what one without them built.
const OF_CARGO_RUN: [&str; 6] = [
    "CARGO_BIN_NAME",
    "CARGO_CRATE_NAME",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_LINKS",
    "CARGO_MANIFEST_PATH",
    "CARGO_PRIMARY_PACKAGE",
];

/// Returns cargo, to be run at the root of the workspace as if from a shell there.
pub(crate) fn cargo<I: AsRef<OsStr>>(
    root: &Path,
    arguments: impl IntoIterator<Item = I>,
) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let known = name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || OF_CARGO_RUN.contains(&name));
        if known {
            command.env_remove(&name);
        }
    }
    command
}

/// Returns git, to be run at the root of the workspace, whatever repository the caller is in.
pub(crate) fn git<I: AsRef<OsStr>>(root: &Path, arguments: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(root).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("GIT_")) {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs the command with our own output.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|error| cannot_start(command, &error))?;
    if status.success() { Ok(()) } else { Err(failed(command, status)) }
}

/// Runs the command and returns what it writes to its standard output.
pub(crate) fn read(command: &mut Command) -> Result<Vec<u8>, Failure> {
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| cannot_start(command, &error))?;
    if output.status.success() { Ok(output.stdout) } else { Err(failed(command, output.status)) }
}

/// Runs a test command with our own output, and counts the tests it reports on either stream.
/// The counts are whole even if the command fails.
pub(crate) fn count(command: &mut Command, counts: &mut Counts) -> Result<(), Failure> {
    relayed(command, counts, std::io::stdout(), std::io::stderr())
}

fn relayed(
    command: &mut Command,
    counts: &mut Counts,
    our_out: impl Write + Send,
    our_err: impl Write,
) -> Result<(), Failure> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| cannot_start(command, &error))?;
    let total = Mutex::new(Counts::default());
    std::thread::scope(|scope| {
        if let Some(out) = child.stdout.take() {
            scope.spawn(|| relay(out, our_out, &total));
        }
        if let Some(err) = child.stderr.take() {
            relay(err, our_err, &total);
        }
    });
    let status = child.wait()?;
    *counts += total.into_inner().unwrap_or_default();
    if status.success() { Ok(()) } else { Err(failed(command, status)) }
}

/// Copies a stream line by line and adds up the counts in it. A closed output of ours ends the
/// copying, not the counting.
fn relay(from: impl Read, mut to: impl Write, total: &Mutex<Counts>) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let _ = to.write_all(&line).and_then(|()| to.flush());
        if let Some(counts) = Counts::of_line(&String::from_utf8_lossy(&line))
            && let Ok(mut total) = total.lock()
        {
            *total += counts;
        }
        line.clear();
    }
}

fn cannot_start(command: &Command, error: &std::io::Error) -> Failure {
    format!("cannot start `{}`: {error}", shown(command)).into()
}

fn failed(command: &Command, status: ExitStatus) -> Failure {
    format!("`{}` failed: {status}", shown(command)).into()
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["test", "--doc"]);
        assert_eq!(shown(&command), "cargo test --doc");
    }

    #[test]
    fn counts_are_kept_when_the_command_fails() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'test result: FAILED. 2 passed; 1 failed; 0 ignored'; exit 101"]);
        let (mut counts, mut out) = (Counts::default(), Vec::new());
        let failure = relayed(&mut command, &mut counts, &mut out, std::io::sink()).unwrap_err();
        assert!(out.starts_with(b"test result: FAILED."), "what the command prints is passed on");
        assert!(failure.to_string().contains("failed"), "{failure}");
        assert_eq!(counts, Counts { passed: 2, failed: 1 });
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let failure = run(&mut Command::new("no-such-program-here")).unwrap_err();
        assert!(failure.to_string().contains("`no-such-program-here`"), "{failure}");
    }
}
