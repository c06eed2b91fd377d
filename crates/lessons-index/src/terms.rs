//! Which lessons have which words, for ranking.

use std::borrow::Cow;
use std::hint::black_box;

use crate::draft::narrow;
use crate::fold;
use crate::hash;
use crate::lists::{Lists, Tail};
use crate::memory::{Growing, Memory};
use crate::record::Field;
use crate::segment::Segment;

/// Words in at least one of so many lessons are kept as a bit for each lesson.
const DENSE: usize = 32;

/// Longer messages count as this long.
pub(crate) const MAX_LEN: u8 = u8::MAX;

/// Calls `on_word` with the hash of each word of folded text, repetitions included.
///
/// Words are letters, digits and `_`; all of what is not ASCII counts as letters, so that
/// [`part_words`] comes first. Single bytes are no words.
pub(crate) fn for_each_word(folded: &[u8], mut on_word: impl FnMut(u64, &[u8])) {
    let hasher = hash::hasher();
    let mut on_range = |start: usize, end: usize| {
        if end - start > 1 {
            let word = &folded[start..end];
            on_word(hash::of_word(hasher, word), word);
        }
    };
    // Where the word in hand begins.
    let mut start = None;
    let (chunks, rest) = folded.as_chunks();
    let mut last = [0; CHUNK];
    last[..rest.len()].copy_from_slice(rest);
    for (at, chunk) in chunks.iter().chain([&last]).enumerate() {
        let inside = inside(chunk);
        // A bit for each byte that is not as the one before it.
        let mut edges = inside ^ (inside << 1 | u64::from(start.is_some()));
        while edges != 0 {
            let edge = at * CHUNK + edges.trailing_zeros() as usize;
            match start.take() {
                Some(start) => on_range(start, edge),
                None => start = Some(edge),
            }
            edges &= edges - 1;
        }
    }
    // The last chunk is never full.
    debug_assert!(start.is_none(), "a word ends where the text does");
}

/// Bytes that are looked at together.
const CHUNK: usize = 64;

/// Returns a bit for each byte that is of a word.
fn inside(chunk: &[u8; CHUNK]) -> u64 {
    /// Moves the lowest bit of each byte to the highest byte.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let is_inside = |byte: u8| {
        let is_digit = byte.wrapping_sub(b'0') < 10;
        let is_letter = (byte | 0x20).wrapping_sub(b'a') < 26;
        u8::from(is_digit || is_letter || byte == b'_' || byte >= 0x80)
    };
    let flags = chunk.map(is_inside);
    let words = flags.as_chunks::<8>().0.iter().enumerate();
    words.fold(0, |bits, (at, word)| {
        bits | (u64::from_le_bytes(*word).wrapping_mul(GATHER) >> 56) << (8 * at)
    })
}

/// Puts blanks in place of marks that stand between words and are not ASCII: quotes, dashes and
/// dots of all kinds, and blanks that do not break.
pub(crate) fn part_words(folded: &mut [u8]) {
    let mut at = 0;
    while let Some(found) = folded[at..].iter().position(|byte| *byte >= 0x80) {
        at += found;
        let len = match folded[at..] {
            // U+00A0 to U+00BF but for letters.
            [0xC2, 0xA0..=0xA9 | 0xAB..=0xB4 | 0xB6..=0xB9 | 0xBB..=0xBF, ..] => 2,
            // U+2000 to U+206F but for what joins the letters of a word, and U+3000 to U+303F but
            // for letters.
            [0xE2, 0x80, 0x80..=0x8B | 0x8E..=0xBF, ..]
            | [0xE2, 0x81, 0x80..=0xAF, ..]
            | [0xE3, 0x80, 0x80..=0x84 | 0x88..=0xBF, ..] => 3,
            _ => 0,
        };
        folded[at..at + len].fill(b' ');
        at += len.max(1);
    }
}

/// Folds the texts that a lesson is ranked by, behind what is there already.
pub(crate) fn ranked_text(texts: &[&str], out: &mut Vec<u8>) {
    for text in texts {
        fold::fold_into(text, out);
        out.push(b' ');
    }
    if !out.is_ascii() {
        part_words(out);
    }
}

/// Holds the words of a segment.
#[derive(Debug)]
pub(crate) struct Terms {
    /// The hashes of all words, in order. Two words with one hash of 64 bits count as one.
    words: Box<[u64]>,
    /// By word: how many lessons have it, and where its list of gaps or its row of bits begins.
    lists: Box<[(u32, u32)]>,
    /// Lists of gaps between lessons, seven bits a byte.
    gaps: Memory,
    /// Rows of bits, each `width` words.
    bits: Box<[u64]>,
    width: usize,
    /// How many distinct words each lesson has.
    lens: Box<[u8]>,
    shortest_len: u8,
    total_len: u64,
}

impl Terms {
    pub(crate) fn of(segment: &Segment) -> Self {
        Stream::of(segment).pack()
    }

    /// Returns how many lessons have a word, dead ones included.
    pub(crate) fn count(&self, word: u64) -> u32 {
        self.words.binary_search(&word).map_or(0, |at| self.lists[at].0)
    }

    /// Returns a bit for each lesson that has a word; `None` if none has.
    pub(crate) fn bits(&self, word: u64) -> Option<Cow<'_, [u64]>> {
        let (count, at) = self.lists[self.words.binary_search(&word).ok()?];
        let at = at as usize;
        if is_dense(count, self.lens.len()) {
            return Some(self.bits[at * self.width..(at + 1) * self.width].into());
        }
        let mut bits = vec![0; self.width];
        set_bits(&self.gaps[at..], count, &mut bits);
        Some(bits.into())
    }

    /// Returns how many distinct words each lesson has, up to [`MAX_LEN`].
    pub(crate) fn lens(&self) -> &[u8] {
        &self.lens
    }

    /// Returns the smallest of those.
    pub(crate) fn shortest_len(&self) -> u8 {
        self.shortest_len
    }

    /// Returns the sum of those.
    pub(crate) fn total_len(&self) -> u64 {
        self.total_len
    }
}

fn is_dense(count: u32, lessons: usize) -> bool {
    count as usize > lessons / DENSE
}

/// Collects the words of one lesson after the other.
struct Stream {
    known: Known,
    /// The gaps of each word.
    gaps: Lists,
    /// How many distinct words each lesson has.
    lens: Vec<u8>,
}

/// Finds words by their hash, in a table with one line of the cache for each look-up.
struct Known {
    slots: Vec<Slot>,
    len: usize,
}

/// Is a word, or free if no lesson has it.
#[derive(Clone, Copy, Default)]
struct Slot {
    hash: u64,
    /// How many lessons have it.
    count: u32,
    /// One more than the last of them.
    next: u32,
    gaps: Tail,
}

impl Known {
    fn new() -> Self {
        Self { slots: vec![Slot::default(); 1 << 12], len: 0 }
    }

    /// Returns the slot of a word; a lesson is to be added to a new one.
    #[inline]
    fn get(&mut self, hash: u64) -> &mut Slot {
        if self.len >= self.slots.len() / 4 * 3 {
            self.grow();
        }
        let at = self.find(hash);
        let slot = &mut self.slots[at];
        if slot.count == 0 {
            slot.hash = hash;
            self.len += 1;
        }
        slot
    }

    #[cold]
    fn grow(&mut self) {
        let slots = vec![Slot::default(); self.slots.len() * 2];
        for slot in std::mem::replace(&mut self.slots, slots) {
            if slot.count > 0 {
                let at = self.find(slot.hash);
                self.slots[at] = slot;
            }
        }
    }

    /// Brings slots that are about to be asked for into the cache, which does not wait for one after
    /// the other.
    fn touch(&self, hashes: &[u64]) {
        let counts = hashes.iter().map(|hash| self.slots[self.start(*hash)].count);
        black_box(counts.fold(0, |all, count| all ^ count));
    }

    fn start(&self, hash: u64) -> usize {
        usize::try_from(hash >> 32).expect("32 bits") & (self.slots.len() - 1)
    }

    fn find(&self, hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.start(hash);
        while self.slots[at].count > 0 && self.slots[at].hash != hash {
            at = (at + 1) & mask;
        }
        at
    }
}

impl Stream {
    fn of(segment: &Segment) -> Self {
        /// About as many bytes as the gaps of the words of a lesson take, and their room.
        const ROOM: usize = 64;
        let count = segment.len() as usize;
        let mut stream = Self {
            known: Known::new(),
            gaps: Lists::with_room(count * ROOM),
            lens: Vec::with_capacity(count),
        };
        let (mut text, mut hashes, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for docs in segment.docs_together() {
            segment.touch(docs.clone(), |texts| texts.resolution);
            for doc in docs {
                let pattern = segment.column(Field::Pattern).text_of(doc);
                text.clear();
                match segment.messages.get() {
                    Some(messages) => text.extend_from_slice(messages.get(doc as usize)),
                    None => segment.fold_message(doc, &mut text),
                }
                text.push(b' ');
                segment.fold_resolution(doc, &mut text);
                text.push(b' ');
                ranked_text(&[pattern], &mut text);
                for_each_word(&text, |word, _| hashes.push(word));
                ends.push(hashes.len());
            }
            stream.take(&mut hashes, &mut ends);
        }
        stream
    }

    /// Takes the words of some lessons, which end at `ends` each.
    fn take(&mut self, hashes: &mut Vec<u64>, ends: &mut Vec<usize>) {
        self.known.touch(hashes);
        let mut from = 0;
        for end in ends.drain(..) {
            let (doc, mut len) = (narrow(self.lens.len()), 0);
            for word in &hashes[from..end] {
                let slot = self.known.get(*word);
                if slot.next <= doc {
                    put_gap(doc - slot.next, |byte| self.gaps.push(&mut slot.gaps, byte));
                    slot.count += 1;
                    slot.next = doc + 1;
                    len += 1;
                }
            }
            self.lens.push(u8::try_from(len).unwrap_or(MAX_LEN));
            from = end;
        }
        hashes.clear();
    }

    fn pack(self) -> Terms {
        let Self { known, gaps: lists_of_gaps, lens } = self;
        let width = lens.len().div_ceil(64);
        let mut by_hash = known.slots;
        by_hash.retain(|slot| slot.count > 0);
        by_hash.sort_unstable_by_key(|slot| slot.hash);
        let is_dense = |slot: &&Slot| is_dense(slot.count, lens.len());
        let mut bits = vec![0_u64; by_hash.iter().filter(is_dense).count() * width];
        let mut gaps = Growing::with_room(lists_of_gaps.len());
        let (mut own, mut rows) = (Vec::new(), 0);
        let mut lists = Vec::with_capacity(by_hash.len());
        for slot in &by_hash {
            own.clear();
            lists_of_gaps.read(slot.gaps, &mut own);
            if is_dense(&slot) {
                lists.push((slot.count, narrow(rows)));
                set_bits(&own, slot.count, &mut bits[rows * width..(rows + 1) * width]);
                rows += 1;
            } else {
                lists.push((slot.count, narrow(gaps.len())));
                gaps.append(&own);
            }
        }
        Terms {
            words: by_hash.iter().map(|slot| slot.hash).collect(),
            lists: lists.into(),
            gaps: gaps.finish(),
            bits: bits.into(),
            width,
            shortest_len: lens.iter().min().copied().unwrap_or_default(),
            total_len: lens.iter().map(|len| u64::from(*len)).sum(),
            lens: lens.into(),
        }
    }
}

/// Hands on the bytes of a gap.
#[inline]
fn put_gap(mut gap: u32, mut put: impl FnMut(u8)) {
    while gap >= 0x80 {
        put(0x80 | u8::try_from(gap & 0x7F).expect("seven bits"));
        gap >>= 7;
    }
    put(u8::try_from(gap).expect("seven bits"));
}

fn set_bits(gaps: &[u8], count: u32, bits: &mut [u64]) {
    let (mut bytes, mut doc) = (gaps.iter(), 0_usize);
    for _ in 0..count {
        let mut shift = 0;
        for byte in bytes.by_ref() {
            doc += usize::from(byte & 0x7F) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        bits[doc / 64] |= 1 << (doc % 64);
        doc += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Words may begin and end anywhere, and be longer than what is looked at together.
        #[test]
        fn words_are_what_is_between_other_bytes(
            text in prop::collection::vec(prop::sample::select(b"ab09_ .:-`/z\xC3\xA4\0".to_vec()), 0..300),
            long in 0..200_usize,
        ) {
            let text = [text, b"x".repeat(long)].concat();
            let is_inside = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || *b >= 0x80;
            let words = text.split(|b| !is_inside(b)).filter(|word| word.len() > 1);
            let wanted: Vec<(u64, &[u8])> = words.map(|w| (hash::of_word(hash::hasher(), w), w)).collect();
            let mut found = Vec::new();
            for_each_word(&text, |hash, word| found.push((hash, word.to_vec())));
            prop_assert_eq!(found.len(), wanted.len());
            prop_assert!(found.iter().zip(&wanted).all(|(a, b)| a.0 == b.0 && a.1 == b.1));
        }
    }

    #[test]
    fn marks_of_all_scripts_stand_between_words() {
        for (text, wanted) in [
            ("error: \u{2018}foo\u{2019} undeclared", "error:    foo    undeclared"),
            ("a\u{2014}b\u{2026}c\u{A0}d\u{AB}e\u{3000}f\u{3002}", "a   b   c  d  e   f   "),
            ("\u{B5}m \u{AA} \u{3005}", "\u{B5}m \u{AA} \u{3005}"),
            ("\u{200D}x\u{200C}", "\u{200D}x\u{200C}"),
            ("\u{E9}t\u{E9} \u{4E00}\u{2190}\u{3041}", "\u{E9}t\u{E9} \u{4E00}\u{2190}\u{3041}"),
        ] {
            let mut bytes = text.as_bytes().to_vec();
            part_words(&mut bytes);
            assert_eq!(String::from_utf8(bytes).as_deref(), Ok(wanted), "{text:?}");
        }
    }
}
