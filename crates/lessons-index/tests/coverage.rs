//! Every byte of any file is in a record, in a fault of the report, or a blank.
//!
//! `PROPTEST_CASES=1000000 cargo test --release -p lessons-index --test coverage` tries millions.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::collections::BTreeMap;

use common::{Scratch, missing, options};
use lessons_index::{
    EXCERPT_MAX_BYTES, Fault, FaultKind, Lesson, LessonsIndex, Options, check_each,
};
use proptest::prelude::*;
use proptest::sample::Index;

/// The cap of the tests; some lines are over it.
const CAP: usize = 120;

/// Is what a file must be read as, found line by line without the readers of the crate.
#[derive(Debug, Default)]
struct Account {
    lines: u64,
    records: u64,
    /// The last line of each id; `None` if it removes the lesson.
    last: BTreeMap<String, Option<String>>,
}

impl Account {
    /// Goes through all bytes; `faults` must be those of the lines that are neither records nor
    /// blanks, at their places, in order.
    fn of(content: &[u8], faults: &[Fault], cap: usize) -> Self {
        let mut account = Self::default();
        let mut faults = faults.iter();
        let (mut offset, mut is_after_utf16) = (0, false);
        for (line, number) in content.split(|byte| *byte == b'\n').zip(1..) {
            let what = meaning(line, is_after_utf16, cap);
            is_after_utf16 = false;
            account.lines += u64::from(!matches!(what, Meaning::Blank));
            match what {
                Meaning::Blank => {}
                Meaning::Record(lesson) => {
                    account.records += 1;
                    let raw = (!lesson.is_tombstone()).then(|| lesson.raw().to_owned());
                    account.last.insert(lesson.id, raw);
                }
                Meaning::Fault(shown) => {
                    let fault = faults.next().unwrap_or_else(|| panic!("line {number} is lost"));
                    assert_eq!((fault.line, fault.offset), (number, offset));
                    assert_eq!(fault.kind == FaultKind::TooLong, line.len() > cap);
                    let shown = String::from_utf8_lossy(shown);
                    assert!(fault.excerpt.len() <= EXCERPT_MAX_BYTES);
                    assert!(shown.starts_with(&fault.excerpt), "{fault} of {shown:?}");
                    assert!(!fault.excerpt.is_empty() || line.len() > cap);
                    is_after_utf16 = fault.kind == FaultKind::Utf16;
                }
            }
            offset += line.len() as u64 + 1;
        }
        assert_eq!(faults.next(), None, "a fault of no line");
        account
    }

    fn alive(&self) -> BTreeMap<&str, &str> {
        self.last.iter().filter_map(|(id, raw)| Some((id.as_str(), raw.as_deref()?))).collect()
    }
}

enum Meaning<'a> {
    Blank,
    Record(Box<Lesson>),
    Fault(&'a [u8]),
}

fn meaning(line: &[u8], is_after_utf16: bool, cap: usize) -> Meaning<'_> {
    // The second byte of a line end in UTF-16.
    let start = if is_after_utf16 { line.strip_prefix(b"\0").unwrap_or(line) } else { line };
    let start = start.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(start);
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r');
    let from = start.iter().position(|byte| !is_blank(byte)).unwrap_or(start.len());
    let to = start.iter().rposition(|byte| !is_blank(byte)).map_or(from, |last| last + 1);
    let inner = &start[from..to];
    if line.len() > cap {
        return Meaning::Fault(inner);
    }
    if inner.is_empty() {
        return Meaning::Blank;
    }
    match std::str::from_utf8(inner).ok().and_then(|text| Lesson::parse_line(text).ok()) {
        // Behind a blank, a byte order mark is a part of the line.
        Some(_) if inner.starts_with(b"\xEF\xBB\xBF") => Meaning::Fault(inner),
        Some(lesson) => {
            assert_eq!(lesson.raw().as_bytes(), inner, "the whole line is kept");
            Meaning::Record(Box::new(lesson))
        }
        None => Meaning::Fault(inner),
    }
}

/// Checks the law for a file that is read as a stream and as an index.
fn assert_all_bytes_are_accounted_for(file: &Scratch, content: &[u8], options: &Options) {
    // A file that is cut and written anew is flushed to the disk by some file systems.
    let _ = std::fs::remove_file(&file.path);
    std::fs::write(&file.path, content).unwrap();
    let options = options.clone().with_max_faults(usize::MAX);
    let mut faults = Vec::new();
    let checked = check_each(&file.path, &options, |fault| faults.push(fault.clone())).unwrap();
    let account = Account::of(content, &faults, options.max_line_bytes());
    assert_eq!(checked.faults, faults);
    assert_eq!(checked.lines, account.lines);
    assert_eq!(checked.lines, account.records + checked.faults_total);
    assert_eq!(checked.lines, checked.lessons + checked.duplicates + checked.faults_total);

    let index = LessonsIndex::open(&file.path, options).unwrap();
    assert_eq!(index.report(), checked);
    let lessons = index.snapshot().all();
    let found: BTreeMap<&str, &str> =
        lessons.iter().map(|lesson| (lesson.id.as_str(), lesson.raw())).collect();
    assert_eq!(found, account.alive());
}

/// A record, whole.
fn record() -> impl Strategy<Value = Vec<u8>> {
    (0..5_u8, 0..5_u8).prop_map(|(id, kind)| {
        let line = match kind {
            0 => format!(r#"{{"id":"{id}","deleted_at":"2026-01-31T09:30:00Z"}}"#),
            1 => format!(r#" {{ "x" : [{{"id":"inner"}}], "id" : "é{id}" }} "#),
            2 => format!(r#"{{"id":"\u006{id}","times_seen":{id},"last_seen":null}}"#),
            3 => format!(r#"{{"failure_msg":"a\n\"}}{{","id":"{id}","metadata":{{"k":[]}}}}"#),
            _ => format!(r#"{{"id":"{id}"}}"#),
        };
        line.into_bytes()
    })
}

/// A record with bytes cut out, put in or changed.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    (record(), prop::collection::vec((any::<Index>(), 0..4_u8, any::<u8>()), 1..4)).prop_map(
        |(mut line, changes)| {
            for (at, how, byte) in changes {
                let at = at.index(line.len() + 1);
                match how {
                    0 => line.truncate(at),
                    1 => line.insert(at, byte),
                    2 => drop(line.drain(..at)),
                    _ => line.iter_mut().skip(at).take(1).for_each(|old| *old = byte),
                }
            }
            line
        },
    )
}

fn odd() -> impl Strategy<Value = Vec<u8>> {
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let utf16_be = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
    prop::sample::select(vec![
        b"\xEF\xBB\xBF".to_vec(),
        b"\xEF\xBB\xBF{\"id\":\"bom\"}".to_vec(),
        utf16("\u{FEFF}{\"id\":\"x\"}\r\n{\"id\":\"y\"}\r\n\r\n{\"id\":\"z\"}"),
        utf16_be("\u{FEFF}{\"id\":\"x\"}\n\n{\"id\":\"y\"}"),
        utf16("{\"id\":\"no mark\"}\n"),
        b"<<<<<<< HEAD".to_vec(),
        b"||||||| base".to_vec(),
        b"=======".to_vec(),
        b">>>>>>> other".to_vec(),
        vec![0; 7],
        vec![b'x'; CAP],
        vec![b'x'; CAP + 1],
        vec![b' '; CAP + 1],
        vec![0xC3; 90],
        br#"{"id":"\ud800"}"#.to_vec(),
        br#"{"id":"a","x":"\ud800"}"#.to_vec(),
        br#"{"id":"a","x":1e999}"#.to_vec(),
        b"[1,2]".to_vec(),
        b"null".to_vec(),
    ])
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => record(),
        2 => damaged(),
        2 => odd(),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ];
    let end = prop::sample::select(
        [&b"\n"[..], b"\n", b"\n", b"\r\n", b"\n\n", b"", b" \t\n", b"\n\0", b"\0\n\0", b"\r"]
            .to_vec(),
    );
    prop::collection::vec((piece, end), 0..10)
        .prop_map(|pieces| pieces.into_iter().flat_map(|(p, end)| [&p, end].concat()).collect())
}

#[test]
fn every_byte_of_any_file_is_accounted_for() {
    let file = missing();
    let options = options().with_max_line_bytes(CAP);
    proptest!(common::cases(2_000), |(content in content())| {
        assert_all_bytes_are_accounted_for(&file, &content, &options);
    });
}

#[test]
fn every_byte_of_random_bytes_is_accounted_for() {
    let file = missing();
    let options = options().with_max_line_bytes(CAP);
    // Bytes that mean something come more often than they would by chance.
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(b"{}[]\",:\n\r\t \0\xEF\xBB\xBFid\\".to_vec())
    ];
    proptest!(common::cases(1_000), |(content in prop::collection::vec(byte, 0..400))| {
        assert_all_bytes_are_accounted_for(&file, &content, &options);
    });
}

/// Parts of a large file are read side by side, and each begins where a line does.
#[test]
fn every_byte_of_a_file_of_many_parts_is_accounted_for() {
    const BYTES: usize = 20 << 20;
    let odd: [&[u8]; 6] =
        [b"broken\n", b"\n\0", b"{\"id\":\"1\",\n", b"=======\r\n", b"\xFF\n", b"\n"];
    let (mut content, mut number) = (Vec::with_capacity(BYTES + (64 << 10)), 0_usize);
    while content.len() < BYTES {
        number += 1;
        let text = "é".repeat(number * 7919 % 30_000);
        let id = number % 500;
        content.extend(format!("{{\"id\":\"{id}\",\"failure_msg\":\"{text}\"}}\n").bytes());
        content.extend(odd[number % odd.len()]);
    }
    assert_all_bytes_are_accounted_for(&missing(), &content, &options());
}
