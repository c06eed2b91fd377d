//! Lessons without their texts, packed into huge pages where there are many.
//!
//! They are in use only until the segment is built, and there would be a fault for each small page
//! of them.

use crate::memory::Memory;
use crate::place::{Place, Texts};

/// Is a lesson without its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) times: u64,
    pub(crate) seconds: i64,
    pub(crate) nanos: i32,
    pub(crate) place: Place,
    /// By [`Field`](crate::record::Field), numbers of the draft's symbols.
    pub(crate) symbols: [u32; 4],
    pub(crate) texts: Texts,
}

/// Holds rows in order.
#[derive(Debug)]
pub(crate) struct Rows {
    bytes: Memory,
    len: usize,
}

const WORDS: usize = 7;
const ROW_BYTES: usize = WORDS * 8;

/// Room of so many bytes is mapped, a huge page each time it is first used.
const MAPPED_BYTES: usize = 4 << 20;

impl Default for Rows {
    fn default() -> Self {
        Self { bytes: Memory::zeroed(0), len: 0 }
    }
}

impl Rows {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes room for so many rows in all.
    pub(crate) fn make_room(&mut self, rows: usize) {
        let bytes = rows * ROW_BYTES;
        if bytes > self.bytes.len() {
            // What is not used of what is mapped takes no memory.
            let is_large = bytes >= MAPPED_BYTES / 4;
            let room = if is_large { bytes.max(MAPPED_BYTES) } else { bytes };
            self.bytes.renew(self.len * ROW_BYTES, room);
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, row: &Row) {
        let at = self.len * ROW_BYTES;
        if at + ROW_BYTES > self.bytes.len() {
            self.make_room((2 * self.len).max(64));
        }
        let (place, _) = self.bytes[at..].split_first_chunk_mut().expect("there is room now");
        *place = row.bytes();
        self.len += 1;
    }

    /// Returns a row; there is one.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> Row {
        let used = &self.bytes[..self.len * ROW_BYTES];
        Row::of(&used.as_chunks().0[at])
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Row> {
        let used = &self.bytes[..self.len * ROW_BYTES];
        used.as_chunks().0.iter().map(Row::of)
    }
}

impl Row {
    #[inline]
    fn bytes(&self) -> [u8; ROW_BYTES] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let Self { times, seconds, nanos, place, symbols, texts } = *self;
        let words: [u64; WORDS] = [
            times,
            seconds.cast_unsigned(),
            pair(nanos.cast_unsigned(), place.chunk),
            pair(place.at, place.len),
            pair(symbols[0], symbols[1]),
            pair(symbols[2], symbols[3]),
            texts.bits(),
        ];
        let mut bytes = [0; ROW_BYTES];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    #[inline]
    fn of(bytes: &[u8; ROW_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks();
        let word = |at: usize| u64::from_le_bytes(words[at]);
        let half = |at: usize| {
            let (halves, _) = bytes.as_chunks();
            u32::from_le_bytes(halves[at])
        };
        Self {
            times: word(0),
            seconds: word(1).cast_signed(),
            nanos: half(4).cast_signed(),
            place: Place { chunk: half(5), at: half(6), len: half(7) },
            symbols: [half(8), half(9), half(10), half(11)],
            texts: Texts::of_bits(word(6)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_however_many_there_are() {
        let row = |n: u32| Row {
            times: u64::from(n) << 40 | 7,
            seconds: if n.is_multiple_of(3) { i64::MIN } else { i64::from(n) - 9 },
            nanos: -i32::try_from(n).unwrap(),
            place: Place { chunk: n % 5, at: n * 9, len: u32::MAX - n },
            symbols: [n, n + 1, u32::MAX, 0],
            texts: Texts::of_bits(u64::from(n).wrapping_mul(0x1234_5678_9ABC_DEF1)),
        };
        let mut rows = Rows::default();
        assert!(rows.is_empty());
        for n in 0..100_000 {
            rows.push(&row(n));
            if n == 500 {
                rows.make_room(80_000);
            }
        }
        assert_eq!(rows.len(), 100_000);
        assert!((0..).zip(rows.iter()).all(|(n, found)| found == row(n)));
        assert_eq!(rows.get(77_777), row(77_777));
    }
}
