//! Values of a template, printed as they were written.

use std::fmt;

use serde::ser::{self, Serialize, Serializer};
use upon::Value;

use crate::integer::big;
use crate::output::Output;

/// Returns a float as JSON writes it: `1.0` and not `1`.
pub(crate) fn float(value: f64) -> String {
    format!("{value:?}")
}

/// Returns the word that messages use for a value's type.
pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::None => "null",
        Value::Bool(_) => "a bool",
        Value::Integer(_) => "an integer",
        Value::Float(_) => "a float",
        Value::String(_) if big(value).is_some() => "an integer",
        Value::String(_) => "a string",
        Value::List(_) => "a list",
        Value::Map(_) => "a map",
    }
}

/// Returns the value as compact JSON of at most `max` bytes, the keys of maps in order.
pub(crate) fn to_json(value: &Value, max: usize) -> Result<String, String> {
    let mut output = Output::new(String::new(), max);
    let written = serde_json::to_writer(&mut output, &Json(value));
    if output.is_full {
        return Err(format!("the JSON would be longer than {max} bytes"));
    }
    written.map_err(|error| error.to_string()).map(|()| output.into_string())
}

/// Returns the value for a function of a user. What JSON has no number for is its text.
pub(crate) fn to_json_value(value: &Value) -> serde_json::Value {
    if let Some(digits) = big(value) {
        return digits.parse::<u64>().map_or_else(|_| digits.into(), Into::into);
    }
    match value {
        Value::None => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Integer(value) => (*value).into(),
        Value::Float(value) if !value.is_finite() => float(*value).into(),
        Value::Float(value) => (*value).into(),
        Value::String(value) => value.as_str().into(),
        Value::List(list) => list.iter().map(to_json_value).collect(),
        Value::Map(map) => map.iter().map(|(k, v)| (k.clone(), to_json_value(v))).collect(),
    }
}

/// A value that is shown to people who debug.
pub(crate) struct Shown<'a>(pub(crate) &'a Value);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(digits) = big(self.0) {
            return f.write_str(digits);
        }
        match self.0 {
            Value::None => f.write_str("null"),
            Value::Bool(value) => value.fmt(f),
            Value::Integer(value) => value.fmt(f),
            Value::Float(value) => value.fmt(f),
            Value::String(value) => value.fmt(f),
            Value::List(list) => f.debug_list().entries(list.iter().map(Shown)).finish(),
            Value::Map(map) => {
                f.debug_map().entries(map.iter().map(|(k, v)| (k, Shown(v)))).finish()
            }
        }
    }
}

struct Json<'a>(&'a Value);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(digits) = big(self.0) {
            return match (digits.parse::<i128>(), digits.parse::<u128>()) {
                (Ok(value), _) => serializer.serialize_i128(value),
                (_, Ok(value)) => serializer.serialize_u128(value),
                _ => serializer.serialize_str(digits),
            };
        }
        match self.0 {
            Value::None => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Integer(value) => serializer.serialize_i64(*value),
            // JSON has no NaN; `null` in its place would be another value.
            Value::Float(value) if !value.is_finite() => {
                Err(ser::Error::custom(format!("{value} has no JSON form")))
            }
            Value::Float(value) => serializer.serialize_f64(*value),
            Value::String(value) => serializer.serialize_str(value),
            Value::List(list) => serializer.collect_seq(list.iter().map(Json)),
            Value::Map(map) => serializer.collect_map(map.iter().map(|(k, v)| (k, Json(v)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_of_json_ends_at_the_bound() {
        let mut value = Value::String("\"".into());
        let error = loop {
            match to_json(&value, 1_000) {
                Ok(json) => value = Value::String(json),
                Err(error) => break error,
            }
        };
        assert_eq!(error, "the JSON would be longer than 1000 bytes");
        let Value::String(last) = value else { panic!("{value:?}") };
        assert!((300..=1_000).contains(&last.len()), "each doubles the one before: {}", last.len());
        let error = to_json(&Value::Float(f64::NAN), 1_000).unwrap_err();
        assert!(error.contains("no JSON form"), "{error}");
    }
}
