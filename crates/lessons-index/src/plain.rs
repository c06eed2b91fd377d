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
    /// What the line stands at the start of.
    pub(crate) line: &'a str,
    starts: [usize; SCOPE + 1],
    ends: [usize; SCOPE + 1],
    are_escaped: [bool; SCOPE + 1],
    pub(crate) times_seen: u64,
    /// Whether the line says so.
    pub(crate) has_times_seen: bool,
    pub(crate) last_seen: Parts,
    pub(crate) first_seen: Parts,
    pub(crate) helpful: u64,
    pub(crate) harmful: u64,
    pub(crate) is_tombstone: bool,
}

impl<'a> Plain<'a> {
    /// Starts with nothing in the line.
    #[inline]
    pub(crate) fn new(line: &'a str) -> Self {
        Self {
            line,
            starts: [0; SCOPE + 1],
            ends: [0; SCOPE + 1],
            are_escaped: [false; SCOPE + 1],
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
    pub(crate) fn set(&mut self, text: usize, found: Quoted) {
        let Quoted { start, end, is_escaped } = found;
        (self.starts[text], self.ends[text], self.are_escaped[text]) = (start, end, is_escaped);
    }

    /// Returns whether the id and the exact fields are as they stand.
    #[inline]
    pub(crate) fn is_exact(&self) -> bool {
        self.are_escaped[..FAILURE_MSG] == [false; FAILURE_MSG]
    }

    #[inline]
    pub(crate) fn has_id(&self) -> bool {
        self.starts[ID] < self.ends[ID]
    }

    /// Returns a text as it stands, escapes and all.
    #[inline]
    pub(crate) fn quoted(&self, text: usize) -> &'a [u8] {
        &self.line.as_bytes()[self.starts[text]..self.ends[text]]
    }

    /// Returns where a text stands.
    #[inline]
    pub(crate) fn place(&self, text: usize) -> Quoted {
        let (start, end, is_escaped) = (self.starts[text], self.ends[text], self.are_escaped[text]);
        Quoted { start, end, is_escaped }
    }

    pub(crate) fn text(&self, text: usize) -> Cow<'a, str> {
        let Quoted { start, end, is_escaped } = self.place(text);
        let quoted = &self.line[start..end];
        if is_escaped { decode(quoted).into() } else { Cow::Borrowed(quoted) }
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
