//! Which lessons have which words, for ranking.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::draft::narrow;
use crate::fold;
use crate::hash::{self, Hasher};
use crate::record::Field;
use crate::segment::Segment;

/// Words in at least one of so many lessons are kept as a bit for each lesson.
const DENSE: usize = 32;

/// Longer messages count as this long.
pub(crate) const MAX_LEN: u8 = u8::MAX;

/// Calls `on_word` with the hash of each word of folded text, repetitions included.
///
/// Words are letters, digits and `_`; all of what is not ASCII counts as letters. Single bytes
/// are no words.
pub(crate) fn for_each_word(folded: &[u8], mut on_word: impl FnMut(u64, &[u8])) {
    /// A look-up is less than the comparisons, and there is one for each byte.
    const INSIDE: [bool; 256] = {
        let mut inside = [false; 256];
        let mut byte = 0_u8;
        loop {
            inside[byte as usize] = byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
            if byte == u8::MAX {
                break inside;
            }
            byte += 1;
        }
    };
    let words = folded.split(|byte| !INSIDE[usize::from(*byte)]);
    for word in words.filter(|word| word.len() > 1) {
        on_word(hash::of_word(word), word);
    }
}

/// Folds the texts that a lesson is ranked by.
pub(crate) fn ranked_text(texts: [&str; 3], out: &mut Vec<u8>) {
    out.clear();
    for text in texts {
        fold::fold_into(text, out);
        out.push(b' ');
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
    gaps: Box<[u8]>,
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

/// Is every distinct word of every lesson, one after the other, by number.
struct Stream {
    known: HashMap<u64, Word, Hasher>,
    words: Vec<u32>,
    /// Where the words of each lesson end.
    ends: Vec<u32>,
}

/// Is all that is known of a word, in one line of the cache.
struct Word {
    number: u32,
    /// How many lessons have it, and how many bytes the gaps between them take.
    count: u32,
    bytes: u32,
    /// One more than the last of them.
    next: u32,
}

/// Is where a word's list or row begins, and then where its next gap goes.
#[derive(Clone, Copy, Default)]
struct Place {
    at: usize,
    next: u32,
    is_dense: bool,
}

impl Stream {
    fn of(segment: &Segment) -> Self {
        let count = segment.len() as usize;
        let mut stream = Self {
            known: HashMap::default(),
            words: Vec::with_capacity(count * 16),
            ends: Vec::with_capacity(count),
        };
        let mut text = Vec::new();
        for doc in 0..segment.len() {
            let pattern = segment.column(Field::Pattern).text_of(doc);
            ranked_text([&segment.message(doc), &segment.resolution(doc), pattern], &mut text);
            for_each_word(&text, |word, _| {
                let number = narrow(stream.known.len());
                let new = Word { number, count: 0, bytes: 0, next: 0 };
                let word = stream.known.entry(word).or_insert(new);
                if word.count == 0 || word.next <= doc {
                    word.count += 1;
                    word.bytes += gap_len(doc - word.next);
                    word.next = doc + 1;
                    stream.words.push(word.number);
                }
            });
            stream.ends.push(narrow(stream.words.len()));
        }
        stream
    }

    fn pack(self) -> Terms {
        let Self { known, words, ends } = self;
        let lessons = ends.len();
        let width = lessons.div_ceil(64);
        let mut by_hash: Vec<(u64, Word)> = known.into_iter().collect();
        by_hash.sort_unstable_by_key(|(hash, _)| *hash);
        let mut places = vec![Place::default(); by_hash.len()];
        let (mut gaps_len, mut rows) = (0, 0);
        let mut lists = Vec::with_capacity(by_hash.len());
        for (_, word) in &by_hash {
            let is_dense = is_dense(word.count, lessons);
            let at = if is_dense { rows } else { gaps_len };
            places[word.number as usize] = Place { at, next: 0, is_dense };
            lists.push((word.count, narrow(at)));
            if is_dense {
                rows += 1;
            } else {
                gaps_len += word.bytes as usize;
            }
        }
        let (mut gaps, mut bits) = (vec![0_u8; gaps_len], vec![0_u64; rows * width]);
        let mut lens = Vec::with_capacity(lessons);
        let mut from = 0;
        for (doc, end) in (0_u32..).zip(&ends) {
            let own = &words[from..*end as usize];
            for number in own {
                let place = &mut places[*number as usize];
                if place.is_dense {
                    bits[place.at * width + doc as usize / 64] |= 1 << (doc % 64);
                } else {
                    place.at += put_gap(doc - place.next, &mut gaps[place.at..]);
                    place.next = doc + 1;
                }
            }
            lens.push(u8::try_from(own.len()).unwrap_or(MAX_LEN));
            from = *end as usize;
        }
        Terms {
            words: by_hash.into_iter().map(|(hash, _)| hash).collect(),
            lists: lists.into(),
            gaps: gaps.into(),
            bits: bits.into(),
            width,
            shortest_len: lens.iter().min().copied().unwrap_or_default(),
            total_len: lens.iter().map(|len| u64::from(*len)).sum(),
            lens: lens.into(),
        }
    }
}

fn gap_len(gap: u32) -> u32 {
    (32 - gap.leading_zeros()).div_ceil(7).max(1)
}

/// Writes a gap and returns how many bytes it takes.
fn put_gap(mut gap: u32, out: &mut [u8]) -> usize {
    let mut len = 0;
    while gap >= 0x80 {
        out[len] = 0x80 | u8::try_from(gap & 0x7F).expect("seven bits");
        gap >>= 7;
        len += 1;
    }
    out[len] = u8::try_from(gap).expect("seven bits");
    len + 1
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
