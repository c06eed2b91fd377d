//! Which blocks of messages can hold a text: a bit for each block and each group of short texts.

use std::ops::Range;

use crate::draft::narrow;
use crate::memory::Memory;
use crate::messages::{Messages, Runs};

/// Lessons whose messages share a bit.
const BLOCK: usize = 4;

/// Lessons of one word of bits.
const GROUP: usize = BLOCK * 64;

/// Texts of three and of five bytes fall into so many groups by their hash, each of which is a row
/// of bits.
const ROWS_BITS: u32 = 12;
const ROWS: usize = 1 << ROWS_BITS;

/// Words of a row that are written together, so that they share a line of the cache.
const TILE: usize = 8;

/// Tiles of which one tells how full a row is.
const SAMPLE: usize = 8;

/// Bits that tell which texts of three bytes are in no message at all.
const SEEN_BITS: u32 = 20;
const SEEN: usize = 1 << (SEEN_BITS - 6);

/// More rows of a needle hardly say more.
const MAX_ROWS: usize = 16;

/// Is a matrix of bits: a row for each hash of a short text, a column for each block of lessons.
///
/// A message holds a text only if the bits of all parts of three and of five bytes are set in its
/// block. No bit that should be set is missing, so nothing is ever lost; a set bit is a reason to
/// look. Three bytes alone say little where names are made of the same syllables, and five alone
/// say nothing about shorter needles. Memory: 128 bytes a lesson.
#[derive(Debug)]
pub(crate) struct Signature {
    /// Words of eight bytes.
    bits: Memory,
    /// Words of a row; whole tiles.
    width: usize,
    /// About how many bits of each row are set.
    counts: Box<[u32]>,
    /// A bit for each text of three bytes that is somewhere, by more bits of its hash than a row has.
    seen: Box<[u64]>,
}

impl Signature {
    pub(crate) fn of(messages: &Messages) -> Self {
        let width = messages.len().div_ceil(GROUP).next_multiple_of(TILE);
        let mut bits = Memory::zeroed(ROWS * width * 8);
        let mut counts = vec![0; ROWS];
        let mut seen = vec![0_u64; SEEN];
        // The first stays in the fastest cache, the second in the next.
        let (mut group, mut tile) = (vec![0_u64; ROWS], vec![[0_u64; TILE]; ROWS]);
        // The number of words in it is known, so that no place in it has to be checked.
        let group: &mut [u64; ROWS] = group.as_mut_array().expect("there are so many");
        for first in (0..width).step_by(TILE) {
            for at in 0..TILE {
                let start = (first + at) * GROUP;
                for doc in start..(start + GROUP).min(messages.len()) {
                    let bit = 1 << (doc % GROUP / BLOCK);
                    let see = |hash| {
                        let (at, bit) = place(hash);
                        // Nearly all are there already.
                        if seen[at] & bit == 0 {
                            seen[at] |= bit;
                        }
                    };
                    for_each_part(messages.get(doc), |hash| group[row(hash)] |= bit, see);
                }
                for (words, word) in tile.iter_mut().zip(group.iter_mut()) {
                    words[at] = std::mem::take(word);
                }
            }
            if (first / TILE).is_multiple_of(SAMPLE) {
                for (count, words) in counts.iter_mut().zip(&tile) {
                    *count += words.iter().map(|word| word.count_ones()).sum::<u32>();
                }
            }
            for (row, words) in tile.iter().enumerate() {
                let at = (row * width + first) * 8;
                let row = bits[at..at + TILE * 8].as_chunks_mut().0;
                for (bytes, word) in row.iter_mut().zip(words) {
                    *bytes = word.to_le_bytes();
                }
            }
        }
        Self { bits, width, counts: counts.into(), seen: seen.into() }
    }

    /// Returns the ranges of `docs` in which the text may be.
    pub(crate) fn runs(&self, docs: Range<u32>, needle: &[u8]) -> Runs<'_> {
        let (mut rows, mut is_unseen) = (Vec::new(), false);
        let see = |hash| {
            let (at, bit) = place(hash);
            is_unseen |= self.seen[at] & bit == 0;
        };
        for_each_part(needle, |hash| rows.push(row(hash)), see);
        if is_unseen {
            return Runs::One(None);
        }
        rows.sort_unstable();
        rows.dedup();
        if rows.is_empty() || docs.is_empty() {
            return Runs::One(Some(docs));
        }
        // The rows with the fewest bits first: most groups are done with after one or two.
        rows.sort_by_key(|row| self.counts[*row]);
        rows.truncate(MAX_ROWS);
        Runs::Many(Candidates::new(self, rows, docs))
    }

    /// Sets `common` to the bits that some rows have in common, of up to [`Candidates::MANY`] tiles
    /// from the group `first` on.
    ///
    /// One row after the other, so that memory is read in its order where there is much to read.
    fn common(&self, rows: &[usize], first: usize, common: &mut [[u64; TILE]]) {
        common.fill([u64::MAX; TILE]);
        // The tiles that have bits left, a bit for each.
        let mut live = [0; Candidates::MANY / 64];
        for (live, tiles) in live.iter_mut().zip(common.chunks(64)) {
            *live = u64::MAX >> (64 - tiles.len());
        }
        for row in rows {
            let at = (row * self.width + first) * 8;
            let words = &self.bits[at..at + common.len() * TILE * 8];
            let words = words.as_chunks::<8>().0.as_chunks::<TILE>().0;
            for ((live, common), words) in
                live.iter_mut().zip(common.chunks_mut(64)).zip(words.chunks(64))
            {
                let mut tiles = *live;
                while tiles != 0 {
                    let tile = tiles.trailing_zeros() as usize;
                    tiles &= tiles - 1;
                    // As arrays, so that several words are one instruction.
                    let (old, words) = (common[tile], words[tile].map(u64::from_le_bytes));
                    let new: [u64; TILE] = std::array::from_fn(|at| old[at] & words[at]);
                    common[tile] = new;
                    let any = new.iter().fold(0, |any, word| any | word);
                    *live &= !(u64::from(any == 0) << tile);
                }
            }
        }
    }
}

/// Calls `on_part` with the hash of each part of three and of five bytes, and `on_three` with those
/// of three bytes too.
#[inline]
fn for_each_part(text: &[u8], mut on_part: impl FnMut(u64), mut on_three: impl FnMut(u64)) {
    const THREE: u64 = (1 << 24) - 1;
    const FIVE: u64 = (1 << 40) - 1;
    let mut take = |word: u64, has_five: bool| {
        let three = hash(word & THREE);
        on_part(three);
        on_three(three);
        if has_five {
            on_part(hash(word & FIVE));
        }
    };
    for window in text.windows(8) {
        take(u64::from_le_bytes(window.try_into().expect("eight bytes")), true);
    }
    let last = &text[text.len().saturating_sub(7)..];
    let mut rest = [0; 8];
    rest[..last.len()].copy_from_slice(last);
    let mut word = u64::from_le_bytes(rest);
    for left in (3..=last.len()).rev() {
        take(word, left >= 5);
        word >>= 8;
    }
}

fn hash(part: u64) -> u64 {
    part.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn row(hash: u64) -> usize {
    usize::try_from(hash >> (64 - ROWS_BITS)).expect("a few bits")
}

/// Returns the word and the bit that tell whether a text is anywhere.
fn place(hash: u64) -> (usize, u64) {
    let at = usize::try_from(hash >> (64 - SEEN_BITS)).expect("a few bits");
    (at / 64, 1 << (at % 64))
}

/// Walks over the blocks that may hold a text, neighbours in one range.
pub(crate) struct Candidates<'a> {
    signature: &'a Signature,
    rows: Vec<usize>,
    docs: Range<u32>,
    /// The tiles in hand, and their first group.
    tiles: Vec<[u64; TILE]>,
    first: usize,
    /// The group in hand, and its blocks that are left.
    group: usize,
    blocks: u64,
}

impl<'a> Candidates<'a> {
    /// Tiles that are looked at together, first and at most: most texts are found in the first few,
    /// and for the others memory is waited for less often the more there are.
    const FEW: usize = 4;
    const MANY: usize = 512;

    fn new(signature: &'a Signature, rows: Vec<usize>, docs: Range<u32>) -> Self {
        let group = docs.start as usize / GROUP;
        let first = group / TILE * TILE;
        let mut candidates =
            Self { signature, rows, docs, tiles: Vec::new(), first, group, blocks: 0 };
        candidates.load();
        candidates
    }

    /// Takes the group in hand.
    fn load(&mut self) {
        let mut at = self.group - self.first;
        if at >= self.tiles.len() * TILE {
            self.first += self.tiles.len() * TILE;
            at = self.group - self.first;
            let left = (self.signature.width.saturating_sub(self.first)) / TILE;
            let wanted = (self.tiles.len() * 8).clamp(Self::FEW, Self::MANY).min(left);
            self.tiles.resize(wanted, [0; TILE]);
            if wanted > 0 {
                self.signature.common(&self.rows, self.first, &mut self.tiles);
            }
        }
        self.blocks = self.tiles.as_flattened().get(at).copied().unwrap_or(0);
    }
}

impl Iterator for Candidates<'_> {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        loop {
            let first_doc = self.group * GROUP;
            if first_doc >= self.docs.end as usize {
                return None;
            }
            if self.blocks == 0 {
                self.group += 1;
                self.load();
                continue;
            }
            let start = self.blocks.trailing_zeros();
            let len = (self.blocks >> start).trailing_ones();
            self.blocks &= u64::MAX.checked_shl(start + len).unwrap_or(0);
            let run = first_doc + start as usize * BLOCK;
            let run = narrow(run)..narrow(run + len as usize * BLOCK);
            let run = run.start.max(self.docs.start)..run.end.min(self.docs.end);
            if run.start < run.end {
                return Some(run);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_all_runs_of_three_and_of_five_bytes() {
        let text: Vec<u8> = (0..40_u8).map(|n| n.wrapping_mul(53) % 7).collect();
        let hash_of = |part: &[u8]| {
            hash(part.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
        };
        for text in (0..=text.len()).map(|len| &text[..len]) {
            let (mut parts, mut threes) = (Vec::new(), Vec::new());
            for_each_part(text, |part| parts.push(part), |three| threes.push(three));
            let mut of_three: Vec<u64> = text.windows(3).map(hash_of).collect();
            assert_eq!(threes, of_three);
            of_three.extend(text.windows(5).map(hash_of));
            of_three.sort_unstable();
            parts.sort_unstable();
            assert_eq!(parts, of_three);
        }
    }
}
