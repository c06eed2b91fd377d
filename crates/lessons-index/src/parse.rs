//! One line to one lesson.

use jiff::Timestamp;
use serde_json::value::RawValue;
use simd_json::{Buffers, Node, StaticNode, Tape};

use crate::fault::{FaultKind, LineError};
use crate::lesson::Lesson;
use crate::members::{self, Members};
use crate::text;

/// Nesting that the fast parser takes; deeper values go to the slow one, which does not recurse.
const MAX_DEPTH: usize = 100;

/// Lines over this are parsed with buffers of their own, so that the kept ones stay small.
const KEEP_BUFFERS_BELOW: usize = 1 << 20;

/// How Go writes a time that was never set.
const NEVER: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// Parses lines with simd-json and keeps its buffers from line to line.
///
/// What simd-json refuses is tried again with `serde_json`, which takes some lines more (whole
/// numbers over 64 bits, half surrogate pairs under unknown keys) and knows what is wrong with
/// the others. So a line is accepted exactly if `serde_json` accepts it.
pub(crate) struct Parser {
    scratch: Vec<u8>,
    buffers: Buffers,
    tape: Tape<'static>,
}

impl Parser {
    pub(crate) fn new() -> Self {
        Self {
            scratch: Vec::new(),
            buffers: Buffers::with_max_depth(1024, MAX_DEPTH),
            tape: Tape::null(),
        }
    }

    /// Parses a trimmed line. `terminated` tells whether a line end follows it.
    pub(crate) fn parse(&mut self, line: &[u8], terminated: bool) -> Result<Lesson, LineError> {
        let Ok(raw) = std::str::from_utf8(line) else {
            return Err(classify_bytes(line, terminated));
        };
        if line.len() >= KEEP_BUFFERS_BELOW {
            return Self::new().fast(raw).unwrap_or_else(|| slow(raw, terminated));
        }
        self.fast(raw).unwrap_or_else(|| slow(raw, terminated))
    }

    /// Returns `None` if simd-json finds no JSON object here.
    fn fast(&mut self, raw: &str) -> Option<Result<Lesson, LineError>> {
        self.scratch.clear();
        self.scratch.extend_from_slice(raw.as_bytes());
        let mut tape = std::mem::replace(&mut self.tape, Tape(Vec::new())).reset();
        let parsed = simd_json::fill_tape(&mut self.scratch, &mut self.buffers, &mut tape);
        let lesson = match (parsed, tape.0.first()) {
            (Ok(()), Some(Node::Object { len, .. })) => Some(from_tape(raw, *len, &tape.0)),
            _ => None,
        };
        self.tape = tape.reset();
        lesson
    }
}

/// A value as far as a lesson needs it.
enum Value<'a> {
    Text(&'a str),
    Count(u64),
    Null,
    Object,
    /// A string with half of a surrogate pair.
    Broken,
    Other,
}

fn from_tape(raw: &str, members: usize, tape: &[Node<'_>]) -> Result<Lesson, LineError> {
    let mut lesson = Lesson::blank();
    let mut at = 1;
    for _ in 0..members {
        let Some([Node::String(key), value]) = tape.get(at..at + 2) else { break };
        at += 2;
        let value = match *value {
            Node::String(text) => Value::Text(text),
            Node::Static(StaticNode::U64(n)) => Value::Count(n),
            Node::Static(StaticNode::I64(n)) => u64::try_from(n).map_or(Value::Other, Value::Count),
            Node::Static(StaticNode::Null) => Value::Null,
            Node::Static(_) => Value::Other,
            Node::Object { count, .. } => {
                at += count;
                Value::Object
            }
            Node::Array { count, .. } => {
                at += count;
                Value::Other
            }
        };
        set(&mut lesson, key, &value)?;
    }
    finish(lesson, raw)
}

fn slow(raw: &str, terminated: bool) -> Result<Lesson, LineError> {
    let members = match Members::of(raw) {
        Ok(members) => members,
        Err(error) => return Err(classify_text(raw, &error, terminated)),
    };
    let mut lesson = Lesson::blank();
    for (key, value) in members.0 {
        // A key with half a surrogate pair is none of ours.
        let Some(key) = members::decode(key) else { continue };
        let text;
        let value = match value.get().as_bytes()[0] {
            b'"' => {
                text = members::decode(value);
                text.as_deref().map_or(Value::Broken, Value::Text)
            }
            b'{' => object(value),
            b'n' => Value::Null,
            _ => value.get().parse().map_or(Value::Other, Value::Count),
        };
        set(&mut lesson, &key, &value)?;
    }
    finish(lesson, raw)
}

/// An object that cannot be decoded later (nested too deep, a number out of range) is refused now.
fn object(value: &RawValue) -> Value<'static> {
    match serde_json::from_str::<serde_json::Value>(value.get()) {
        Ok(_) => Value::Object,
        Err(_) => Value::Other,
    }
}

/// Of a repeated key the last value holds, as in every JSON library that keeps one.
fn set(lesson: &mut Lesson, key: &str, value: &Value<'_>) -> Result<(), LineError> {
    match key {
        "id" => match value {
            Value::Text(id) => (*id).clone_into(&mut lesson.id),
            Value::Null => {}
            _ => return Err(LineError::new(FaultKind::NoId, "\"id\" is not a string")),
        },
        "task_type" => return put(&mut lesson.task_type, key, value),
        "activity_type" => return put(&mut lesson.activity_type, key, value),
        "failure_type" => return put(&mut lesson.failure_type, key, value),
        "failure_msg" => return put(&mut lesson.failure_msg, key, value),
        "resolution" => return put(&mut lesson.resolution, key, value),
        "pattern" => return put(&mut lesson.pattern, key, value),
        "times_seen" => match value {
            Value::Count(n) => lesson.times_seen = *n,
            Value::Null => {}
            _ => return Err(wrong(key, "a whole number from 0 to 2^64 - 1")),
        },
        "last_seen" => return stamp(&mut lesson.last_seen, key, value),
        "first_seen" => return stamp(&mut lesson.first_seen, key, value),
        "metadata" => match value {
            Value::Object | Value::Null => {}
            _ => return Err(wrong(key, "an object")),
        },
        _ => {}
    }
    Ok(())
}

fn put(field: &mut String, key: &str, value: &Value<'_>) -> Result<(), LineError> {
    match value {
        Value::Text(text) => (*text).clone_into(field),
        Value::Null => {}
        Value::Broken => return Err(wrong(key, "text: it has half of a surrogate pair")),
        _ => return Err(wrong(key, "a string")),
    }
    Ok(())
}

fn stamp(field: &mut Option<Timestamp>, key: &str, value: &Value<'_>) -> Result<(), LineError> {
    const WANTED: &str = "an RFC 3339 time such as 2026-01-31T09:30:00Z";
    match value {
        Value::Text(text) => {
            let time = text.parse::<Timestamp>().map_err(|_| {
                wrong(key, &format!("{WANTED}: {:?}", text::excerpt(text.as_bytes(), 40)))
            })?;
            *field = (time != NEVER).then_some(time);
        }
        Value::Null => {}
        _ => return Err(wrong(key, WANTED)),
    }
    Ok(())
}

fn wrong(key: &str, wanted: &str) -> LineError {
    LineError::new(FaultKind::Malformed, format!("{key:?} is not {wanted}"))
}

fn finish(mut lesson: Lesson, raw: &str) -> Result<Lesson, LineError> {
    if lesson.id.is_empty() {
        return Err(LineError::new(FaultKind::NoId, "\"id\" is missing or empty"));
    }
    lesson.set_raw(raw);
    Ok(lesson)
}

fn classify_bytes(line: &[u8], terminated: bool) -> LineError {
    if text::looks_utf16(line) {
        return utf16();
    }
    if text::is_conflict_marker(line) {
        return conflict_marker();
    }
    match std::str::from_utf8(line) {
        Err(error) if error.error_len().is_none() && !terminated => torn(),
        Err(error) => LineError::new(
            FaultKind::NotUtf8,
            format!("byte {} of the line is no UTF-8", error.valid_up_to()),
        ),
        Ok(_) => LineError::new(FaultKind::Malformed, "not JSON"),
    }
}

fn classify_text(raw: &str, error: &serde_json::Error, terminated: bool) -> LineError {
    let line = raw.as_bytes();
    if text::looks_utf16(line) {
        return utf16();
    }
    if text::is_conflict_marker(line) {
        return conflict_marker();
    }
    if line.first() != Some(&b'{') && serde_json::from_str::<&RawValue>(raw).is_ok() {
        return LineError::new(FaultKind::NotAnObject, "a JSON value that is no object");
    }
    if is_welded(raw, error, terminated) {
        return LineError::new(FaultKind::Welded, "two records on one line");
    }
    if !terminated && line.first() == Some(&b'{') {
        return torn();
    }
    let said = error.to_string();
    let said = said.split(" at line ").next().unwrap_or_default();
    LineError::new(FaultKind::Malformed, format!("{said} at column {}", error.column()))
}

/// Returns whether a line end is missing between two records.
///
/// Either a whole record is followed by another, or the line ends with a whole record that was
/// glued to a torn one. That one begins at the last `{` up to the place where the parser gave up.
fn is_welded(raw: &str, error: &serde_json::Error, terminated: bool) -> bool {
    let mut values = serde_json::Deserializer::from_str(raw).into_iter::<&RawValue>();
    if values.next().is_some_and(|first| first.is_ok()) {
        let rest = raw[values.byte_offset()..].trim_start();
        return rest.starts_with('{') && (terminated || Members::of(rest).is_ok());
    }
    let line = raw.as_bytes();
    let stop = error.column().min(line.len());
    memchr::memrchr(b'{', &line[..stop]).filter(|at| *at > 0).is_some_and(|at| {
        Members::of(&raw[at..]).is_ok_and(|members| {
            members.0.iter().any(|(key, _)| members::decode(key).as_deref() == Some("id"))
        })
    })
}

fn utf16() -> LineError {
    LineError::new(FaultKind::Utf16, "text in UTF-16; convert the file to UTF-8")
}

fn conflict_marker() -> LineError {
    LineError::new(FaultKind::ConflictMarker, "a marker of a merge conflict")
}

fn torn() -> LineError {
    LineError::new(FaultKind::TornTail, "the last line is cut short")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_lines_take_the_fast_way_and_both_ways_agree() {
        let mut parser = Parser::new();
        for line in [
            r#"{"id":"a","failure_msg":"caf\u00e9\n","times_seen":3,"metadata":{"k":[1,{}]},"x":[[]]}"#,
            r#"{"metadata":{},"last_seen":"2026-01-31T09:30:00+01:00","y":{"id":"no"},"id":"b"}"#,
            r#"{"id":"c","times_seen":18446744073709551615,"pattern":null,"z":-1.5e3}"#,
            r#"{"id":"d","times_seen":-1}"#,
            r#"{"task_type":"no id"}"#,
        ] {
            let fast = parser.fast(line).expect("simd-json takes it");
            assert_eq!(fast, slow(line, true), "{line}");
        }
    }

    #[test]
    fn a_huge_line_does_not_stay_in_the_buffers() {
        let mut parser = Parser::new();
        let line = format!(r#"{{"id":"a","failure_msg":"{}"}}"#, "x".repeat(KEEP_BUFFERS_BELOW));
        assert!(parser.parse(line.as_bytes(), true).is_ok());
        assert!(parser.scratch.capacity() < KEEP_BUFFERS_BELOW);
    }
}
