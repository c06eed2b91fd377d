//! The expressions of tags, by the grammar of `upon`: paths, literals, calls and filters.

mod cursor;

use std::collections::BTreeMap;

use upon::Value;

pub(crate) use cursor::Cursor;

use crate::dialect::Dialect;
use crate::facts::{Facts, Use};
use crate::lex::{Fault, Result, Span, Token, TokenKind};
use crate::parse::check_call;

/// Nested brackets and calls before an expression is refused, so that the stack holds.
const MAX_DEPTH: usize = 64;

/// Filters in one expression, those inside its brackets included; they nest as well.
const MAX_FILTERS: usize = 64;

const KEYWORDS: &[&str] = &[
    "if", "not", "else", "endif", "for", "in", "endfor", "with", "as", "endwith", "include",
    "true", "false",
];

/// Returns whether a word is one of the language.
pub(crate) fn is_keyword(word: &str) -> bool {
    KEYWORDS.contains(&word) || matches!(word, "raw" | "endraw" | "loop")
}

/// Reads an expression: a base, and filters behind it.
pub(crate) fn parse(
    cursor: &mut Cursor<'_>,
    facts: &mut Facts,
    dialect: &Dialect,
    is_local: &dyn Fn(&str) -> bool,
) -> Result<()> {
    Reader { cursor, facts, dialect, is_local, depth: 0, filters: 0 }.expression().map(drop)
}

/// The value of an expression that has the same one in every render, and where it starts.
type Constant = Option<(Value, usize)>;

/// How many arguments a call has, and those of the first two that are constants.
#[derive(Default)]
pub(crate) struct Arguments {
    pub(crate) count: usize,
    pub(crate) constants: [Constant; 2],
}

impl Arguments {
    fn add(&mut self, constant: Constant) {
        if let Some(place) = self.constants.get_mut(self.count) {
            *place = constant;
        }
        self.count += 1;
    }
}

struct Reader<'r, 't> {
    cursor: &'r mut Cursor<'t>,
    facts: &'r mut Facts,
    dialect: &'r Dialect,
    is_local: &'r dyn Fn(&str) -> bool,
    depth: usize,
    filters: usize,
}

impl Reader<'_, '_> {
    /// Returns the value of an expression that has the same one in every render, as far as that is seen.
    fn expression(&mut self) -> Result<Constant> {
        let mut value = self.base()?;
        while self.cursor.take_sign('|') {
            let offset = self.cursor.offset();
            self.filters += 1;
            if self.filters > MAX_FILTERS {
                let message = format!("an expression has more than {MAX_FILTERS} filters");
                return Err(Fault::syntax(offset, message));
            }
            let name = self.cursor.name()?;
            let mut arguments = Arguments::default();
            arguments.add(value.take());
            if self.cursor.take_sign(':') {
                self.arguments(&mut arguments)?;
            }
            let separator = if arguments.count == 1 { ":" } else { "," };
            let after = self.cursor.end_of_last();
            check_call(self.facts, self.dialect, (&name, offset), &arguments, (after, separator))?;
        }
        Ok(value)
    }

    /// Reads bases with commas between them.
    fn arguments(&mut self, arguments: &mut Arguments) -> Result<()> {
        arguments.add(self.base()?);
        while self.cursor.take_sign(',') {
            arguments.add(self.base()?);
        }
        Ok(())
    }

    fn base(&mut self) -> Result<Constant> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let message = format!("an expression nests deeper than {MAX_DEPTH}");
            return Err(Fault::syntax(self.cursor.offset(), message));
        }
        let result = self.shallow_base();
        self.depth -= 1;
        result
    }

    fn shallow_base(&mut self) -> Result<Constant> {
        let Some(token) = self.cursor.peek() else {
            return Err(self.cursor.expected("an expression"));
        };
        let start = token.span.start;
        let value = match token.kind {
            TokenKind::Number => self.number("")?,
            TokenKind::String => Some(Value::String(self.cursor.string("a string")?.0)),
            TokenKind::Sign(sign @ ('+' | '-')) => {
                self.cursor.next += 1;
                match self.cursor.peek() {
                    Some(token) if token.kind == TokenKind::Number => {
                        self.number(if sign == '-' { "-" } else { "" })?
                    }
                    _ => return Err(self.cursor.expected("a number")),
                }
            }
            TokenKind::Sign('[') => self.list()?,
            TokenKind::Sign('{') => self.map()?,
            TokenKind::Sign('(') => {
                self.cursor.next += 1;
                let inner = self.expression()?;
                self.cursor.sign(')')?;
                inner.map(|(value, _)| value)
            }
            TokenKind::Sign('.') | TokenKind::QuestionDot => self.path(None)?,
            TokenKind::Word => match self.cursor.str(token) {
                word @ ("true" | "false") => {
                    self.cursor.next += 1;
                    Some(Value::Bool(word == "true"))
                }
                word if KEYWORDS.contains(&word) => {
                    return Err(self.cursor.expected("an expression"));
                }
                word => self.named(word, token)?,
            },
            TokenKind::Sign(_) => return Err(self.cursor.expected("an expression")),
        };
        Ok(value.map(|value| (value, start)))
    }

    /// Reads a number, as `upon` does; what is none, it says.
    fn number(&mut self, sign: &str) -> Result<Option<Value>> {
        let token = self.cursor.take();
        let raw = self.cursor.str(token);
        if let Some(number) = whole(sign, raw) {
            return Ok(Some(Value::Integer(number)));
        }
        let float = raw.parse().ok().map(|float: f64| if sign.is_empty() { float } else { -float });
        let is_whole = raw.bytes().all(|byte| byte == b'_' || byte.is_ascii_digit());
        if is_whole || float.is_some_and(f64::is_infinite) {
            // `upon` would make a float of it, or infinity.
            let message = format!("the number {sign}{raw} has more than 64 bits");
            let help = "write it as text, in quotes, or give it with the data";
            return Err(Fault::syntax(token.span.start, message).help(help));
        }
        Ok(float.map(Value::Float))
    }

    /// A call, or a path that starts with a name.
    fn named(&mut self, word: &str, token: &Token) -> Result<Option<Value>> {
        self.cursor.next += 1;
        if !self.cursor.take_sign('(') {
            return self.path(Some(token.span.clone()));
        }
        let mut arguments = Arguments::default();
        let mut after = self.cursor.end_of_last();
        if !self.cursor.take_sign(')') {
            self.arguments(&mut arguments)?;
            after = self.cursor.end_of_last();
            self.cursor.sign(')')?;
        }
        let call = (word, token.span.start);
        check_call(self.facts, self.dialect, call, &arguments, (after, ",")).map(|()| None)
    }

    fn list(&mut self) -> Result<Option<Value>> {
        self.cursor.sign('[')?;
        let mut items = Some(Vec::new());
        while !self.cursor.take_sign(']') {
            let item = self.base()?.map(|(value, _)| value);
            items = items.zip(item).map(|(mut items, item)| {
                items.push(item);
                items
            });
            if !self.cursor.take_sign(',') {
                self.cursor.sign(']')?;
                break;
            }
        }
        Ok(items.map(Value::List))
    }

    fn map(&mut self) -> Result<Option<Value>> {
        self.cursor.sign('{')?;
        let mut entries = Some(BTreeMap::new());
        while !self.cursor.take_sign('}') {
            let (key, _) = self.cursor.string("a key in quotes")?;
            self.cursor.sign(':')?;
            let value = self.base()?.map(|(value, _)| value);
            entries = entries.zip(value).map(|(mut entries, value)| {
                entries.insert(key, value);
                entries
            });
            if !self.cursor.take_sign(',') {
                self.cursor.sign('}')?;
                break;
            }
        }
        Ok(entries.map(Value::Map))
    }

    /// The rest of a path, of which the first name has been read or nothing.
    fn path(&mut self, first: Option<Span>) -> Result<Option<Value>> {
        let start = first.as_ref().map_or_else(|| self.cursor.offset(), |first| first.start);
        let (mut root, mut last) = (first.clone(), first);
        while let Some(dot) = self.cursor.peek() {
            if !matches!(dot.kind, TokenKind::Sign('.') | TokenKind::QuestionDot) {
                break;
            }
            if let Some(last) = last.as_ref().filter(|last| last.end != dot.span.start) {
                let help = format!("call a function as '{}(..)'", &self.cursor.text[last.clone()]);
                return Err(Fault::syntax(dot.span.start, "white space inside a path").help(help));
            }
            self.cursor.next += 1;
            let Some(token) = self.cursor.peek() else {
                return Err(self.cursor.expected("a name or an index"));
            };
            let is_word = token.kind == TokenKind::Word && !self.cursor.is_keyword(token);
            if !is_word && token.kind != TokenKind::Number {
                return Err(self.cursor.expected("a name or an index"));
            }
            self.cursor.next += 1;
            root.get_or_insert_with(|| token.span.clone());
            last = Some(token.span.clone());
        }
        let root = root.unwrap_or(start..start);
        let is_local = (self.is_local)(&self.cursor.text[root.clone()]);
        let end = last.map_or(start, |last| last.end);
        self.facts.uses.push(Use { span: start..end, root, is_local });
        Ok(None)
    }
}

/// Returns a whole number of 64 bits, in any of the ways to write one.
fn whole(sign: &str, raw: &str) -> Option<i64> {
    let (digits, radix) = match raw.split_at_checked(2) {
        Some(("0x", digits)) => (digits, 16),
        Some(("0o", digits)) => (digits, 8),
        Some(("0b", digits)) => (digits, 2),
        _ => (raw, 10),
    };
    if sign.is_empty() && !digits.contains('_') {
        return i64::from_str_radix(digits, radix).ok();
    }
    i64::from_str_radix(&format!("{sign}{}", digits.replace('_', "")), radix).ok()
}

/// Returns what a string literal stands for; it comes with its quotes.
pub(crate) fn unescape(literal: &str) -> std::result::Result<String, (usize, String)> {
    let mut value = String::with_capacity(literal.len());
    let mut chars = literal.char_indices().skip(1);
    while let Some((index, c)) = chars.next() {
        match c {
            '"' => break,
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, 'r')) => value.push('\r'),
                Some((_, 't')) => value.push('\t'),
                Some((_, c @ ('\\' | '"'))) => value.push(c),
                Some((_, other)) => return Err((index, format!("unknown escape '\\{other}'"))),
                None => break,
            },
            _ => value.push(c),
        }
    }
    Ok(value)
}
