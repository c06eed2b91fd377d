//! Splits a Go template into text and actions, and actions into tokens.

use crate::lex::Span;

/// A piece of a Go template.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Text(Span),
    Comment(Mark),
    Action(Mark, Vec<Token>),
}

/// Where an action is, and which white space it takes away.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark {
    pub(super) span: Span,
    pub(super) trim_before: bool,
    pub(super) trim_after: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A function or a keyword.
    Word(String),
    /// `.A.B`, without the first dot; empty for the dot itself.
    Field(Vec<String>),
    /// `$x.A`; the name is empty for `$`.
    Variable(String, Vec<String>),
    Number(String),
    /// What a string literal stands for.
    Text(String),
    /// `| , := = ( )`
    Sign(&'static str),
    /// Anything else, such as a character in single quotes.
    Other,
}

/// Splits a source. An action that does not end is text from there on, and is returned as an error.
pub(super) fn split(source: &str) -> (Vec<Piece>, Option<usize>) {
    let mut pieces = Vec::new();
    let mut at = 0;
    while let Some(open) = source[at..].find("{{").map(|index| at + index) {
        let Some((mark, inside)) = action(source, open) else {
            pieces.push(Piece::Text(at..source.len()));
            return (pieces, Some(open));
        };
        if at < open {
            pieces.push(Piece::Text(at..open));
        }
        at = mark.span.end;
        let inside = source[inside].trim();
        pieces.push(if inside.starts_with("/*") && inside.ends_with("*/") {
            Piece::Comment(mark)
        } else {
            Piece::Action(mark, tokens(inside))
        });
    }
    if at < source.len() {
        pieces.push(Piece::Text(at..source.len()));
    }
    (pieces, None)
}

/// Returns the action that opens at `open`, and what is inside.
fn action(source: &str, open: usize) -> Option<(Mark, Span)> {
    let rest = &source[open + 2..];
    let trim_before = rest.starts_with("- ") || rest.starts_with("-\n") || rest.starts_with("-\t");
    let start = open + 2 + usize::from(trim_before);
    let length = length(&source[start..])?;
    let inside = &source[start..start + length];
    let trim_after = [" -", "\n-", "\t-"].iter().any(|mark| inside.ends_with(mark));
    let end = start + length;
    let mark = Mark { span: open..end + 2, trim_before, trim_after };
    Some((mark, start..end - usize::from(trim_after)))
}

/// Returns how far it is to the closing braces, strings and comments passed over.
fn length(inside: &str) -> Option<usize> {
    if inside.trim_start().starts_with("/*") {
        let end = inside.find("*/")?;
        return inside[end..].find("}}").map(|index| end + index);
    }
    let mut chars = inside.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '}' if inside[index..].starts_with("}}") => return Some(index),
            '`' => drop(chars.find(|(_, c)| *c == '`')?),
            '"' | '\'' => loop {
                match chars.next()?.1 {
                    '\\' => drop(chars.next()?),
                    end if end == c => break,
                    _ => {}
                }
            },
            _ => {}
        }
    }
    None
}

fn tokens(inside: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = inside;
    loop {
        let trimmed = rest.trim_start();
        let Some(first) = trimmed.chars().next() else { return tokens };
        let is_name = |c: char| c == '_' || c.is_alphanumeric();
        let run = |from: usize, belongs: &dyn Fn(char) -> bool| {
            trimmed[from..].find(|c| !belongs(c)).map_or(trimmed.len(), |index| from + index)
        };
        let path = |text: &str| text.split('.').skip(1).map(str::to_owned).collect::<Vec<_>>();
        let (token, length) = match first {
            _ if trimmed.starts_with(":=") => (Token::Sign(":="), 2),
            '|' => (Token::Sign("|"), 1),
            ',' => (Token::Sign(","), 1),
            '=' => (Token::Sign("="), 1),
            '(' => (Token::Sign("("), 1),
            ')' => (Token::Sign(")"), 1),
            '.' if !trimmed[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                let end = run(1, &|c| is_name(c) || c == '.');
                let names = path(&trimmed[..end]);
                let is_dot = names.iter().all(String::is_empty);
                (Token::Field(if is_dot { Vec::new() } else { names }), end)
            }
            '$' => {
                let end = run(1, &|c| is_name(c) || c == '.');
                let name = trimmed[1..end].split('.').next().unwrap_or_default().to_owned();
                (Token::Variable(name, path(&trimmed[1..end])), end)
            }
            '"' | '`' | '\'' => string(trimmed),
            _ if first.is_ascii_digit() || matches!(first, '-' | '+' | '.') => {
                let end = run(1, &|c| is_name(c) || matches!(c, '.' | '-' | '+'));
                let number = &trimmed[..end];
                let token =
                    if is_number(number) { Token::Number(number.to_owned()) } else { Token::Other };
                (token, end)
            }
            _ if is_name(first) => {
                let end = run(0, &is_name);
                (Token::Word(trimmed[..end].to_owned()), end)
            }
            _ => (Token::Other, first.len_utf8()),
        };
        tokens.push(token);
        rest = &trimmed[length..];
        // `(x).A` and `f.A` are chains that have no other form here.
        let is_chain = matches!(tokens.last(), Some(Token::Sign(")") | Token::Word(_)));
        if is_chain && rest.starts_with('.') {
            tokens.push(Token::Other);
        }
    }
}

/// Returns whether a number of Go is one here, and the same.
fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return false;
    }
    let is_whole = digits.bytes().all(|byte| byte.is_ascii_digit());
    // Go reads what begins with a zero by the base of eight.
    let is_octal = digits.len() > 1 && digits.starts_with('0');
    if is_whole { !is_octal && text.parse::<i64>().is_ok() } else { text.parse::<f64>().is_ok() }
}

fn string(text: &str) -> (Token, usize) {
    if let Some(rest) = text.strip_prefix('`') {
        let end = rest.find('`').unwrap_or(rest.len());
        return (Token::Text(rest[..end].to_owned()), (end + 2).min(text.len()));
    }
    let quote = text.chars().next().unwrap_or('"');
    let (mut value, mut is_plain) = (String::new(), quote == '"');
    let mut chars = text.char_indices().skip(1);
    while let Some((index, c)) = chars.next() {
        match c {
            _ if c == quote => {
                let token = if is_plain { Token::Text(value) } else { Token::Other };
                return (token, index + 1);
            }
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('n') => value.push('\n'),
                Some('t') => value.push('\t'),
                Some('r') => value.push('\r'),
                Some(c @ ('"' | '\\')) => value.push(c),
                _ => is_plain = false,
            },
            _ => value.push(c),
        }
    }
    (Token::Other, text.len())
}
