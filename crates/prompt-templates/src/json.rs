//! Values of a template as JSON.

use serde::ser::{Error as _, Serialize, Serializer};
use upon::Value;

/// Returns the value as compact JSON, the keys of maps in order.
pub(crate) fn to_json(value: &Value) -> Result<String, String> {
    serde_json::to_string(&Json(value)).map_err(|error| error.to_string())
}

struct Json<'a>(&'a Value);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::None => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Integer(value) => serializer.serialize_i64(*value),
            // JSON has no NaN; `null` in its place would be another value.
            Value::Float(value) if !value.is_finite() => {
                Err(S::Error::custom(format!("{value} has no JSON form")))
            }
            Value::Float(value) => serializer.serialize_f64(*value),
            Value::String(value) => serializer.serialize_str(value),
            Value::List(list) => serializer.collect_seq(list.iter().map(Json)),
            Value::Map(map) => serializer.collect_map(map.iter().map(|(k, v)| (k, Json(v)))),
        }
    }
}
