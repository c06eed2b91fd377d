//! Reads JSON as data, with its integers as they are written.
//!
//! `serde` knows no way to ask for an integer of any size: what 64 bits do not hold would come as a float.
//! So `serde_json` says whether a text is JSON, in one pass that makes nothing of it, and a second pass
//! takes its values as they stand.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::Deserialize;
use serde_json::value::RawValue;
use upon::Value;

use crate::integer::from_digits;
use crate::lex::{Fault, Result};
use crate::to_value::MAX_DEPTH;
use crate::{Error, ErrorKind};

/// Reads a text that is one JSON value, and returns where that starts. A byte-order mark in front of it is
/// passed over.
pub(crate) fn read(text: &str) -> Result<(Value, usize)> {
    let body = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { text, rest: body };
    let raw: &RawValue = reader.parse(body)?;
    reader.rest = raw.get();
    Ok((reader.value(0)?, reader.offset(raw.get())))
}

struct Reader<'t> {
    text: &'t str,
    /// What is not taken yet, of a text that is known to be JSON.
    rest: &'t str,
}

impl<'t> Reader<'t> {
    fn value(&mut self, depth: usize) -> Result<Value> {
        self.skip_white_space();
        let first = self.rest.as_bytes().first().copied().unwrap_or_default();
        if matches!(first, b'{' | b'[') && depth == MAX_DEPTH {
            return Err(self.fault(self.rest, format!("the data nests deeper than {MAX_DEPTH}")));
        }
        Ok(match first {
            b'{' => Value::Map(self.map(depth + 1)?),
            b'[' => Value::List(self.list(depth + 1)?),
            b'"' => {
                let string = self.string();
                Value::String(self.unescaped(string)?)
            }
            _ => {
                let is_end = |c: char| matches!(c, ',' | ']' | '}') || is_white_space(c);
                let word = self.take(self.rest.find(is_end).unwrap_or(self.rest.len()));
                match word {
                    "null" => Value::None,
                    "true" | "false" => Value::Bool(word == "true"),
                    _ => number(word).map_err(|message| {
                        self.fault(word, message).help("give it as text, in quotes")
                    })?,
                }
            }
        })
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Value>> {
        let mut list = Vec::new();
        while self.has_more() {
            list.push(self.value(depth)?);
        }
        Ok(list)
    }

    fn map(&mut self, depth: usize) -> Result<BTreeMap<String, Value>> {
        let mut map = BTreeMap::new();
        while self.has_more() {
            let raw = self.string();
            let key = self.unescaped(raw)?;
            self.skip_white_space();
            self.take(":".len());
            match map.entry(key) {
                Entry::Vacant(entry) => drop(entry.insert(self.value(depth)?)),
                Entry::Occupied(entry) => {
                    let key = entry.key();
                    let message = format!("the key '{key}' stands twice");
                    let fault = self.fault(raw, message).help("leave one of the two out");
                    return Err(Fault::new(fault.offset, fault.error.named(key)));
                }
            }
        }
        Ok(map)
    }

    /// Takes the sign in front of the next item or entry; returns whether it is not the closing one.
    fn has_more(&mut self) -> bool {
        self.skip_white_space();
        let sign = self.take(1);
        self.skip_white_space();
        let is_empty = matches!(sign, "[" | "{") && self.rest.starts_with([']', '}']);
        if is_empty {
            self.take(1);
        }
        !is_empty && !matches!(sign, "]" | "}")
    }

    /// Takes a string, with its quotes.
    fn string(&mut self) -> &'t str {
        let bytes = self.rest.as_bytes();
        let mut end = 1;
        while let Some(index) = memchr::memchr2(b'"', b'\\', bytes.get(end..).unwrap_or_default()) {
            end += index + 1;
            if bytes[end - 1] == b'"' {
                break;
            }
            end += 1;
        }
        self.take(end)
    }

    /// Returns what a string says.
    fn unescaped(&self, string: &'t str) -> Result<String> {
        if string.contains('\\') {
            return self.parse(string);
        }
        Ok(string.trim_matches('"').to_owned())
    }

    fn skip_white_space(&mut self) {
        self.rest = self.rest.trim_start_matches(is_white_space);
    }

    fn take(&mut self, length: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    /// Parses a part of the text.
    fn parse<T: Deserialize<'t>>(&self, part: &'t str) -> Result<T> {
        serde_json::from_str(part).map_err(|error| {
            // The column counts bytes, and may be that of a line end.
            let lines = part.split_inclusive('\n').take(error.line().saturating_sub(1));
            let line: usize = lines.map(str::len).sum();
            let end = part.trim_ascii_end().len();
            let at = if error.is_eof() { end } else { line + error.column().saturating_sub(1) };
            let at = at.min(part.len());
            let said = error.to_string();
            let reason = said.rsplit_once(" at line ").map_or(said.as_str(), |(reason, _)| reason);
            self.fault(&part[part.floor_char_boundary(at)..], format!("broken JSON: {reason}"))
        })
    }

    /// Returns an error at the start of a part of the text.
    fn fault(&self, part: &str, message: String) -> Fault {
        Fault::new(self.offset(part), Error::new(ErrorKind::Data, message))
    }

    /// Returns where a part of the text starts.
    fn offset(&self, part: &str) -> usize {
        part.as_ptr().addr().saturating_sub(self.text.as_ptr().addr())
    }
}

/// Reads a number, which is one by the grammar of JSON.
fn number(text: &str) -> std::result::Result<Value, String> {
    let is_whole = text.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit());
    // No integer is a zero with a sign.
    if is_whole && text != "-0" {
        return match (text.parse(), text.parse::<i128>(), text.parse::<u128>()) {
            (Ok(small), ..) => Ok(Value::Integer(small)),
            (_, Ok(_), _) | (_, _, Ok(_)) => Ok(from_digits(text)),
            _ => Err("an integer has more than 128 bits".to_owned()),
        };
    }
    match text.parse() {
        Ok(float) if f64::is_finite(float) => Ok(Value::Float(float)),
        _ => Err("a number is larger than a float of 64 bits can be".to_owned()),
    }
}

/// White space to JSON is not all that is to Unicode.
fn is_white_space(c: char) -> bool {
    matches!(c, ' ' | '\n' | '\t' | '\r')
}
