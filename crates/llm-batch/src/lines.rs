//! Lines of a stream, one at a time and none over a cap.

use std::io::{self, BufRead};

/// A line of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line is in the buffer, without its end.
    Whole,
    /// A line was over the cap and was skipped.
    TooLong,
}

/// Reads the next line into `buffer`. Lines end at `\n` bytes alone: other separators are legal
/// inside JSON strings. Never keeps more than `cap` bytes.
pub(crate) fn next_line(
    reader: &mut impl BufRead,
    buffer: &mut Vec<u8>,
    cap: usize,
) -> io::Result<Option<Line>> {
    buffer.clear();
    let mut length = 0_usize;
    loop {
        let available = match reader.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = memchr::memchr(b'\n', available);
        let part = &available[..end.unwrap_or(available.len())];
        length = length.saturating_add(part.len());
        if length <= cap {
            buffer.extend_from_slice(part);
        } else {
            buffer.clear();
        }
        let used = part.len() + usize::from(end.is_some());
        let is_over = end.is_some() || used == 0;
        reader.consume(used);
        if is_over {
            return Ok(match (end, length) {
                (None, 0) => None,
                _ if length > cap => Some(Line::TooLong),
                _ => Some(Line::Whole),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    #[test]
    fn lines_come_whole_or_are_skipped_at_any_buffer_size() {
        let text = b"one\n\nfour44\nfive555\n\xe2\x80\xa8\nlast";
        for size in 1..20 {
            let mut reader = BufReader::with_capacity(size, &text[..]);
            let mut buffer = Vec::new();
            let mut seen: Vec<Option<Vec<u8>>> = Vec::new();
            while let Some(line) = next_line(&mut reader, &mut buffer, 6).unwrap() {
                seen.push((line == Line::Whole).then(|| buffer.clone()));
            }
            let line = |text: &[u8]| Some(text.to_vec());
            let expected = [
                line(b"one"),
                line(b""),
                line(b"four44"),
                None,
                line(b"\xe2\x80\xa8"),
                line(b"last"),
            ];
            assert_eq!(seen, expected, "buffer of {size}");
        }
    }
}
