//! Which blocks of messages can hold a text: a bit for each block and each group of trigrams.

use std::ops::Range;

use crate::draft::narrow;
use crate::messages::{Messages, Runs};

/// Lessons whose messages share a bit.
const BLOCK: usize = 4;

/// Lessons of one word of bits.
const GROUP: usize = BLOCK * 64;

/// Trigrams fall into so many groups by their hash, each of which is a row of bits.
const ROWS_BITS: u32 = 11;
const ROWS: usize = 1 << ROWS_BITS;

/// Words of a row that are filled together, so that they share a line of the cache.
const TILE: usize = 8;

/// Words of a row that tell how full it is.
const SAMPLE: usize = 32;

/// Bits that tell which trigrams are in no message at all.
const SEEN_BITS: u32 = 20;

/// More trigrams of a needle hardly say more.
const MAX_TRIGRAMS: usize = 24;

/// Is a matrix of bits: a row for each hash of a trigram, a column for each block of lessons.
///
/// A message holds a text only if the bits of all its trigrams are set in its block. No bit that
/// should be set is missing, so nothing is ever lost; a set bit is a reason to look. Memory: 64
/// bytes a lesson, and 128 KiB.
#[derive(Debug)]
pub(crate) struct Signature {
    bits: Box<[u64]>,
    /// Words of a row.
    width: usize,
    /// A bit for each trigram that is somewhere, by more bits of its hash than a row has.
    seen: Box<[u64]>,
}

impl Signature {
    pub(crate) fn of(messages: &Messages) -> Self {
        let width = messages.len().div_ceil(GROUP);
        let mut bits = vec![0_u64; ROWS * width];
        let mut tile = vec![[0_u64; TILE]; ROWS];
        let mut seen = vec![0_u64; 1 << (SEEN_BITS - 6)];
        for first in (0..width).step_by(TILE) {
            let docs = first * GROUP..((first + TILE) * GROUP).min(messages.len());
            for doc in docs {
                let word = doc / GROUP - first;
                let bit = 1 << (doc % GROUP / BLOCK);
                for trigram in messages.get(doc).windows(3) {
                    let hash = hash(trigram);
                    tile[row(hash)][word] |= bit;
                    let (at, bit) = place(hash);
                    seen[at] |= bit;
                }
            }
            let used = TILE.min(width - first);
            for (row, words) in tile.iter_mut().enumerate() {
                let at = row * width + first;
                bits[at..at + used].copy_from_slice(&words[..used]);
                *words = [0; TILE];
            }
        }
        Self { bits: bits.into(), width, seen: seen.into() }
    }

    /// Returns the ranges of `docs` in which the text may be.
    pub(crate) fn runs(&self, docs: Range<u32>, needle: &[u8]) -> Runs<'_> {
        let hashes = needle.windows(3).map(hash);
        let is_unseen = |(at, bit): (usize, u64)| self.seen[at] & bit == 0;
        if hashes.clone().any(|hash| is_unseen(place(hash))) {
            return Runs::One(None);
        }
        let mut rows: Vec<usize> = hashes.map(row).collect();
        rows.sort_unstable();
        rows.dedup();
        if rows.is_empty() || docs.is_empty() {
            return Runs::One(Some(docs));
        }
        // The rows with the fewest bits first: most groups are done with after one or two.
        let sample = self.width.min(SAMPLE);
        let bits = |row: &usize| {
            let words = &self.bits[row * self.width..][..sample];
            words.iter().map(|word| word.count_ones()).sum::<u32>()
        };
        rows.sort_by_cached_key(bits);
        rows.truncate(MAX_TRIGRAMS);
        let group = docs.start as usize / GROUP;
        Runs::Many(Candidates { signature: self, rows, docs, group, blocks: None })
    }
}

fn hash(trigram: &[u8]) -> u32 {
    let [a, b, c] = [trigram[0], trigram[1], trigram[2]].map(u32::from);
    (a | b << 8 | c << 16).wrapping_mul(0x9E37_79B1)
}

fn row(hash: u32) -> usize {
    (hash >> (32 - ROWS_BITS)) as usize
}

/// Returns the word and the bit that tell whether a trigram is anywhere.
fn place(hash: u32) -> (usize, u64) {
    let at = hash >> (32 - SEEN_BITS);
    ((at >> 6) as usize, 1 << (at & 63))
}

/// Walks over the blocks that may hold a text, neighbours in one range.
pub(crate) struct Candidates<'a> {
    signature: &'a Signature,
    rows: Vec<usize>,
    docs: Range<u32>,
    /// The group in hand, and its blocks that are left.
    group: usize,
    blocks: Option<u64>,
}

impl Candidates<'_> {
    fn blocks_of_group(&self) -> u64 {
        let Signature { bits, width, .. } = self.signature;
        let mut blocks = u64::MAX;
        for row in &self.rows {
            blocks &= bits[row * width + self.group];
            if blocks == 0 {
                break;
            }
        }
        blocks
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
            let blocks = match self.blocks {
                Some(blocks) => blocks,
                None => self.blocks_of_group(),
            };
            if blocks == 0 {
                self.group += 1;
                self.blocks = None;
                continue;
            }
            let start = blocks.trailing_zeros();
            let len = (blocks >> start).trailing_ones();
            let taken = u64::MAX.checked_shl(start + len).unwrap_or(0);
            self.blocks = Some(blocks & taken);
            let run = first_doc + start as usize * BLOCK;
            let run = narrow(run)..narrow(run + len as usize * BLOCK);
            let run = run.start.max(self.docs.start)..run.end.min(self.docs.end);
            if run.start < run.end {
                return Some(run);
            }
        }
    }
}
