//! The expressions of tags, by the grammar of `upon`: paths, literals, calls and filters.

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

/// The tokens of a tag, and how far they have been read.
pub(crate) struct Cursor<'t> {
    text: &'t str,
    tokens: &'t [Token],
    next: usize,
    /// Where the tag closes, for what is missing at its end.
    close: usize,
}

impl<'t> Cursor<'t> {
    pub(crate) fn new(text: &'t str, tokens: &'t [Token], close: usize) -> Self {
        Self { text, tokens, next: 0, close }
    }

    fn peek(&self) -> Option<&'t Token> {
        self.tokens.get(self.next)
    }

    fn offset(&self) -> usize {
        self.peek().map_or(self.close, |token| token.span.start)
    }

    /// Where the last token read ends.
    pub(crate) fn end_of_last(&self) -> usize {
        self.next.checked_sub(1).map_or(self.close, |last| self.tokens[last].span.end)
    }

    fn str(&self, token: &Token) -> &'t str {
        &self.text[token.span.clone()]
    }

    fn is_keyword(&self, token: &Token) -> bool {
        token.kind == TokenKind::Word && KEYWORDS.contains(&self.str(token))
    }

    fn expected(&self, what: &str) -> Fault {
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

    fn sign(&mut self, sign: char) -> Result<()> {
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

/// Reads an expression: a base, and filters behind it.
pub(crate) fn parse(
    cursor: &mut Cursor<'_>,
    facts: &mut Facts,
    dialect: &Dialect,
    is_local: &dyn Fn(&str) -> bool,
) -> Result<()> {
    Reader { cursor, facts, dialect, is_local, depth: 0, filters: 0 }.expression()
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
    fn expression(&mut self) -> Result<()> {
        self.base()?;
        while self.cursor.take_sign('|') {
            let offset = self.cursor.offset();
            self.filters += 1;
            if self.filters > MAX_FILTERS {
                let message = format!("an expression has more than {MAX_FILTERS} filters");
                return Err(Fault::syntax(offset, message));
            }
            let name = self.cursor.name()?;
            let count = if self.cursor.take_sign(':') { 1 + self.arguments()? } else { 1 };
            let separator = if count == 1 { ":" } else { "," };
            let after = self.cursor.end_of_last();
            check_call(self.facts, self.dialect, (&name, offset), count, (after, separator))?;
        }
        Ok(())
    }

    /// Reads bases with commas between them; returns how many.
    fn arguments(&mut self) -> Result<usize> {
        self.base()?;
        let mut count = 1;
        while self.cursor.take_sign(',') {
            self.base()?;
            count += 1;
        }
        Ok(count)
    }

    fn base(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let message = format!("an expression nests deeper than {MAX_DEPTH}");
            return Err(Fault::syntax(self.cursor.offset(), message));
        }
        let result = self.shallow_base();
        self.depth -= 1;
        result
    }

    fn shallow_base(&mut self) -> Result<()> {
        let Some(token) = self.cursor.peek() else {
            return Err(self.cursor.expected("an expression"));
        };
        match token.kind {
            TokenKind::Number => self.cursor.next += 1,
            TokenKind::String => drop(self.cursor.string("a string")?),
            TokenKind::Sign('+' | '-') => {
                self.cursor.next += 1;
                match self.cursor.peek() {
                    Some(token) if token.kind == TokenKind::Number => self.cursor.next += 1,
                    _ => return Err(self.cursor.expected("a number")),
                }
            }
            TokenKind::Sign('[') => self.list()?,
            TokenKind::Sign('{') => self.map()?,
            TokenKind::Sign('(') => {
                self.cursor.next += 1;
                self.expression()?;
                self.cursor.sign(')')?;
            }
            TokenKind::Sign('.') | TokenKind::QuestionDot => self.path(None)?,
            TokenKind::Word => match self.cursor.str(token) {
                "true" | "false" => self.cursor.next += 1,
                word if KEYWORDS.contains(&word) => {
                    return Err(self.cursor.expected("an expression"));
                }
                word => self.named(word, token)?,
            },
            TokenKind::Sign(_) => return Err(self.cursor.expected("an expression")),
        }
        Ok(())
    }

    /// A call, or a path that starts with a name.
    fn named(&mut self, word: &str, token: &Token) -> Result<()> {
        self.cursor.next += 1;
        if !self.cursor.take_sign('(') {
            return self.path(Some(token.span.clone()));
        }
        let mut count = 0;
        let mut after = self.cursor.end_of_last();
        if !self.cursor.take_sign(')') {
            count = self.arguments()?;
            after = self.cursor.end_of_last();
            self.cursor.sign(')')?;
        }
        check_call(self.facts, self.dialect, (word, token.span.start), count, (after, ","))
    }

    fn list(&mut self) -> Result<()> {
        self.cursor.sign('[')?;
        while !self.cursor.take_sign(']') {
            self.base()?;
            if !self.cursor.take_sign(',') {
                return self.cursor.sign(']');
            }
        }
        Ok(())
    }

    fn map(&mut self) -> Result<()> {
        self.cursor.sign('{')?;
        while !self.cursor.take_sign('}') {
            self.cursor.string("a key in quotes")?;
            self.cursor.sign(':')?;
            self.base()?;
            if !self.cursor.take_sign(',') {
                return self.cursor.sign('}');
            }
        }
        Ok(())
    }

    /// The rest of a path, of which the first name has been read or nothing.
    fn path(&mut self, first: Option<Span>) -> Result<()> {
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
        Ok(())
    }
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
