use std::collections::BTreeMap;

use serde::Serialize;
use upon::Value;

use crate::facts::Member;
use crate::value::type_of;
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
#[derive(Clone, Debug, PartialEq)]
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
        match to_value(data)? {
            value @ Value::Map(_) => Ok(Self { value }),
            other => {
                let message =
                    format!("the data is {}, not a map from names to values", type_of(&other));
                Err(Error::new(ErrorKind::Data, message))
            }
        }
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

fn to_value(data: &(impl Serialize + ?Sized)) -> Result<Value, Error> {
    crate::to_value::to_value(data).map_err(|reason| {
        let message = format!("a template cannot hold the data: {reason}");
        Error::new(ErrorKind::Data, message)
            .help("give it as text, a number, a list or a map with names")
    })
}
