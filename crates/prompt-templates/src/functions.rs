//! What templates can call: `f(a, b)` and `a | f: b` are the same call.

use std::cmp::Ordering;
use std::fmt::Write as _;

use upon::{Engine, Value, fmt};

use crate::value::{big, float, to_json, type_of};

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
}

/// What a function comes to, unless it fails; why it does is what `upon` says. One that takes one argument
/// does not look at the other.
pub(crate) type Builtin = fn(&Value, &Value) -> Option<Value>;

const fn takes(
    name: &'static str,
    count: usize,
    usage: &'static str,
    function: Builtin,
) -> Signature {
    Signature { name, min: count, max: count, default: "", usage, function }
}

/// All functions, by name.
pub(crate) const SIGNATURES: &[Signature] = &[
    takes("and", 2, "and(a, b)", |a, b| Some((truthy(a) && truthy(b)).into())),
    takes("contains", 2, "contains(list, item)", |a, b| value(contains(a, b))),
    takes("default", 2, "?.name | default: \"none\"", |a, b| Some(or_default(a, b))),
    takes("eq", 2, "eq(a, b)", |a, b| Some(equal(a, b).into())),
    Signature {
        min: 1,
        default: "\"\"",
        ..takes("fence", 2, "text | fence: \"rust\"", |a, b| value(fence(text(a)?, text(b)?)))
    },
    takes("ge", 2, "ge(a, b)", |a, b| value(compare(a, b).map(Ordering::is_ge))),
    takes("gt", 2, "gt(a, b)", |a, b| value(compare(a, b).map(Ordering::is_gt))),
    Signature {
        min: 1,
        default: "4",
        ..takes("indent", 2, "text | indent: 4", |a, b| {
            value(indent(text(a)?, integer(b)?.try_into().ok()?))
        })
    },
    takes("join", 2, "list | join: \", \"", |a, b| match a {
        Value::List(list) => value(join(list, text(b)?)),
        _ => None,
    }),
    takes("json", 1, "value | json", |a, _| value(json(a))),
    takes("le", 2, "le(a, b)", |a, b| value(compare(a, b).map(Ordering::is_le))),
    takes("len", 1, "len(list)", |a, _| value(len(a))),
    takes("lt", 2, "lt(a, b)", |a, b| value(compare(a, b).map(Ordering::is_lt))),
    takes("ne", 2, "ne(a, b)", |a, b| Some((!equal(a, b)).into())),
    takes("or", 2, "or(a, b)", |a, b| Some((truthy(a) || truthy(b)).into())),
    takes("quote", 1, "text | quote", |a, _| value(quote(text(a)?))),
    takes("truncate_tokens", 2, "text | truncate_tokens: 500", |a, b| {
        value(truncate_tokens(text(a)?, integer(b)?))
    }),
    takes("xml", 2, "text | xml: \"document\"", |a, b| value(xml(text(a)?, text(b)?))),
];

fn value<T: Into<Value>>(result: Result<T, String>) -> Option<Value> {
    result.ok().map(Into::into)
}

fn text(value: &Value) -> Option<&str> {
    if let Value::String(text) = value { Some(text) } else { None }
}

fn integer(value: &Value) -> Option<i64> {
    if let Value::Integer(value) = value { Some(*value) } else { None }
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

fn bounded(text: String) -> Result<String, String> {
    check_length(text.len()).map(|()| text)
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
    engine.add_function("and", |a: &Value, b: &Value| truthy(a) && truthy(b));
    engine.add_function("contains", contains);
    engine.add_function("default", or_default);
    engine.add_function("eq", equal);
    engine.add_function("fence", fence);
    engine.add_function("ge", |a: &Value, b: &Value| compare(a, b).map(Ordering::is_ge));
    engine.add_function("gt", |a: &Value, b: &Value| compare(a, b).map(Ordering::is_gt));
    engine.add_function("indent", indent);
    engine.add_function("join", join);
    engine.add_function("json", json);
    engine.add_function("le", |a: &Value, b: &Value| compare(a, b).map(Ordering::is_le));
    engine.add_function("len", len);
    engine.add_function("lt", |a: &Value, b: &Value| compare(a, b).map(Ordering::is_lt));
    engine.add_function("ne", |a: &Value, b: &Value| !equal(a, b));
    engine.add_function("or", |a: &Value, b: &Value| truthy(a) || truthy(b));
    engine.add_function("quote", quote);
    engine.add_function("truncate_tokens", truncate_tokens);
    engine.add_function("xml", xml);
}

/// Prints a value; one that is null would vanish without a trace, so it is an error.
fn print(f: &mut fmt::Formatter<'_>, value: &Value) -> fmt::Result {
    match value {
        Value::None => Err(NOTHING.into()),
        Value::String(text) => Ok(f.write_str(text)?),
        Value::Float(value) => Ok(f.write_str(&float(*value))?),
        Value::Map(_) if let Some(digits) = big(value) => Ok(f.write_str(digits)?),
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

fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Integer(i), Value::Float(f)) | (Value::Float(f), Value::Integer(i)) => {
            order(*i, *f) == Some(Ordering::Equal)
        }
        _ => a == b,
    }
}

/// Orders an integer and a float by their exact values.
fn order(integer: i64, float: f64) -> Option<Ordering> {
    #[expect(clippy::cast_precision_loss, reason = "the loss is made good below")]
    let rounded = integer as f64;
    match rounded.partial_cmp(&float)? {
        // Rounding has made them equal: at this size floats are whole, so compare as integers.
        Ordering::Equal => {
            #[expect(clippy::cast_possible_truncation, reason = "whole, and i128 holds any i64")]
            let float = float as i128;
            Some(i128::from(integer).cmp(&float))
        }
        other => Some(other),
    }
}

fn compare(a: &Value, b: &Value) -> Result<Ordering, String> {
    let ordering = match (a, b) {
        _ if big(a).is_some() || big(b).is_some() => compare_big(a, b),
        (Value::Integer(a), Value::Integer(b)) => Some(a.cmp(b)),
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
        (Value::Integer(a), Value::Float(b)) => order(*a, *b),
        (Value::Float(a), Value::Integer(b)) => order(*b, *a).map(Ordering::reverse),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => None,
    };
    ordering.ok_or_else(|| format!("{} and {} have no order", type_of(a), type_of(b)))
}

/// Orders integers of which one has more than 64 bits.
fn compare_big(a: &Value, b: &Value) -> Option<Ordering> {
    // The sign, and the digits without it; a number with more digits is farther from zero.
    let parts = |value: &Value| {
        let text = match value {
            Value::Integer(value) => value.to_string(),
            value => big(value)?.to_owned(),
        };
        let digits = text.strip_prefix('-').map(str::to_owned);
        Some((digits.is_none(), digits.unwrap_or(text)))
    };
    let ((a_up, a), (b_up, b)) = (parts(a)?, parts(b)?);
    let magnitude = a.len().cmp(&b.len()).then_with(|| a.cmp(&b));
    Some(match (a_up, b_up) {
        (true, true) => magnitude,
        (false, false) => magnitude.reverse(),
        _ => a_up.cmp(&b_up),
    })
}

fn len(value: &Value) -> Result<i64, String> {
    let length = match value {
        Value::String(text) => text.chars().count(),
        Value::List(list) => list.len(),
        Value::Map(map) if big(value).is_none() => map.len(),
        other => return Err(format!("{} has no length", type_of(other))),
    };
    i64::try_from(length).map_err(|_| "the length is out of range".to_owned())
}

fn contains(whole: &Value, part: &Value) -> Result<bool, String> {
    match (whole, part) {
        (Value::List(list), part) => Ok(list.iter().any(|item| equal(item, part))),
        (Value::Map(map), Value::String(key)) => Ok(map.contains_key(key)),
        (Value::String(text), Value::String(part)) => Ok(text.contains(part)),
        _ => Err(format!("{} cannot contain {}", type_of(whole), type_of(part))),
    }
}

fn json(value: &Value) -> Result<String, String> {
    to_json(value, MAX_LENGTH)
}

fn join(list: &[Value], separator: &str) -> Result<String, String> {
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Integer(value) => Ok(value.to_string()),
        Value::Float(value) => Ok(float(*value)),
        value if let Some(digits) = big(value) => Ok(digits.to_owned()),
        other => Err(format!("{} in the list cannot be joined", type_of(other))),
    };
    let texts = list.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let separators = separator.len().saturating_mul(texts.len().saturating_sub(1));
    check_length(texts.iter().map(String::len).fold(separators, usize::saturating_add))?;
    Ok(texts.join(separator))
}

/// Puts `count` spaces before every line but the first, which stands where the tag stands.
fn indent(text: &str, count: usize) -> Result<String, String> {
    const MAX: usize = 1_000;
    if count > MAX {
        return Err(format!("an indent of {count} is over {MAX}"));
    }
    let is_indented = |line: &&str| !line.trim().is_empty();
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    let length = text.len() + count * lines.clone().filter(is_indented).count();
    check_length(length)?;
    let space = " ".repeat(count);
    let mut indented = String::with_capacity(length);
    indented.push_str(first);
    for line in lines {
        if is_indented(&line) {
            indented.push_str(&space);
        }
        indented.push_str(line);
    }
    Ok(indented)
}

/// Cuts text at the end of a line so that its estimate is at most `tokens`, and says how much is gone.
fn truncate_tokens(text: &str, tokens: i64) -> Result<String, String> {
    let tokens = usize::try_from(tokens).map_err(|_| format!("{tokens} is no count of tokens"))?;
    Ok(crate::tokens::truncate(text, tokens).into_owned())
}

/// Sets text off as a Markdown quotation.
fn quote(text: &str) -> Result<String, String> {
    let mark = |line: &str| if line.is_empty() { ">" } else { "> " };
    let length: usize = text.lines().map(|line| mark(line).len() + line.len() + 1).sum();
    check_length(length)?;
    let mut quoted = String::with_capacity(length);
    for line in text.lines() {
        quoted.push_str(mark(line));
        quoted.push_str(line);
        quoted.push('\n');
    }
    quoted.pop();
    Ok(quoted)
}

/// Puts text into a code fence that nothing in the text can close.
fn fence(text: &str, info: &str) -> Result<String, String> {
    if info.contains(['`', '\n', '\r']) {
        return Err("the word after an opening fence holds no back-tick and no newline".to_owned());
    }
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(3.max(longest + 1));
    let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    bounded(format!("{fence}{info}\n{text}{newline}{fence}"))
}

/// Puts text between tags that nothing in the text can close.
fn xml(text: &str, tag: &str) -> Result<String, String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if !tag.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') || !tag.chars().all(is_name)
    {
        return Err(format!("'{tag}' is no name of a tag"));
    }
    let mut safe = String::with_capacity(text.len());
    for (index, c) in text.char_indices() {
        match c {
            '<' if closes(&text[index + 1..], tag) => safe.push_str("&lt;"),
            c => safe.push(c),
        }
    }
    let newline = if safe.is_empty() || safe.ends_with('\n') { "" } else { "\n" };
    bounded(format!("<{tag}>\n{safe}{newline}</{tag}>"))
}

/// Returns whether what follows a `<` closes a tag, however it is spaced or cased.
fn closes(rest: &str, tag: &str) -> bool {
    let Some(name) = rest.trim_start().strip_prefix('/') else { return false };
    let name = name.trim_start().as_bytes();
    let (name, after) = name.split_at(tag.len().min(name.len()));
    name.eq_ignore_ascii_case(tag.as_bytes()) && !after.first().copied().is_some_and(is_in_name)
}

fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}
