//! A whole file to drafts, in parts that are parsed side by side.

use std::io::{self, Read};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::draft::{Chunk, Draft, Entry, Place, narrow};
use crate::fault::Fault;
use crate::intake::{Intake, Lines};
use crate::options::{Mode, Options};
use crate::report::Tally;
use crate::scan::Line;

/// Bytes of a part, if its lines are not longer.
const PART_BYTES: usize = 8 << 20;

/// Smaller files are not worth a thread.
const THREADS_FROM_BYTES: u64 = 4 << 20;

/// More threads than this wait for memory.
const MAX_THREADS: usize = 8;

/// Bytes of `{"id":"a"}` and its line end: blank lines need no room.
const SHORTEST_LESSON: usize = 11;

/// Is what a file holds up to the last line end, and what is behind that.
pub(crate) struct Loaded {
    pub(crate) drafts: Vec<Draft>,
    /// Is to be fed with the rest.
    pub(crate) intake: Intake,
    /// What was read and not parsed: the last line as far as it has come, or, behind a line that
    /// is longer than any may be, all from that on.
    pub(crate) rest: Vec<u8>,
    /// Where the rest begins.
    pub(crate) offset: u64,
}

/// Is a part of a file, parsed.
struct Part {
    draft: Draft,
    lines: Lines,
    number: u64,
    bytes: u64,
}

/// Reads and parses all whole lines of a file that is at its start. `on_bytes` is handed what is
/// parsed, in order.
pub(crate) fn load(
    mut file: impl Read,
    len: u64,
    options: &Options,
    mut on_bytes: impl FnMut(&[u8]),
) -> io::Result<Result<Loaded, Fault>> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    if len < THREADS_FROM_BYTES || threads == 1 {
        let mut parts = Vec::new();
        let rest = read(&mut file, len, options, |part| {
            on_bytes(&part);
            parts.push(parse(part, options));
        })?;
        return Ok(join(parts, rest, options));
    }
    let (sender, receiver) = mpsc::channel::<(usize, Vec<u8>)>();
    let receiver = Mutex::new(receiver);
    let next = || receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
    let work = || {
        std::iter::from_fn(next).map(|(at, part)| (at, parse(part, options))).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        // Where there can be no more threads, this one does what they leave.
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        let workers: Vec<_> = (0..threads).map_while(spawn).collect();
        let mut sent = 0;
        let rest = read(&mut file, len, options, |part| {
            on_bytes(&part);
            // The receiver lives as long as this scope.
            if sender.send((sent, part)).is_ok() {
                sent += 1;
            }
        });
        drop(sender);
        let mut parts = if workers.is_empty() { work() } else { Vec::with_capacity(sent) };
        for worker in workers {
            match worker.join() {
                Ok(parsed) => parts.extend(parsed),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        parts.sort_by_key(|(at, _)| *at);
        Ok(join(parts.into_iter().map(|(_, part)| part).collect(), rest?, options))
    })
}

/// Hands on parts of whole lines and returns what is behind the last of them.
///
/// No part begins with a NUL, so that no part has to know whether UTF-16 was before it.
fn read(
    file: &mut impl Read,
    len: u64,
    options: &Options,
    mut on_part: impl FnMut(Vec<u8>),
) -> io::Result<Vec<u8>> {
    let mut part = Vec::new();
    loop {
        let wanted = PART_BYTES.min(usize::try_from(len).unwrap_or(usize::MAX)) + 1;
        let before = part.len();
        part.reserve(wanted);
        file.by_ref().take(wanted as u64).read_to_end(&mut part)?;
        let is_end = part.len() - before < wanted;
        if let Some(end) = last_border(&part, is_end) {
            let rest = part.split_off(end);
            on_part(part);
            part = rest;
        }
        if is_end || part.len() > options.max_line_bytes.saturating_add(PART_BYTES) {
            return Ok(part);
        }
    }
}

/// Returns the end of the last line that a part may end with.
fn last_border(part: &[u8], is_end: bool) -> Option<usize> {
    memchr::memrchr_iter(b'\n', part)
        .map(|at| at + 1)
        .find(|end| part.get(*end).map_or(is_end, |next| *next != 0))
}

fn parse(part: Vec<u8>, options: &Options) -> Part {
    let lenient = options.clone().with_mode(Mode::Lenient).with_max_faults(kept_faults(options));
    let count = memchr::memchr_iter(b'\n', &part).count();
    let room = count.min(part.len() / SHORTEST_LESSON);
    let (mut lines, mut draft) = (Lines::new(&lenient), Draft::with_capacity(room));
    let (bytes, number) = (part.len() as u64, count as u64);
    match String::from_utf8(part) {
        Ok(mut text) => {
            for line in split(text.as_bytes(), options) {
                let Some(raw) = take(&mut lines, &mut draft, line) else { continue };
                // The line stays where it is.
                let at = raw.as_ptr().addr() - text.as_ptr().addr();
                draft.set_last_place(narrow(at));
            }
            text.shrink_to_fit();
            draft.chunks.push(Chunk::new(text));
        }
        Err(error) => {
            let part = error.into_bytes();
            let mut text = String::new();
            for line in split(&part, options) {
                let Some(raw) = take(&mut lines, &mut draft, line) else { continue };
                draft.set_last_place(narrow(text.len()));
                text.push_str(raw);
            }
            draft.chunks.push(Chunk::new(text));
        }
    }
    Part { draft, lines, number, bytes }
}

fn split<'a>(bytes: &'a [u8], options: &Options) -> impl Iterator<Item = Line<'a>> {
    let (mut number, mut start) = (0, 0);
    let max = options.max_line_bytes;
    memchr::memchr_iter(b'\n', bytes).map(move |end| {
        number += 1;
        let line = Line::whole(number, start as u64, &bytes[start..end], max);
        start = end + 1;
        line
    })
}

/// Puts a line into the draft, with its place still to be set, and returns its text.
fn take<'a>(lines: &mut Lines, draft: &mut Draft, line: Line<'a>) -> Option<&'a str> {
    match lines.examine(line)? {
        Ok((record, raw)) => {
            lines.tally.record();
            let place = Place { chunk: 0, at: 0, len: narrow(raw.len()) };
            draft.push(Entry::of_record(&record), place);
            Some(raw)
        }
        Err(fault) => {
            // The mode of these lines is lenient.
            let _ = lines.fault(fault);
            None
        }
    }
}

/// In strict mode the first fault is all that is wanted.
fn kept_faults(options: &Options) -> usize {
    if options.mode == Mode::Strict { 1 } else { options.max_faults }
}

/// Puts the parts together, or returns the first fault in strict mode.
fn join(parts: Vec<Part>, rest: Vec<u8>, options: &Options) -> Result<Loaded, Fault> {
    let mut drafts = Vec::with_capacity(parts.len());
    let (mut tally, mut number, mut offset) = (Tally::default(), 0, 0);
    let mut lines = Lines::new(options);
    for part in parts {
        lines.after_utf16 = part.lines.after_utf16;
        tally.append(part.lines.tally, number, offset, kept_faults(options));
        if options.mode == Mode::Strict
            && let Some(fault) = tally.first_fault()
        {
            return Err(fault.clone());
        }
        number += part.number;
        offset += part.bytes;
        drafts.push(part.draft);
    }
    lines.tally = tally;
    let intake = Intake::go_on(options, number + 1, offset, lines);
    Ok(Loaded { drafts, intake, rest, offset })
}
