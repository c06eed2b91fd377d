//! The parts of a file, handed out in order and read by whoever parses them.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::memory::{HUGE_PAGE, Memory};
use crate::options::Options;

/// Most bytes of a part, if its lines are not longer: their rows are about a huge page.
const PART_BYTES: usize = 16 << 20;

/// Least bytes of a part.
const MIN_PART_BYTES: usize = 4 << 20;

/// Parts of a file that is not too large, so that no thread waits long for the last.
const PARTS: u64 = 16;

/// Bytes in which the end of a part is looked for.
const END_BYTES: usize = 32 << 10;

/// Says when the bytes between the ends of a part are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// By whoever parses them, a few at a time, so that they are still in the cache then.
    InPieces,
    /// Before the next part is handed out.
    InOrder,
}

/// Hands out parts of whole lines. Each byte of the file is read once, the ends of a part before those
/// between them: in a file that somebody changes in place meanwhile, a line may be half of before and
/// half of after, as with any other way to read it.
pub(crate) struct Reader<'f> {
    file: &'f File,
    reading: Reading,
    max_line_bytes: usize,
    part_bytes: usize,
    /// How many parts were handed out.
    count: usize,
    /// Where the bytes begin that nobody has read or is to read.
    offset: u64,
    /// How many of those there should be.
    left: usize,
    /// The bytes before them that are in no part.
    pub(crate) rest: Vec<u8>,
    pub(crate) is_done: bool,
}

/// Is a part of which some bytes may not have been read yet.
pub(crate) struct Raw {
    /// Its number in the order of the file.
    pub(crate) at: usize,
    pub(crate) bytes: Memory,
    unread: Range<usize>,
    /// Where the unread bytes are in the file.
    offset: u64,
}

impl<'f> Reader<'f> {
    pub(crate) fn new(file: &'f File, len: u64, options: &Options, reading: Reading) -> Self {
        let part_bytes = usize::try_from(len / PARTS).unwrap_or(PART_BYTES);
        Self {
            file,
            reading,
            part_bytes: part_bytes.clamp(MIN_PART_BYTES, PART_BYTES).next_multiple_of(HUGE_PAGE),
            max_line_bytes: options.max_line_bytes,
            count: 0,
            offset: 0,
            left: usize::try_from(len).unwrap_or(usize::MAX),
            rest: Vec::new(),
            is_done: false,
        }
    }

    /// Returns the next part, whose ends are read.
    ///
    /// No part but the first begins with a NUL, so that no part has to know whether UTF-16 was before
    /// it.
    pub(crate) fn next_part(&mut self) -> io::Result<Option<Raw>> {
        while !self.is_done {
            let known = self.rest.len();
            // One byte more than there should be, to see the end.
            let wanted = self.part_bytes.max(known * 2).min(known.saturating_add(self.left) + 1);
            let mut bytes = Memory::zeroed(wanted);
            bytes[..known].copy_from_slice(&self.rest);
            let mut unread = match self.reading {
                Reading::InPieces => known..known.max(wanted - END_BYTES.min(wanted)),
                Reading::InOrder => known..known,
            };
            let tail = unread.end;
            let mut filled = tail + self.fill(&mut bytes[tail..], unread.len())?;
            let mut border = last_border(&bytes[tail..filled], filled < wanted).map(|at| tail + at);
            if border.is_none() && !unread.is_empty() {
                // The last line is long, or the file is shorter than it was.
                let count = self.fill(&mut bytes[unread.clone()], 0)?;
                if count < unread.len() {
                    filled = known + count;
                }
                border = last_border(&bytes[..filled], filled < wanted);
                unread = 0..0;
            }
            let border = border.unwrap_or(0);
            self.rest = bytes[border..filled].to_vec();
            let offset = self.offset;
            self.offset += (filled - known) as u64;
            self.left = self.left.saturating_sub(filled - known);
            // What was appended meanwhile is read as what is appended always is.
            let is_all = filled < wanted || self.left == 0;
            let max_rest = self.max_line_bytes.saturating_add(PART_BYTES);
            self.is_done = is_all || self.rest.len() > max_rest;
            if border > 0 {
                bytes.truncate(border);
                self.count += 1;
                return Ok(Some(Raw { at: self.count, bytes, unread, offset }));
            }
        }
        Ok(None)
    }

    /// Reads what is so many bytes behind the place of reading.
    fn fill(&self, room: &mut [u8], behind: usize) -> io::Result<usize> {
        fill(self.file, room, self.offset + behind as u64)
    }
}

impl Raw {
    /// Reads those of some bytes that nobody has read; `false` if the file is shorter than it was.
    /// Each byte is to be asked for once.
    pub(crate) fn read(&mut self, file: &File, bytes: Range<usize>) -> io::Result<bool> {
        let unread = bytes.start.max(self.unread.start)..bytes.end.min(self.unread.end);
        if unread.is_empty() {
            return Ok(true);
        }
        let offset = self.offset + (unread.start - self.unread.start) as u64;
        Ok(fill(file, &mut self.bytes[unread.clone()], offset)? == unread.len())
    }
}

/// Reads until there is no more room or no more to read.
fn fill(file: &File, room: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < room.len() {
        match file.read_at(&mut room[filled..], offset + filled as u64) {
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const BOTH: [Reading; 2] = [Reading::InPieces, Reading::InOrder];

    fn file_of(text: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        file
    }

    /// Reads all parts of a file that seems to be so long; `None` if it turns out to be shorter.
    fn parts(file: &File, len: u64, reading: Reading) -> Option<(Vec<Memory>, Vec<u8>)> {
        let mut reader = Reader::new(file, len, &Options::default(), reading);
        let mut parts = Vec::new();
        while let Some(mut raw) = reader.next_part().unwrap() {
            let len = raw.bytes.len();
            for start in (0..len).step_by(100_000) {
                if !raw.read(file, start..len.min(start + 100_000)).unwrap() {
                    return None;
                }
            }
            parts.push(raw.bytes);
        }
        Some((parts, reader.rest))
    }

    #[test]
    fn parts_are_whole_lines_and_leave_nothing_out() {
        let line = |len: usize| [&vec![b'x'; len][..], b"\n"].concat();
        let nul = [&line(300)[..], b"\0"].concat();
        for (end, text) in [
            (0, Vec::new()),
            (0, line(7)),
            (4, b"none".to_vec()),
            (0, line(500).repeat(40_000)),
            (3, [line(500).repeat(40_000), b"end".to_vec()].concat()),
            // Lines that are longer than the end of a part, and than a part.
            (0, line(3 * END_BYTES).repeat(300)),
            (0, [line(1), line(2 * PART_BYTES), line(9).repeat(PART_BYTES / 9)].concat()),
            // Line ends behind which no part may begin.
            (1, nul.repeat(60_000)),
        ] {
            for reading in BOTH {
                let (parts, rest) = parts(&file_of(&text), text.len() as u64, reading).unwrap();
                let all = parts.iter().map(|part| &part[..]).chain([&rest[..]]);
                assert!(all.collect::<Vec<_>>().concat() == text);
                assert!(parts.iter().all(|part| part.ends_with(b"\n") && part[0] != 0));
                assert!(rest.len() >= end, "{} bytes: {}", text.len(), rest.len());
            }
        }
    }

    #[test]
    fn a_file_that_became_shorter_is_not_read_in_pieces() {
        let text = b"a line\n".repeat(3 * PART_BYTES / 7);
        let file = file_of(&text);
        let len = text.len() as u64;
        let mut reader = Reader::new(&file, len, &Options::default(), Reading::InPieces);
        let mut raw = reader.next_part().unwrap().unwrap();
        file.set_len(1_000).unwrap();
        let all = 0..raw.bytes.len();
        assert!(!raw.read(&file, all).unwrap());
        let (parts, rest) = parts(&file, len, Reading::InOrder).unwrap();
        assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>() + rest.len(), 1_000);
    }
}
