//! The values of one exact field: each text once, and the lessons with it.

use std::collections::HashMap;

use crate::draft::narrow;
use crate::hash::Hasher;
use crate::memory::Memory;
use crate::numbers::Numbers;

/// A text that more than one in so many lessons has is kept as a bit for each lesson too.
const DENSE: usize = 64;

/// Names the texts of a field by number.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    texts: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u32, Hasher>,
    recent: Recent,
}

/// Remembers the numbers of short texts that came last: most lines have one of a few.
#[derive(Debug, Default)]
struct Recent {
    /// By a few bits of the text, two each; empty before the first.
    known: Vec<[(Short, u32); 2]>,
}

/// Is a text of 4 to 16 bytes: its length, its first bytes and its last ones, which overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Short {
    first: u64,
    last: u64,
    /// Zero where there is no text.
    len: u32,
}

impl Short {
    #[inline]
    fn of(bytes: &[u8]) -> Option<Self> {
        let len = u32::try_from(bytes.len()).ok()?;
        let (first, last) = match len {
            4..8 => {
                let (first, last) = (bytes.first_chunk()?, bytes.last_chunk()?);
                (u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into())
            }
            8..=16 => {
                let (first, last) = (bytes.first_chunk()?, bytes.last_chunk()?);
                (u64::from_le_bytes(*first), u64::from_le_bytes(*last))
            }
            _ => return None,
        };
        Some(Self { first, last, len })
    }

    fn place(self) -> usize {
        let mixed = (self.first.rotate_left(29) ^ self.last).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        usize::try_from(mixed >> (64 - Recent::BITS)).expect("a few bits")
    }
}

impl Recent {
    const BITS: u32 = 9;

    #[inline]
    fn get(&self, text: Short) -> Option<u32> {
        let [first, second] = self.known.get(text.place())?;
        if first.0 == text {
            return Some(first.1);
        }
        (second.0 == text).then_some(second.1)
    }

    fn put(&mut self, text: Short, number: u32) {
        self.known.resize(1 << Self::BITS, Default::default());
        let [first, second] = &mut self.known[text.place()];
        *second = std::mem::replace(first, (text, number));
    }
}

impl Symbols {
    /// Returns the number of a text.
    #[inline]
    pub(crate) fn intern(&mut self, text: &[u8]) -> u32 {
        let short = Short::of(text);
        if let Some(number) = short.and_then(|short| self.recent.get(short)) {
            return number;
        }
        let number = self.number(text);
        if let Some(short) = short {
            self.recent.put(short, number);
        }
        number
    }

    fn number(&mut self, text: &[u8]) -> u32 {
        let text = std::str::from_utf8(text).expect("names are text");
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = u32::try_from(self.texts.len()).expect("fewer texts than lessons");
        self.texts.push(text.into());
        self.numbers.insert(text.into(), number);
        number
    }

    /// Forgets what only helps while texts come in.
    pub(crate) fn settle(&mut self) {
        self.recent = Recent::default();
    }

    pub(crate) fn texts(&self) -> &[Box<str>] {
        &self.texts
    }
}

/// Holds a field of all lessons of a segment.
#[derive(Debug)]
pub(crate) struct Column {
    symbols: Symbols,
    /// The text of each lesson.
    of: Numbers,
    /// Where the list of each text begins.
    starts: Box<[u32]>,
    /// The lists end to end, each in the order of the segment.
    lists: Memory<u32>,
    /// The texts that many lessons have, in order.
    dense: Box<[u32]>,
    /// Their rows of bits, of `width` words each.
    bits: Memory<u64>,
    width: usize,
}

impl Column {
    pub(crate) fn new(mut symbols: Symbols, of: Numbers) -> Self {
        symbols.settle();
        let index = |symbol| usize::try_from(symbol).expect("it was made of 32 bits");
        let mut starts = vec![0_u32; symbols.texts.len() + 1];
        of.each(|symbol| starts[index(symbol) + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let (mut next, mut lists, mut doc) = (starts.clone(), Memory::zeroed(of.len()), 0);
        let places: &mut [u32] = &mut lists;
        of.each(|symbol| {
            let place = &mut next[index(symbol)];
            places[*place as usize] = doc;
            *place += 1;
            doc += 1;
        });
        let width = of.len().div_ceil(64);
        let list = |symbol: u32| {
            &lists[starts[symbol as usize] as usize..starts[symbol as usize + 1] as usize]
        };
        let is_dense = |symbol: &u32| list(*symbol).len() > of.len() / DENSE;
        let dense: Box<[u32]> = (0..narrow(symbols.texts.len())).filter(is_dense).collect();
        let mut bits = Memory::zeroed(dense.len() * width);
        for (row, symbol) in bits.chunks_exact_mut(width.max(1)).zip(&dense) {
            for doc in list(*symbol) {
                row[*doc as usize / 64] |= 1 << (doc % 64);
            }
        }
        Self { symbols, of, starts: starts.into(), lists, dense, bits, width }
    }

    /// Returns the number of a text, if a lesson has it.
    pub(crate) fn symbol(&self, text: &str) -> Option<u32> {
        self.symbols.numbers.get(text).copied()
    }

    pub(crate) fn symbol_of(&self, doc: u32) -> u32 {
        u32::try_from(self.of.get(doc as usize)).expect("it was made of 32 bits")
    }

    pub(crate) fn text_of(&self, doc: u32) -> &str {
        &self.symbols.texts[self.symbol_of(doc) as usize]
    }

    /// Returns the lessons with a text, newest first.
    pub(crate) fn list(&self, symbol: u32) -> &[u32] {
        let symbol = symbol as usize;
        &self.lists[self.starts[symbol] as usize..self.starts[symbol + 1] as usize]
    }

    /// Returns a bit for each lesson with a text, if many have it.
    pub(crate) fn bits(&self, symbol: u32) -> Option<&[u64]> {
        let row = self.dense.binary_search(&symbol).ok()?;
        Some(&self.bits[row * self.width..(row + 1) * self.width])
    }

    /// Returns the texts with their lessons; a text may have none.
    pub(crate) fn lists(&self) -> impl Iterator<Item = (&str, &[u32])> {
        (0_u32..).zip(&self.symbols.texts).map(|(symbol, text)| (&**text, self.list(symbol)))
    }
}
