//! What templates can call: `f(a, b)` and `a | f: b` are the same call.

mod lines;
mod order;
mod set_apart;

use std::fmt::Write as _;

use upon::{Engine, Value, fmt};

pub(crate) use lines::lines;

use crate::integer::{self, big, printed};
use crate::value::{float, to_json, type_of};
use order::{compare, equal};

/// A function's name and how many arguments it takes, the piped one included.
#[derive(Debug)]
pub(crate) struct Signature {
    pub(crate) name: &'static str,
    pub(crate) min: usize,
    pub(crate) max: usize,
    /// What stands for the last argument when it is left out.
    pub(crate) default: &'static str,
    pub(crate) usage: &'static str,
    pub(crate) function: Builtin,
    /// What each argument can be, for a look at the other one alone.
    samples: [Sample; 2],
}

/// What an argument can be, whatever the other one is.
#[derive(Clone, Copy, Debug)]
enum Sample {
    Text,
    List,
    Zero,
    /// A text that can be a name.
    Name,
    /// What the other one is.
    Other,
}

/// What a function comes to, or why it fails. One that takes one argument does not look at the other.
pub(crate) type Builtin = fn(&Value, &Value) -> Result<Value, String>;

const fn takes(
    name: &'static str,
    count: usize,
    usage: &'static str,
    function: Builtin,
) -> Signature {
    let samples = [Sample::Other, Sample::Other];
    Signature { name, min: count, max: count, default: "", usage, function, samples }
}

/// All functions, by name.
pub(crate) const SIGNATURES: &[Signature] = &[
    takes("and", 2, "and(a, b)", |a, b| Ok((truthy(a) && truthy(b)).into())),
    Signature {
        samples: [Sample::List, Sample::Text],
        ..takes("contains", 2, "contains(list, item)", contains)
    },
    takes("default", 2, "?.name | default: \"none\"", |a, b| Ok(or_default(a, b))),
    takes("eq", 2, "eq(a, b)", |a, b| Ok(equal(a, b).into())),
    Signature {
        min: 1,
        default: "\"\"",
        samples: [Sample::Text, Sample::Text],
        ..takes("fence", 2, "text | fence: \"rust\"", set_apart::fence)
    },
    takes("ge", 2, "ge(a, b)", |a, b| Ok(compare(a, b)?.is_ge().into())),
    takes("gt", 2, "gt(a, b)", |a, b| Ok(compare(a, b)?.is_gt().into())),
    Signature {
        min: 1,
        default: "4",
        samples: [Sample::Text, Sample::Zero],
        ..takes("indent", 2, "text | indent: 4", set_apart::indent)
    },
    Signature {
        samples: [Sample::List, Sample::Text],
        ..takes("join", 2, "list | join: \", \"", join)
    },
    takes("json", 1, "value | json", |a, _| to_json(a, MAX_LENGTH).map(Value::String)),
    takes("le", 2, "le(a, b)", |a, b| Ok(compare(a, b)?.is_le().into())),
    takes("len", 1, "len(list)", |a, _| len(a)),
    takes("lt", 2, "lt(a, b)", |a, b| Ok(compare(a, b)?.is_lt().into())),
    takes("ne", 2, "ne(a, b)", |a, b| Ok((!equal(a, b)).into())),
    takes("or", 2, "or(a, b)", |a, b| Ok((truthy(a) || truthy(b)).into())),
    takes("quote", 1, "text | quote", |a, _| set_apart::quote(a)),
    Signature {
        samples: [Sample::Text, Sample::Zero],
        ..takes("truncate_tokens", 2, "text | truncate_tokens: 500", truncate_tokens)
    },
    Signature {
        samples: [Sample::Text, Sample::Name],
        ..takes("xml", 2, "text | xml: \"document\"", set_apart::xml)
    },
];

impl Signature {
    /// Says what is wrong with constant arguments, and at which of them it lies, if at one alone.
    pub(crate) fn check(
        &self,
        constants: [Option<&Value>; 2],
    ) -> Result<(), (Option<usize>, String)> {
        let call = |a: &Value, b: &Value| (self.function)(a, b).map(drop);
        let first_alone = |first: &Value| call(first, &self.samples[1].beside(first));
        let second_alone = |second: &Value| call(&self.samples[0].beside(second), second);
        match constants {
            [None, None] => Ok(()),
            [Some(first), None] => first_alone(first).map_err(|fault| (Some(0), fault)),
            [None, Some(second)] => second_alone(second).map_err(|fault| (Some(1), fault)),
            [Some(first), Some(second)] => call(first, second).map_err(|fault| {
                let alone = [first_alone(first), second_alone(second)];
                (alone.iter().position(Result::is_err), fault)
            }),
        }
    }
}

impl Sample {
    fn beside(self, other: &Value) -> Value {
        match self {
            Self::Text => "".into(),
            Self::List => Value::List(Vec::new()),
            Self::Zero => 0.into(),
            Self::Name => "name".into(),
            Self::Other => other.clone(),
        }
    }
}

/// Returns the text of an argument.
fn text<'v>(function: &str, value: &'v Value) -> Result<&'v str, String> {
    let refusal = || format!("'{function}' takes a string, not {}", type_of(value));
    integer::text(value).ok_or_else(refusal)
}

/// Returns the whole number of an argument, as near as its type comes to it, and its digits.
fn whole(function: &str, value: &Value) -> Result<(i64, String), String> {
    match value {
        Value::Integer(number) => Ok((*number, number.to_string())),
        value if let Some(digits) = big(value) => {
            let number = if digits.starts_with('-') { i64::MIN } else { i64::MAX };
            Ok((number, digits.to_owned()))
        }
        other => Err(format!("'{function}' takes a whole number, not {}", type_of(other))),
    }
}

/// Bytes of a text that a function gives: 64 MiB. Without a bound a short template could ask for more than
/// any machine has: each `json` of a `json` doubles its back-slashes.
const MAX_LENGTH: usize = 64 << 20;

fn check_length(length: usize) -> Result<(), String> {
    if length <= MAX_LENGTH {
        return Ok(());
    }
    Err(format!("the text would be longer than {MAX_LENGTH} bytes"))
}

/// What prints a path that may be absent. Templates cannot name it; it is written for them.
pub(crate) const OPTIONAL: &str = "optional";

/// What the reason of an error is when there is nothing to print.
pub(crate) const NOTHING: &str = "nothing to print";

pub(crate) fn signature(name: &str) -> Option<&'static Signature> {
    SIGNATURES.iter().find(|signature| signature.name == name)
}

/// Returns whether a name is one that templates cannot call, because it is written for them.
pub(crate) fn is_internal(name: &str) -> bool {
    name == OPTIONAL
}

pub(crate) fn register(engine: &mut Engine<'_>) {
    engine.set_default_formatter(&print);
    engine.add_formatter(OPTIONAL, |f: &mut fmt::Formatter<'_>, value: &Value| match value {
        Value::None => Ok(()),
        value => print(f, value),
    });
    for Signature { name, max, function, .. } in SIGNATURES {
        if *max == 1 {
            engine.add_function(*name, |a: &Value| function(a, &Value::None));
        } else {
            engine.add_function(*name, |a: &Value, b: &Value| function(a, b));
        }
    }
}

/// Prints a value; one that is null would vanish without a trace, so it is an error.
fn print(f: &mut fmt::Formatter<'_>, value: &Value) -> fmt::Result {
    match value {
        Value::None => Err(NOTHING.into()),
        Value::String(text) => Ok(f.write_str(printed(text))?),
        Value::Float(value) => Ok(f.write_str(&float(*value))?),
        value => fmt::default(f, value),
    }
}

/// The truth of `{% if %}`: empty, zero and absent are false.
pub(crate) fn truthy(value: &Value) -> bool {
    match value {
        Value::None => false,
        Value::Bool(value) => *value,
        Value::Integer(value) => *value != 0,
        Value::Float(value) => *value != 0.0,
        Value::String(value) => !value.is_empty(),
        Value::List(value) => !value.is_empty(),
        Value::Map(value) => !value.is_empty(),
    }
}

fn or_default(value: &Value, default: &Value) -> Value {
    if let Value::None = value { default.clone() } else { value.clone() }
}

fn len(value: &Value) -> Result<Value, String> {
    let length = match value {
        value if let Some(text) = integer::text(value) => text.chars().count(),
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        other => return Err(format!("{} has no length", type_of(other))),
    };
    i64::try_from(length).map(Value::Integer).map_err(|_| "the length is out of range".to_owned())
}

fn contains(whole: &Value, part: &Value) -> Result<Value, String> {
    let contains = match (whole, integer::text(whole), integer::text(part)) {
        (Value::List(list), ..) => list.iter().any(|item| equal(item, part)),
        (Value::Map(map), _, Some(key)) => map.contains_key(key),
        (_, Some(text), Some(part)) => text.contains(part),
        _ => return Err(format!("{} cannot contain {}", type_of(whole), type_of(part))),
    };
    Ok(contains.into())
}

fn join(list: &Value, separator: &Value) -> Result<Value, String> {
    let Value::List(list) = list else {
        return Err(format!("'join' takes a list, not {}", type_of(list)));
    };
    let separator = text("join", separator)?;
    let text = |value: &Value| match value {
        Value::String(text) => Ok(printed(text).to_owned()),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Integer(value) => Ok(value.to_string()),
        Value::Float(value) => Ok(float(*value)),
        other => Err(format!("{} in the list cannot be joined", type_of(other))),
    };
    let texts = list.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let separators = separator.len().saturating_mul(texts.len().saturating_sub(1));
    check_length(texts.iter().map(String::len).fold(separators, usize::saturating_add))?;
    Ok(texts.join(separator).into())
}

/// Cuts text at the end of a line so that its estimate is at most `tokens`, and says how much is gone.
fn truncate_tokens(value: &Value, tokens: &Value) -> Result<Value, String> {
    let text = text("truncate_tokens", value)?;
    let (tokens, digits) = whole("truncate_tokens", tokens)?;
    if tokens < 0 {
        return Err(format!("{digits} is no count of tokens"));
    }
    let tokens = usize::try_from(tokens).unwrap_or(usize::MAX);
    Ok(crate::tokens::truncate(text, tokens).into_owned().into())
}
