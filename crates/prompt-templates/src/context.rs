use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use upon::Value;

use crate::facts::Member;
use crate::value::{Shown, type_of};
use crate::{Error, ErrorKind};

/// The data of a prompt: a map from names to values.
///
/// It is built once and can be used for many renders; rendering copies none of it. Numbers print as they
/// were given: `1.0` is not `1`, and integers of 128 bits keep all digits.
///
/// ```
/// use prompt_templates::Context;
///
/// let mut context = Context::from_serialize(&serde_json::json!({"task": {"title": "Fix it"}}))?;
/// context.set("attempt", &2)?;
/// assert_eq!(context.names().collect::<Vec<_>>(), ["attempt", "task"]);
/// # Ok::<(), prompt_templates::Error>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Context {
    /// Always a map.
    value: Value,
}

impl Default for Context {
    fn default() -> Self {
        Self { value: Value::Map(BTreeMap::new()) }
    }
}

impl Context {
    /// Returns an empty context.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a context with the fields of a struct, or the entries of a map.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Data`] if it is no struct and no map with names, or holds what a template cannot:
    /// maps whose keys are neither text nor integers nor booleans, or data that fails to serialize.
    pub fn from_serialize(data: &impl Serialize) -> Result<Self, Error> {
        Self::of(to_value(data)?)
    }

    /// Returns a context with the entries of one JSON object.
    ///
    /// Numbers come out as they are written: integers have up to 128 bits, where most readers of JSON make
    /// floats of more than 64; other numbers are floats of 64 bits. A key that stands twice in an object is
    /// an error, not the last of its values. A byte-order mark in front is passed over.
    ///
    /// Costs two passes over the text, however deep it nests.
    ///
    /// ```
    /// use prompt_templates::{Context, Prompts};
    ///
    /// let prompt = Prompts::builder().build()?.compile("t", "{{ id }}")?;
    /// let context = Context::from_json(r#"{"id": 340282366920938463463374607431768211455}"#)?;
    /// assert_eq!(prompt.render(&context)?, u128::MAX.to_string());
    ///
    /// let error = Context::from_json("{\"a\": 1,\n \"a\": 2}").unwrap_err();
    /// assert_eq!((error.line(), error.column(), error.name()), (Some(2), Some(2), Some("a")));
    /// # Ok::<(), prompt_templates::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Data`], with line and column, if it is no JSON object, nests deeper than 128, or has a
    /// key twice or a number that is too large.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let (value, start) =
            crate::json::read(text).map_err(|fault| fault.error.in_text(text, fault.offset))?;
        Self::of(value).map_err(|error| error.in_text(text, start))
    }

    /// Sets one variable; the value of an earlier call for this name is gone.
    ///
    /// # Errors
    ///
    /// As for [`from_serialize`](Self::from_serialize); nothing is changed.
    pub fn set(
        &mut self,
        name: impl Into<String>,
        value: &(impl Serialize + ?Sized),
    ) -> Result<&mut Self, Error> {
        let name = name.into();
        let value =
            to_value(value).map_err(|error| error.note(&format!(" (in '{name}')")).named(&name))?;
        if let Some(map) = self.map_mut() {
            map.insert(name, value);
        }
        Ok(self)
    }

    /// Takes over all variables of another context; those of the same name are replaced.
    pub fn merge(&mut self, other: Self) -> &mut Self {
        if let (Value::Map(map), Value::Map(other)) = (&mut self.value, other.value) {
            map.extend(other);
        }
        self
    }

    /// Removes one variable; returns whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        self.map_mut().is_some_and(|map| map.remove(name).is_some())
    }

    /// Returns the names of the variables, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let map = match &self.value {
            Value::Map(map) => Some(map),
            _ => None,
        };
        map.into_iter().flat_map(|map| map.keys().map(String::as_str))
    }

    fn of(value: Value) -> Result<Self, Error> {
        if let Value::Map(_) = value {
            return Ok(Self { value });
        }
        let message = format!("the data is {}, not a map from names to values", type_of(&value));
        Err(Error::new(ErrorKind::Data, message))
    }

    pub(crate) fn map_mut(&mut self) -> Option<&mut BTreeMap<String, Value>> {
        match &mut self.value {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the place of a value, by a path such as `task.files`.
    pub(crate) fn at_mut(&mut self, path: &str) -> Option<&mut Value> {
        path.split('.').try_fold(&mut self.value, |value, name| match value {
            Value::Map(map) => map.get_mut(name),
            _ => None,
        })
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the value at a path, if there is one.
    pub(crate) fn at(&self, path: &[Member<'_>]) -> Option<&Value> {
        path.iter().try_fold(&self.value, |value, member| match value {
            Value::Map(map) => map.get(member.name),
            Value::List(list) => list.get(member.name.parse::<usize>().ok()?),
            _ => None,
        })
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&Shown(&self.value)).finish()
    }
}

fn to_value(data: &(impl Serialize + ?Sized)) -> Result<Value, Error> {
    crate::to_value::to_value(data).map_err(|reason| {
        let message = format!("a template cannot hold the data: {reason}");
        Error::new(ErrorKind::Data, message)
            .help("give it as text, a number, a list or a map with names")
    })
}
