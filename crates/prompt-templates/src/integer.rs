//! Integers that 64 bits do not hold.
//!
//! `upon` has none. To it they are texts: like every integer, those have no members, and no loop goes over
//! them. In front of the digits stands a mark that is another one in every process and leaves it in no
//! way, so no data is taken for such an integer, whatever it holds.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use upon::Value;

/// It begins with NUL: of other texts, one byte tells that they are none.
static MARK: LazyLock<String> = LazyLock::new(|| {
    let [one, two] = [(); 2].map(|()| RandomState::new().hash_one(()));
    format!("\0{one:016x}{two:016x}")
});

/// Returns the value of an integer, by its digits as JSON has them.
pub(crate) fn from_digits(digits: &str) -> Value {
    Value::String(format!("{}{digits}", *MARK))
}

/// Returns the digits of an integer that 64 bits do not hold.
pub(crate) fn big(value: &Value) -> Option<&str> {
    let Value::String(text) = value else { return None };
    digits(text)
}

/// Returns the text of a value that is one, and no such integer.
pub(crate) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) if digits(text).is_none() => Some(text),
        _ => None,
    }
}

/// Returns what the text of a value prints as.
#[inline]
pub(crate) fn printed(text: &str) -> &str {
    digits(text).unwrap_or(text)
}

/// The same of a text that is not needed any more.
pub(crate) fn into_printed(text: String) -> String {
    match digits(&text) {
        Some(digits) => digits.to_owned(),
        None => text,
    }
}

#[inline]
fn digits(text: &str) -> Option<&str> {
    if text.as_bytes().first() == Some(&0) { text.strip_prefix(&**MARK) } else { None }
}
