//! Many lists of bytes that grow side by side.

use crate::draft::narrow;
use crate::memory::Memory;

/// Pieces begin at multiples of this.
const UNIT: usize = 16;

/// Bytes of the longest piece.
const MAX_PIECE: usize = 4096;

/// Bytes behind each piece: which one was before it, and how long that is.
const LINK: usize = 8;

/// Holds the bytes of all lists, in pieces of which each is twice as long as the one before, up to
/// the longest.
///
/// A list that grows costs no more than a look at where it ends, and what is written is near what
/// was written to the same list before.
pub(crate) struct Lists {
    bytes: Memory,
    len: usize,
}

/// Is where a list ends.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tail {
    /// Its last piece, in units, how many bytes of that are in use, and how many it has.
    piece: u32,
    used: u16,
    len: u16,
}

impl Lists {
    /// Starts with room for so many bytes.
    pub(crate) fn with_room(room: usize) -> Self {
        Self { bytes: Memory::zeroed(room), len: 0 }
    }

    /// Returns how many bytes there are, some room included.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends a byte to a list.
    #[inline]
    pub(crate) fn push(&mut self, tail: &mut Tail, byte: u8) {
        if tail.used == tail.len {
            *tail = self.piece_behind(*tail);
        }
        self.bytes[tail.piece as usize * UNIT + usize::from(tail.used)] = byte;
        tail.used += 1;
    }

    /// Appends the bytes of a list to others.
    pub(crate) fn read(&self, mut tail: Tail, out: &mut Vec<u8>) {
        let start = out.len();
        // From the end to the start, each piece backwards.
        while tail.used > 0 {
            let from = tail.piece as usize * UNIT;
            out.extend(self.bytes[from..from + usize::from(tail.used)].iter().rev());
            let link = from + usize::from(tail.len);
            let (piece, rest) = self.bytes[link..link + LINK].split_at(4);
            let len = u16::from_le_bytes([rest[0], rest[1]]);
            let piece = u32::from_le_bytes(piece.try_into().expect("four bytes"));
            tail = Tail { piece, used: len, len };
        }
        out[start..].reverse();
    }

    #[cold]
    fn piece_behind(&mut self, before: Tail) -> Tail {
        let wanted = match before.len {
            0 => UNIT,
            len => (2 * (usize::from(len) + LINK)).min(MAX_PIECE),
        };
        let start = self.len;
        self.len += wanted;
        if self.len > self.bytes.len() {
            self.bytes.renew(start, self.len.next_power_of_two());
        }
        let len = wanted - LINK;
        let link = &mut self.bytes[start + len..start + wanted];
        link[..4].copy_from_slice(&before.piece.to_le_bytes());
        link[4..6].copy_from_slice(&before.len.to_le_bytes());
        let len = u16::try_from(len).expect("pieces are short");
        Tail { piece: narrow(start / UNIT), used: 0, len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back_whatever_came_between() {
        let mut lists = Lists::with_room(0);
        let mut tails = [Tail::default(); 5];
        let mut wanted = [const { Vec::new() }; 5];
        for n in 0..60_000_usize {
            let at = (n * n / 7) % if n % 11 == 0 { 4 } else { 2 };
            let byte = u8::try_from(n % 251).unwrap();
            lists.push(&mut tails[at], byte);
            wanted[at].push(byte);
        }
        assert!(wanted[0].len() > 4 * MAX_PIECE && wanted[4].is_empty());
        assert!(lists.len() < 3 * 60_000);
        for (tail, wanted) in tails.into_iter().zip(wanted) {
            let mut found = b"before".to_vec();
            lists.read(tail, &mut found);
            assert_eq!(found, [b"before", &wanted[..]].concat());
        }
    }
}
