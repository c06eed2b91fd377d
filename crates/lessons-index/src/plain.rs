//! A line in which the texts are left where they stand.

use std::borrow::Cow;

use crate::grammar::{Quoted, hex};
use crate::record::Record;
use crate::stamp::{self, Parts};

/// Numbers the texts of a line: the id, the exact fields in their order, and the others.
pub(crate) const ID: usize = 0;
pub(crate) const EXACT: usize = 1;
pub(crate) const FAILURE_MSG: usize = 5;
pub(crate) const RESOLUTION: usize = 6;
pub(crate) const SCOPE: usize = 7;

/// Is a line that was passed, field by field; its record if somebody wants it.
pub(crate) struct Plain<'a> {
    line: &'a str,
    spans: [Span; SCOPE + 1],
    /// A bit for each text that has escapes.
    escaped: u8,
    pub(crate) times_seen: u64,
    /// Whether the line says so.
    pub(crate) has_times_seen: bool,
    pub(crate) last_seen: Parts,
    pub(crate) first_seen: Parts,
    pub(crate) helpful: u64,
    pub(crate) harmful: u64,
    pub(crate) is_tombstone: bool,
}

#[derive(Clone, Copy, Default)]
struct Span {
    start: u32,
    end: u32,
}

impl<'a> Plain<'a> {
    /// Starts with nothing in the line; it has less than 4 GiB.
    pub(crate) fn new(line: &'a str) -> Self {
        Self {
            line,
            spans: Default::default(),
            escaped: 0,
            times_seen: 1,
            has_times_seen: false,
            last_seen: stamp::NONE,
            first_seen: stamp::NONE,
            helpful: 0,
            harmful: 0,
            is_tombstone: false,
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, text: usize, found: &Quoted) {
        let narrow = crate::draft::narrow;
        self.spans[text] = Span { start: narrow(found.start), end: narrow(found.end) };
        self.escaped = self.escaped & !(1 << text) | u8::from(found.is_escaped) << text;
    }

    /// Returns whether the id and the exact fields are as they stand.
    pub(crate) fn is_exact(&self) -> bool {
        const NAMES: u8 = (1 << FAILURE_MSG) - 1;
        self.escaped & NAMES == 0
    }

    pub(crate) fn has_id(&self) -> bool {
        self.spans[ID].start < self.spans[ID].end
    }

    /// Returns a text as it stands, escapes and all.
    pub(crate) fn quoted(&self, text: usize) -> &'a str {
        let Span { start, end } = self.spans[text];
        &self.line[start as usize..end as usize]
    }

    /// Returns where a text stands, and whether it has escapes.
    pub(crate) fn place(&self, text: usize) -> (u32, u32, bool) {
        let Span { start, end } = self.spans[text];
        (start, end - start, self.escaped >> text & 1 == 1)
    }

    pub(crate) fn text(&self, text: usize) -> Cow<'a, str> {
        let quoted = self.quoted(text);
        if self.escaped >> text & 1 == 0 { Cow::Borrowed(quoted) } else { decode(quoted).into() }
    }

    pub(crate) fn record(&self) -> Record<'a> {
        Record {
            id: self.text(ID),
            exact: std::array::from_fn(|field| self.text(EXACT + field)),
            failure_msg: self.text(FAILURE_MSG),
            resolution: self.text(RESOLUTION),
            scope: self.text(SCOPE),
            times_seen: self.times_seen,
            last_seen: stamp::from_parts(self.last_seen),
            first_seen: stamp::from_parts(self.first_seen),
            helpful: self.helpful,
            harmful: self.harmful,
            is_tombstone: self.is_tombstone,
        }
    }
}

/// Decodes the escapes of a string that was passed.
pub(crate) fn decode(quoted: &str) -> String {
    let mut out = String::with_capacity(quoted.len());
    let mut rest = quoted;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        let escape = rest.as_bytes()[at + 1];
        rest = &rest[at + 2..];
        out.push(match escape {
            b'b' => '\u{8}',
            b'f' => '\u{C}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let c = hex(&rest.as_bytes()[..4]).expect("it was a character when it was passed");
                rest = &rest[4..];
                c
            }
            other => char::from(other),
        });
    }
    out.push_str(rest);
    out
}
