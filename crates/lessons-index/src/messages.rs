//! The failure messages of a segment, folded and end to end, and which of them can hold a text.

use std::ops::Range;

use memchr::memmem::Finder;

use crate::draft::narrow;
use crate::fold;
use crate::memory::Memory;
use crate::segment::Segment;
use crate::signature::Signature;

/// Stands behind each message; no UTF-8 text has this byte.
const BORDER: u8 = 0xFF;

/// Under this, one scan is as fast as asking an index first.
const INDEXED_FROM: usize = 4096;

/// Holds the messages, so that a search is a scan of memory, of a few blocks or of all.
#[derive(Debug)]
pub(crate) struct Messages {
    bytes: Memory,
    /// Where each message ends.
    ends: Box<[u32]>,
    signature: Option<Signature>,
}

impl Messages {
    pub(crate) fn of(segment: &Segment) -> Self {
        let count = segment.len() as usize;
        let (mut bytes, mut ends) = (Vec::with_capacity(count * 32), Vec::with_capacity(count));
        for doc in 0..segment.len() {
            fold::fold_into(&segment.message(doc), &mut bytes);
            ends.push(narrow(bytes.len()));
            bytes.push(BORDER);
        }
        let mut messages = Self { bytes: bytes.into(), ends: ends.into(), signature: None };
        if count >= INDEXED_FROM {
            messages.signature = Some(Signature::of(&messages));
        }
        messages
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn get(&self, doc: usize) -> &[u8] {
        &self.bytes[self.start(doc)..self.ends[doc] as usize]
    }

    pub(crate) fn contains(&self, doc: u32, needle: &Finder<'_>) -> bool {
        needle.find(self.get(doc as usize)).is_some()
    }

    /// Returns the lessons of a range with the needle in their message, in order.
    pub(crate) fn search(&self, docs: Range<u32>, needle: Finder<'static>) -> Search<'_> {
        let runs = match &self.signature {
            Some(signature) => signature.runs(docs, needle.needle()),
            None => Runs::One(Some(docs)),
        };
        Search { messages: self, needle, runs, from: 0, end: 0 }
    }

    fn start(&self, doc: usize) -> usize {
        if doc == 0 { 0 } else { self.ends[doc - 1] as usize + 1 }
    }
}

/// Is where a text may be, as ranges of lessons in order.
pub(crate) enum Runs<'a> {
    One(Option<Range<u32>>),
    Many(crate::signature::Candidates<'a>),
}

impl Iterator for Runs<'_> {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        match self {
            Self::One(run) => run.take(),
            Self::Many(runs) => runs.next(),
        }
    }
}

/// Scans one range after the other.
pub(crate) struct Search<'a> {
    messages: &'a Messages,
    needle: Finder<'static>,
    runs: Runs<'a>,
    /// What is left of the range in hand, in bytes.
    from: usize,
    end: usize,
}

impl Iterator for Search<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        loop {
            let rest = self.messages.bytes.get(self.from..self.end).unwrap_or_default();
            if let Some(found) = self.needle.find(rest) {
                let hit = self.from + found;
                let doc = self.messages.ends.partition_point(|end| (*end as usize) <= hit);
                self.from = self.messages.ends[doc] as usize + 1;
                return Some(narrow(doc));
            }
            let run = self.runs.next()?;
            self.from = self.messages.start(run.start as usize);
            self.end = self.messages.start(run.end as usize);
        }
    }
}
