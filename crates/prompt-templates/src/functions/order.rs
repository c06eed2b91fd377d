//! How values compare.

use std::cmp::Ordering;

use upon::Value;

use crate::integer::{big, text};
use crate::value::type_of;

/// The least power of two that 128 bits do not hold.
const BEYOND: f64 = 340_282_366_920_938_463_463_374_607_431_768_211_456.0;

pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (Number::of(a), Number::of(b)) {
        (Some(a), Some(b)) => a.order(b) == Some(Ordering::Equal),
        _ => a == b,
    }
}

pub(super) fn compare(a: &Value, b: &Value) -> Result<Ordering, String> {
    let ordering = match (Number::of(a), Number::of(b)) {
        (Some(a), Some(b)) => a.order(b),
        _ => text(a).zip(text(b)).map(|(a, b)| a.cmp(b)),
    };
    ordering.ok_or_else(|| format!("{} and {} have no order", type_of(a), type_of(b)))
}

/// A number, whatever it was written as.
#[derive(Clone, Copy)]
enum Number {
    Whole { is_negative: bool, magnitude: u128 },
    Float(f64),
}

impl Number {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Integer(value) => {
                let magnitude = value.unsigned_abs().into();
                Some(Self::Whole { is_negative: *value < 0, magnitude })
            }
            Value::Float(value) => Some(Self::Float(*value)),
            value => {
                let digits = big(value)?;
                let magnitude = digits.strip_prefix('-').unwrap_or(digits).parse().ok()?;
                Some(Self::Whole { is_negative: digits.starts_with('-'), magnitude })
            }
        }
    }

    /// Orders numbers by their exact values; what is no number has no order.
    fn order(self, other: Self) -> Option<Ordering> {
        let ordering = match (self, other) {
            (Self::Float(a), Self::Float(b)) => return a.partial_cmp(&b),
            (Self::Whole { magnitude: a, .. }, Self::Whole { magnitude: b, .. }) => a.cmp(&b),
            (Self::Whole { magnitude, .. }, Self::Float(float)) => order(magnitude, float.abs())?,
            (Self::Float(float), Self::Whole { magnitude, .. }) => {
                order(magnitude, float.abs())?.reverse()
            }
        };
        let (a, b) = (self.sign(), other.sign());
        Some(a.cmp(&b).then(if a < 0 { ordering.reverse() } else { ordering }))
    }

    fn sign(self) -> i8 {
        match self {
            Self::Whole { magnitude: 0, .. } => 0,
            Self::Whole { is_negative, .. } => {
                if is_negative {
                    -1
                } else {
                    1
                }
            }
            Self::Float(float) => i8::from(float > 0.0) - i8::from(float < 0.0),
        }
    }
}

/// Orders a whole number and a float that is not negative.
fn order(whole: u128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    if float >= BEYOND {
        return Some(Ordering::Less);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "that is the whole part, exactly"
    )]
    let floor = float as u128;
    Some(whole.cmp(&floor).then(if float.fract() > 0.0 { Ordering::Less } else { Ordering::Equal }))
}
