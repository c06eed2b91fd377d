//! Where the line of a lesson stands, and two texts in it.

use crate::grammar::Quoted;
use crate::plain::{self, Plain};

/// Says where the line of a lesson stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) chunk: u32,
    pub(crate) at: u32,
    pub(crate) len: u32,
}

impl Place {
    /// Returns all of it in three words.
    pub(crate) fn words(self) -> [u32; 3] {
        [self.chunk, self.at, self.len]
    }

    /// Returns what was in three words.
    #[inline]
    pub(crate) fn of_words([chunk, at, len]: [u32; 3]) -> Self {
        Self { chunk, at, len }
    }
}

/// Says where two texts stand in the line of a lesson, or that they have to be looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Texts {
    pub(crate) message: Spot,
    pub(crate) resolution: Spot,
}

/// Is where a text stands in a line that is not too long. An absent text is an empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spot {
    at: u16,
    /// The upper bit tells whether it has escapes.
    len: u16,
}

impl Spot {
    const ESCAPED: u16 = 1 << 15;
    const UNKNOWN: Self = Self { at: u16::MAX, len: u16::MAX };

    #[inline]
    fn of(text: Quoted) -> Self {
        let Quoted { start, end, is_escaped } = text;
        match (u16::try_from(start), u16::try_from(end - start)) {
            (Ok(at), Ok(len)) if len < Self::ESCAPED => {
                Self { at, len: if is_escaped { len | Self::ESCAPED } else { len } }
            }
            _ => Self::UNKNOWN,
        }
    }

    /// Returns how long the text is; zero if that is not known.
    pub(crate) fn len(self) -> usize {
        let is_known = self.len != u16::MAX || self.at != u16::MAX;
        if is_known { usize::from(self.len & !Self::ESCAPED) } else { 0 }
    }

    /// Returns the text, as it stands between its quotes, and whether that has escapes.
    pub(crate) fn of_line(self, line: &[u8]) -> Option<(&[u8], bool)> {
        let at = usize::from(self.at);
        let len = usize::from(self.len & !Self::ESCAPED);
        let is_known = self.len != u16::MAX || self.at != u16::MAX;
        is_known.then(|| (&line[at..at + len], self.len & Self::ESCAPED != 0))
    }
}

impl Texts {
    pub(crate) const UNKNOWN: Self = Self { message: Spot::UNKNOWN, resolution: Spot::UNKNOWN };

    /// Returns all of it in one word.
    #[inline]
    pub(crate) fn bits(self) -> u64 {
        let Self { message, resolution } = self;
        let parts = [message.at, message.len, resolution.at, resolution.len].map(u64::from);
        parts[0] | parts[1] << 16 | parts[2] << 32 | parts[3] << 48
    }

    /// Returns what was in a word.
    #[inline]
    pub(crate) fn of_bits(bits: u64) -> Self {
        let bytes = bits.to_le_bytes();
        let (numbers, _) = bytes.as_chunks();
        let number = |at: usize| u16::from_le_bytes(numbers[at]);
        Self {
            message: Spot { at: number(0), len: number(1) },
            resolution: Spot { at: number(2), len: number(3) },
        }
    }

    #[inline]
    pub(crate) fn of_plain(line: &Plain<'_>) -> Self {
        let of = |text| Spot::of(line.place(text));
        Self { message: of(plain::FAILURE_MSG), resolution: of(plain::RESOLUTION) }
    }
}
