//! Walks the tags of a template: block structure, variables, calls, includes and role lines.

use crate::dialect::{Dialect, Takes};
use crate::expression::{self, Arguments, Cursor};
use crate::facts::{Facts, Include, Scope, Use};
use crate::lex::{Chunk, Fault, Lexed, Result, Span, Tag, Token, TokenKind};
use crate::position::Position;
use crate::roles::{self, Section};
use crate::{Error, ErrorKind};

/// Blocks in blocks, each `else if` counted as one, before a template is refused: `upon` walks them
/// by recursion.
const MAX_DEPTH: usize = 100;

/// What a template's text says, before it is compiled.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) segments: Vec<Segment>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) facts: Facts,
}

/// A run of chunks between two role lines.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) section: Option<Section>,
    /// Where its role line is, or the text begins.
    pub(crate) offset: usize,
    pub(crate) chunks: Vec<Chunk>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    If,
    For,
    With,
}

impl BlockKind {
    fn name(self) -> &'static str {
        match self {
            Self::If => "if",
            Self::For => "for",
            Self::With => "with",
        }
    }
}

struct OpenBlock {
    kind: BlockKind,
    offset: usize,
    /// Where what opens it closes.
    head_end: usize,
    has_else: bool,
    /// How many uses of variables there are in front of its body.
    uses: usize,
    /// The first include in its body that sees its variables.
    include: Option<usize>,
    /// Blocks around it and the branches of all of them.
    depth: usize,
    locals: Vec<String>,
}

/// Parses the chunks of `text`.
pub(crate) fn parse(text: &str, lexed: Lexed, dialect: &Dialect) -> Result<Parsed> {
    let Lexed { chunks, tokens } = lexed;
    let (blocks, facts) = (Vec::new(), Facts::default());
    let has_marks = memchr::memmem::find(text.as_bytes(), b"[[").is_some();
    let mut parser = Parser { text, tokens: &tokens, has_marks, dialect, blocks, facts };
    let first = Vec::with_capacity(chunks.len());
    let mut segments = vec![Segment { section: None, offset: 0, chunks: first }];
    for chunk in chunks {
        match &chunk {
            Chunk::Text(span) => {
                parser.text(span, &mut segments)?;
                continue;
            }
            Chunk::Expression(tag) => parser.expression_tag(tag)?,
            Chunk::Block(tag) => parser.block_tag(tag)?,
            Chunk::Raw(_) | Chunk::Silent { .. } => {}
        }
        roles::last(&mut segments).chunks.push(chunk);
    }
    if let Some(block) = parser.blocks.first() {
        let name = block.kind.name();
        let message = format!("'{{% {name} %}}' without '{{% end{name} %}}'");
        return Err(Fault::syntax(block.offset, message));
    }
    let segments = roles::tidy(text, segments)?;
    for segment in &segments {
        if segment.section == Some(Section::History) {
            parser.facts.uses.push(roles::history_use(segment.offset));
        }
    }
    let facts = parser.facts;
    Ok(Parsed { segments, tokens, facts })
}

struct Parser<'t> {
    text: &'t str,
    /// Of all tags.
    tokens: &'t [Token],
    /// There may be role lines.
    has_marks: bool,
    dialect: &'t Dialect,
    blocks: Vec<OpenBlock>,
    facts: Facts,
}

impl Parser<'_> {
    /// Adds text to the last segment, and a segment for each role line in it.
    fn text(&self, span: &Span, segments: &mut Vec<Segment>) -> Result<()> {
        let mut rest = span.start;
        let marks = if self.has_marks { roles::marks(self.text, span)? } else { Vec::new() };
        for mark in marks {
            if let Some(block) = self.blocks.last() {
                let line = Position::of(self.text, block.offset).line;
                let (role, name) = (mark.section.name(), block.kind.name());
                let message = format!(
                    "'[[{role}]]' stands inside the '{{% {name} %}}' of line {line}, but a message cannot \
                     begin in the middle of a block"
                );
                let error = Error::new(ErrorKind::Role, message);
                let help = format!("close the block first: '{{% end{name} %}}'");
                return Err(Fault::new(mark.span.start, error.help(help)));
            }
            roles::last(segments).chunks.push(Chunk::Text(rest..mark.span.start));
            rest = mark.span.end;
            let (section, offset) = (Some(mark.section), mark.span.start);
            segments.push(Segment { section, offset, chunks: Vec::new() });
        }
        roles::last(segments).chunks.push(Chunk::Text(rest..span.end));
        Ok(())
    }

    fn expression_tag(&mut self, tag: &Tag) -> Result<()> {
        let tokens = tag.tokens(self.tokens);
        let mut cursor = Cursor::new(self.text, tokens, tag.end);
        self.expression(&mut cursor)?;
        cursor.end()?;
        if is_optional_path(tokens) {
            let filter = format!(" | {}", crate::functions::OPTIONAL);
            self.facts.insertions.push((tag.end, filter));
        }
        Ok(())
    }

    fn block_tag(&mut self, tag: &Tag) -> Result<()> {
        let mut cursor = Cursor::new(self.text, tag.tokens(self.tokens), tag.end);
        let keyword = cursor.word("a keyword such as 'if', 'for', 'with' or 'include'")?;
        match &self.text[keyword.span.clone()] {
            "if" => {
                self.condition(&mut cursor)?;
                self.open(BlockKind::If, tag, Vec::new())?;
            }
            "else" => self.else_tag(&mut cursor, tag)?,
            "for" => self.for_tag(&mut cursor, tag)?,
            "with" => {
                self.expression(&mut cursor)?;
                cursor.keyword("as")?;
                let name = cursor.name()?;
                self.open(BlockKind::With, tag, vec![name])?;
            }
            "include" => self.include_tag(&mut cursor)?,
            "endif" => self.close(BlockKind::If, tag)?,
            "endfor" => self.close(BlockKind::For, tag)?,
            "endwith" => self.close(BlockKind::With, tag)?,
            other => return Err(unknown_block(&keyword, other)),
        }
        cursor.end()
    }

    fn condition(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        cursor.take_keyword("not");
        self.expression(cursor)
    }

    fn else_tag(&mut self, cursor: &mut Cursor<'_>, tag: &Tag) -> Result<()> {
        let is_last = !cursor.take_keyword("if");
        if !is_last {
            self.condition(cursor)?;
        }
        match self.blocks.last_mut() {
            Some(block) if block.kind == BlockKind::If && !block.has_else => {
                block.has_else = is_last;
                block.depth += usize::from(!is_last);
                check_depth(block.depth, tag)
            }
            Some(block) if block.kind == BlockKind::If => Err(Fault::syntax(
                tag.span.start,
                "nothing but 'endif' can follow the 'else' of an 'if'",
            )),
            _ => Err(Fault::syntax(tag.span.start, "'{% else %}' belongs into an '{% if %}'")),
        }
    }

    fn for_tag(&mut self, cursor: &mut Cursor<'_>, tag: &Tag) -> Result<()> {
        let mut locals = Vec::with_capacity(3);
        locals.push(cursor.name()?);
        if cursor.take_sign(',') {
            locals.push(cursor.name()?);
        }
        cursor.keyword("in")?;
        let start = cursor.end_of_last();
        self.expression(cursor)?;
        if has_number(tag.tokens(self.tokens)) {
            // `upon` takes a number for an index until a bracket tells it otherwise.
            self.facts.insertions.push((start, " (".to_owned()));
            self.facts.insertions.push((tag.end, ")".to_owned()));
        }
        locals.push("loop".to_owned());
        self.open(BlockKind::For, tag, locals)
    }

    fn include_tag(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        let (name, offset) = cursor.string("the name of a template, in quotes")?;
        let is_isolated = cursor.take_keyword("with");
        if is_isolated {
            self.expression(cursor)?;
        } else {
            self.check_sight(&name, offset)?;
        }
        let locals = self.blocks.iter().flat_map(|block| block.locals.iter().cloned()).collect();
        self.facts.includes.push(Include { name, offset, is_isolated, locals });
        Ok(())
    }

    /// Refuses an include that would have to see the variable of a `with`: `upon` looks for its name at
    /// the wrong place.
    fn check_sight(&mut self, name: &str, offset: usize) -> Result<()> {
        for block in &mut self.blocks {
            if block.kind == BlockKind::With {
                let line = Position::of(self.text, block.offset).line;
                let local = block.locals.join("', '");
                let message = format!(
                    "'{name}' is included inside the '{{% with %}}' of line {line} and cannot see '{local}'"
                );
                return Err(Fault::syntax(offset, message).help(give_it(name, &local)));
            }
            block.include.get_or_insert(offset);
        }
        Ok(())
    }

    /// Binds the variable of a loop by `with` as well, if members of it may be absent: `upon` would then
    /// look for the variable outside of the loop.
    fn bind_item(&mut self, block: &OpenBlock, end: &Tag) -> Result<()> {
        let [.., item, _] = &block.locals[..] else { return Ok(()) };
        let is_optional =
            |used: &Use| used.root(self.text) == item && used.has_optional_member(self.text);
        if !self.facts.uses[block.uses..].iter().any(is_optional) {
            return Ok(());
        }
        if let Some(offset) = block.include {
            let is_it = |include: &&Include| include.offset == offset;
            let name = self.facts.includes.iter().find(is_it).map_or("", |include| &include.name);
            let message = format!(
                "'{name}' is included in a loop in which a member of '{item}' may be absent"
            );
            return Err(Fault::syntax(offset, message).help(give_it(name, item)));
        }
        self.facts.insertions.push((block.head_end, format!(" %}}{{% with {item} as {item} ")));
        self.facts.insertions.push((end.start, " endwith %}{% ".to_owned()));
        Ok(())
    }

    fn open(&mut self, kind: BlockKind, tag: &Tag, locals: Vec<String>) -> Result<()> {
        let offset = tag.span.start;
        let depth = self.blocks.last().map_or(0, |block| block.depth) + 1;
        let (head_end, uses) = (tag.end, self.facts.uses.len());
        let (has_else, include) = (false, None);
        self.blocks.push(OpenBlock {
            kind,
            offset,
            head_end,
            has_else,
            uses,
            include,
            depth,
            locals,
        });
        check_depth(depth, tag)
    }

    fn close(&mut self, kind: BlockKind, tag: &Tag) -> Result<()> {
        let name = kind.name();
        match self.blocks.pop() {
            Some(block) if block.kind == kind => {
                if kind == BlockKind::For {
                    self.bind_item(&block, tag)?;
                }
                let span = block.offset..tag.span.start;
                self.facts.scopes.push(Scope { span, locals: block.locals });
                Ok(())
            }
            Some(block) => {
                let (other, line) = (block.kind.name(), Position::of(self.text, block.offset).line);
                let message = format!(
                    "'{{% end{name} %}}' where the '{{% {other} %}}' of line {line} is open"
                );
                Err(Fault::syntax(tag.span.start, message))
            }
            None => {
                let message = format!("'{{% end{name} %}}' without '{{% {name} %}}'");
                Err(Fault::syntax(tag.span.start, message))
            }
        }
    }

    /// An expression of a tag: a base, and filters behind it.
    fn expression(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        let blocks = &self.blocks;
        let is_local =
            |name: &str| blocks.iter().any(|b| b.locals.iter().any(|local| local == name));
        expression::parse(cursor, &mut self.facts, self.dialect, &is_local)
    }
}

/// Returns how to include a template that cannot see a variable by itself.
pub(crate) fn give_it(name: &str, variable: &str) -> String {
    format!(
        "say what it is to see: '{{% include \"{name}\" with {{\"{variable}\": {variable}}} %}}'"
    )
}

/// Returns whether a tag prints nothing but a path, with a member that may be absent.
fn is_optional_path(tokens: &[Token]) -> bool {
    let is_path = |token: &Token| {
        let sign = matches!(token.kind, TokenKind::Sign('.') | TokenKind::QuestionDot);
        sign || matches!(token.kind, TokenKind::Word | TokenKind::Number)
    };
    let is_optional = |token: &Token| token.kind == TokenKind::QuestionDot;
    tokens.iter().all(is_path) && tokens.iter().any(is_optional)
}

fn check_depth(depth: usize, tag: &Tag) -> Result<()> {
    if depth <= MAX_DEPTH {
        return Ok(());
    }
    let message = format!("blocks and their branches nest deeper than {MAX_DEPTH}");
    Err(Fault::syntax(tag.span.start, message).help("move the inner part into a partial"))
}

/// Returns whether a tag has a number that is no index of a path.
fn has_number(tokens: &[Token]) -> bool {
    let is_path = |token: &Token| token.is_sign('.') || token.kind == TokenKind::QuestionDot;
    tokens.windows(2).any(|pair| pair[1].kind == TokenKind::Number && !is_path(&pair[0]))
}

fn unknown_block(keyword: &Token, word: &str) -> Fault {
    const KEYWORDS: &[&str] =
        &["else", "endfor", "endif", "endwith", "for", "if", "include", "raw", "with"];
    let error = match word {
        "endraw" => Error::new(ErrorKind::Syntax, "'{% endraw %}' without '{% raw %}'"),
        _ => Error::unknown(ErrorKind::Syntax, "block", word, KEYWORDS.iter().copied()),
    };
    Fault::new(keyword.span.start, error)
}

/// Checks a call, and notes the argument it may have left out. `after` is where that would go.
pub(crate) fn check_call(
    facts: &mut Facts,
    dialect: &Dialect,
    (name, offset): (&str, usize),
    arguments: &Arguments,
    (after, separator): (usize, &str),
) -> Result<()> {
    let count = arguments.count;
    let Some(Takes { min, max, default, usage, own }) = dialect.function(name) else {
        let names = dialect.names();
        let error = Error::unknown(ErrorKind::UnknownFunction, "function", name, names);
        return Err(Fault::new(offset, error));
    };
    if count < min || count > max {
        let takes = if min == max { min.to_string() } else { format!("{min} or {max}") };
        let plural = if takes == "1" { "" } else { "s" };
        let message = format!("'{name}' takes {takes} argument{plural}, not {count}");
        let error = Error::new(ErrorKind::Arguments, message).named(name);
        return Err(Fault::new(offset, error.help(format!("write '{usage}'"))));
    }
    let constants = arguments.constants.each_ref();
    if let Some(own) = own.filter(|_| constants.iter().any(|constant| constant.is_some())) {
        let values = constants.map(|constant| constant.as_ref().map(|(value, _)| value));
        own.check(values).map_err(|(place, message)| {
            let constant = place.and_then(|place| constants[place].as_ref());
            let error = Error::new(ErrorKind::Arguments, message).named(name);
            Fault::new(constant.map_or(offset, |(_, start)| *start), error)
        })?;
    }
    if count < max {
        facts.insertions.push((after, format!("{separator} {default}")));
    }
    Ok(())
}

impl Token {
    pub(crate) fn is_sign(&self, sign: char) -> bool {
        self.kind == TokenKind::Sign(sign)
    }
}
