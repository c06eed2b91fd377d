//! Calls of the functions that every store has, as part of a program.

use upon::Value;

use super::{Path, Writer};
use crate::expression::unescape;
use crate::functions::{self, Builtin, Signature};
use crate::lex::{Token, TokenKind};

/// What a tag prints or asks for that is more than a path.
#[derive(Debug)]
pub(crate) enum Expression {
    Path(Path),
    Literal(Value),
    /// A function of two arguments, or of one and nothing.
    Call(Builtin, Box<(Expression, Expression)>),
}

impl Writer<'_> {
    /// Reads a whole expression, if it is made of paths, texts, whole numbers and functions of ours.
    pub(super) fn expression(&mut self, mut tokens: &[Token]) -> Option<Expression> {
        let expression = self.filtered(&mut tokens)?;
        tokens.is_empty().then_some(expression)
    }

    /// Reads a base, and filters behind it.
    fn filtered(&mut self, tokens: &mut &[Token]) -> Option<Expression> {
        let mut value = self.base(tokens)?;
        while take_sign(tokens, '|') {
            let (name, rest) = tokens.split_first()?;
            *tokens = rest;
            let second = if take_sign(tokens, ':') { Some(self.base(tokens)?) } else { None };
            value = call(self.str(name), value, second)?;
        }
        Some(value)
    }

    fn base(&mut self, tokens: &mut &[Token]) -> Option<Expression> {
        let (first, rest) = tokens.split_first()?;
        let name = self.str(first);
        let literal = match first.kind {
            TokenKind::Number => Value::Integer(digits(name)?),
            TokenKind::String => Value::String(unescape(name).ok()?),
            TokenKind::Word if name == "true" || name == "false" => Value::Bool(name == "true"),
            TokenKind::Word if rest.first().is_some_and(|next| next.is_sign('(')) => {
                *tokens = &rest[1..];
                let one = self.base(tokens)?;
                let two = if take_sign(tokens, ',') { Some(self.base(tokens)?) } else { None };
                return if take_sign(tokens, ')') { call(name, one, two) } else { None };
            }
            TokenKind::Sign('(') => {
                *tokens = rest;
                let inner = self.filtered(tokens)?;
                return take_sign(tokens, ')').then_some(inner);
            }
            _ => {
                let (path, rest) = tokens.split_at(path_length(tokens));
                *tokens = rest;
                return self.path(path).map(Expression::Path);
            }
        };
        *tokens = rest;
        Some(Expression::Literal(literal))
    }
}

/// Returns the call of a function of ours. How many arguments it takes has been checked.
fn call(name: &str, one: Expression, two: Option<Expression>) -> Option<Expression> {
    let Signature { max, default, function, .. } = functions::signature(name)?;
    let two = match two {
        Some(two) => two,
        None if *max == 1 => Expression::Literal(Value::None),
        None => Expression::Literal(match digits(default) {
            Some(number) => Value::Integer(number),
            None => Value::String(unescape(default).ok()?),
        }),
    };
    Some(Expression::Call(*function, Box::new((one, two))))
}

fn take_sign(tokens: &mut &[Token], sign: char) -> bool {
    let Some((_, rest)) = tokens.split_first().filter(|(first, _)| first.is_sign(sign)) else {
        return false;
    };
    *tokens = rest;
    true
}

/// Returns a number of decimal digits alone; what else is one, `upon` says.
fn digits(text: &str) -> Option<i64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Returns how many tokens are a path: names and indices with dots between them.
fn path_length(tokens: &[Token]) -> usize {
    let is_dot = |token: &Token| token.is_sign('.') || token.kind == TokenKind::QuestionDot;
    let mut length = usize::from(tokens.first().is_some_and(|first| !is_dot(first)));
    while tokens.get(length).is_some_and(is_dot) {
        length += 2;
    }
    length.min(tokens.len())
}
