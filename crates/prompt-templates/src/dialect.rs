//! What the templates of a store are compiled with: the functions, and how lines are tidied.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, LazyLock};

use upon::{Engine, Value};

use crate::functions::{self, SIGNATURES};
use crate::to_value::to_value;
use crate::value::to_json_value;
use crate::{Error, ErrorKind};

/// Arguments that a function of a user can have: `upon` takes no more.
const MAX_ARITY: usize = 5;

/// Frozen when a store is built. Stores without functions of their own share one.
pub(crate) struct Dialect {
    pub(crate) engine: Engine<'static>,
    custom: Vec<Custom>,
    pub(crate) is_tidy: bool,
}

/// A function that a user added.
#[derive(Clone)]
pub(crate) struct Custom {
    pub(crate) name: String,
    pub(crate) arity: usize,
    pub(crate) call: Arc<Call>,
}

/// What a function of a user does.
pub(crate) type Call =
    dyn Fn(&[serde_json::Value]) -> Result<serde_json::Value, String> + Send + Sync;

/// How many arguments a function takes, and how it is written.
pub(crate) struct Takes<'d> {
    pub(crate) min: usize,
    pub(crate) max: usize,
    /// What stands for the last argument when it is left out.
    pub(crate) default: &'d str,
    pub(crate) usage: Cow<'d, str>,
    /// What every store has of it.
    pub(crate) own: Option<&'static functions::Signature>,
}

impl Dialect {
    /// Returns the dialect without functions of a user.
    pub(crate) fn standard() -> Arc<Self> {
        static STANDARD: LazyLock<Arc<Dialect>> = LazyLock::new(|| {
            Arc::new(Dialect { engine: engine(), custom: Vec::new(), is_tidy: false })
        });
        Arc::clone(&STANDARD)
    }

    /// Returns a dialect with functions of a user.
    pub(crate) fn new(custom: &[Custom], is_tidy: bool) -> Result<Arc<Self>, Error> {
        if custom.is_empty() && !is_tidy {
            return Ok(Self::standard());
        }
        let mut engine = engine();
        for (index, function) in custom.iter().enumerate() {
            let name = &function.name;
            check(function, &custom[..index]).map_err(|fault| {
                let message = format!("the function '{name}' {fault}");
                Error::new(ErrorKind::UnknownFunction, message).named(name)
            })?;
            add(&mut engine, function);
        }
        Ok(Arc::new(Self { engine, custom: custom.to_vec(), is_tidy }))
    }

    /// Returns what a function takes, if there is one of that name.
    pub(crate) fn function(&self, name: &str) -> Option<Takes<'_>> {
        if let Some(signature) = functions::signature(name) {
            let functions::Signature { min, max, default, usage, .. } = *signature;
            return Some(Takes { min, max, default, usage: usage.into(), own: Some(signature) });
        }
        let custom = self.custom.iter().find(|custom| custom.name == name)?;
        let names = ["a", "b", "c", "d", "e"];
        let arguments = names[..custom.arity.min(MAX_ARITY)].join(", ");
        let usage = format!("{name}({arguments})").into();
        Some(Takes { min: custom.arity, max: custom.arity, default: "", usage, own: None })
    }

    /// Returns the names of all functions.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let custom = self.custom.iter().map(|custom| custom.name.as_str());
        SIGNATURES.iter().map(|signature| signature.name).chain(custom)
    }
}

impl fmt::Debug for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.custom.iter().map(|custom| &custom.name).collect();
        f.debug_struct("Dialect").field("custom", &names).finish_non_exhaustive()
    }
}

fn engine() -> Engine<'static> {
    let mut engine = Engine::new();
    functions::register(&mut engine);
    // Cycles are refused when templates are linked, so a render ends without a bound here.
    engine.set_max_include_depth(usize::MAX);
    engine
}

fn check(function: &Custom, before: &[Custom]) -> Result<(), String> {
    let Custom { name, arity, .. } = function;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || !name.chars().all(is_name) || crate::expression::is_keyword(name) {
        Err("has no name that a template can write".to_owned())
    } else if *arity == 0 || *arity > MAX_ARITY {
        Err(format!("takes {arity} arguments; it can be 1 to {MAX_ARITY}"))
    } else if functions::signature(name).is_some()
        || functions::is_internal(name)
        || before.iter().any(|other| other.name == *name)
    {
        Err("is there already".to_owned())
    } else {
        Ok(())
    }
}

/// For the arguments of a function, which `upon` tells apart by their number only.
type V = Value;

/// Registers a function with `upon`, which knows arguments by number only.
fn add(engine: &mut Engine<'static>, function: &Custom) {
    let call = Arc::clone(&function.call);
    let call = move |arguments: &[&Value]| -> Result<Value, String> {
        let arguments: Vec<_> = arguments.iter().map(|value| to_json_value(value)).collect();
        to_value(&call(&arguments)?).map_err(|error| error.to_string())
    };
    let name = function.name.clone();
    // Names that are there already have been refused, so none is replaced.
    let _ = match function.arity {
        1 => engine.add_function(name, move |a: V| call(&[&a])),
        2 => engine.add_function(name, move |a: V, b: V| call(&[&a, &b])),
        3 => engine.add_function(name, move |a: V, b: V, c: V| call(&[&a, &b, &c])),
        4 => engine.add_function(name, move |a: V, b: V, c: V, d: V| call(&[&a, &b, &c, &d])),
        _ => engine
            .add_function(name, move |a: V, b: V, c: V, d: V, e: V| call(&[&a, &b, &c, &d, &e])),
    };
}
