//! Text of which there is a bound.

use std::io;

/// A text that is being written, and how long it may be.
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    max: usize,
    /// More was to be written than there may be.
    pub(crate) is_full: bool,
}

impl Output {
    /// Writes behind a text, which is at most `max` bytes long.
    pub(crate) fn new(text: String, max: usize) -> Self {
        Self { bytes: text.into_bytes(), max, is_full: false }
    }

    pub(crate) fn into_string(self) -> String {
        String::from_utf8(self.bytes).expect("only whole texts are written")
    }
}

impl io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > self.max - self.bytes.len() {
            self.is_full = true;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
