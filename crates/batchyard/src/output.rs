//! What the program prints: results on stdout, everything else on stderr.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::exit::{Exit, Stop};

/// Where results and notes go. Cheap to clone; the clones share one stdout.
///
/// A reader that closes stdout early ends the printing, not the work: what follows is dropped
/// and the exit status stays that of the work. Any other failure to write is reported once, at
/// the end, and turns status 0 into 1.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    /// Whether stdout carries JSON Lines.
    pub(crate) json: bool,
    quiet: bool,
    verbose: bool,
    stdout: Arc<Mutex<Stdout>>,
}

#[derive(Debug)]
struct Stdout {
    writer: io::BufWriter<io::Stdout>,
    state: State,
}

#[derive(Debug)]
enum State {
    Open,
    Closed,
    Broken(io::Error),
}

impl Output {
    pub(crate) fn new(json: bool, quiet: bool, verbose: bool) -> Output {
        let stdout = Stdout { writer: io::BufWriter::new(io::stdout()), state: State::Open };
        Output { json, quiet, verbose, stdout: Arc::new(Mutex::new(stdout)) }
    }

    /// Prints one line of a result for people; control characters and line ends in it are escaped.
    pub(crate) fn human(&self, text: impl AsRef<str>) {
        let text = visible(text.as_ref());
        self.raw(if text.contains('\n') { text.replace('\n', "\\n") } else { text.into_owned() });
    }

    /// Prints one line of a result as it is: for records that programs read.
    pub(crate) fn raw(&self, text: impl AsRef<[u8]>) {
        let mut stdout = self.lock();
        stdout.put(text.as_ref());
        stdout.put(b"\n");
    }

    /// Prints text as it is, without a line end of its own.
    pub(crate) fn text(&self, text: &str) {
        self.lock().put(text.as_bytes());
    }

    /// Prints one JSON object in one line.
    pub(crate) fn object(&self, value: &impl Serialize) {
        let text = serde_json::to_vec(value).expect("the shapes that are printed have string keys");
        self.raw(text);
    }

    /// Says something on stderr, unless `--quiet` was given.
    pub(crate) fn note(&self, text: impl AsRef<str>) {
        if !self.quiet {
            complain(text);
        }
    }

    /// Says something on stderr if `--verbose` was given.
    pub(crate) fn detail(&self, text: impl AsRef<str>) {
        if self.verbose {
            complain(text);
        }
    }

    /// Returns whether progress may be drawn: stderr is a terminal and nobody asked for quiet.
    pub(crate) fn draws_progress(&self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    /// Flushes stdout, and returns the final status.
    pub(crate) fn finish(&self, exit: Exit) -> Exit {
        let mut stdout = self.lock();
        stdout.flush();
        let State::Broken(error) = &stdout.state else { return exit };
        complain(Stop::failed(format_args!("cannot write to stdout: {error}")).to_string());
        exit.max(Exit::SomeFailed)
    }

    /// Flushes stdout and leaves everything else as it is; for the way out on a signal.
    pub(crate) fn flush(&self) {
        if let Ok(mut stdout) = self.stdout.try_lock() {
            stdout.flush();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stdout> {
        self.stdout.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stdout {
    fn put(&mut self, bytes: &[u8]) {
        if matches!(self.state, State::Open) {
            let written = self.writer.write_all(bytes);
            self.note(written);
        }
    }

    fn flush(&mut self) {
        if matches!(self.state, State::Open) {
            let flushed = self.writer.flush();
            self.note(flushed);
        }
    }

    fn note(&mut self, result: io::Result<()>) {
        match result {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.state = State::Closed,
            Err(error) => self.state = State::Broken(error),
        }
    }
}

/// Says something on stderr, whatever the flags. A closed stderr is nobody's fault here.
pub(crate) fn complain(text: impl AsRef<str>) {
    let mut line = visible(text.as_ref()).into_owned();
    line.push('\n');
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Escapes control characters, but line ends and tabs: text of others must not drive a terminal.
fn visible(text: &str) -> Cow<'_, str> {
    let is_safe = |c: char| !c.is_control() || c == '\n' || c == '\t';
    if text.chars().all(is_safe) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_safe(c) { shown.push(c) } else { shown.extend(c.escape_default()) }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_not_sent() {
        assert_eq!(visible("a\u{1b}[31m\tb\n"), "a\\u{1b}[31m\tb\n");
        assert!(matches!(visible("größe"), Cow::Borrowed("größe")));
    }
}
