//! A whole file to drafts, in parts that are parsed side by side.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};

use crate::column::Symbols;
use crate::draft::{Chunk, Draft, Entry, narrow};
use crate::fault::Fault;
use crate::intake::{Intake, Lines};
use crate::options::{Mode, Options};
use crate::place::Place;
use crate::plain::Plain;
use crate::reader::{Raw, Reader, Reading};
use crate::report::Tally;
use crate::scan::Line;

/// Bytes that are read, and looked at more than once, before the next are.
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
    /// Its number in the order of the file.
    at: usize,
    draft: Draft,
    lines: Lines,
    number: u64,
    bytes: u64,
}

/// Reads and parses all whole lines of a file. `on_bytes` is handed what is parsed, in order.
pub(crate) fn load(
    file: &File,
    len: u64,
    options: &Options,
    on_bytes: impl FnMut(&[u8]),
) -> io::Result<Result<Loaded, Fault>> {
    let (parts, rest) = read(file, len, options, || {})?;
    Ok(join(parts, rest, options, on_bytes))
}

/// The parts of a file and what is behind the last of them.
type Parts = (Vec<Part>, Vec<u8>);

/// Reads a file in pieces, and in order if it becomes shorter meanwhile. `on_part` is called before a
/// part is parsed.
fn read(file: &File, len: u64, options: &Options, on_part: impl Fn() + Sync) -> io::Result<Parts> {
    let mut read = read_parts(file, len, options, Reading::InPieces, &on_part)?;
    if read.is_none() {
        read = read_parts(file, len, options, Reading::InOrder, &on_part)?;
    }
    Ok(read.expect("a file that is read in order is as long as it is"))
}

/// Returns `None` if the file became shorter while it was read in pieces.
fn read_parts(
    file: &File,
    len: u64,
    options: &Options,
    reading: Reading,
    on_part: &(impl Fn() + Sync),
) -> io::Result<Option<Parts>> {
    let reader = Mutex::new(Reader::new(file, len, options, reading));
    let work = || {
        let mut parts = Vec::new();
        let mut symbols = <[Symbols; 4]>::default();
        let next = || reader.lock().unwrap_or_else(PoisonError::into_inner).next_part();
        let parsed = loop {
            match next() {
                Ok(None) => break Ok(Some(share(parts, symbols))),
                Ok(Some(raw)) => {
                    on_part();
                    match parse(raw, file, options, &mut symbols) {
                        Ok(Some(part)) => parts.push(part),
                        Ok(None) => break Ok(None),
                        Err(error) => break Err(error),
                    }
                }
                Err(error) => break Err(error),
            }
        };
        if !matches!(parsed, Ok(Some(_))) {
            // What the others would read is of no use any more.
            reader.lock().unwrap_or_else(PoisonError::into_inner).is_done = true;
        }
        parsed
    };
    let threads = match len {
        ..THREADS_FROM_BYTES => 1,
        _ => thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS),
    };
    let read = thread::scope(|scope| {
        // This one works too, alone where there can be no other.
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        let others: Vec<_> = (1..threads).map_while(spawn).collect();
        let ours = work();
        let join = |other: ScopedJoinHandle<'_, _>| match other.join() {
            Ok(parsed) => parsed,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        std::iter::once(ours).chain(others.into_iter().map(join)).collect::<io::Result<Vec<_>>>()
    })?;
    let Some(parts) = read.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
    let mut parts: Vec<Part> = parts.into_iter().flatten().collect();
    parts.sort_by_key(|part| part.at);
    Ok(Some((parts, reader.into_inner().unwrap_or_else(PoisonError::into_inner).rest)))
}

/// Gives the drafts of some parts the symbols that they were made with.
fn share(mut parts: Vec<Part>, mut symbols: [Symbols; 4]) -> Vec<Part> {
    symbols.iter_mut().for_each(Symbols::settle);
    let shared = Arc::new(symbols);
    for part in &mut parts {
        part.draft.shared = Some(Arc::clone(&shared));
    }
    parts
}

/// Parses a part with symbols that those before it were parsed with.
fn parse(
    mut raw: Raw,
    file: &File,
    options: &Options,
    symbols: &mut [Symbols; 4],
) -> io::Result<Option<Part>> {
    let lenient = options.clone().with_mode(Mode::Lenient).with_max_faults(kept_faults(options));
    let draft = Draft::with_symbols(std::mem::take(symbols));
    let mut parsing = Parsing { lines: Lines::new(&lenient), draft, number: 0 };
    let (len, max) = (raw.bytes.len(), options.max_line_bytes);
    let (mut start, mut known) = (0, 0);
    while start < len {
        let fresh = known;
        known = len.min(known + BLOCK_BYTES);
        if !raw.read(file, fresh..known)? {
            return Ok(None);
        }
        // A part ends with a line.
        let Some(last) = memchr::memrchr(b'\n', &raw.bytes[fresh..known]) else { continue };
        let end = fresh + last + 1;
        match simdutf8::basic::from_utf8(&raw.bytes[start..end]) {
            Ok(block) => parsing.take_text(block, start, max),
            Err(_) => parsing.take_bytes(&raw.bytes[start..end], start, max),
        }
        if start == 0 {
            parsing.draft.make_room(len / end);
        }
        start = end;
    }
    let Parsing { lines, mut draft, number } = parsing;
    *symbols = std::mem::take(&mut draft.symbols);
    draft.fast = lines.parser.fast.clone();
    draft.chunks.push(Chunk::new(raw.bytes));
    Ok(Some(Part { at: raw.at, draft, lines, number, bytes: len as u64 }))
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
        while start < block.len() {
            let rest = &block[start..];
            let len = self.take_plain(rest, at + start, max_line_bytes).unwrap_or_else(|| {
                let bytes = rest.as_bytes();
                let len = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
                self.take_line(&bytes[..len], at + start, max_line_bytes);
                len
            });
            start += len + 1 + usize::from(rest.as_bytes().get(len) == Some(&b'\r'));
        }
    }

    fn take_bytes(&mut self, block: &[u8], at: usize, max_line_bytes: usize) {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', block) {
            self.take_line(&block[start..end], at + start, max_line_bytes);
            start = end + 1;
        }
    }

    /// Takes the line that a text begins with, if it is as most are, and returns how long it is.
    #[inline]
    fn take_plain(&mut self, text: &str, at: usize, max_line_bytes: usize) -> Option<usize> {
        let mut plain = Plain::new(text);
        let len = self.lines.examine_plain(&mut plain)?;
        // A carriage return behind it counts too.
        if len >= max_line_bytes {
            return None;
        }
        let entry = Entry::of_plain(&plain)?;
        self.number += 1;
        self.lines.tally.record();
        self.draft.push(entry, Place { chunk: 0, at: narrow(at), len: narrow(len) });
        Some(len)
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
fn join(
    parts: Vec<Part>,
    rest: Vec<u8>,
    options: &Options,
    mut on_bytes: impl FnMut(&[u8]),
) -> Result<Loaded, Fault> {
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
        part.draft.chunks.iter().for_each(|chunk| on_bytes(chunk));
        drafts.push(part.draft);
    }
    lines.tally = tally;
    let intake = Intake::go_on(options, number + 1, offset, lines);
    Ok(Loaded { drafts, intake, rest, offset })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn rows(parts: &[Part]) -> usize {
        parts.iter().map(|part| part.draft.rows.len()).sum()
    }

    #[test]
    fn a_file_that_becomes_shorter_while_it_is_loaded_is_read_in_order() {
        const LINE: &[u8] =
            b"{\"id\":\"a\",\"failure_msg\":\"a text that makes it somewhat longer\"}\n";
        const LINES: usize = 200_000;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&LINE.repeat(LINES)).unwrap();
        let len = file.metadata().unwrap().len();
        assert!(len > THREADS_FROM_BYTES);
        let (parts, _) = read(&file, len, &Options::default(), || {}).unwrap();
        assert_eq!(rows(&parts), LINES);
        let cut = || file.set_len(10 * LINE.len() as u64 + 7).unwrap();
        let (parts, rest) = read(&file, len, &Options::default(), cut).unwrap();
        assert_eq!((rows(&parts), &rest[..]), (10, &LINE[..7]));
    }

    /// Each was parsed again the general way, and where its texts stand was not known.
    #[test]
    fn lines_that_end_as_on_windows_are_plain_too() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&b"{\"id\":\"a\",\"failure_msg\":\"text\"}\r\n".repeat(3)).unwrap();
        let len = file.metadata().unwrap().len();
        let (parts, rest) = read(&file, len, &Options::default(), || {}).unwrap();
        assert!(rest.is_empty());
        let drafts = parts.into_iter().map(|part| part.draft).collect();
        let segment = crate::assemble::assemble(drafts).segment;
        assert_eq!(segment.message_bytes(), 4);
        assert_eq!(segment.raw(0), "{\"id\":\"a\",\"failure_msg\":\"text\"}");
    }
}
