//! The members of a JSON object as text, nothing decoded.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Holds keys and values of an object in order, repeated keys included, byte for byte.
#[derive(Debug)]
pub(crate) struct Members<'a>(pub(crate) Vec<(&'a RawValue, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Splits an object; nested values are checked, but not descended into by recursion.
    pub(crate) fn of(text: &'a str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// Puts values in place of others (`None` removes the key) and keeps all else as it is. No key
    /// may be changed twice.
    pub(crate) fn with(&self, changes: &[(&str, Option<String>)]) -> String {
        let mut out = String::from("{");
        let mut put = |key: &str, value: &str| {
            if out.len() > 1 {
                out.push(',');
            }
            out.push_str(key);
            out.push(':');
            out.push_str(value);
        };
        let places: HashMap<&str, usize> =
            changes.iter().enumerate().map(|(at, (key, _))| (*key, at)).collect();
        let mut done = vec![false; changes.len()];
        for (key, value) in &self.0 {
            let place = decode(key).and_then(|name| places.get(&*name).copied());
            match place {
                None => put(key.get(), value.get()),
                // A repeated key is written once.
                Some(at) if done[at] => {}
                Some(at) => {
                    done[at] = true;
                    if let Some(value) = &changes[at].1 {
                        put(key.get(), value);
                    }
                }
            }
        }
        for ((key, value), done) in changes.iter().zip(done) {
            if let (Some(value), false) = (value, done) {
                put(&quote(key), value);
            }
        }
        out.push('}');
        out
    }
}

/// Writes text as a JSON string.
pub(crate) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Reads a JSON string; `None` when it is none, or holds half of a surrogate pair.
pub(crate) fn decode(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}
