//! Reads the tokens of a tag one by one.

use super::{KEYWORDS, unescape};
use crate::lex::{Fault, Result, Token, TokenKind};

/// The tokens of a tag, and how far they have been read.
pub(crate) struct Cursor<'t> {
    pub(super) text: &'t str,
    tokens: &'t [Token],
    pub(super) next: usize,
    /// Where the tag closes, for what is missing at its end.
    close: usize,
}

impl<'t> Cursor<'t> {
    pub(crate) fn new(text: &'t str, tokens: &'t [Token], close: usize) -> Self {
        Self { text, tokens, next: 0, close }
    }

    pub(super) fn peek(&self) -> Option<&'t Token> {
        self.tokens.get(self.next)
    }

    pub(super) fn offset(&self) -> usize {
        self.peek().map_or(self.close, |token| token.span.start)
    }

    /// Where the last token read ends.
    pub(crate) fn end_of_last(&self) -> usize {
        self.next.checked_sub(1).map_or(self.close, |last| self.tokens[last].span.end)
    }

    pub(super) fn str(&self, token: &Token) -> &'t str {
        &self.text[token.span.clone()]
    }

    pub(super) fn is_keyword(&self, token: &Token) -> bool {
        token.kind == TokenKind::Word && KEYWORDS.contains(&self.str(token))
    }

    pub(super) fn expected(&self, what: &str) -> Fault {
        let message = match self.peek() {
            Some(token) => format!("expected {what}, found '{}'", self.str(token)),
            None => format!("expected {what} before the tag closes"),
        };
        Fault::syntax(self.offset(), message)
    }

    /// Checks that everything has been read.
    pub(crate) fn end(&self) -> Result<()> {
        match self.peek() {
            None => Ok(()),
            Some(token) => {
                let help = "functions are called as 'f(a, b)' or 'a | f: b'; text with braces of its \
                            own stands in '{% raw %}..{% endraw %}'";
                let message = format!("expected the end of the tag, found '{}'", self.str(token));
                Err(Fault::syntax(token.span.start, message).help(help))
            }
        }
    }

    pub(crate) fn take_sign(&mut self, sign: char) -> bool {
        let is_next = self.peek().is_some_and(|token| token.is_sign(sign));
        self.next += usize::from(is_next);
        is_next
    }

    pub(super) fn sign(&mut self, sign: char) -> Result<()> {
        if self.take_sign(sign) {
            return Ok(());
        }
        let fault = self.expected(&format!("'{sign}'"));
        let is_cut = sign == '}' && self.peek().is_none();
        Err(if is_cut { fault.help("'}}' closes the tag; write '} }' inside it") } else { fault })
    }

    pub(crate) fn take_keyword(&mut self, keyword: &str) -> bool {
        let is_next = self
            .peek()
            .is_some_and(|token| token.kind == TokenKind::Word && self.str(token) == keyword);
        self.next += usize::from(is_next);
        is_next
    }

    pub(crate) fn keyword(&mut self, keyword: &str) -> Result<()> {
        if self.take_keyword(keyword) {
            Ok(())
        } else {
            Err(self.expected(&format!("'{keyword}'")))
        }
    }

    /// Reads a word, keyword or not.
    pub(crate) fn word(&mut self, what: &str) -> Result<Token> {
        match self.peek() {
            Some(token) if token.kind == TokenKind::Word => {
                self.next += 1;
                Ok(token.clone())
            }
            _ => Err(self.expected(what)),
        }
    }

    /// Reads whatever is next, of which it is known that it is there.
    pub(super) fn take(&mut self) -> &'t Token {
        self.next += 1;
        &self.tokens[self.next - 1]
    }

    /// Reads a name, which is no keyword.
    pub(crate) fn name(&mut self) -> Result<String> {
        match self.peek() {
            Some(token) if !self.is_keyword(token) => {
                self.word("a name").map(|token| self.str(&token).to_owned())
            }
            _ => Err(self.expected("a name")),
        }
    }

    /// Reads a string; returns what it stands for, and where it starts.
    pub(crate) fn string(&mut self, what: &str) -> Result<(String, usize)> {
        match self.peek() {
            Some(token) if token.kind == TokenKind::String => {
                self.next += 1;
                let value = unescape(self.str(token))
                    .map_err(|(index, message)| Fault::syntax(token.span.start + index, message))?;
                Ok((value, token.span.start))
            }
            _ => Err(self.expected(what)),
        }
    }
}
