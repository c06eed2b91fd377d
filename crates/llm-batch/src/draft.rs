//! The requests of one create, and the way their bodies go out.

use std::fmt;
use std::io::{self, Read};

use serde_json::value::RawValue;

use crate::table::{Prefix, Table};
use crate::wire_id::custom_id;

/// Stands for a position of a batch that nobody waits for.
pub(crate) const NOBODY: u32 = u32::MAX;

/// How much of a body is read at a time.
const CHUNK: usize = 64 * 1024;

/// The requests of one create. Their bodies, where they are many, are in the state folder and not in
/// memory.
#[derive(Clone, Copy)]
pub struct Draft<'a> {
    nonce: &'a str,
    /// The request at each position on the wire, by its index in the table.
    members: &'a [u32],
    table: &'a Table,
    /// The prefixes that are marked for the provider's cache, and what stands around them.
    shared: &'a [u64],
    mark: (&'static str, &'static str),
}

/// One request of a create, with its id on the wire.
#[derive(Debug)]
pub struct Entry<'a> {
    /// Our id for it: [`CUSTOM_ID_LEN`](crate::CUSTOM_ID_LEN) bytes of `[0-9a-f-]`, unlike any
    /// other ever made.
    pub custom_id: String,
    /// The caller's id. It never goes on the wire.
    pub id: &'a str,
    /// The model.
    pub model: &'a str,
    /// The length of the body in bytes.
    pub body_bytes: u64,
    /// The part that is marked for the provider's cache, and what stands around it.
    mark: Option<(Prefix, (&'static str, &'static str))>,
    index: usize,
    table: &'a Table,
}

impl fmt::Debug for Draft<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft").field("nonce", &self.nonce).finish_non_exhaustive()
    }
}

impl<'a> Draft<'a> {
    pub(crate) fn new(nonce: &'a str, members: &'a [u32], table: &'a Table) -> Draft<'a> {
        Draft { nonce, members, table, shared: &[], mark: ("", "") }
    }

    /// Returns the same with marks around the prefixes of those digests.
    pub(crate) fn marking(
        self,
        shared: &'a [u64],
        mark: (&'static str, &'static str),
    ) -> Draft<'a> {
        Draft { shared, mark, ..self }
    }

    /// Returns what all ids of this create on the wire begin with, unlike any other's.
    pub fn nonce(&self) -> &'a str {
        self.nonce
    }

    /// Returns the requests that are wanted, in the order in which they stand on the wire.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let Draft { nonce, members, table, shared, mark } = *self;
        members.iter().enumerate().filter(|(_, member)| **member != NOBODY).map(
            move |(seq, &member)| {
                let index = member as usize;
                let item = &table.items()[index];
                let is_shared = |prefix: &Prefix| shared.binary_search(&prefix.digest).is_ok();
                Entry {
                    custom_id: custom_id(nonce, seq),
                    id: &item.id,
                    model: &table.group(index).model,
                    body_bytes: item.bytes,
                    mark: table.prefix(index).filter(is_shared).map(|prefix| (prefix, mark)),
                    index,
                    table,
                }
            },
        )
    }
}

impl Entry<'_> {
    /// Reads the body, which is what [`encode`](crate::Provider::encode) returned.
    ///
    /// # Errors
    ///
    /// When the file in the state folder cannot be read.
    pub fn body(&self) -> io::Result<Box<RawValue>> {
        let bytes = usize::try_from(self.body_bytes).map_err(io::Error::other)?;
        let mut body = vec![0; bytes];
        self.table.read(self.index, 0, &mut body)?;
        let body = String::from_utf8(body).map_err(io::Error::other)?;
        RawValue::from_string(body).map_err(io::Error::from)
    }
}

/// What stands around the bodies of a create.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) head: String,
    pub(crate) before_id: &'static str,
    pub(crate) after_id: &'static str,
    pub(crate) after_body: &'static str,
    pub(crate) separator: &'static str,
    pub(crate) tail: String,
}

impl Frame {
    /// Returns the length of the whole.
    pub(crate) fn length(&self, draft: &Draft<'_>) -> u64 {
        let fixed = self.before_id.len() + self.after_id.len() + self.after_body.len();
        let mut length = self.head.len() + self.tail.len();
        let mut bodies = 0;
        for (at, entry) in draft.entries().enumerate() {
            length += fixed + entry.custom_id.len();
            length += if at > 0 { self.separator.len() } else { 0 };
            bodies += entry.body_bytes;
            length += entry.mark.map_or(0, |(_, (before, after))| before.len() + after.len());
        }
        length as u64 + bodies
    }

    /// Returns the whole, read piece by piece.
    pub(crate) fn reader<'r>(&'r self, draft: &Draft<'r>) -> impl Read + 'r {
        Framed {
            frame: self,
            entries: draft.entries(),
            is_first: true,
            is_done: false,
            current: None,
            buffer: self.head.clone().into_bytes(),
            at: 0,
        }
    }
}

struct Framed<'r, E> {
    frame: &'r Frame,
    entries: E,
    is_first: bool,
    is_done: bool,
    /// The entry whose body is being read, and how far.
    current: Option<(Entry<'r>, u64)>,
    buffer: Vec<u8>,
    at: usize,
}

impl<'r, E: Iterator<Item = Entry<'r>>> Framed<'r, E> {
    /// Puts the next piece into the buffer; tells whether there was one.
    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.clear();
        self.at = 0;
        // Small bodies go together, so that a create takes few writes.
        while self.buffer.len() < CHUNK {
            if let Some((entry, done)) = &mut self.current {
                let mut end = entry.body_bytes;
                if let Some((prefix, (before, after))) = entry.mark {
                    if *done == u64::from(prefix.start) {
                        self.buffer.extend_from_slice(before.as_bytes());
                    } else if *done == u64::from(prefix.end) {
                        self.buffer.extend_from_slice(after.as_bytes());
                    }
                    let edges = [prefix.start, prefix.end].map(u64::from);
                    end = edges.into_iter().find(|edge| *edge > *done).unwrap_or(end);
                }
                let left = end - *done;
                let part = usize::try_from(left.min(CHUNK as u64)).unwrap_or(CHUNK);
                let start = self.buffer.len();
                self.buffer.resize(start + part, 0);
                entry.table.read(entry.index, *done, &mut self.buffer[start..])?;
                *done += part as u64;
                if *done == entry.body_bytes {
                    self.current = None;
                    self.buffer.extend_from_slice(self.frame.after_body.as_bytes());
                }
            } else if let Some(entry) = self.entries.next() {
                let separator = if self.is_first { "" } else { self.frame.separator };
                self.is_first = false;
                let id = entry.custom_id.as_str();
                for piece in [separator, self.frame.before_id, id, self.frame.after_id] {
                    self.buffer.extend_from_slice(piece.as_bytes());
                }
                self.current = Some((entry, 0));
            } else if self.is_done {
                break;
            } else {
                self.is_done = true;
                self.buffer.extend_from_slice(self.frame.tail.as_bytes());
            }
        }
        Ok(!self.buffer.is_empty())
    }
}

impl<'r, E: Iterator<Item = Entry<'r>>> Read for Framed<'r, E> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.buffer.len() && !self.fill()? {
            return Ok(0);
        }
        let taken = (self.buffer.len() - self.at).min(into.len());
        into[..taken].copy_from_slice(&self.buffer[self.at..self.at + taken]);
        self.at += taken;
        Ok(taken)
    }
}
