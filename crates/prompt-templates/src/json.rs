//! Reads JSON as data, with its integers as they are written.
//!
//! `serde` knows no way to ask for an integer of any size: what 64 bits do not hold would come as a float.
//! So each value is taken as the text that it is, of which its first character says the kind.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use upon::Value;

use crate::lex::{Fault, Result};
use crate::to_value::MAX_DEPTH;
use crate::value::{check_key, from_digits};
use crate::{Error, ErrorKind};

/// Reads a text that is one JSON value, and returns where that starts. A byte-order mark in front of it is
/// passed over.
pub(crate) fn read(text: &str) -> Result<(Value, usize)> {
    let body = text.strip_prefix('\u{feff}').unwrap_or(text);
    let reader = Reader { text };
    let raw: &RawValue = reader.parse(body)?;
    Ok((reader.value(raw, 0)?, reader.offset(raw.get())))
}

struct Reader<'t> {
    text: &'t str,
}

impl<'t> Reader<'t> {
    fn value(&self, raw: &'t RawValue, depth: usize) -> Result<Value> {
        let text = raw.get();
        let first = text.as_bytes().first().copied().unwrap_or_default();
        if matches!(first, b'{' | b'[') && depth == MAX_DEPTH {
            return Err(self.fault(text, format!("the data nests deeper than {MAX_DEPTH}")));
        }
        Ok(match first {
            b'{' => Value::Map(self.map(self.parse(text)?, depth + 1)?),
            b'[' => {
                let items: Vec<&RawValue> = self.parse(text)?;
                let items = items.into_iter().map(|item| self.value(item, depth + 1));
                Value::List(items.collect::<Result<_>>()?)
            }
            b'"' => Value::String(self.parse(text)?),
            b't' | b'f' => Value::Bool(first == b't'),
            b'n' => Value::None,
            _ => number(text)
                .map_err(|message| self.fault(text, message).help("give it as text, in quotes"))?,
        })
    }

    fn map(&self, entries: Entries<'t>, depth: usize) -> Result<BTreeMap<String, Value>> {
        let mut map = BTreeMap::new();
        for (raw, value) in entries.0 {
            let key: String = self.parse(raw.get())?;
            check_key(&key).map_err(|message| self.fault(raw.get(), message))?;
            match map.entry(key) {
                Entry::Vacant(entry) => drop(entry.insert(self.value(value, depth)?)),
                Entry::Occupied(entry) => {
                    let key = entry.key();
                    let message = format!("the key '{key}' stands twice");
                    let fault = self.fault(raw.get(), message).help("leave one of the two out");
                    return Err(Fault::new(fault.offset, fault.error.named(key)));
                }
            }
        }
        Ok(map)
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
            (_, Ok(_), _) | (_, _, Ok(_)) => Ok(from_digits(text.to_owned())),
            _ => Err("an integer has more than 128 bits".to_owned()),
        };
    }
    match text.parse() {
        Ok(float) if f64::is_finite(float) => Ok(Value::Float(float)),
        _ => Err("a number is larger than a float of 64 bits can be".to_owned()),
    }
}

/// The entries of an object in their order, as they are written.
struct Entries<'t>(Vec<(&'t RawValue, &'t RawValue)>);

impl<'de: 't, 't> Deserialize<'de> for Entries<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Collect<'t>(PhantomData<&'t ()>);
        impl<'de: 't, 't> Visitor<'de> for Collect<'t> {
            type Value = Entries<'t>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Collect(PhantomData))
    }
}
