//! Segments of text and plain paths, which need no interpreter.
//!
//! Most prompts of a pipeline are `Review {{ file }} for {{ name }}`. Whatever is out of the ordinary,
//! such as a variable that is not there, is left to `upon`, which gives the error or the value.

use upon::Value;

use crate::lex::{Chunk, Tag, TokenKind};
use crate::value::float;

/// A part of a segment.
#[derive(Debug)]
pub(crate) enum Part {
    Text(String),
    /// The names and indices of a path.
    Path(Vec<String>),
}

/// Returns the parts of a segment, if it has nothing but text and paths.
pub(crate) fn parts(text: &str, chunks: &[Chunk]) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    for chunk in chunks {
        match chunk {
            Chunk::Text(span) | Chunk::Raw(span) => match parts.last_mut() {
                Some(Part::Text(before)) => before.push_str(&text[span.clone()]),
                _ => parts.push(Part::Text(text[span.clone()].to_owned())),
            },
            Chunk::Silent { trim_before: false, trim_after: false, .. } => {}
            Chunk::Expression(tag) if !tag.trim_before && !tag.trim_after => {
                parts.push(Part::Path(path(text, tag)?));
            }
            _ => return None,
        }
    }
    Some(parts)
}

fn path(text: &str, tag: &Tag) -> Option<Vec<String>> {
    let mut names = Vec::with_capacity(1);
    let mut is_dot_due = false;
    for (index, token) in tag.tokens.iter().enumerate() {
        match token.kind {
            TokenKind::Word | TokenKind::Number if !is_dot_due => {
                names.push(text[token.span.clone()].to_owned());
                is_dot_due = true;
            }
            TokenKind::Sign('.') if is_dot_due || index == 0 => is_dot_due = false,
            _ => return None,
        }
    }
    let first = names.first()?;
    let is_name = first.starts_with(|c: char| c == '_' || c.is_alphabetic());
    (is_dot_due && is_name && !crate::expression::is_keyword(first)).then_some(names)
}

/// Writes the parts, and returns whether it could; if not, what it wrote is to be taken back.
pub(crate) fn write(parts: &[Part], data: &Value, text: &mut String, max: usize) -> bool {
    for part in parts {
        match part {
            Part::Text(part) => text.push_str(part),
            Part::Path(names) => match at(data, names) {
                Some(Value::String(value)) => text.push_str(value),
                Some(Value::Integer(value)) => push(text, value),
                Some(Value::Bool(value)) => push(text, value),
                Some(Value::Float(value)) => text.push_str(&float(*value)),
                _ => return false,
            },
        }
        if text.len() > max {
            return false;
        }
    }
    true
}

fn at<'v>(data: &'v Value, names: &[String]) -> Option<&'v Value> {
    names.iter().try_fold(data, |value, name| match value {
        Value::Map(map) => map.get(name),
        Value::List(list) => list.get(name.parse::<usize>().ok()?),
        _ => None,
    })
}

fn push(text: &mut String, value: &impl std::fmt::Display) {
    use std::fmt::Write;
    write!(text, "{value}").expect("a string takes it all");
}
