//! The failure messages of a segment, folded and end to end, and which of them can hold a text.

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

use memchr::memmem::Finder;

use crate::draft::narrow;
use crate::memory::{Growing, Memory};
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
        // One by one into pages that are huge from the start: memory is what this waits for.
        let mut bytes = Growing::with_room(segment.message_bytes() + count);
        let (mut message, mut ends) = (Vec::new(), Vec::with_capacity(count));
        for docs in segment.docs_together() {
            segment.touch(docs.clone(), |texts| texts.message);
            for doc in docs {
                message.clear();
                segment.fold_message(doc, &mut message);
                message.push(BORDER);
                bytes.append(&message);
                ends.push(narrow(bytes.len() - 1));
            }
        }
        let mut messages = Self { bytes: bytes.finish(), ends: ends.into(), signature: None };
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
    pub(crate) fn search(&self, docs: Range<u32>, needle: Arc<Finder<'static>>) -> Search<'_> {
        let runs = match &self.signature {
            Some(signature) => signature.runs(docs, needle.needle()),
            None => Runs::One(Some(docs)),
        };
        let (hand, ahead) = Default::default();
        Search { messages: self, needle, runs, hand, ahead, next: 0, len: 0, wanted: 1 }
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
    needle: Arc<Finder<'static>>,
    runs: Runs<'a>,
    /// What is left of the range in hand.
    hand: Run,
    /// The ranges behind it, of which those before `next` are done with.
    ahead: [Run; AHEAD],
    next: usize,
    len: usize,
    /// How many ranges to take at once the next time.
    wanted: usize,
}

/// Ranges that are brought into the cache together, rather than waited for one by one.
const AHEAD: usize = 16;

/// Is a range of lessons, and of the bytes of their messages.
#[derive(Clone, Copy, Default)]
struct Run {
    docs: (usize, usize),
    bytes: (usize, usize),
}

impl Search<'_> {
    /// Takes the next ranges; most searches end within the first few.
    fn look_ahead(&mut self) {
        /// Of longer ranges the processor sees by itself what comes next.
        const TOUCHED_BYTES: usize = 512;
        const CACHE_LINE: usize = 64;
        let messages = self.messages;
        (self.next, self.len) = (0, 0);
        for (run, docs) in self.ahead[..self.wanted].iter_mut().zip(&mut self.runs) {
            let docs = (docs.start as usize, docs.end as usize);
            *run = Run { docs, bytes: (messages.start(docs.0), messages.start(docs.1)) };
            self.len += 1;
        }
        self.wanted = (self.wanted * 2).min(AHEAD);
        let lines = self.ahead[..self.len].iter().flat_map(|run| {
            let (from, end) = run.bytes;
            (from..end.min(from + TOUCHED_BYTES)).step_by(CACHE_LINE)
        });
        black_box(lines.fold(0, |all, at| all ^ messages.bytes[at]));
    }
}

impl Iterator for Search<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        loop {
            let Run { docs: (doc, last), bytes: (from, end) } = self.hand;
            let rest = self.messages.bytes.get(from..end).unwrap_or_default();
            if let Some(found) = self.needle.find(rest) {
                let ends = &self.messages.ends[doc..last];
                let passed = ends.partition_point(|end| *end as usize <= from + found);
                self.hand.docs.0 = doc + passed + 1;
                self.hand.bytes.0 = ends[passed] as usize + 1;
                return Some(narrow(doc + passed));
            }
            if self.next == self.len {
                self.look_ahead();
            }
            self.hand = *self.ahead[..self.len].get(self.next)?;
            self.next += 1;
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// Returns messages with numbers in them, as many as are looked at together and some more.
    fn numbered(count: usize) -> Messages {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for n in 0..count {
            bytes.extend_from_slice(format!("item {} of {}", n % 9_973, n / 7).as_bytes());
            ends.push(narrow(bytes.len()));
            bytes.push(BORDER);
        }
        let mut messages = Messages { bytes: bytes.into(), ends: ends.into(), signature: None };
        messages.signature = Some(Signature::of(&messages));
        messages
    }

    #[test]
    fn a_search_finds_what_a_scan_finds_wherever_it_starts_and_ends() {
        const COUNT: usize = 150_000;
        let messages = numbered(COUNT);
        let needles = ["item 9972 of", "m 77 of 1", "f 21427", " of 4", "9 of 9", "of 20999", "x"];
        for docs in [0..COUNT, 1..COUNT - 1, 2_047..131_073, 131_071..COUNT, 70_000..70_001, 5..5] {
            for needle in needles {
                let finder = Arc::new(Finder::new(needle).into_owned());
                let has_it = |doc: &usize| finder.find(messages.get(*doc)).is_some();
                let wanted: Vec<u32> = docs.clone().filter(has_it).map(narrow).collect();
                let range = narrow(docs.start)..narrow(docs.end);
                let found: Vec<u32> = messages.search(range, Arc::clone(&finder)).collect();
                assert_eq!(found, wanted, "{needle:?} in {docs:?}");
            }
        }
    }
}
