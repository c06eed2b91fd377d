//! The values of one exact field: each text once, and the lessons with it.

use std::collections::HashMap;

use crate::hash::Hasher;

/// Names the texts of a field by number.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    texts: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u32, Hasher>,
}

impl Symbols {
    pub(crate) fn intern(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = u32::try_from(self.texts.len()).expect("fewer texts than lessons");
        self.texts.push(text.into());
        self.numbers.insert(text.into(), number);
        number
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
    of: Box<[u32]>,
    /// Where the list of each text begins.
    starts: Box<[u32]>,
    /// The lists end to end, each in the order of the segment.
    lists: Box<[u32]>,
}

impl Column {
    pub(crate) fn new(symbols: Symbols, of: Vec<u32>) -> Self {
        let mut starts = vec![0_u32; symbols.texts.len() + 1];
        for symbol in &of {
            starts[*symbol as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let (mut next, mut lists) = (starts.clone(), vec![0; of.len()]);
        for (doc, symbol) in (0_u32..).zip(&of) {
            let place = &mut next[*symbol as usize];
            lists[*place as usize] = doc;
            *place += 1;
        }
        Self { symbols, of: of.into(), starts: starts.into(), lists: lists.into() }
    }

    /// Returns the number of a text, if a lesson has it.
    pub(crate) fn symbol(&self, text: &str) -> Option<u32> {
        self.symbols.numbers.get(text).copied()
    }

    pub(crate) fn symbol_of(&self, doc: u32) -> u32 {
        self.of[doc as usize]
    }

    pub(crate) fn text_of(&self, doc: u32) -> &str {
        &self.symbols.texts[self.of[doc as usize] as usize]
    }

    /// Returns the lessons with a text, newest first.
    pub(crate) fn list(&self, symbol: u32) -> &[u32] {
        let symbol = symbol as usize;
        &self.lists[self.starts[symbol] as usize..self.starts[symbol + 1] as usize]
    }

    /// Returns the texts with their lessons; a text may have none.
    pub(crate) fn lists(&self) -> impl Iterator<Item = (&str, &[u32])> {
        (0_u32..).zip(&self.symbols.texts).map(|(symbol, text)| (&**text, self.list(symbol)))
    }
}
