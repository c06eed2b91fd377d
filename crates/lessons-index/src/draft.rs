//! Lessons in the order of the file, on their way to a segment.

use std::sync::Arc;

use crate::column::Symbols;
use crate::fast::Fast;
use crate::lesson::Lesson;
use crate::memory::Memory;
use crate::place::{Place, Texts};
use crate::plain::{self, Plain};
use crate::record::{Field, Record};
use crate::rows::{Row, Rows};
use crate::segment::Segment;
use crate::stamp::{self, Parts};

/// Is a part of a file; the lines in it that are lessons are text.
pub(crate) type Chunk = Arc<Memory>;

/// Most bytes of a chunk, so that places fit in 32 bits.
pub(crate) const MAX_CHUNK_BYTES: usize = 1 << 30;

/// Most bytes of all chunks of a segment. Folding makes no text longer than half as long again, and
/// a word takes at most four bytes in a list, so that what is built of the chunks counts its bytes
/// in 32 bits too.
pub(crate) const MAX_SEGMENT_BYTES: usize = 2 * MAX_CHUNK_BYTES;

/// Chunks from here on are shared by the segments that follow each other.
const LARGE_CHUNK_BYTES: usize = 4 << 20;

/// Counts what was said about a lesson.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Votes {
    pub(crate) helpful: u64,
    pub(crate) harmful: u64,
}

/// Is what the numbers of some rows are between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) max_times: u64,
    /// The first and the last time that is known; in the opposite order if there is none.
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) has_nanos: bool,
    /// The times of the first and the last row, if each is behind the one before.
    pub(crate) rise: Option<(Parts, Parts)>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { max_times: 0, first: i64::MAX, last: i64::MIN, has_nanos: false, rise: None }
    }
}

impl Bounds {
    /// Takes an entry behind so many others.
    #[inline]
    fn take(&mut self, entry: &Entry<'_>, before: usize) {
        let time = (entry.seconds, entry.nanos);
        self.rise = match self.rise {
            _ if before == 0 => Some((time, time)),
            Some((first, last)) if last < time => Some((first, time)),
            _ => None,
        };
        self.max_times = self.max_times.max(entry.times);
        // No time is before all others.
        let first = if entry.seconds == i64::MIN { i64::MAX } else { entry.seconds };
        self.first = self.first.min(first);
        self.last = self.last.max(entry.seconds);
        self.has_nanos |= entry.nanos != 0;
    }

    /// Returns the bounds of these rows and others behind them.
    pub(crate) fn and(self, other: &Self) -> Self {
        let rise = match (self.rise, other.rise) {
            (Some((first, before)), Some((behind, last))) if before < behind => Some((first, last)),
            _ => None,
        };
        Self {
            rise,
            max_times: self.max_times.max(other.max_times),
            first: self.first.min(other.first),
            last: self.last.max(other.last),
            has_nanos: self.has_nanos || other.has_nanos,
        }
    }
}

/// Collects lessons; of those with one id the last holds.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) rows: Rows,
    pub(crate) symbols: [Symbols; 4],
    /// Are those of several drafts, in place of its own.
    pub(crate) shared: Option<Arc<[Symbols; 4]>>,
    pub(crate) votes: Vec<(u32, Votes)>,
    pub(crate) bounds: Bounds,
    /// Has seen lines such as these.
    pub(crate) fast: Fast,
    /// The rows that are tombstones.
    pub(crate) tombstones: Vec<u32>,
    ids: Vec<u8>,
    /// Where the id of each row ends. Not in the rows, which are more than the cache holds.
    id_ends: Vec<u32>,
}

/// Is what a line says, wherever it comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// The names are text.
    pub(crate) id: &'a [u8],
    pub(crate) exact: [&'a [u8]; 4],
    pub(crate) times: u64,
    pub(crate) seconds: i64,
    pub(crate) nanos: i32,
    pub(crate) votes: Votes,
    pub(crate) texts: Texts,
    pub(crate) is_tombstone: bool,
}

impl<'a> Entry<'a> {
    /// Returns `None` if a name has to be decoded first.
    #[inline]
    pub(crate) fn of_plain(line: &Plain<'a>) -> Option<Self> {
        if !line.is_exact() {
            return None;
        }
        let id = line.quoted(plain::ID);
        let (seconds, nanos) = line.last_seen;
        Some(Self {
            id,
            exact: [
                line.quoted(plain::EXACT),
                line.quoted(plain::EXACT + 1),
                line.quoted(plain::EXACT + 2),
                line.quoted(plain::EXACT + 3),
            ],
            times: line.times_seen,
            seconds,
            nanos,
            votes: Votes { helpful: line.helpful, harmful: line.harmful },
            texts: Texts::of_plain(line),
            is_tombstone: line.is_tombstone,
        })
    }

    pub(crate) fn of_record(record: &'a Record<'_>) -> Self {
        let (seconds, nanos) = stamp::parts(record.last_seen);
        Self {
            id: record.id.as_bytes(),
            exact: record.exact.each_ref().map(|text| text.as_bytes()),
            times: record.times_seen,
            seconds,
            nanos,
            votes: Votes { helpful: record.helpful, harmful: record.harmful },
            texts: Texts::UNKNOWN,
            is_tombstone: record.is_tombstone,
        }
    }

    pub(crate) fn of_lesson(lesson: &'a Lesson) -> Self {
        let (seconds, nanos) = stamp::parts(lesson.last_seen);
        Self {
            id: lesson.id.as_bytes(),
            exact: Field::ALL.map(|field| lesson.exact(field).as_bytes()),
            times: lesson.times_seen,
            seconds,
            nanos,
            votes: Votes { helpful: lesson.helpful, harmful: lesson.harmful },
            texts: Texts::UNKNOWN,
            is_tombstone: lesson.is_tombstone(),
        }
    }
}

impl Draft {
    /// Starts with symbols that other drafts were made with.
    pub(crate) fn with_symbols(symbols: [Symbols; 4]) -> Self {
        Self { symbols, ..Self::default() }
    }

    /// Makes room for so many times what there is.
    pub(crate) fn make_room(&mut self, times: usize) {
        // Lines differ a little in length.
        let of = |len: usize| (len * times).saturating_mul(9) / 8;
        self.rows.make_room(of(self.rows.len()));
        self.ids.reserve(of(self.ids.len()));
        self.id_ends.reserve(of(self.id_ends.len()));
    }

    #[inline]
    pub(crate) fn push(&mut self, entry: Entry<'_>, place: Place) {
        if entry.votes != Votes::default() {
            self.votes.push((narrow(self.rows.len()), entry.votes));
        }
        if entry.is_tombstone {
            self.tombstones.push(narrow(self.rows.len()));
        }
        self.ids.extend_from_slice(entry.id);
        self.id_ends.push(narrow(self.ids.len()));
        let mut symbols = [0; 4];
        for ((number, symbols), text) in symbols.iter_mut().zip(&mut self.symbols).zip(entry.exact)
        {
            *number = symbols.intern(text);
        }
        self.bounds.take(&entry, self.rows.len());
        self.rows.push(&Row {
            times: entry.times,
            seconds: entry.seconds,
            nanos: entry.nanos,
            place,
            symbols,
            texts: entry.texts,
        });
    }

    /// Returns drafts of lessons that are in memory; their lines are copied. None is longer than
    /// half a segment may be, if no line is.
    pub(crate) fn of_lessons(
        lessons: impl IntoIterator<Item = Arc<Lesson>>,
        max_segment_bytes: usize,
    ) -> Vec<Self> {
        let mut drafts = Copies::new(max_segment_bytes);
        let mut fast = Fast::default();
        for lesson in lessons {
            let texts = fast.parse(lesson.raw()).map_or(Texts::UNKNOWN, |l| Texts::of_plain(&l));
            drafts.push(Entry { texts, ..Entry::of_lesson(&lesson) }, lesson.raw());
        }
        let mut drafts = drafts.finish();
        for draft in &mut drafts {
            draft.fast = fast.clone();
        }
        drafts
    }

    /// Takes the visible lessons of a segment. The lines stay where they are if most of their
    /// chunk is in use and it is large; others are copied, so that a chunk of the dead can go.
    pub(crate) fn of_segment(segment: &Segment, seq: u64, max_segment_bytes: usize) -> Vec<Self> {
        let mut kept = Self::default();
        // Where a chunk that is kept has gone.
        let chunks: Vec<Option<u32>> = segment
            .chunks()
            .iter()
            .zip(segment.chunk_use(seq))
            .map(|(chunk, used)| {
                let is_kept = chunk.len() >= LARGE_CHUNK_BYTES && used >= chunk.len() / 2;
                is_kept.then(|| {
                    kept.chunks.push(Chunk::clone(chunk));
                    narrow(kept.chunks.len() - 1)
                })
            })
            .collect();
        let mut copies = Copies::new(max_segment_bytes);
        for doc in (0..segment.len()).filter(|doc| segment.is_visible(*doc, seq)) {
            let (entry, place) = (segment.entry(doc), segment.place(doc));
            match chunks[place.chunk as usize] {
                Some(chunk) => kept.push(entry, Place { chunk, ..place }),
                None => copies.push(entry, segment.raw(doc)),
            }
        }
        let mut drafts = copies.finish();
        drafts.push(kept);
        for draft in &mut drafts {
            draft.fast = segment.fast.clone();
        }
        drafts
    }

    /// Returns how long all ids are together.
    pub(crate) fn ids_len(&self) -> usize {
        self.ids.len()
    }

    #[inline]
    pub(crate) fn id(&self, row: u32) -> &[u8] {
        let row = row as usize;
        let start = if row == 0 { 0 } else { self.id_ends[row - 1] };
        &self.ids[start as usize..self.id_ends[row] as usize]
    }
}

/// Splits drafts so that the chunks of each group have so many bytes at most, if those of each
/// draft have.
pub(crate) fn groups(drafts: Vec<Draft>, max_bytes: usize) -> Vec<Vec<Draft>> {
    let mut groups: Vec<Vec<Draft>> = Vec::new();
    let mut room = 0;
    for draft in drafts {
        let bytes = draft.chunks.iter().map(|chunk| chunk.len()).sum();
        if bytes > room || groups.is_empty() {
            groups.push(Vec::new());
            room = max_bytes;
        }
        room = room.saturating_sub(bytes);
        groups.last_mut().expect("there is one now").push(draft);
    }
    groups
}

/// Copies lines into chunks of bounded size.
struct Copies {
    done: Vec<Draft>,
    draft: Draft,
    text: Vec<u8>,
    max_chunk_bytes: usize,
}

impl Copies {
    fn new(max_segment_bytes: usize) -> Self {
        let (done, draft, text) = <(Vec<Draft>, Draft, Vec<u8>)>::default();
        Self { done, draft, text, max_chunk_bytes: max_segment_bytes / 2 }
    }

    fn push(&mut self, entry: Entry<'_>, raw: &str) {
        if self.text.len() + raw.len() > self.max_chunk_bytes && !self.text.is_empty() {
            self.seal();
        }
        let place = Place { chunk: 0, at: narrow(self.text.len()), len: narrow(raw.len()) };
        self.text.extend_from_slice(raw.as_bytes());
        self.draft.push(entry, place);
    }

    fn seal(&mut self) {
        let mut draft = std::mem::take(&mut self.draft);
        draft.chunks.push(Chunk::new(std::mem::take(&mut self.text).into()));
        self.done.push(draft);
    }

    fn finish(mut self) -> Vec<Draft> {
        if !self.draft.rows.is_empty() {
            self.seal();
        }
        self.done
    }
}

#[inline]
pub(crate) fn narrow(number: usize) -> u32 {
    u32::try_from(number).expect("parts are kept below 2^32 bytes")
}
