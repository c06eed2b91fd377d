//! Drafts to a segment.

use std::sync::{Arc, OnceLock};

use crate::column::{Column, Symbols};
use crate::deaths::Deaths;
use crate::draft::{Bounds, Draft, narrow};
use crate::hash;
use crate::memory;
use crate::numbers::{Growing, GrowingSeconds};
use crate::rows::Row;
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
    let rows = Numbered::of(&drafts);
    let Sorted { by_id, order, doc_of, removed, replaced_bytes } = sort(&rows);
    let names = Names::of(&drafts);
    let mut fields = Fields::new(&drafts, &names, order.len(rows.len));
    match &order {
        Order::Reversed => {
            for (number, draft) in drafts.iter().enumerate().rev() {
                for row in (0..narrow(draft.rows.len())).rev() {
                    fields.push(number, draft, row);
                }
            }
        }
        Order::Listed(order) => {
            let mut cursor = 0;
            for at in order {
                let (number, row) = rows.locate(*at, &mut cursor);
                fields.push(number, &drafts[number], row);
            }
        }
    }
    fields.flush();
    let mut votes: Vec<_> = (drafts.iter().zip(&rows.starts))
        .flat_map(|(draft, start)| draft.votes.iter().map(move |(row, votes)| (start + row, votes)))
        .filter_map(|(at, votes)| Some((doc_of.get(at)?, *votes)))
        .collect();
    votes.sort_unstable_by_key(|(doc, _)| *doc);
    let Fields { places, ids, id_ends, times, seconds, nanos, texts, exact, .. } = fields;
    let count = places.len();
    let mut exact = exact.into_iter();
    let columns = names.symbols.map(|symbols| {
        Column::new(symbols, exact.next().expect("there are as many columns as fields").finish())
    });
    let segment = Segment {
        chunks: drafts.iter().flat_map(|draft| draft.chunks.iter().cloned()).collect(),
        places: places.finish(),
        texts: texts.finish(),
        fast,
        ids: text(ids).into(),
        id_ends: id_ends.into(),
        by_id,
        columns,
        times: times.finish(),
        seconds: seconds.finish(),
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

/// Is what a segment holds of its lessons, on its way there.
struct Fields<'a> {
    names: &'a Names,
    /// By draft, where its chunks begin among all.
    first_chunks: Vec<u32>,
    /// Up to [`TOGETHER`]: each field of them is put where it belongs in one loop.
    next: Vec<Next<'a>>,
    places: memory::Growing<[u32; 3]>,
    texts: memory::Growing<u64>,
    ids: Vec<u8>,
    id_ends: Vec<u32>,
    exact: [Growing; 4],
    times: Growing,
    seconds: GrowingSeconds,
    /// Stays empty if all are zero.
    nanos: Vec<i32>,
    has_nanos: bool,
}

/// Is a lesson that comes next.
struct Next<'a> {
    row: Row,
    id: &'a [u8],
    /// By field, the numbers of the symbols of its draft.
    numbers: &'a [Vec<u32>; 4],
}

impl<'a> Fields<'a> {
    /// Makes room for so many lessons of some drafts.
    fn new(drafts: &[Draft], names: &'a Names, count: usize) -> Self {
        let Bounds { max_times, first, last, has_nanos, .. } = bounds(drafts);
        let (first, last) = if first > last { (0, 0) } else { (first, last) };
        Self {
            names,
            first_chunks: first_chunks(drafts),
            next: Vec::with_capacity(TOGETHER),
            places: memory::Growing::with_room(count),
            texts: memory::Growing::with_room(count),
            ids: Vec::with_capacity(drafts.iter().map(Draft::ids_len).sum()),
            id_ends: Vec::with_capacity(count),
            exact: names
                .symbols
                .each_ref()
                .map(|all| Growing::new(all.texts().len() as u64, count)),
            times: Growing::new(max_times, count),
            seconds: GrowingSeconds::new(first, last, count),
            nanos: Vec::with_capacity(if has_nanos { count } else { 0 }),
            has_nanos,
        }
    }

    #[inline]
    fn push(&mut self, number: usize, draft: &'a Draft, at: u32) {
        let mut row = draft.rows.get(at as usize);
        row.place.chunk += self.first_chunks[number];
        self.next.push(Next { row, id: draft.id(at), numbers: self.names.of_draft(number) });
        if self.next.len() == TOGETHER {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let next = &self.next;
        self.places.extend(next.iter().map(|next| next.row.place.words()));
        self.texts.extend(next.iter().map(|next| next.row.texts.bits()));
        let mut end = self.ids.len();
        for Next { id, .. } in next {
            self.ids.extend_from_slice(id);
        }
        self.id_ends.extend(next.iter().map(|next| {
            end += next.id.len();
            narrow(end)
        }));
        for (field, column) in self.exact.iter_mut().enumerate() {
            let number = |next: &Next<'_>| next.numbers[field][next.row.symbols[field] as usize];
            column.extend(next.iter().map(|next| number(next).into()));
        }
        self.times.extend(next.iter().map(|next| next.row.times));
        self.seconds.extend(next.iter().map(|next| next.row.seconds));
        if self.has_nanos {
            self.nanos.extend(next.iter().map(|next| next.row.nanos));
        }
        self.next.clear();
    }
}

/// Numbers the rows of all drafts from 0.
struct Numbered<'a> {
    drafts: &'a [Draft],
    starts: Vec<u32>,
    len: usize,
}

impl<'a> Numbered<'a> {
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

    fn row(&self, at: u32) -> Row {
        let (draft, row) = self.locate(at, &mut 0);
        self.drafts[draft].rows.get(row as usize)
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
    fn of(order: &Order, rows: usize) -> Self {
        let Order::Listed(order) = order else {
            return Self::Reversed(narrow(rows).wrapping_sub(1));
        };
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

/// Rows whose places in the table are looked for together, or whose fields are put in theirs.
const TOGETHER: usize = 32;

/// Is which rows hold.
struct Sorted {
    /// The docs that the last rows of each id become.
    by_id: Table,
    doc_of: Docs,
    /// Those rows without tombstones, newest first and then by id.
    order: Order,
    /// The ids of the tombstones.
    removed: Vec<String>,
    /// How long the lines of all other rows are, with their ends.
    replaced_bytes: u64,
}

enum Order {
    /// All rows, the last first, as in most files.
    Reversed,
    Listed(Vec<u32>),
}

impl Order {
    /// Returns how many of so many rows there are.
    fn len(&self, rows: usize) -> usize {
        match self {
            Self::Reversed => rows,
            Self::Listed(order) => order.len(),
        }
    }
}

/// Goes over the ids once; the rows are more than the cache holds.
fn sort(rows: &Numbered<'_>) -> Sorted {
    let mut by_id = Table::with_capacity(rows.len);
    let (mut replaced, mut replaced_bytes) = (Vec::new(), 0);
    // Most files are in the order of time and have no id twice: then these are the docs already.
    let is_rising = bounds(rows.drafts).rise.is_some();
    let last = narrow(rows.len).saturating_sub(1);
    let number = |at: u32| if is_rising { last - at } else { at };
    let mut at = 0;
    for draft in rows.drafts {
        let count = narrow(draft.rows.len());
        for first in (0..count).step_by(TOGETHER) {
            let some = first..count.min(first + narrow(TOGETHER));
            let mut hashes = [0; TOGETHER];
            for (hash, row) in hashes.iter_mut().zip(some.clone()) {
                *hash = hash::of_bytes(draft.id(row));
            }
            by_id.touch(hashes[..some.len()].iter().copied());
            for (row, hash) in some.zip(hashes) {
                let id = draft.id(row);
                let is_same = |old| rows.id(number(old)) == id;
                if let Some(old) = by_id.put(hash, number(at), is_same) {
                    let old = number(old);
                    replaced.push(old);
                    replaced_bytes += u64::from(rows.row(old).place.len) + 1;
                }
                at += 1;
            }
        }
    }
    let mut tombstones: Vec<u32> = (rows.drafts.iter().zip(&rows.starts))
        .flat_map(|(draft, start)| draft.tombstones.iter().map(move |row| start + row))
        .collect();
    let mut is_gone = Vec::new();
    if replaced.len() + tombstones.len() > 0 {
        replaced.sort_unstable();
        tombstones.retain(|at| replaced.binary_search(at).is_err());
        is_gone.resize(rows.len, false);
        replaced.iter().chain(&tombstones).for_each(|at| is_gone[*at as usize] = true);
    }
    let order = match is_rising {
        true if is_gone.is_empty() => Order::Reversed,
        true => {
            let is_there = |at: &u32| !is_gone[*at as usize];
            Order::Listed((0..narrow(rows.len)).rev().filter(is_there).collect())
        }
        false => Order::Listed(by_time(rows, &is_gone)),
    };
    let doc_of = Docs::of(&order, rows.len);
    if let Order::Listed(_) = &order {
        by_id.renumber(|at| doc_of.get(number(at)));
    }
    let removed = tombstones.iter().map(|at| text(rows.id(*at).to_owned())).collect();
    Sorted { by_id, doc_of, order, removed, replaced_bytes }
}

/// Returns the rows that are not gone, newest first and then by id.
fn by_time(rows: &Numbered<'_>, is_gone: &[bool]) -> Vec<u32> {
    let all = rows.drafts.iter().flat_map(|draft| draft.rows.iter());
    let is_there = |at: u32| !is_gone.get(at as usize).is_some_and(|is_gone| *is_gone);
    let mut keys: Vec<u128> = Vec::with_capacity(rows.len);
    let there = (0_u32..).zip(all).filter(|(at, _)| is_there(*at));
    keys.extend(there.map(|(at, row)| key(&row) | u128::from(at)));
    // In the order of time but for a few, as many files are, this is about one pass.
    keys.sort_unstable();
    let number = |key: &u128| u32::try_from(key & u128::from(u32::MAX)).expect("32 bits");
    let is_same_time = |a: &u128, b: &u128| a >> 32 == b >> 32;
    for same in keys.chunk_by_mut(is_same_time).filter(|same| same.len() > 1) {
        same.sort_unstable_by_key(|key| rows.id(number(key)));
    }
    keys.iter().map(number).collect()
}

/// Orders rows by time, the newest first; the lowest 32 bits are free.
fn key(row: &Row) -> u128 {
    let seconds = row.seconds.cast_unsigned() ^ (1 << 63);
    let nanos = row.nanos.cast_unsigned() ^ (1 << 31);
    u128::from(!seconds) << 64 | u128::from(!nanos) << 32
}

/// Returns the bounds of all drafts, of which none is empty.
fn bounds(drafts: &[Draft]) -> Bounds {
    let mut all = drafts.iter().map(|draft| draft.bounds);
    let first = all.next().unwrap_or_default();
    all.fold(first, |all, behind| all.and(&behind))
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
