//! Drafts to a segment.

use std::sync::{Arc, OnceLock};

use crate::column::{Column, Symbols};
use crate::deaths::Deaths;
use crate::draft::{Draft, Row, narrow};
use crate::numbers::{Numbers, Seconds};
use crate::segment::Segment;
use crate::table::{self, Table};

/// Is a segment, the ids that the drafts removed, and how long the lines are, with their ends, that
/// a later one of them replaces.
pub(crate) struct Assembled {
    pub(crate) segment: Segment,
    pub(crate) removed: Vec<String>,
    pub(crate) replaced_bytes: u64,
}

/// Builds a segment from drafts in the order of the file: of the lines with one id the last
/// holds. O(n log n), O(n) if they come in the order of time.
pub(crate) fn assemble(mut drafts: Vec<Draft>) -> Assembled {
    drafts.retain(|draft| !draft.rows.is_empty());
    let fast = drafts.first().map(|draft| draft.fast.clone()).unwrap_or_default();
    let rows = Rows::of(&drafts);
    let Sorted { mut by_id, order, removed, replaced_bytes } = sort(&rows);
    let doc_of = Docs::of(&order, rows.len);
    by_id.renumber(|at| doc_of.get(at));

    let count = order.len();
    let mut places = Vec::with_capacity(count);
    let (mut ids, mut id_ends) = (Vec::new(), Vec::with_capacity(count));
    let (mut times, mut seconds) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let mut nanos = Vec::with_capacity(count);
    let mut texts = Vec::with_capacity(count);
    let mut exact: [Vec<u32>; 4] = std::array::from_fn(|_| Vec::with_capacity(count));
    let names = Names::of(&drafts);
    let first_chunks = first_chunks(&drafts);
    let mut cursor = 0;
    for at in &order {
        let (draft, row) = rows.locate(*at, &mut cursor);
        let Row {
            times: seen, seconds: second, nanos: nano, mut place, symbols, texts: spots, ..
        } = drafts[draft].rows[row as usize];
        place.chunk += first_chunks[draft];
        places.push(place);
        ids.extend_from_slice(drafts[draft].id(row));
        id_ends.push(narrow(ids.len()));
        times.push(seen);
        seconds.push(second);
        nanos.push(nano);
        texts.push(spots);
        let numbers = names.of_draft(draft);
        for ((column, numbers), symbol) in exact.iter_mut().zip(numbers).zip(symbols) {
            column.push(numbers[symbol as usize]);
        }
    }
    if nanos.iter().all(|nano| *nano == 0) {
        nanos = Vec::new();
    }
    let mut votes: Vec<_> = (drafts.iter().zip(&rows.starts))
        .flat_map(|(draft, start)| draft.votes.iter().map(move |(row, votes)| (start + row, votes)))
        .filter_map(|(at, votes)| Some((doc_of.get(at)?, *votes)))
        .collect();
    votes.sort_unstable_by_key(|(doc, _)| *doc);
    let mut exact = exact.into_iter();
    let columns = names.symbols.map(|symbols| {
        Column::new(symbols, exact.next().expect("there are as many columns as fields"))
    });
    let segment = Segment {
        chunks: drafts.iter().flat_map(|draft| draft.chunks.iter().cloned()).collect(),
        places: places.into(),
        texts: texts.into(),
        fast,
        ids: text(ids).into(),
        id_ends: id_ends.into(),
        by_id,
        columns,
        times: Numbers::of(times.iter().copied().max().unwrap_or_default(), times.into_iter()),
        seconds: Seconds::of(&seconds),
        nanos: nanos.into(),
        votes: votes.into(),
        deaths: Deaths::none(count),
        by_frequency: OnceLock::new(),
        messages: OnceLock::new(),
        terms: OnceLock::new(),
        failures: OnceLock::new(),
    };
    Assembled { segment, removed, replaced_bytes }
}

/// Numbers the rows of all drafts from 0.
struct Rows<'a> {
    drafts: &'a [Draft],
    starts: Vec<u32>,
    len: usize,
}

impl<'a> Rows<'a> {
    fn of(drafts: &'a [Draft]) -> Self {
        let mut len = 0;
        let starts = drafts
            .iter()
            .map(|draft| {
                let start = narrow(len);
                len += draft.rows.len();
                start
            })
            .collect();
        assert!(len < table::MAX, "memory ends before 2^32 lessons");
        Self { drafts, starts, len }
    }

    /// Returns the draft of a row and the row's number there. Looks where it looked last first.
    fn locate(&self, at: u32, cursor: &mut usize) -> (usize, u32) {
        let is_there = |draft: usize| {
            self.starts[draft] <= at && self.starts.get(draft + 1).is_none_or(|next| at < *next)
        };
        if !is_there(*cursor) {
            *cursor = self.starts.partition_point(|start| *start <= at) - 1;
        }
        (*cursor, at - self.starts[*cursor])
    }

    fn row(&self, at: u32) -> &'a Row {
        let (draft, row) = self.locate(at, &mut 0);
        &self.drafts[draft].rows[row as usize]
    }

    fn id(&self, at: u32) -> &'a [u8] {
        let (draft, row) = self.locate(at, &mut 0);
        self.drafts[draft].id(row)
    }
}

/// Tells which row has become which doc.
enum Docs {
    /// All of them, in the opposite order: a file in the order of time.
    Reversed(u32),
    /// `u32::MAX` is none.
    Listed(Vec<u32>),
}

impl Docs {
    fn of(order: &[u32], rows: usize) -> Self {
        let last = narrow(rows).wrapping_sub(1);
        if order.len() == rows && (0_u32..).zip(order).all(|(doc, at)| doc == last - at) {
            return Self::Reversed(last);
        }
        let mut docs = vec![u32::MAX; rows];
        for (doc, at) in (0_u32..).zip(order) {
            docs[*at as usize] = doc;
        }
        Self::Listed(docs)
    }

    fn get(&self, at: u32) -> Option<u32> {
        match self {
            Self::Reversed(last) => Some(last - at),
            Self::Listed(docs) => Some(docs[at as usize]).filter(|doc| *doc != u32::MAX),
        }
    }
}

/// Rows whose places in the table are looked for together.
const TOGETHER: usize = 32;

/// Is which rows hold.
struct Sorted {
    /// The last row of each id.
    by_id: Table,
    /// Those rows without tombstones, newest first and then by id.
    order: Vec<u32>,
    /// The ids of the tombstones.
    removed: Vec<String>,
    /// How long the lines of all other rows are, with their ends.
    replaced_bytes: u64,
}

/// Goes over the rows once: they are more than the cache holds.
fn sort(rows: &Rows<'_>) -> Sorted {
    let mut by_id = Table::with_capacity(rows.len);
    let (mut replaced, mut replaced_bytes) = (Vec::new(), 0);
    let mut tombstones = Vec::new();
    let mut keys: Vec<u128> = Vec::with_capacity(rows.len);
    let mut at = 0;
    for draft in rows.drafts {
        for (some, first) in draft.rows.chunks(TOGETHER).zip((0_u32..).step_by(TOGETHER)) {
            by_id.touch(some.iter().map(|row| row.hash));
            for (number, row) in (first..).zip(some) {
                let id = draft.id(number);
                if let Some(old) = by_id.put(row.hash, at, |old| rows.id(old) == id) {
                    replaced.push(old);
                    replaced_bytes += u64::from(rows.row(old).place.len) + 1;
                }
                if row.is_tombstone {
                    tombstones.push(at);
                }
                keys.push(key(row) | u128::from(at));
                at += 1;
            }
        }
    }
    let number = |key: &u128| u32::try_from(key & u128::from(u32::MAX)).expect("32 bits");
    if replaced.len() + tombstones.len() > 0 {
        replaced.sort_unstable();
        tombstones.retain(|at| replaced.binary_search(at).is_err());
        let mut is_gone = vec![false; rows.len];
        replaced.iter().chain(&tombstones).for_each(|at| is_gone[*at as usize] = true);
        keys.retain(|key| !is_gone[number(key) as usize]);
    }
    // In the order of time already, as most files are, this is one pass.
    keys.sort_unstable();
    let is_same_time = |a: &u128, b: &u128| a >> 32 == b >> 32;
    for same in keys.chunk_by_mut(is_same_time).filter(|same| same.len() > 1) {
        same.sort_unstable_by_key(|key| rows.id(number(key)));
    }
    let removed = tombstones.iter().map(|at| text(rows.id(*at).to_owned())).collect();
    Sorted { by_id, order: keys.iter().map(number).collect(), removed, replaced_bytes }
}

/// Orders rows by time, the newest first; the lowest 32 bits are free.
fn key(row: &Row) -> u128 {
    let seconds = row.seconds.cast_unsigned() ^ (1 << 63);
    let nanos = row.nanos.cast_unsigned() ^ (1 << 31);
    u128::from(!seconds) << 64 | u128::from(!nanos) << 32
}

fn text(id: Vec<u8>) -> String {
    String::from_utf8(id).expect("ids are text")
}

fn first_chunks(drafts: &[Draft]) -> Vec<u32> {
    let mut next = 0;
    drafts
        .iter()
        .map(|draft| {
            let first = narrow(next);
            next += draft.chunks.len();
            first
        })
        .collect()
}

/// Numbers the texts of all drafts together.
struct Names {
    symbols: [Symbols; 4],
    /// By table of symbols and field, the new number of each old one.
    numbers: Vec<[Vec<u32>; 4]>,
    /// By draft, the table that is its own or shared.
    tables: Vec<usize>,
}

impl Names {
    fn of(drafts: &[Draft]) -> Self {
        let mut names =
            Self { symbols: Default::default(), numbers: Vec::new(), tables: Vec::new() };
        let mut shared: Vec<(&Arc<[Symbols; 4]>, usize)> = Vec::new();
        for draft in drafts {
            let Some(symbols) = &draft.shared else {
                names.add(&draft.symbols);
                continue;
            };
            let known = shared.iter().find(|(known, _)| Arc::ptr_eq(known, symbols));
            if let Some((_, table)) = known {
                names.tables.push(*table);
            } else {
                shared.push((symbols, names.numbers.len()));
                names.add(symbols);
            }
        }
        names
    }

    /// Adds a draft with a table of its own.
    fn add(&mut self, table: &[Symbols; 4]) {
        let mut all = self.symbols.iter_mut();
        let numbers = table.each_ref().map(|old| {
            let all = all.next().expect("there are as many fields");
            old.texts().iter().map(|text| all.intern(text.as_bytes())).collect()
        });
        self.tables.push(self.numbers.len());
        self.numbers.push(numbers);
    }

    fn of_draft(&self, draft: usize) -> &[Vec<u32>; 4] {
        &self.numbers[self.tables[draft]]
    }
}
