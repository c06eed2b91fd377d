//! Makes values of any `serde` data.

use std::collections::BTreeMap;
use std::fmt;

use serde::ser::{self, Serialize, Serializer};
use upon::Value;

use crate::integer::{from_digits, into_printed};
use crate::value::type_of;

/// Makes a value of any data.
pub(crate) fn to_value(data: &(impl Serialize + ?Sized)) -> Result<Value, NoValue> {
    data.serialize(ToValue { depth: 0 })
}

/// Why data is no value.
#[derive(Debug)]
pub(crate) struct NoValue(String);

impl fmt::Display for NoValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoValue {}

impl ser::Error for NoValue {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// Lists and maps in each other: values are walked by recursion. JSON is read to the same depth.
pub(crate) const MAX_DEPTH: usize = 128;

#[derive(Clone, Copy)]
struct ToValue {
    /// Lists and maps around the value.
    depth: usize,
}

impl ToValue {
    /// Returns what makes the values inside of a list or map.
    fn inside(self) -> Result<Self, NoValue> {
        if self.depth == MAX_DEPTH {
            return Err(NoValue(format!("it nests deeper than {MAX_DEPTH}")));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

macro_rules! small {
    ($($method:ident $type:ty),*) => {$(
        fn $method(self, value: $type) -> Result<Value, NoValue> {
            Ok(Value::Integer(i64::from(value)))
        }
    )*};
}

macro_rules! large {
    ($($method:ident $type:ty),*) => {$(
        fn $method(self, value: $type) -> Result<Value, NoValue> {
            let small = i64::try_from(value).map(Value::Integer);
            Ok(small.unwrap_or_else(|_| from_digits(&value.to_string())))
        }
    )*};
}

impl Serializer for ToValue {
    type Ok = Value;
    type Error = NoValue;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = List;
    type SerializeTupleVariant = Variant<List>;
    type SerializeMap = Map;
    type SerializeStruct = Map;
    type SerializeStructVariant = Variant<Map>;

    small!(serialize_i8 i8, serialize_i16 i16, serialize_i32 i32, serialize_i64 i64);
    small!(serialize_u8 u8, serialize_u16 u16, serialize_u32 u32);
    large!(serialize_u64 u64, serialize_i128 i128, serialize_u128 u128);

    fn serialize_bool(self, value: bool) -> Result<Value, NoValue> {
        Ok(Value::Bool(value))
    }

    fn serialize_f32(self, value: f32) -> Result<Value, NoValue> {
        // By its digits: `0.1` is to be 0.1 and not 0.10000000149011612.
        Ok(Value::Float(value.to_string().parse().unwrap_or_else(|_| f64::from(value))))
    }

    fn serialize_f64(self, value: f64) -> Result<Value, NoValue> {
        Ok(Value::Float(value))
    }

    fn serialize_char(self, value: char) -> Result<Value, NoValue> {
        Ok(Value::String(value.to_string()))
    }

    fn serialize_str(self, value: &str) -> Result<Value, NoValue> {
        Ok(Value::String(value.to_owned()))
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<Value, NoValue> {
        Ok(Value::List(value.iter().map(|byte| Value::Integer(i64::from(*byte))).collect()))
    }

    fn serialize_none(self) -> Result<Value, NoValue> {
        Ok(Value::None)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, NoValue> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value, NoValue> {
        Ok(Value::None)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Value, NoValue> {
        Ok(Value::None)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Value, NoValue> {
        Ok(Value::String(variant.to_owned()))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Value, NoValue> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, NoValue> {
        Ok(tagged(variant, value.serialize(self.inside()?)?))
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<List, NoValue> {
        // The length is a claim of the data; memory is taken for what comes.
        let list = Vec::with_capacity(length.unwrap_or(0).min(1_024));
        Ok(List { list, items: self.inside()? })
    }

    fn serialize_tuple(self, length: usize) -> Result<List, NoValue> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_struct(self, _: &'static str, length: usize) -> Result<List, NoValue> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Variant<List>, NoValue> {
        Ok(Variant(variant, self.inside()?.serialize_seq(Some(length))?))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Map, NoValue> {
        Ok(Map { entries: BTreeMap::new(), key: None, values: self.inside()? })
    }

    fn serialize_struct(self, _: &'static str, length: usize) -> Result<Map, NoValue> {
        self.serialize_map(Some(length))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Variant<Map>, NoValue> {
        Ok(Variant(variant, self.inside()?.serialize_map(Some(length))?))
    }
}

fn tagged(variant: &str, value: Value) -> Value {
    Value::Map(BTreeMap::from([(variant.to_owned(), value)]))
}

/// A list that is being filled.
struct List {
    list: Vec<Value>,
    items: ToValue,
}

/// A map that is being filled.
struct Map {
    entries: BTreeMap<String, Value>,
    key: Option<String>,
    values: ToValue,
}

/// A variant of an enum that is being filled.
struct Variant<T>(&'static str, T);

macro_rules! list {
    ($($trait:ident $method:ident),*) => {$(
        impl ser::$trait for List {
            type Ok = Value;
            type Error = NoValue;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NoValue> {
                self.list.push(value.serialize(self.items)?);
                Ok(())
            }

            fn end(self) -> Result<Value, NoValue> {
                Ok(Value::List(self.list))
            }
        }
    )*};
}

list!(SerializeSeq serialize_element, SerializeTuple serialize_element, SerializeTupleStruct serialize_field);

impl ser::SerializeTupleVariant for Variant<List> {
    type Ok = Value;
    type Error = NoValue;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NoValue> {
        ser::SerializeSeq::serialize_element(&mut self.1, value)
    }

    fn end(self) -> Result<Value, NoValue> {
        Ok(tagged(self.0, Value::List(self.1.list)))
    }
}

impl ser::SerializeMap for Map {
    type Ok = Value;
    type Error = NoValue;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), NoValue> {
        let key = match key.serialize(self.values)? {
            Value::String(key) => into_printed(key),
            Value::Integer(key) => key.to_string(),
            Value::Bool(key) => key.to_string(),
            other => return Err(NoValue(format!("{} is no key of a map", type_of(&other)))),
        };
        self.key = Some(key);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NoValue> {
        let value = value.serialize(self.values)?;
        self.entries.insert(self.key.take().unwrap_or_default(), value);
        Ok(())
    }

    fn end(self) -> Result<Value, NoValue> {
        Ok(Value::Map(self.entries))
    }
}

impl ser::SerializeStruct for Map {
    type Ok = Value;
    type Error = NoValue;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), NoValue> {
        self.entries.insert(key.to_owned(), value.serialize(self.values)?);
        Ok(())
    }

    fn end(self) -> Result<Value, NoValue> {
        Ok(Value::Map(self.entries))
    }
}

impl ser::SerializeStructVariant for Variant<Map> {
    type Ok = Value;
    type Error = NoValue;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), NoValue> {
        ser::SerializeStruct::serialize_field(&mut self.1, key, value)
    }

    fn end(self) -> Result<Value, NoValue> {
        Ok(tagged(self.0, Value::Map(self.1.entries)))
    }
}
