use std::collections::BTreeMap;

use serde::Serialize;
use upon::Value;

use crate::functions::type_of;
use crate::parse::Member;
use crate::{Error, ErrorKind};

/// The data of a prompt: a map from names to values.
///
/// It is built once and can be used for many renders; rendering copies none of it.
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
    /// integers beyond 64 bits with sign, or maps whose keys are no text.
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
        if let Value::Map(map) = &mut self.value {
            map.insert(name, value);
        }
        Ok(self)
    }

    /// Returns the names of the variables, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let map = match &self.value {
            Value::Map(map) => Some(map),
            _ => None,
        };
        map.into_iter().flat_map(|map| map.keys().map(String::as_str))
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the value at a path, if there is one.
    pub(crate) fn at(&self, path: &[Member]) -> Option<&Value> {
        path.iter().try_fold(&self.value, |value, member| match value {
            Value::Map(map) => map.get(&member.name),
            Value::List(list) => list.get(member.name.parse::<usize>().ok()?),
            _ => None,
        })
    }
}

fn to_value(data: &(impl Serialize + ?Sized)) -> Result<Value, Error> {
    upon::to_value(data).map_err(|error| {
        let text = error.to_string();
        let reason = text.strip_prefix("serialize error: ").unwrap_or(&text);
        let error =
            Error::new(ErrorKind::Data, format!("a template cannot hold the data: {reason}"));
        error.help("integers have 64 bits with sign, and keys are text; give anything else as text")
    })
}
