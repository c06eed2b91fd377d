//! Bytes in pieces of any size to lines.

use crate::fault::EXCERPT_MAX_BYTES;

/// Is a line of a file.
#[derive(Clone, Copy)]
pub(crate) struct Line<'a> {
    /// From 1.
    pub(crate) number: u64,
    /// From the start of the file.
    pub(crate) offset: u64,
    /// How long it is, without its end.
    pub(crate) len: u64,
    /// The line without its end; only its start if it is longer than the cap.
    pub(crate) bytes: &'a [u8],
    /// Whether the line is over the cap.
    pub(crate) is_too_long: bool,
    /// Whether a line end follows.
    pub(crate) terminated: bool,
}

impl<'a> Line<'a> {
    /// Returns a line that is in memory as a whole.
    pub(crate) fn whole(number: u64, offset: u64, bytes: &'a [u8], max_line_bytes: usize) -> Self {
        let len = bytes.len() as u64;
        let is_too_long = bytes.len() > max_line_bytes;
        let bytes = if is_too_long { &bytes[..bytes.len().min(EXCERPT_MAX_BYTES)] } else { bytes };
        Self { number, offset, len, bytes, is_too_long, terminated: true }
    }
}

/// Splits what it is fed into lines; a line may come in many pieces.
///
/// Memory: one line, and never more than the cap.
pub(crate) struct Scanner {
    number: u64,
    offset: u64,
    /// The start of the line that has no end yet.
    carry: Vec<u8>,
    /// Its length so far, which `carry` has fully only up to the cap.
    carry_len: u64,
    max_line_bytes: usize,
}

impl Scanner {
    pub(crate) fn new(max_line_bytes: usize) -> Self {
        Self { number: 1, offset: 0, carry: Vec::new(), carry_len: 0, max_line_bytes }
    }

    /// Counts from here: the next line has this number and begins at this place.
    pub(crate) fn start_at(&mut self, number: u64, offset: u64) {
        (self.number, self.offset) = (number, offset);
    }

    /// Hands each line that ends in `bytes` to `sink`, which can stop the scan with an error.
    pub(crate) fn feed<E>(
        &mut self,
        mut bytes: &[u8],
        mut sink: impl FnMut(Line<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let piece = &bytes[..end];
            bytes = &bytes[end + 1..];
            if self.carry_len == 0 {
                let len = piece.len() as u64;
                sink(self.line(piece, len, true))?;
                self.advance(len);
            } else {
                self.keep(piece);
                sink(self.line(&self.carry, self.carry_len, true))?;
                self.advance(self.carry_len);
            }
        }
        self.keep(bytes);
        Ok(())
    }

    /// Returns the last line as far as it has come, if it has no line end yet.
    pub(crate) fn tail(&self) -> Option<Line<'_>> {
        (self.carry_len > 0).then(|| self.line(&self.carry, self.carry_len, false))
    }

    fn line<'a>(&self, bytes: &'a [u8], len: u64, terminated: bool) -> Line<'a> {
        let is_too_long = len > self.max_line_bytes as u64;
        let bytes = if is_too_long { &bytes[..bytes.len().min(EXCERPT_MAX_BYTES)] } else { bytes };
        Line { number: self.number, offset: self.offset, len, bytes, is_too_long, terminated }
    }

    fn keep(&mut self, piece: &[u8]) {
        self.carry_len += piece.len() as u64;
        if self.carry_len <= self.max_line_bytes as u64 {
            self.carry.extend_from_slice(piece);
        } else {
            let room = EXCERPT_MAX_BYTES.saturating_sub(self.carry.len());
            self.carry.extend_from_slice(&piece[..piece.len().min(room)]);
            self.carry.truncate(EXCERPT_MAX_BYTES);
            self.carry.shrink_to(EXCERPT_MAX_BYTES);
        }
    }

    fn advance(&mut self, len: u64) {
        self.number += 1;
        self.offset += len + 1;
        self.carry.clear();
        self.carry_len = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn lines(scanner: &mut Scanner, pieces: &[&[u8]]) -> Vec<(u64, u64, Vec<u8>, bool)> {
        let mut seen = Vec::new();
        for piece in pieces {
            let Ok(()) = scanner.feed(piece, |line| {
                seen.push((line.number, line.offset, line.bytes.to_vec(), line.is_too_long));
                Ok::<_, Infallible>(())
            });
        }
        seen
    }

    #[test]
    fn pieces_make_no_difference() {
        let text = b"one\n\nthree\r\nfour";
        let whole = lines(&mut Scanner::new(100), &[text]);
        assert_eq!(whole[2], (3, 5, b"three\r".to_vec(), false));
        for cut in 0..text.len() {
            let mut scanner = Scanner::new(100);
            assert_eq!(lines(&mut scanner, &[&text[..cut], &text[cut..]]), whole, "cut at {cut}");
            assert_eq!(scanner.tail().map(|line| line.bytes.to_vec()), Some(b"four".to_vec()));
        }
    }

    #[test]
    fn a_line_over_the_cap_is_cut_and_the_next_one_is_whole() {
        let long = [b'x'; 300];
        let mut scanner = Scanner::new(200);
        let seen = lines(&mut scanner, &[&long[..150], &long[150..], b"\nnext\n"]);
        assert_eq!(seen[0], (1, 0, vec![b'x'; EXCERPT_MAX_BYTES], true));
        assert_eq!(seen[1], (2, 301, b"next".to_vec(), false));
        assert!(scanner.carry.capacity() <= 400, "the line is not kept");
    }
}
