//! Which lessons have which words, for ranking.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::draft::narrow;
use crate::fold;
use crate::hash::{self, Hasher};
use crate::record::{Field, Record};
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
    let is_inside = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80;
    for word in folded.split(|byte| !is_inside(byte)).filter(|word| word.len() > 1) {
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

/// Returns the texts that a record is ranked by.
fn texts_of<'a>(record: &'a Record<'_>) -> [&'a str; 3] {
    [&record.failure_msg, &record.resolution, &record.exact[Field::Pattern as usize]]
}

/// Holds the words of a segment.
#[derive(Debug)]
pub(crate) struct Terms {
    /// By hash. Two words with one hash of 64 bits count as one.
    by_word: HashMap<u64, Term, Hasher>,
    /// Lists of gaps between lessons, seven bits a byte.
    gaps: Box<[u8]>,
    /// Rows of bits, each `width` words.
    bits: Box<[u64]>,
    width: usize,
    /// How many distinct words each lesson has.
    lens: Box<[u8]>,
    total_len: u64,
}

#[derive(Clone, Copy, Debug)]
struct Term {
    count: u32,
    /// Where its list of gaps or its row of bits begins.
    at: u32,
    is_dense: bool,
}

#[derive(Debug)]
struct Draft {
    count: u32,
    /// One more than the last lesson with it.
    next: u32,
    gaps: Vec<u8>,
}

impl Terms {
    pub(crate) fn of(segment: &Segment) -> Self {
        let mut numbers: HashMap<u64, u32, Hasher> = HashMap::default();
        let mut drafts: Vec<Draft> = Vec::new();
        let mut lens = Vec::with_capacity(segment.len() as usize);
        let mut text = Vec::new();
        for doc in 0..segment.len() {
            ranked_text(texts_of(&segment.record(doc)), &mut text);
            let mut len = 0_u8;
            for_each_word(&text, |word, _| {
                let number = *numbers.entry(word).or_insert_with(|| {
                    drafts.push(Draft { count: 0, next: 0, gaps: Vec::new() });
                    narrow(drafts.len() - 1)
                });
                len = len.saturating_add(u8::from(drafts[number as usize].add(doc)));
            });
            lens.push(len);
        }
        Self::pack(numbers, &drafts, lens)
    }

    fn pack(numbers: HashMap<u64, u32, Hasher>, drafts: &[Draft], lens: Vec<u8>) -> Self {
        let width = lens.len().div_ceil(64);
        let is_dense = |draft: &Draft| draft.count as usize > lens.len() / DENSE;
        let sparse_bytes = drafts.iter().filter(|d| !is_dense(d)).map(|d| d.gaps.len()).sum();
        let (mut gaps, mut bits) = (Vec::with_capacity(sparse_bytes), Vec::new());
        let packed: Vec<Term> = drafts
            .iter()
            .map(|draft| {
                if !is_dense(draft) {
                    let at = narrow(gaps.len());
                    gaps.extend_from_slice(&draft.gaps);
                    return Term { count: draft.count, at, is_dense: false };
                }
                let at = bits.len();
                bits.resize(at + width, 0);
                set_bits(&draft.gaps, draft.count, &mut bits[at..]);
                Term { count: draft.count, at: narrow(at / width), is_dense: true }
            })
            .collect();
        let by_word = numbers.into_iter().map(|(word, n)| (word, packed[n as usize])).collect();
        let total_len = lens.iter().map(|len| u64::from(*len)).sum();
        Self { by_word, gaps: gaps.into(), bits: bits.into(), width, lens: lens.into(), total_len }
    }

    /// Returns how many lessons have a word, dead ones included.
    pub(crate) fn count(&self, word: u64) -> u32 {
        self.by_word.get(&word).map_or(0, |term| term.count)
    }

    /// Returns a bit for each lesson that has a word; `None` if none has.
    pub(crate) fn bits(&self, word: u64) -> Option<Cow<'_, [u64]>> {
        let term = self.by_word.get(&word)?;
        let at = term.at as usize;
        if term.is_dense {
            return Some(self.bits[at * self.width..(at + 1) * self.width].into());
        }
        let mut bits = vec![0; self.width];
        set_bits(&self.gaps[at..], term.count, &mut bits);
        Some(bits.into())
    }

    /// Returns how many distinct words each lesson has, up to [`MAX_LEN`].
    pub(crate) fn lens(&self) -> &[u8] {
        &self.lens
    }

    /// Returns the sum of those.
    pub(crate) fn total_len(&self) -> u64 {
        self.total_len
    }
}

impl Draft {
    /// Returns whether the lesson is new to the word.
    fn add(&mut self, doc: u32) -> bool {
        if self.count > 0 && self.next > doc {
            return false;
        }
        let mut gap = doc - self.next;
        while gap >= 0x80 {
            self.gaps.push(0x80 | u8::try_from(gap & 0x7F).expect("seven bits"));
            gap >>= 7;
        }
        self.gaps.push(u8::try_from(gap).expect("seven bits"));
        self.count += 1;
        self.next = doc + 1;
        true
    }
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
