//! Which lines are accepted, against `serde_json`.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use lessons_index::Lesson;
use proptest::prelude::*;
use serde_json::value::RawValue;

/// Lines that a parser of the grammar takes and that have an id are lessons, and no others are.
///
/// The known keys are kept out of the lines, since their types are checked on top.
fn assert_agrees(line: &str) {
    let is_json = serde_json::from_str::<&RawValue>(line).is_ok();
    let is_object = line.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{');
    let parsed = Lesson::parse_line(line);
    assert_eq!(parsed.is_ok(), is_json && is_object, "{line:?}: {parsed:?}");
}

/// The hard cases of JSON parsers, as the value of a key.
const MINEFIELD: &[&str] = &[
    "0",
    "-0",
    "-0.0",
    "0e1",
    "1E+2",
    "1e-2",
    "01",
    "-01",
    "-",
    "+1",
    ".5",
    "1.",
    "1.e1",
    "1e",
    "1e+",
    "0x10",
    "1_0",
    "1e400",
    "-1e400",
    "1e-400",
    "123456789012345678901234567890",
    "NaN",
    "Infinity",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "0.1e1.5",
    "1 2",
    "1a",
    "true",
    "True",
    "tru",
    "truee",
    "null",
    "nul",
    "nulll",
    "false",
    "fals",
    "",
    "\"\"",
    "\"a",
    "a\"",
    "'a'",
    "\"\\u00e9\"",
    "\"\\u00E\"",
    "\"\\uD800\"",
    "\"\\uD83D\\uDE00\"",
    "\"\\uDE00\\uD83D\"",
    "\"\\uD800\\u0041\"",
    "\"\\x41\"",
    "\"\\\"",
    "\"\\\\\"",
    "\"\\/\"",
    "\"\\a\"",
    "\"\t\"",
    "\"\u{1}\"",
    "\"\u{7f}\"",
    "\"\u{2028}\"",
    "\"\0\"",
    "\"\u{FEFF}\"",
    "\u{FEFF}1",
    "[]",
    "[",
    "]",
    "[1",
    "[1,",
    "[1,]",
    "[,1]",
    "[1,,2]",
    "[1 2]",
    "[\"a\"]x",
    "[[[]]]",
    "[[[]]",
    "{}",
    "{",
    "}",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{,}",
    "{\"a\":1 \"b\":2}",
    "{a:1}",
    "{1:1}",
    "{\"a\":1,\"a\":2}",
    "{\"a\":{\"b\":[{}]}}",
    "{\"\\uD800\":1}",
    "// x\n1",
    "/* x */ 1",
    "1 // x",
    "\u{A0}1",
    "1\u{B}",
    "1\u{C}",
    "\r1\r",
    "\t1 ",
];

#[test]
fn the_minefield_is_accepted_as_serde_json_does() {
    for value in MINEFIELD {
        assert_agrees(&format!(r#"{{"id":"a","x":{value}}}"#));
        assert_agrees(&format!(r#"{{"id":"a","x":{value},"y":1}}"#));
        assert_agrees(&format!(r#"{{"id":"a","x":[{value}]}}"#));
        assert_agrees(&format!(r#"{{"x":{value},"id":"a"}}"#));
        assert_agrees(&format!(r#"{{"id":"a"}}{value}"#));
    }
}

/// Metadata is promised to be readable, so it is refused where `serde_json` cannot hold it.
#[test]
fn accepted_metadata_can_be_read() {
    for value in MINEFIELD {
        let line = format!(r#"{{"id":"a","metadata":{{"x":{value}}}}}"#);
        let wanted = serde_json::from_str::<serde_json::Value>(&line);
        match (Lesson::parse_line(&line), wanted) {
            (Ok(lesson), Ok(wanted)) => {
                assert_eq!(serde_json::Value::Object(lesson.metadata()), wanted["metadata"]);
            }
            (Err(_), Err(_)) => {}
            (parsed, wanted) => panic!("{line:?}: {parsed:?} but {wanted:?}"),
        }
    }
    for depth in [1, 50, 97, 98, 99, 100, 101, 120, 125, 126, 127, 128, 200, 5000] {
        let deep = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let line = format!(r#"{{"id":"a","metadata":{{"x":{deep}}}}}"#);
        if let Ok(lesson) = Lesson::parse_line(&line) {
            assert_eq!(lesson.metadata().len(), 1, "depth {depth}");
            assert!(depth < 128);
        } else {
            assert!(depth > 100, "depth {depth}");
        }
    }
}

proptest! {
    #![proptest_config(common::cases(2000))]

    /// A good line with a few bytes changed, cut out or put in.
    #[test]
    fn damaged_lines_are_accepted_as_serde_json_does(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8, prop::sample::select(
            b"{}[]\",:\\ue0123456789.+-eE truefalsn/\t\r\x00\x7fi".to_vec()
        )), 1..4),
    ) {
        let mut line = br#"{"id":"a","x":[1,-2.5e+3,"s\u00e9\n",{"k":null}],"y":{"z":[true,false,{}]},"w":"" }"#.to_vec();
        for (at, how, byte) in changes {
            let at = at.index(line.len());
            match how {
                0 => line[at] = byte,
                1 => line.insert(at, byte),
                _ => drop(line.remove(at)),
            }
        }
        let line = String::from_utf8(line).unwrap();
        // Damage to the id is another matter.
        if line.contains(r#""id":"a""#) && line.matches("id").count() == 1 {
            assert_agrees(&line);
        }
    }

    /// Changed fields are what is read back, and no other key is touched.
    #[test]
    fn a_changed_lesson_is_written_with_its_changes_and_nothing_else(
        keys in prop::sample::subsequence(vec![
            r#""x":1.50"#, r#""id":"a""#, r#""task_type":"t""#, r#""y":{"id":[1, 2]}"#,
            r#""times_seen":7"#, r#""last_seen":"2026-01-31T09:30:00+01:00""#, r#""pattern":null"#,
            r#""metadata":{"k":"v"}"#, r#""\u0070attern":"p""#, "\"z\":[1,\n{\r\n}]",
        ], 0..=10).prop_shuffle(),
        text in "[ -~é\n\"\\\\]{0,8}",
        times in 0..9_u64,
        changes in 0..16_u8,
    ) {
        let line = format!("{{{}}}", keys.join(" ,\t"));
        let Ok(lesson) = Lesson::parse_line(&line) else {
            prop_assert!(!line.contains(r#""id":"a""#));
            return Ok(());
        };
        let mut changed = lesson.clone();
        if changes & 1 != 0 { changed.task_type.clone_from(&text); }
        if changes & 2 != 0 { changed.pattern.clone_from(&text); }
        if changes & 4 != 0 { changed.times_seen = times; }
        if changes & 8 != 0 { changed.last_seen = None; }
        let written = changed.to_line();
        prop_assert!(!written.contains(['\n', '\r']));
        let read = Lesson::parse_line(&written).unwrap();
        prop_assert_eq!(&read.task_type, &changed.task_type);
        prop_assert_eq!(&read.pattern, &changed.pattern);
        prop_assert_eq!((read.times_seen, read.last_seen), (changed.times_seen, changed.last_seen));
        prop_assert_eq!(read.metadata(), lesson.metadata());
        for kept in [r#""x":1.50"#, r#""y":{"id":[1, 2]}"#, r#""metadata":{"k":"v"}"#] {
            prop_assert_eq!(written.contains(kept), line.contains(kept));
        }
        prop_assert_eq!(read.to_line(), written, "writing again changes nothing");
    }

}

proptest! {
    #![proptest_config(common::cases(256))]

    #[test]
    fn no_bytes_make_a_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.jsonl");
        std::fs::write(&path, &bytes).unwrap();
        let report = lessons_index::check(&path).unwrap();
        prop_assert_eq!(report.lines, report.lessons + report.duplicates + report.faults_total);
        for fault in &report.faults {
            prop_assert!(fault.excerpt.len() <= lessons_index::EXCERPT_MAX_BYTES);
        }
    }
}
