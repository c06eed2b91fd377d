//! An immutable part of the index.

use std::borrow::Cow;
use std::hint::black_box;
use std::ops::Range;
use std::sync::OnceLock;

use jiff::Timestamp;

use crate::column::Column;
use crate::deaths::Deaths;
use crate::draft::{Chunk, Entry, Votes};
use crate::fast::Fast;
use crate::fingerprint::{Failures, Fingerprint};
use crate::fold;
use crate::memory::Memory;
use crate::messages::Messages;
use crate::numbers::{Numbers, Seconds};
use crate::parse::Parser;
use crate::place::{Place, Spot, Texts};
use crate::plain;
use crate::record::{Field, Record};
use crate::stamp;
use crate::table::Table;
use crate::terms::Terms;

/// Holds lessons with distinct ids, newest first; a lesson is named by its place ("doc").
///
/// What a query compares stands in columns; all else is decoded from the line when it is asked
/// for. Nothing changes but `deaths`: a newer version of a lesson marks this one with the sequence
/// number of the first snapshot without it. Older snapshots still see it. What is in a cell is
/// built when it is first asked for, or by a thread in the background before that.
pub(crate) struct Segment {
    pub(crate) chunks: Box<[Chunk]>,
    /// Each is a [`Place`].
    pub(crate) places: Memory<[u32; 3]>,
    /// Each is a [`Texts`].
    pub(crate) texts: Memory<u64>,
    /// Has seen lines such as these.
    pub(crate) fast: Fast,
    pub(crate) ids: Box<str>,
    pub(crate) id_ends: Box<[u32]>,
    pub(crate) by_id: Table,
    pub(crate) columns: [Column; 4],
    pub(crate) times: Numbers,
    pub(crate) seconds: Seconds,
    /// Empty if all are zero.
    pub(crate) nanos: Box<[i32]>,
    /// Of the lessons that have some, in order.
    pub(crate) votes: Box<[(u32, Votes)]>,
    pub(crate) deaths: Deaths,
    pub(crate) by_frequency: OnceLock<Box<[u32]>>,
    pub(crate) messages: OnceLock<Messages>,
    pub(crate) terms: OnceLock<Terms>,
    pub(crate) failures: OnceLock<Failures>,
}

impl Segment {
    /// The number of lessons, dead ones included.
    pub(crate) fn len(&self) -> u32 {
        crate::draft::narrow(self.places.len())
    }

    /// Returns whether the snapshot with this sequence number has the lesson.
    pub(crate) fn is_visible(&self, doc: u32, seq: u64) -> bool {
        self.deaths.is_visible(doc, seq)
    }

    /// Returns a bit for each lesson that the snapshot with this sequence number has.
    pub(crate) fn visible(&self, seq: u64) -> Vec<u64> {
        self.deaths.visible(seq)
    }

    /// Returns whether every snapshot that has this segment sees all of it. May change any time,
    /// but not for a snapshot that is taken.
    pub(crate) fn is_whole(&self) -> bool {
        self.dead_count() == 0
    }

    /// Returns how many lessons are not alive; never less than those that a snapshot in use does
    /// not see.
    pub(crate) fn dead_count(&self) -> u32 {
        self.deaths.count()
    }

    pub(crate) fn find(&self, hash: u64, id: &str, seq: u64) -> Option<u32> {
        let doc = self.by_id.find(hash, |doc| self.id(doc) == id)?;
        self.is_visible(doc, seq).then_some(doc)
    }

    /// Ends the lesson with this id from snapshot `seq` on. Returns it if it was alive.
    ///
    /// Only the writer of the index calls this.
    pub(crate) fn end(&self, hash: u64, id: &str, seq: u64) -> Option<u32> {
        let doc = self.by_id.find(hash, |doc| self.id(doc) == id)?;
        self.deaths.end(doc, seq).then_some(doc)
    }

    pub(crate) fn id(&self, doc: u32) -> &str {
        let doc = doc as usize;
        let start = if doc == 0 { 0 } else { self.id_ends[doc - 1] };
        &self.ids[start as usize..self.id_ends[doc] as usize]
    }

    pub(crate) fn place(&self, doc: u32) -> Place {
        Place::of_words(self.places[doc as usize])
    }

    fn texts(&self, doc: u32) -> Texts {
        Texts::of_bits(self.texts[doc as usize])
    }

    pub(crate) fn raw(&self, doc: u32) -> &str {
        let place = self.place(doc);
        std::str::from_utf8(self.line(place)).expect("the line of a lesson is text")
    }

    fn line(&self, place: Place) -> &[u8] {
        let at = place.at as usize;
        &self.chunks[place.chunk as usize][at..at + place.len as usize]
    }

    /// Returns the message.
    pub(crate) fn message(&self, doc: u32) -> Cow<'_, str> {
        self.text(doc, self.texts(doc).message, |record| record.failure_msg)
    }

    /// Appends the folded message.
    pub(crate) fn fold_message(&self, doc: u32, out: &mut Vec<u8>) {
        if !self.fold_plain(doc, self.texts(doc).message, out) {
            fold::fold_into(&self.message(doc), out);
        }
    }

    /// Appends the folded resolution.
    pub(crate) fn fold_resolution(&self, doc: u32, out: &mut Vec<u8>) {
        if !self.fold_plain(doc, self.texts(doc).resolution, out) {
            fold::fold_into(&self.resolution(doc), out);
        }
    }

    /// Returns all lessons, in ranges of a few that are read together.
    pub(crate) fn docs_together(&self) -> impl Iterator<Item = Range<u32>> {
        const TOGETHER: u32 = 16;
        let len = self.len();
        (0..len.div_ceil(TOGETHER)).map(move |at| at * TOGETHER..len.min((at + 1) * TOGETHER))
    }

    /// Brings one text of each of some lessons into the cache, which does not wait for one after the
    /// other: lines are far from each other.
    pub(crate) fn touch(&self, docs: Range<u32>, text: impl Fn(&Texts) -> Spot) {
        const CACHE_LINE: usize = 64;
        let docs = docs.start as usize..docs.end as usize;
        let all = self.places[docs.clone()].iter().zip(&self.texts[docs]);
        let any = all.fold(0, |any, (place, texts)| {
            let line = self.line(Place::of_words(*place));
            let text =
                text(&Texts::of_bits(*texts)).of_line(line).map_or(&[][..], |(text, _)| text);
            let last = text.last().copied().unwrap_or_default();
            text.iter().step_by(CACHE_LINE).fold(any ^ last, |any, byte| any ^ byte)
        });
        black_box(any);
    }

    /// Folds a text that needs no decoding at all; returns whether it is one.
    fn fold_plain(&self, doc: u32, spot: Spot, out: &mut Vec<u8>) -> bool {
        match spot.of_line(self.line(self.place(doc))) {
            Some((text, false)) => fold::fold_ascii_into(text, out),
            _ => false,
        }
    }

    /// Returns the resolution.
    pub(crate) fn resolution(&self, doc: u32) -> Cow<'_, str> {
        self.text(doc, self.texts(doc).resolution, |record| record.resolution)
    }

    fn text<'s>(
        &'s self,
        doc: u32,
        spot: Spot,
        of_record: impl FnOnce(Record<'s>) -> Cow<'s, str>,
    ) -> Cow<'s, str> {
        let Some((quoted, is_escaped)) = spot.of_line(self.line(self.place(doc))) else {
            return of_record(self.record(doc));
        };
        let quoted = std::str::from_utf8(quoted).expect("a text between quotes is text");
        if is_escaped { plain::decode(quoted).into() } else { quoted.into() }
    }

    /// Parses the line again.
    pub(crate) fn record(&self, doc: u32) -> Record<'_> {
        let raw = self.raw(doc);
        if let Some(plain) = self.fast.clone().parse(raw) {
            return plain.record();
        }
        let parsed = Parser::new().parse(raw.as_bytes(), true);
        parsed.expect("the line was parsed before").0
    }

    pub(crate) fn column(&self, field: Field) -> &Column {
        &self.columns[field as usize]
    }

    pub(crate) fn times(&self, doc: u32) -> u64 {
        self.times.get(doc as usize)
    }

    pub(crate) fn time_parts(&self, doc: u32) -> (i64, i32) {
        let nanos = self.nanos.get(doc as usize).copied().unwrap_or_default();
        (self.seconds.get(doc as usize), nanos)
    }

    pub(crate) fn last_seen(&self, doc: u32) -> Option<Timestamp> {
        let (seconds, nanos) = self.time_parts(doc);
        stamp::from_parts((seconds, nanos))
    }

    pub(crate) fn votes(&self, doc: u32) -> Votes {
        let found = self.votes.binary_search_by_key(&doc, |(doc, _)| *doc);
        found.map_or(Votes::default(), |at| self.votes[at].1)
    }

    pub(crate) fn entry(&self, doc: u32) -> Entry<'_> {
        let (seconds, nanos) = self.time_parts(doc);
        Entry {
            id: self.id(doc).as_bytes(),
            exact: Field::ALL.map(|field| self.column(field).text_of(doc).as_bytes()),
            times: self.times(doc),
            seconds,
            nanos,
            votes: self.votes(doc),
            texts: self.texts(doc),
            is_tombstone: false,
        }
    }

    /// Returns the lessons by how often they were seen, then newest first.
    pub(crate) fn by_frequency(&self) -> &[u32] {
        self.by_frequency.get_or_init(|| {
            // Equals stay newest first.
            self.times.largest_first()
        })
    }

    /// Returns the lessons whose `last_seen` the tests put neither after nor before a range.
    /// Lessons without `last_seen` are in no range.
    pub(crate) fn time_range(
        &self,
        is_after: impl Fn((i64, i32)) -> bool,
        is_before: impl Fn((i64, i32)) -> bool,
    ) -> Range<u32> {
        let none = stamp::parts(None);
        let start = self.first(|time| time == none || !is_after(time));
        let end = self.first(|time| time == none || is_before(time));
        start..end.max(start)
    }

    /// Returns the first lesson that the test holds for, if it holds for all behind that one too.
    pub(crate) fn first(&self, test: impl Fn((i64, i32)) -> bool) -> u32 {
        self.first_of(0..self.len(), test)
    }

    /// Returns the first lesson that was seen before a time; most likely it is near the start.
    pub(crate) fn first_before(&self, time: (i64, i32)) -> u32 {
        let (second, nanos) = time;
        let before = |second| crate::draft::narrow(self.seconds.first_before(second));
        if self.nanos.is_empty() {
            return before(second.saturating_add(i64::from(nanos > 0)));
        }
        self.first_of(before(second.saturating_add(1))..before(second), |other| other < time)
    }

    fn first_of(&self, docs: Range<u32>, test: impl Fn((i64, i32)) -> bool) -> u32 {
        let (mut low, mut high) = (docs.start, docs.end);
        while low < high {
            let middle = low + (high - low) / 2;
            if test(self.time_parts(middle)) { high = middle } else { low = middle + 1 }
        }
        low
    }

    pub(crate) fn messages(&self) -> &Messages {
        self.messages.get_or_init(|| Messages::of(self))
    }

    pub(crate) fn terms(&self) -> &Terms {
        self.terms.get_or_init(|| Terms::of(self))
    }

    pub(crate) fn failures(&self) -> &Failures {
        self.failures.get_or_init(|| Failures::of(self))
    }

    /// Returns the fingerprint of a lesson. Decodes the line, if it is not kept.
    pub(crate) fn kind(&self, doc: u32) -> Fingerprint {
        let kept = self.failures.get().and_then(|failures| failures.kind(doc));
        kept.unwrap_or_else(|| Fingerprint::of_record(&self.record(doc)))
    }

    /// Builds what the cells hold, for queries to come.
    pub(crate) fn warm(&self) {
        self.messages();
        self.terms();
        self.by_frequency();
        self.failures();
    }

    pub(crate) fn is_warm(&self) -> bool {
        self.messages.get().is_some()
    }

    pub(crate) fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Returns how many bytes of each chunk are lines of visible lessons.
    pub(crate) fn chunk_use(&self, seq: u64) -> Vec<usize> {
        let mut used = vec![0; self.chunks.len()];
        for doc in (0..self.len()).filter(|doc| self.is_visible(*doc, seq)) {
            let place = self.place(doc);
            used[place.chunk as usize] += place.len as usize;
        }
        used
    }

    /// Returns how long the messages are together, as far as that is known.
    pub(crate) fn message_bytes(&self) -> usize {
        self.texts.iter().map(|texts| Texts::of_bits(*texts).message.len()).sum()
    }

    /// Returns the bytes of the chunks, garbage included.
    pub(crate) fn raw_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len()).sum()
    }
}
