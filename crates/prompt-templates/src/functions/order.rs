//! How values compare.

use std::cmp::Ordering;

use upon::Value;

use crate::value::{big, type_of};

pub(super) fn equal(a: &Value, b: &Value) -> bool {
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

pub(super) fn compare(a: &Value, b: &Value) -> Result<Ordering, String> {
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
