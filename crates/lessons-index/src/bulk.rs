//! A whole file to drafts, in parts that are parsed side by side.

use std::io::{self, Read};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::draft::{Chunk, Draft, Entry, Place, narrow};
use crate::fault::Fault;
use crate::intake::{Intake, Lines};
use crate::memory::Memory;
use crate::options::{Mode, Options};
use crate::report::Tally;
use crate::scan::Line;

/// Bytes of a part, if its lines are not longer. Whole huge pages.
const PART_BYTES: usize = 8 << 20;

/// Bytes that are looked at more than once before the next are.
const BLOCK_BYTES: usize = 128 << 10;

/// Smaller files are not worth a thread.
const THREADS_FROM_BYTES: u64 = 4 << 20;

/// More threads than this wait for memory.
const MAX_THREADS: usize = 8;

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
    let (sender, receiver) = mpsc::channel::<(usize, Memory)>();
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
    mut on_part: impl FnMut(Memory),
) -> io::Result<Vec<u8>> {
    let mut rest = Vec::new();
    let mut left = usize::try_from(len).unwrap_or(usize::MAX);
    loop {
        // One byte more than there should be, to see the end.
        let wanted = PART_BYTES.max(rest.len() * 2).min(rest.len().saturating_add(left) + 1);
        let mut part = Memory::zeroed(wanted);
        part[..rest.len()].copy_from_slice(&rest);
        let filled = rest.len() + fill(file, &mut part[rest.len()..])?;
        left = left.saturating_sub(filled - rest.len());
        let is_end = filled < wanted;
        let border = last_border(&part[..filled], is_end).unwrap_or(0);
        rest = part[border..filled].to_vec();
        if border > 0 {
            part.truncate(border);
            on_part(part);
        }
        // What was appended meanwhile is read as what is appended always is.
        let is_all = is_end || left == 0;
        if is_all || rest.len() > options.max_line_bytes.saturating_add(PART_BYTES) {
            return Ok(rest);
        }
    }
}

/// Reads until there is no more room or no more to read.
fn fill(file: &mut impl Read, room: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < room.len() {
        match file.read(&mut room[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Returns the end of the last line that a part may end with.
fn last_border(part: &[u8], is_end: bool) -> Option<usize> {
    memchr::memrchr_iter(b'\n', part)
        .map(|at| at + 1)
        .find(|end| part.get(*end).map_or(is_end, |next| *next != 0))
}

fn parse(part: Memory, options: &Options) -> Part {
    let lenient = options.clone().with_mode(Mode::Lenient).with_max_faults(kept_faults(options));
    let mut parsing = Parsing { lines: Lines::new(&lenient), draft: Draft::default(), number: 0 };
    let (bytes, max) = (part.len() as u64, options.max_line_bytes);
    let mut start = 0;
    while start < part.len() {
        let end = end_of_block(&part, start);
        match simdutf8::basic::from_utf8(&part[start..end]) {
            Ok(block) => parsing.take_text(block, start, max),
            Err(_) => parsing.take_bytes(&part[start..end], start, max),
        }
        if start == 0 {
            parsing.draft.make_room(part.len() / end);
        }
        start = end;
    }
    let Parsing { lines, mut draft, number } = parsing;
    draft.fast = lines.parser.fast.clone();
    draft.chunks.push(Chunk::new(part));
    Part { draft, lines, number, bytes }
}

/// Returns where some whole lines end.
fn end_of_block(part: &[u8], start: usize) -> usize {
    let from = (start + BLOCK_BYTES).min(part.len()) - 1;
    memchr::memchr(b'\n', &part[from..]).map_or(part.len(), |found| from + found + 1)
}

/// Is a part on its way to a draft.
struct Parsing {
    lines: Lines,
    draft: Draft,
    /// How many lines there were.
    number: u64,
}

impl Parsing {
    /// Takes whole lines that begin at a place of the part.
    fn take_text(&mut self, block: &str, at: usize, max_line_bytes: usize) {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', block.as_bytes()) {
            let line = &block[start..end];
            if line.len() > max_line_bytes || !self.take_plain(line, at + start) {
                self.take_line(line.as_bytes(), at + start, max_line_bytes);
            } else {
                self.number += 1;
            }
            start = end + 1;
        }
    }

    fn take_bytes(&mut self, block: &[u8], at: usize, max_line_bytes: usize) {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', block) {
            self.take_line(&block[start..end], at + start, max_line_bytes);
            start = end + 1;
        }
    }

    /// Takes a line if it is as most are.
    fn take_plain(&mut self, line: &str, at: usize) -> bool {
        let Some(plain) = self.lines.examine_plain(line) else { return false };
        let Some(entry) = Entry::of_plain(&plain) else { return false };
        self.lines.tally.record();
        self.draft.push(entry, Place { chunk: 0, at: narrow(at), len: narrow(line.len()) });
        true
    }

    fn take_line(&mut self, line: &[u8], at: usize, max_line_bytes: usize) {
        self.number += 1;
        let whole = Line::whole(self.number, at as u64, line, max_line_bytes);
        match self.lines.examine(whole) {
            None => {}
            Some(Ok((record, raw))) => {
                self.lines.tally.record();
                let at = at + (raw.as_ptr().addr() - line.as_ptr().addr());
                let place = Place { chunk: 0, at: narrow(at), len: narrow(raw.len()) };
                self.draft.push(Entry::of_record(&record), place);
            }
            Some(Err(fault)) => {
                // The mode of these lines is lenient.
                let _ = self.lines.fault(fault);
            }
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
