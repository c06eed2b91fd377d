//! Strict JSON objects: every key is known, stands once and has its type.
//!
//! A field is decoded only when it is asked for, straight from the text of the line, so that an
//! error can name it and so that raw bodies pass through byte for byte.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::suggest;

/// What is wrong with an object, said so that the file and line can stand before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One JSON object, taken apart field by field.
#[derive(Debug)]
pub(crate) struct Object<'a> {
    /// Path of this object inside the line, with its dot: `changes[0].`, empty at the top.
    prefix: String,
    fields: Vec<(String, Option<&'a RawValue>)>,
    known: Vec<&'static str>,
}

impl<'a> Object<'a> {
    /// Takes a whole line or text as one object.
    pub(crate) fn parse(text: &'a str) -> Result<Object<'a>, Fault> {
        Object::parse_at(text, String::new())
    }

    fn parse_at(text: &'a str, prefix: String) -> Result<Object<'a>, Fault> {
        let kind = kind_of(text);
        match serde_json::from_str::<Fields<'a>>(text) {
            Ok(Fields(fields)) => Ok(Object { prefix, fields, known: Vec::new() }),
            Err(error) if error.is_data() && kind == "an object" => {
                Err(Fault(without_position(&error)))
            }
            Err(error) if error.is_data() => {
                let place = prefix.trim_end_matches('.');
                let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
                Err(Fault(format!("{place}expected an object, found {kind}")))
            }
            Err(error) => Err(Fault(format!(
                "broken JSON at column {}: {}",
                error.column(),
                without_position(&error)
            ))),
        }
    }

    /// Takes a field as it stands in the text; `null` is as good as absent.
    pub(crate) fn raw(&mut self, key: &'static str) -> Option<&'a RawValue> {
        self.known.push(key);
        let at = self.fields.iter().position(|(name, _)| name == key)?;
        self.fields[at].1.take().filter(|value| value.get() != "null")
    }

    /// Takes an optional field of type `T`.
    pub(crate) fn optional<T: Field>(&mut self, key: &'static str) -> Result<Option<T>, Fault> {
        let Some(value) = self.raw(key) else { return Ok(None) };
        serde_json::from_str(value.get()).map(Some).map_err(|error| {
            let kind = kind_of(value.get());
            let why = if T::KINDS.contains(&kind) {
                without_position(&error)
            } else {
                format!("found {kind}")
            };
            self.fault(key, &format!("expected {}, {why}", T::EXPECTED))
        })
    }

    /// Takes a field of type `T` that must be there.
    pub(crate) fn required<T: Field>(&mut self, key: &'static str) -> Result<T, Fault> {
        if let Some(value) = self.optional(key)? {
            return Ok(value);
        }
        // A key that is mistyped is missing and unknown at once.
        let left = self.fields.iter().filter(|(_, value)| value.is_some());
        Err(match suggest::closest(key, left.map(|(name, _)| name.as_str())) {
            Some(near) => self.fault(key, &format!("is missing; it has \"{near}\"")),
            None => self.fault(key, "is missing"),
        })
    }

    /// Takes an optional field that is one object.
    pub(crate) fn object(&mut self, key: &'static str) -> Result<Option<Object<'a>>, Fault> {
        let Some(value) = self.raw(key) else { return Ok(None) };
        Object::parse_at(value.get(), format!("{}{key}.", self.prefix)).map(Some)
    }

    /// Takes an optional field that is an array of objects.
    pub(crate) fn objects(&mut self, key: &'static str) -> Result<Option<Vec<Object<'a>>>, Fault> {
        let Some(value) = self.raw(key) else { return Ok(None) };
        let items: Vec<&'a RawValue> = serde_json::from_str(value.get()).map_err(|_| {
            let found = kind_of(value.get());
            self.fault(key, &format!("expected an array of objects, found {found}"))
        })?;
        let at = |(i, item): (usize, &&'a RawValue)| {
            Object::parse_at(item.get(), format!("{}{key}[{i}].", self.prefix))
        };
        items.iter().enumerate().map(at).collect::<Result<_, _>>().map(Some)
    }

    /// Returns a fault of one field of this object.
    pub(crate) fn fault(&self, key: &str, what: &str) -> Fault {
        Fault(format!("\"{}{key}\": {what}", self.prefix))
    }

    /// Checks that no field is left that nobody asked for.
    pub(crate) fn finish(self) -> Result<(), Fault> {
        let stray = self.fields.iter().find(|(name, _)| !self.known.contains(&name.as_str()));
        let Some((name, _)) = stray else { return Ok(()) };
        let hint = suggest::hint(name, &self.known);
        Err(Fault(format!("unknown key \"{}{name}\"{hint}", self.prefix)))
    }
}

/// A type that a field can have, with the words for it.
pub(crate) trait Field: DeserializeOwned {
    /// What is expected, for messages.
    const EXPECTED: &'static str;
    /// The kinds of JSON value that can hold it; others are named as what was found.
    const KINDS: &'static [&'static str];
}

impl Field for String {
    const EXPECTED: &'static str = "a string";
    const KINDS: &'static [&'static str] = &["a string"];
}

impl Field for bool {
    const EXPECTED: &'static str = "true or false";
    const KINDS: &'static [&'static str] = &["a boolean"];
}

impl Field for u32 {
    const EXPECTED: &'static str = "a whole number from 0 to 4294967295";
    const KINDS: &'static [&'static str] = &["a number"];
}

impl Field for Vec<String> {
    const EXPECTED: &'static str = "an array of strings";
    const KINDS: &'static [&'static str] = &["an array"];
}

impl Field for serde_json::Map<String, serde_json::Value> {
    const EXPECTED: &'static str = "an object";
    const KINDS: &'static [&'static str] = &["an object"];
}

/// The fields of an object in their order, each key once.
struct Fields<'a>(Vec<(String, Option<&'a RawValue>)>);

impl<'de: 'a, 'a> serde::Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect<'a>(std::marker::PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Collect<'a> {
            type Value = Fields<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields: Vec<(String, Option<&'a RawValue>)> = Vec::new();
                let mut seen = HashSet::new();
                while let Some((key, value)) = map.next_entry::<String, &'de RawValue>()? {
                    if !seen.insert(key.clone()) {
                        let message = format_args!("the key \"{key}\" stands twice");
                        return Err(serde::de::Error::custom(message));
                    }
                    fields.push((key, Some(value)));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Collect(std::marker::PhantomData))
    }
}

fn kind_of(text: &str) -> &'static str {
    match text.trim_ascii_start().as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        Some(b'-' | b'0'..=b'9') => "a number",
        _ => "no value",
    }
}

/// The position inside a field says nothing to somebody who looks at the line.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.as_str(), |(before, _)| before).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        let read = |text| {
            let mut object = Object::parse(text)?;
            object.required::<String>("id")?;
            object.optional::<u32>("max_tokens")?;
            for mut item in object.objects("changes")?.unwrap_or_default() {
                item.required::<String>("path")?;
                item.finish()?;
            }
            object.finish()
        };
        read(text).err().map_or_else(|| "none".to_owned(), |Fault(text)| text)
    }

    #[test]
    fn faults_name_the_field_and_what_was_found() {
        assert_eq!(fault(r#"{"id":"a"}"#), "none");
        assert_eq!(fault(r#"{"id":"a","max_tokens":null}"#), "none");
        assert_eq!(fault(r#"{"id":5}"#), r#""id": expected a string, found a number"#);
        assert_eq!(fault("{}"), r#""id": is missing"#);
        assert_eq!(fault("[1]"), "expected an object, found an array");
        assert_eq!(fault(r#"{"id":"a","id":"b"}"#), r#"the key "id" stands twice"#);
        assert_eq!(
            fault(r#"{"id":"a","change":[]}"#),
            r#"unknown key "change"; did you mean "changes"?"#
        );
        assert_eq!(
            fault(r#"{"id":"a","changes":[{"path":"x"},{"path":true}]}"#),
            r#""changes[1].path": expected a string, found a boolean"#
        );
        assert_eq!(
            fault(r#"{"id":"a","changes":[7]}"#),
            "changes[0]: expected an object, found a number"
        );
        assert!(fault(r#"{"id":"a""#).starts_with("broken JSON at column 9: EOF"));
        assert!(fault(r#"{"id":"a"} x"#).starts_with("broken JSON at column 12: trailing"));
        assert!(fault(r#"{"id":"a","max_tokens":-1}"#).contains("expected a whole number"));
        assert!(fault("{\"id\":\"\u{0}\"}").starts_with("broken JSON at column"));
    }
}
