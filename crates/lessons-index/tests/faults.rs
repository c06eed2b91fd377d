//! Files with broken lines: each kind is a case in `cases/`, and what a line may look like.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::fmt::Write as _;
use std::path::Path;

use common::{Scratch, ids, options, scratch};
use lessons_index::{
    EXCERPT_MAX_BYTES, FaultKind, Lesson, LessonsIndex, LoadReport, Mode, OpenError, check,
    check_each,
};

/// Prints a report as the snapshots show it.
fn show(report: &LoadReport) -> String {
    let mut out = String::new();
    let LoadReport { lines, lessons, duplicates, faults_total, .. } = report;
    writeln!(
        out,
        "{lines} lines, {lessons} lessons, {duplicates} duplicates, {faults_total} faults"
    )
    .unwrap();
    for fault in &report.faults {
        writeln!(out, "{fault}").unwrap();
    }
    out
}

/// Each case file holds a good line before and after the broken ones; a broken line is one fault.
#[test]
fn each_case_file_is_reported_exactly() {
    insta::glob!("cases/*", |path| {
        let report = check(path).unwrap();
        assert_eq!(report.lines, report.lessons + report.duplicates + report.faults_total);
        let kind = path.file_stem().unwrap().to_str().unwrap();
        let expected = report.faults.iter().filter(|fault| fault.kind.as_str() == kind).count();
        assert_eq!(expected as u64, report.faults_total, "all faults are {kind}");

        let file = scratch(std::fs::read(path).unwrap());
        let index = file.open();
        assert_eq!(index.report(), report, "opening finds what checking finds");
        let shown = ids(&index.snapshot().all()).join(" ");
        insta::assert_snapshot!(format!("{}lessons: {shown}\n", show(&report)));
    });
}

#[test]
fn every_kind_has_a_case_file() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    for kind in [
        FaultKind::Malformed,
        FaultKind::NotAnObject,
        FaultKind::NoId,
        FaultKind::ConflictMarker,
        FaultKind::TornTail,
        FaultKind::Welded,
        FaultKind::Utf16,
        FaultKind::NotUtf8,
    ] {
        let report = check(cases.join(format!("{kind}.jsonl"))).unwrap();
        assert!(report.count_of(kind) > 0, "{kind}");
    }
}

#[test]
fn a_line_over_the_cap_is_one_fault_and_the_next_line_counts() {
    let long = format!(r#"{{"id":"long","failure_msg":"{}"}}"#, "x".repeat(1000));
    let file = scratch(format!("{{\"id\":\"a\"}}\n{long}\n{{\"id\":\"b\"}}\n"));
    let options = options().with_max_line_bytes(500);
    let index = LessonsIndex::open(&file.path, options.clone()).unwrap();
    let report = index.report();
    assert_eq!((report.lines, report.lessons, report.faults_total), (3, 2, 1));
    let fault = &report.faults[0];
    assert_eq!((fault.kind, fault.line, fault.offset), (FaultKind::TooLong, 2, 11));
    assert_eq!(fault.excerpt, long[..EXCERPT_MAX_BYTES]);
    assert_eq!(check_each(&file.path, &options, |_| {}).unwrap(), report);

    let too_long = index.add(Lesson::parse_line(&long).unwrap()).unwrap_err();
    assert!(too_long.to_string().contains("the cap is 500"), "{too_long}");
    // Exactly at the cap is fine.
    let options = options.with_max_line_bytes(long.len());
    assert_eq!(LessonsIndex::open(&file.path, options).unwrap().snapshot().len(), 3);
}

#[test]
fn a_line_of_many_megabytes_is_a_line() {
    let long = format!(r#"{{"id":"long","failure_msg":"{}"}}"#, "é".repeat(4 << 20));
    let file = scratch(format!("{long}\n{{\"id\":\"b\"}}"));
    let index = file.open();
    assert_eq!(index.report().faults, []);
    assert_eq!(index.snapshot().get("long").unwrap().raw(), long);
}

#[test]
fn nesting_without_end_is_no_stack_overflow() {
    let depth = 300_000;
    let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let lines = [
        deep.clone(),
        "[".repeat(depth),
        r#"{"a":"#.repeat(depth),
        format!(r#"{{"id":"kept","unknown":{deep}}}"#),
        format!(r#"{{"id":"refused","metadata":{{"x":{deep}}}}}"#),
    ];
    let report = check(&scratch(lines.join("\n")).path).unwrap();
    let kinds: Vec<_> = report.faults.iter().map(|fault| (fault.line, fault.kind)).collect();
    assert_eq!(report.lessons, 1);
    assert_eq!(
        kinds,
        [
            (1, FaultKind::NotAnObject),
            (2, FaultKind::Malformed),
            (3, FaultKind::Malformed),
            (5, FaultKind::Malformed)
        ]
    );
}

#[test]
fn strict_mode_stops_at_the_first_fault() {
    let file = scratch("{\"id\":\"a\"}\n{\"id\"\n[]\n");
    let strict = options().with_mode(Mode::Strict);
    let error = LessonsIndex::open(&file.path, strict.clone()).unwrap_err();
    let OpenError::Fault { fault, .. } = &error else { panic!("{error:?}") };
    assert_eq!((fault.line, fault.offset, fault.kind), (2, 11, FaultKind::Malformed));
    assert!(error.to_string().contains("line 2 (byte 11)"), "{error}");

    let mut seen = 0;
    assert!(check_each(&file.path, &strict, |_| seen += 1).is_err());
    assert_eq!(seen, 1);

    let clean = scratch("{\"id\":\"a\"}\n");
    let index = LessonsIndex::open(&clean.path, strict).unwrap();
    std::fs::write(&clean.path, "{\"id\":\"a\"}\nbroken\n").unwrap();
    assert!(index.refresh().is_err());
    assert_eq!(index.snapshot().len(), 1, "what was there stays");
    std::fs::write(&clean.path, "{\"id\":\"a\"}\n{\"id\":\"b\"}\n").unwrap();
    index.refresh().unwrap();
    assert_eq!(index.snapshot().len(), 2);
}

#[test]
fn kept_faults_are_bounded_and_counts_are_exact() {
    let file = scratch("broken\n".repeat(1500) + "[]\n{\"id\":\"a\"}\n");
    let report = check(&file.path).unwrap();
    assert_eq!((report.faults_total, report.faults.len()), (1501, 1000));
    assert_eq!(report.count_of(FaultKind::Malformed), 1500);
    assert_eq!(report.count_of(FaultKind::NotAnObject), 1);

    let mut all = 0;
    check_each(&file.path, &options(), |_| all += 1).unwrap();
    assert_eq!(all, 1501, "each fault is handed on");
}

#[test]
fn byte_order_mark_crlf_blank_lines_and_a_missing_last_line_end_are_fine() {
    let file = scratch("\u{FEFF}{\"id\":\"a\"}\r\n\r\n \t \n  {\"id\":\"b\"} \n{\"id\":\"c\"}");
    let report = check(&file.path).unwrap();
    assert_eq!((report.lines, report.lessons, report.faults_total), (3, 3, 0));
    assert_eq!(file.open().snapshot().get("b").unwrap().raw(), r#"{"id":"b"}"#);
}

#[test]
fn an_empty_file_and_a_file_of_blanks_are_empty() {
    for content in ["", "\n", "\r\n\n  \n", "\u{FEFF}", "\u{FEFF}\n"] {
        let report = check(&scratch(content).path).unwrap();
        assert_eq!(report, LoadReport::default(), "{content:?}");
    }
}

#[test]
fn known_keys_of_the_wrong_type_are_faults_and_name_the_key() {
    for (line, key) in [
        (r#"{"id":"a","task_type":1}"#, "task_type"),
        (r#"{"id":"a","failure_msg":["x"]}"#, "failure_msg"),
        (r#"{"id":"a","times_seen":-1}"#, "times_seen"),
        (r#"{"id":"a","times_seen":1.5}"#, "times_seen"),
        (r#"{"id":"a","times_seen":"3"}"#, "times_seen"),
        (r#"{"id":"a","times_seen":18446744073709551616}"#, "times_seen"),
        (r#"{"id":"a","last_seen":"yesterday"}"#, "last_seen"),
        (r#"{"id":"a","last_seen":"2026-01-31T09:30:00"}"#, "last_seen"),
        (r#"{"id":"a","first_seen":1769851800}"#, "first_seen"),
        (r#"{"id":"a","metadata":[1]}"#, "metadata"),
    ] {
        let error = Lesson::parse_line(line).unwrap_err();
        assert_eq!(error.kind, FaultKind::Malformed, "{line}");
        assert!(error.detail.contains(key), "{line}: {error}");
    }
    for line in [r#"{"id":7}"#, r#"{"id":""}"#, r#"{"id":null}"#, r#"{"ID":"a"}"#, "{}"] {
        assert_eq!(Lesson::parse_line(line).unwrap_err().kind, FaultKind::NoId, "{line}");
    }
}

#[test]
fn null_is_absent_and_the_last_of_a_repeated_key_holds() {
    let line = r#"{"id":"a","id":"b","task_type":null,"times_seen":null,"last_seen":null,"metadata":null}"#;
    let lesson = Lesson::parse_line(line).unwrap();
    assert_eq!((lesson.id.as_str(), lesson.task_type.as_str(), lesson.times_seen), ("b", "", 1));
    assert_eq!((lesson.last_seen, lesson.metadata().len()), (None, 0));
}

#[test]
fn a_time_may_have_any_offset_and_the_unset_time_of_go_is_none() {
    let time = |text: &str| {
        Lesson::parse_line(&format!(r#"{{"id":"a","last_seen":"{text}"}}"#)).unwrap().last_seen
    };
    assert_eq!(time("2026-01-31T09:30:00+02:00"), time("2026-01-31T07:30:00Z"));
    assert_eq!(time("2026-01-31T09:30:00.123456789Z").unwrap().subsec_nanosecond(), 123_456_789);
    assert_eq!(time("0001-01-01T00:00:00Z"), None);
}

#[test]
fn what_is_no_file_is_a_clear_error() {
    let Scratch { dir, path } = common::missing();
    let message = |path: &Path| check(path).unwrap_err().to_string();
    assert!(message(dir.path()).contains("is a folder, not a file"));
    assert!(message(&path).contains("no such file"));
    assert!(message(Path::new("/dev/null")).contains("device"), "and is not waited for");

    let open = |path: &Path| LessonsIndex::open(path, options());
    assert!(matches!(open(dir.path()), Err(OpenError::NotAFile { .. })));
    assert!(matches!(open(&dir.path().join("no/file")), Err(OpenError::NoFolder { .. })));
    assert!(matches!(
        LessonsIndex::open_existing(&path, options()),
        Err(OpenError::Missing { .. })
    ));
    assert!(open(&path).is_ok(), "a missing file is empty");
    assert!(!path.exists(), "and is not created by reading");
}

#[cfg(unix)]
#[test]
fn an_unreadable_file_is_a_clear_error() {
    let looped = common::missing();
    std::os::unix::fs::symlink(&looped.path, &looped.path).unwrap();
    let error = check(&looped.path).unwrap_err();
    assert!(matches!(error, OpenError::Read { .. }), "{error:?}");
    assert!(error.to_string().contains("lessons.jsonl"), "{error}");
}

/// The parser quotes all of a string that stands where an object should.
#[test]
fn what_is_said_about_a_line_is_short_however_long_the_line_is() {
    let long = "x".repeat(100_000);
    for line in [format!("\"{long}\","), format!("{{\"id\":{{\"{long}\":1}}}}"), long] {
        let report = scratch(line + "\n").open().report();
        assert_eq!(report.faults_total, 1);
        assert!(report.faults[0].detail.len() <= 200, "{} bytes", report.faults[0].detail.len());
        assert!(report.faults[0].to_string().len() < 400);
    }
}

/// Only the start of such a line is kept, and what is cut there was shown as a broken character.
#[test]
fn the_excerpt_of_a_long_line_behind_blanks_ends_with_a_whole_character() {
    let file = scratch(format!("\r{}{}\n", "x".repeat(EXCERPT_MAX_BYTES - 2), "é".repeat(100)));
    let index = LessonsIndex::open(&file.path, options().with_max_line_bytes(120)).unwrap();
    let report = index.report();
    assert_eq!(report.faults[0].kind, FaultKind::TooLong);
    assert_eq!(report.faults[0].excerpt, "x".repeat(EXCERPT_MAX_BYTES - 2));
}
