//! Splits a template into text and tags, and tags into tokens.
//!
//! The rules of tags are those of `upon`. Text is not: only an opener starts a tag, a closer that stands
//! alone is text, and `{% raw %}` keeps everything up to `{% endraw %}` as it is.

use std::ops::Range;

use crate::delimiters::{Delimiter, Delimiters};
use crate::{Error, ErrorKind};

pub(crate) type Span = Range<usize>;

/// A fault at a byte offset of the text, to be given a template and a position.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) offset: usize,
    pub(crate) error: Error,
}

impl Fault {
    pub(crate) fn new(offset: usize, error: Error) -> Self {
        Self { offset, error }
    }

    pub(crate) fn syntax(offset: usize, message: impl Into<String>) -> Self {
        Self::new(offset, Error::new(ErrorKind::Syntax, message))
    }

    pub(crate) fn help(self, help: impl Into<String>) -> Self {
        Self { error: self.error.help(help), ..self }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Fault>;

#[derive(Clone, Debug)]
pub(crate) enum Chunk {
    /// Plain text.
    Text(Span),
    /// What stands between `raw` and `endraw`.
    Raw(Span),
    /// A tag that prints nothing: a comment, `raw` or `endraw`. It can still trim around itself.
    Silent {
        trim_before: bool,
        trim_after: bool,
        /// Where it stands, if it is a comment.
        comment: Option<Span>,
    },
    /// `{{ .. }}`
    Expression(Tag),
    /// `{% .. %}`
    Block(Tag),
}

#[derive(Clone, Debug)]
pub(crate) struct Tag {
    /// With delimiters.
    pub(crate) span: Span,
    /// Which of the text's tokens are its own.
    tokens: Range<usize>,
    /// Where what is inside starts, behind the delimiter and its trim mark.
    pub(crate) start: usize,
    /// Where the closing delimiter, or the trim mark in front of it, starts.
    pub(crate) end: usize,
    pub(crate) trim_before: bool,
    pub(crate) trim_after: bool,
}

impl Tag {
    /// Returns the tokens, out of those of the whole text.
    pub(crate) fn tokens<'t>(&self, all: &'t [Token]) -> &'t [Token] {
        &all[self.tokens.clone()]
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A name or a keyword.
    Word,
    Number,
    String,
    /// `?.`
    QuestionDot,
    /// One of `. | , : + - [ ] { } ( )`
    Sign(char),
}

/// A text as chunks, and the tokens of all its tags.
#[derive(Debug)]
pub(crate) struct Lexed {
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) tokens: Vec<Token>,
}

/// Splits `text` from the offset `start` on. Spans are offsets into the whole text.
pub(crate) fn lex(text: &str, start: usize, delimiters: &Delimiters) -> Result<Lexed> {
    // About what a prompt of a pipeline has, so that neither grows step by step.
    let (chunks, tokens) =
        (Vec::with_capacity(text.len() / 128), Vec::with_capacity(text.len() / 64));
    let mut lexer = Lexer { text, delimiters, at: start, chunks, tokens };
    while let Some((open, delimiter)) = delimiters.opener(text, lexer.at) {
        lexer.push_text(lexer.at..open);
        match delimiter {
            Delimiter::Comment => lexer.comment(open)?,
            Delimiter::Expression => {
                let tag = lexer.tag(open, delimiter)?;
                lexer.chunks.push(Chunk::Expression(tag));
            }
            Delimiter::Block => {
                let tag = lexer.tag(open, delimiter)?;
                match tag.tokens(&lexer.tokens) {
                    [only] if &text[only.span.clone()] == "raw" => lexer.raw(&tag)?,
                    _ => lexer.chunks.push(Chunk::Block(tag)),
                }
            }
        }
    }
    lexer.push_text(lexer.at..text.len());
    Ok(Lexed { chunks: lexer.chunks, tokens: lexer.tokens })
}

struct Lexer<'t> {
    text: &'t str,
    delimiters: &'t Delimiters,
    at: usize,
    chunks: Vec<Chunk>,
    tokens: Vec<Token>,
}

impl Lexer<'_> {
    fn push_text(&mut self, span: Span) {
        if !span.is_empty() {
            self.chunks.push(Chunk::Text(span));
        }
    }

    /// Skips the delimiter at `open` and its trim mark; returns the start of what is inside.
    fn inside(&self, open: usize, delimiter: Delimiter) -> (usize, bool) {
        let start = open + self.delimiters.open(delimiter).len();
        let trim = self.text[start..].starts_with('-');
        (start + usize::from(trim), trim)
    }

    fn comment(&mut self, open: usize) -> Result<()> {
        let (inside, trim_before) = self.inside(open, Delimiter::Comment);
        let close = self.delimiters.close(Delimiter::Comment);
        let Some(length) = self.text[inside..].find(close) else {
            return Err(self.not_closed(open, Delimiter::Comment));
        };
        let trim_after = self.text[inside..inside + length].ends_with('-');
        self.at = inside + length + close.len();
        self.chunks.push(Chunk::Silent { trim_before, trim_after, comment: Some(open..self.at) });
        Ok(())
    }

    fn raw(&mut self, tag: &Tag) -> Result<()> {
        let opener = self.delimiters.open(Delimiter::Block);
        let mut from = tag.span.end;
        let (open, (length, trim_before, trim_after)) = loop {
            let Some(open) = self.text[from..].find(opener).map(|index| from + index) else {
                return Err(Fault::syntax(tag.span.start, "'{% raw %}' without '{% endraw %}'"));
            };
            match self.endraw(&self.text[open..]) {
                Some(found) => break (open, found),
                None => from = open + 1,
            }
        };
        let content = tag.span.end..open;
        let Tag { trim_before: before, trim_after: after, .. } = *tag;
        self.chunks.push(Chunk::Silent { trim_before: before, trim_after: after, comment: None });
        if !content.is_empty() {
            self.chunks.push(Chunk::Raw(content));
        }
        self.at = open + length;
        self.chunks.push(Chunk::Silent { trim_before, trim_after, comment: None });
        Ok(())
    }

    /// Returns the length and the trim marks of `{% endraw %}`, if `text` starts with it.
    fn endraw(&self, text: &str) -> Option<(usize, bool, bool)> {
        let mark = |rest: &str| rest.starts_with('-');
        let rest = text.strip_prefix(self.delimiters.open(Delimiter::Block))?;
        let trim_before = mark(rest);
        let rest = &rest[usize::from(trim_before)..];
        let rest = rest.trim_start().strip_prefix("endraw")?.trim_start();
        let trim_after = mark(rest);
        let rest = &rest[usize::from(trim_after)..];
        let rest = rest.strip_prefix(self.delimiters.close(Delimiter::Block))?;
        Some((text.len() - rest.len(), trim_before, trim_after))
    }

    /// Reads a tag up to its closing delimiter.
    fn tag(&mut self, open: usize, delimiter: Delimiter) -> Result<Tag> {
        let (start, trim_before) = self.inside(open, delimiter);
        let close = self.delimiters.close(delimiter);
        let close_first = close.as_bytes()[0];
        let mut at = start;
        let first_token = self.tokens.len();
        loop {
            let rest = &self.text[at..];
            let Some(first) = rest.chars().next() else {
                return Err(self.not_closed(open, delimiter));
            };
            if matches!(first, ' ' | '\t' | '\r' | '\n') {
                at += 1;
                continue;
            }
            let trim_after = first == '-' && rest[1..].starts_with(close);
            if trim_after || rest.as_bytes()[0] == close_first && rest.starts_with(close) {
                let end = at + usize::from(trim_after) + close.len();
                self.at = end;
                return Ok(Tag {
                    span: open..end,
                    tokens: first_token..self.tokens.len(),
                    start,
                    end: at,
                    trim_before,
                    trim_after,
                });
            }
            if self.delimiters.begins(rest) {
                return Err(self.not_closed(open, delimiter));
            }
            let (kind, length) = token(rest, first, after_dot(&self.tokens[first_token..]))
                .map_err(|message| Fault::syntax(at, message).help(self.keep_as_text(delimiter)))?;
            self.tokens.push(Token { kind, span: at..at + length });
            at += length;
        }
    }

    fn not_closed(&self, open: usize, delimiter: Delimiter) -> Fault {
        let (opener, closer) = (self.delimiters.open(delimiter), self.delimiters.close(delimiter));
        let message = format!("'{opener}' is not closed by '{closer}'");
        Fault::syntax(open, message).help(self.keep_as_text(delimiter))
    }

    fn keep_as_text(&self, delimiter: Delimiter) -> String {
        let (opener, raw) = (self.delimiters.open(delimiter), self.delimiters.raw());
        format!(
            "to keep '{opener}' as text, write {raw} around it, or give the template 'delimiters' of its own \
             in its front matter"
        )
    }
}

/// After a dot, digits are an index and not the start of a fraction.
fn after_dot(tokens: &[Token]) -> bool {
    let last = tokens.last().map(|token| token.kind);
    matches!(last, Some(TokenKind::Sign('.') | TokenKind::QuestionDot))
}

/// Returns kind and length of the token that `rest` starts with.
fn token(
    rest: &str,
    first: char,
    in_path: bool,
) -> std::result::Result<(TokenKind, usize), String> {
    match first {
        '.' | '|' | ',' | ':' | '+' | '-' | '[' | ']' | '{' | '}' | '(' | ')' => {
            Ok((TokenKind::Sign(first), 1))
        }
        '?' if rest.starts_with("?.") => Ok((TokenKind::QuestionDot, 2)),
        '"' => string_length(rest).map(|length| (TokenKind::String, length)),
        _ if first.is_ascii_digit() && in_path => {
            Ok((TokenKind::Number, run(rest, |c| c.is_ascii_digit())))
        }
        _ if first.is_ascii_digit() => {
            let belongs = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '.');
            Ok((TokenKind::Number, run(rest, belongs)))
        }
        _ if first == '_' || first.is_alphabetic() => Ok((TokenKind::Word, word_length(rest))),
        _ => Err(format!("unexpected character '{first}' in a tag")),
    }
}

/// Returns how far `rest` goes on with characters that belong to a token.
fn run(rest: &str, belongs: impl Fn(char) -> bool) -> usize {
    rest.find(|c| !belongs(c)).unwrap_or(rest.len())
}

fn word_length(rest: &str) -> usize {
    let is_in_word = |byte: &u8| *byte == b'_' || byte.is_ascii_alphanumeric();
    let length = rest.bytes().take_while(is_in_word).count();
    match rest.as_bytes().get(length) {
        Some(byte) if !byte.is_ascii() => run(rest, |c| c == '_' || c.is_alphanumeric()),
        _ => length,
    }
}

fn string_length(rest: &str) -> std::result::Result<usize, String> {
    let mut escaped = false;
    for (index, c) in rest.char_indices().skip(1) {
        match c {
            '\n' | '\r' => break,
            // `upon` would take the quote for an escaped one.
            '"' if !escaped && rest[..index].ends_with('\\') => {
                return Err("a string in a tag cannot end with a back-slash".to_owned());
            }
            '"' if !escaped => return Ok(index + 1),
            _ => escaped = c == '\\' && !escaped,
        }
    }
    Err("a string is not closed on its line".to_owned())
}
