//! What is wrong with a line that no parser takes.

use serde_json::value::RawValue;

use crate::fault::{FaultKind, LineError};
use crate::members::{self, Members};
use crate::text;

pub(crate) fn classify_bytes(line: &[u8], terminated: bool) -> LineError {
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

pub(crate) fn classify_text(raw: &str, error: &serde_json::Error, terminated: bool) -> LineError {
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
