//! Segments of text, paths, conditions, loops and calls, which need no interpreter.
//!
//! Most prompts are such segments whole. They are a program of their own, which borrows everything from
//! the data and leaves what is out of the ordinary to `upon`: a variable that is not there, a list that is
//! printed, a loop over a number, a function that fails, one of a user. So there is one place that says
//! what an error is, and `upon` compiles nothing before it is needed.

mod call;

pub(crate) use call::Expression;

use crate::facts::Include;
use crate::lex::{Chunk, Span, Tag, Token, TokenKind};

/// What a segment does, step by step. Places are those of the text of its template.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) steps: Vec<Step>,
    /// Of all paths.
    members: Vec<Member>,
    /// Bytes of its text and of the tags that print: about what it gives.
    pub(crate) length: usize,
}

#[derive(Debug)]
pub(crate) enum Step {
    Text(Span),
    Print(Path),
    /// Prints what is not just a path.
    Show(Expression),
    /// Goes on at `otherwise` if the value is false, or, with `not`, if it is true.
    If {
        value: Path,
        not: bool,
        otherwise: usize,
    },
    /// The same for what is not just a path.
    Test {
        value: Expression,
        not: bool,
        otherwise: usize,
    },
    Jump(usize),
    /// Begins a loop, which goes on at `end` when there is nothing to go over.
    For {
        list: Path,
        names: (Span, Option<Span>),
        end: usize,
    },
    /// Begins the body of the innermost loop again, or ends the loop.
    Next {
        body: usize,
    },
    With {
        value: Path,
        name: Span,
    },
    EndWith,
    /// Renders a partial, by its place among the includes of the template.
    Include(usize),
}

/// Which of the members are a path's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    from: u32,
    to: u32,
}

/// A name or an index of a path.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: Span,
    pub(crate) index: Option<usize>,
    /// It may be absent: it is written `?.name`.
    pub(crate) is_optional: bool,
}

impl Program {
    /// Returns the program of a segment, if all of it is that simple.
    pub(crate) fn new(
        text: &str,
        chunks: &[Chunk],
        tokens: &[Token],
        includes: &[Include],
    ) -> Option<Self> {
        // Most that are not have a sign that no path has; to see that costs less than to begin.
        let is_simple = |chunk: &Chunk| match chunk {
            Chunk::Expression(tag) | Chunk::Block(tag) => {
                !tag.tokens(tokens).iter().any(is_of_literal)
            }
            Chunk::Text(_) | Chunk::Raw(_) | Chunk::Silent { .. } => true,
        };
        if !chunks.iter().all(is_simple) {
            return None;
        }
        let mut program = Self::default();
        program.steps.reserve_exact(chunks.len());
        let mut writer = Writer { text, includes, program, open: Vec::new() };
        for (index, chunk) in chunks.iter().enumerate() {
            match chunk {
                Chunk::Text(span) | Chunk::Raw(span) => {
                    let span = crate::tidy::trimmed(text, chunks, index, span);
                    writer.program.length += span.len();
                    writer.program.steps.push(Step::Text(span));
                }
                Chunk::Silent { .. } => {}
                Chunk::Expression(tag) => {
                    writer.program.length += tag.span.len();
                    let tag = tag.tokens(tokens);
                    // In brackets a path may not be absent, to `upon`.
                    let is_plain = tag.first().is_some_and(|first| !first.is_sign('('));
                    let step = match writer.expression(tag)? {
                        Expression::Path(path) if is_plain => Step::Print(path),
                        expression => Step::Show(expression),
                    };
                    writer.program.steps.push(step);
                }
                Chunk::Block(tag) => writer.block(tag, tag.tokens(tokens))?,
            }
        }
        Some(writer.program)
    }

    pub(crate) fn members(&self, path: Path) -> &[Member] {
        &self.members[path.from as usize..path.to as usize]
    }
}

struct Writer<'w> {
    text: &'w str,
    includes: &'w [Include],
    program: Program,
    open: Vec<Open>,
}

/// A block that is not closed yet.
enum Open {
    If {
        /// The step that a false condition leaves, unless there was an `else`.
        condition: Option<usize>,
        /// The steps at the ends of branches, which go on behind the block.
        ends: Vec<usize>,
    },
    For(usize),
    With,
}

/// Returns whether a token belongs to a literal that no program has: a list, a map, a number with a sign.
fn is_of_literal(token: &Token) -> bool {
    matches!(token.kind, TokenKind::Sign('[' | ']' | '{' | '}' | '+' | '-'))
}

impl<'w> Writer<'w> {
    /// Writes the steps of a block tag, whose structure has been checked.
    fn block(&mut self, tag: &Tag, tokens: &[Token]) -> Option<()> {
        let (keyword, rest) = tokens.split_first()?;
        match self.str(keyword) {
            "if" => {
                let condition = Some(self.condition(rest)?);
                self.open.push(Open::If { condition, ends: Vec::new() });
            }
            "else" => {
                let Some(Open::If { condition, mut ends }) = self.open.pop() else { return None };
                ends.push(self.push(Step::Jump(0)));
                self.leave(condition?);
                let condition = match rest.split_first() {
                    Some((_, rest)) => Some(self.condition(rest)?),
                    None => None,
                };
                self.open.push(Open::If { condition, ends });
            }
            "endif" => {
                let Some(Open::If { condition, ends }) = self.open.pop() else { return None };
                condition.into_iter().chain(ends).for_each(|step| self.leave(step));
            }
            "for" => {
                let (names, path) = match rest {
                    [item, is_in, path @ ..] if self.str(is_in) == "in" => ((item, None), path),
                    [key, _, value, _, path @ ..] => ((key, Some(value)), path),
                    _ => return None,
                };
                let list = self.path(path)?;
                let names = (names.0.span.clone(), names.1.map(|name| name.span.clone()));
                let step = self.push(Step::For { list, names, end: 0 });
                self.open.push(Open::For(step));
            }
            "endfor" => {
                let Some(Open::For(step)) = self.open.pop() else { return None };
                self.push(Step::Next { body: step + 1 });
                self.leave(step);
            }
            "with" => {
                let [path @ .., _, name] = rest else { return None };
                let (value, name) = (self.path(path)?, name.span.clone());
                self.push(Step::With { value, name });
                self.open.push(Open::With);
            }
            "endwith" => {
                self.open.pop();
                self.push(Step::EndWith);
            }
            _ => {
                // They are in the order of the text, as the tags are.
                let index = self.includes.partition_point(|one| one.offset < tag.span.start);
                if self.includes.get(index)?.is_isolated {
                    return None;
                }
                self.push(Step::Include(index));
            }
        }
        Some(())
    }

    fn str(&self, token: &Token) -> &'w str {
        &self.text[token.span.clone()]
    }

    fn push(&mut self, step: Step) -> usize {
        self.program.steps.push(step);
        self.program.steps.len() - 1
    }

    /// Has a step go on behind the last one, where it does not go on at the next.
    fn leave(&mut self, step: usize) {
        let behind = self.program.steps.len();
        match &mut self.program.steps[step] {
            Step::If { otherwise: to, .. }
            | Step::Test { otherwise: to, .. }
            | Step::Jump(to)
            | Step::For { end: to, .. } => *to = behind,
            _ => {}
        }
    }

    fn condition(&mut self, tokens: &[Token]) -> Option<usize> {
        let (not, value) = match tokens {
            [not, value @ ..] if self.str(not) == "not" => (true, value),
            value => (false, value),
        };
        let step = match self.expression(value)? {
            Expression::Path(value) => Step::If { value, not, otherwise: 0 },
            value => Step::Test { value, not, otherwise: 0 },
        };
        Some(self.push(step))
    }

    /// Reads a path, if tokens are nothing else.
    fn path(&mut self, tokens: &[Token]) -> Option<Path> {
        let from = self.program.members.len();
        // No dot is needed in front of the first name.
        let mut dot = Some(false);
        for (place, token) in tokens.iter().enumerate() {
            match token.kind {
                TokenKind::Sign('.') if dot.is_none() || place == 0 => dot = Some(false),
                TokenKind::QuestionDot if dot.is_none() || place == 0 => dot = Some(true),
                TokenKind::Word | TokenKind::Number => {
                    let is_optional = dot.take()?;
                    let name = self.str(token);
                    let is_number = token.kind == TokenKind::Number;
                    let is_first = self.program.members.len() == from;
                    // What is a letter beyond ASCII, and what a number is too large, `upon` says.
                    let index = if is_number { Some(name.parse().ok()?) } else { None };
                    let is_word = name.is_ascii() && !matches!(name, "true" | "false");
                    if !is_word || is_first && is_number {
                        return None;
                    }
                    let name = token.span.clone();
                    self.program.members.push(Member { name, index, is_optional });
                }
                _ => return None,
            }
        }
        let to = self.program.members.len();
        let is_path = dot.is_none() && to > from;
        is_path.then_some(Path { from: u32::try_from(from).ok()?, to: u32::try_from(to).ok()? })
    }
}
