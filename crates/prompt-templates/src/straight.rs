//! Segments of text and plain paths, which need no interpreter.
//!
//! Most prompts of a pipeline are `Review {{ file }} for {{ name }}`. Whatever is out of the ordinary,
//! such as a variable that is not there, is left to `upon`, which gives the error or the value.

use upon::Value;

use crate::lex::{Chunk, Span, Token, TokenKind};
use crate::value::float;

/// A part of a segment, by its places in the text of the template.
#[derive(Debug)]
pub(crate) enum Part {
    Text(Span),
    /// The names and indices of a path.
    Path(Vec<Span>),
}

/// Returns the parts of a segment, if it has nothing but text and paths.
pub(crate) fn parts(text: &str, chunks: &[Chunk], tokens: &[Token]) -> Option<Vec<Part>> {
    if chunks.iter().any(|chunk| matches!(chunk, Chunk::Block(_))) {
        return None;
    }
    let mut parts = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        match chunk {
            Chunk::Text(span) | Chunk::Raw(span) => parts.push(Part::Text(span.clone())),
            Chunk::Silent { trim_before: false, trim_after: false, .. } => {}
            Chunk::Expression(tag) if !tag.trim_before && !tag.trim_after => {
                parts.push(Part::Path(path(text, tag.tokens(tokens))?));
            }
            _ => return None,
        }
    }
    Some(parts)
}

fn path(text: &str, tokens: &[Token]) -> Option<Vec<Span>> {
    let mut names = Vec::with_capacity(1);
    let mut is_dot_due = false;
    for (index, token) in tokens.iter().enumerate() {
        match token.kind {
            TokenKind::Word | TokenKind::Number if !is_dot_due => {
                names.push(token.span.clone());
                is_dot_due = true;
            }
            TokenKind::Sign('.') if is_dot_due || index == 0 => is_dot_due = false,
            _ => return None,
        }
    }
    let first = &text[names.first()?.clone()];
    let is_name = first.starts_with(|c: char| c == '_' || c.is_alphabetic());
    (is_dot_due && is_name && !crate::expression::is_keyword(first)).then_some(names)
}

/// Writes the parts of a template of this `source`, and returns whether it could; if not, what it wrote
/// is to be taken back.
pub(crate) fn write(
    parts: &[Part],
    source: &str,
    data: &Value,
    text: &mut String,
    max: usize,
) -> bool {
    for part in parts {
        match part {
            Part::Text(part) => text.push_str(&source[part.clone()]),
            Part::Path(names) => match at(data, source, names) {
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

fn at<'v>(data: &'v Value, source: &str, names: &[Span]) -> Option<&'v Value> {
    names.iter().map(|name| &source[name.clone()]).try_fold(data, |value, name| match value {
        Value::Map(map) => map.get(name),
        Value::List(list) => list.get(name.parse::<usize>().ok()?),
        _ => None,
    })
}

fn push(text: &mut String, value: &impl std::fmt::Display) {
    use std::fmt::Write;
    write!(text, "{value}").expect("a string takes it all");
}
