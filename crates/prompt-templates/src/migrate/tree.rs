//! The blocks of a Go template.

use super::tokens::{Mark, Piece, Token};
use crate::lex::Span;

/// Blocks in blocks that are rewritten: a template here can have no more, and each is a level of the
/// stack.
const MAX_DEPTH: usize = 100;

#[derive(Debug)]
pub(super) enum Node {
    Text(Span),
    Comment(Mark),
    /// Part of a block that nests too deep, which stays as it is.
    Left(Mark),
    /// An action that prints, declares or assigns.
    Action(Mark, Vec<Token>),
    Block(Block),
}

#[derive(Debug)]
pub(super) struct Block {
    /// `if`, `range`, `with`, `define` or `block`.
    pub(super) keyword: String,
    pub(super) branches: Vec<Branch>,
    pub(super) end: Mark,
}

/// A block's first part, an `else if` or an `else`.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) mark: Mark,
    /// What stands behind the keyword; nothing for a plain `else`.
    pub(super) tokens: Vec<Token>,
    pub(super) body: Vec<Node>,
}

/// A place in the source, and what is wrong there.
pub(super) type Fault = (usize, String);

/// Builds the tree; what does not fit is a fault, and left out.
pub(super) fn build(pieces: Vec<Piece>) -> (Vec<Node>, Vec<Fault>) {
    let mut top = Vec::new();
    let mut open: Vec<Block> = Vec::new();
    let mut faults = Vec::new();
    // Blocks that are open inside the deepest one.
    let mut beyond = 0_usize;
    for piece in pieces {
        let (mark, mut tokens) = match piece {
            Piece::Text(span) => {
                body(&mut top, &mut open).push(Node::Text(span));
                continue;
            }
            Piece::Comment(mark) => {
                body(&mut top, &mut open).push(Node::Comment(mark));
                continue;
            }
            Piece::Action(mark, tokens) => (mark, tokens),
        };
        let word = match tokens.first() {
            Some(Token::Word(word)) => word.clone(),
            _ => String::new(),
        };
        let opens = matches!(&*word, "if" | "range" | "with" | "define" | "block");
        match word.as_str() {
            _ if opens && open.len() >= MAX_DEPTH => {
                if beyond == 0 {
                    let message = format!("blocks nest deeper than {MAX_DEPTH}");
                    faults.push((mark.span.start, message));
                }
                beyond += 1;
                body(&mut top, &mut open).push(Node::Left(mark));
            }
            "else" | "end" if beyond > 0 => {
                beyond -= usize::from(word == "end");
                body(&mut top, &mut open).push(Node::Left(mark));
            }
            _ if opens => {
                tokens.remove(0);
                let branches = vec![Branch { mark, tokens, body: Vec::new() }];
                open.push(Block { keyword: word, branches, end: Mark::default() });
            }
            "else" => match open.last_mut() {
                Some(block) => {
                    tokens.remove(0);
                    block.branches.push(Branch { mark, tokens, body: Vec::new() });
                }
                None => faults.push((mark.span.start, "'else' without a block".to_owned())),
            },
            "end" => match open.pop() {
                Some(mut block) => {
                    block.end = mark;
                    body(&mut top, &mut open).push(Node::Block(block));
                }
                None => faults.push((mark.span.start, "'end' without a block".to_owned())),
            },
            _ => body(&mut top, &mut open).push(Node::Action(mark, tokens)),
        }
    }
    while let Some(block) = open.pop() {
        let start = block.branches.first().map_or(0, |branch| branch.mark.span.start);
        faults.push((start, format!("'{}' has no 'end'", block.keyword)));
        body(&mut top, &mut open).push(Node::Block(block));
    }
    (top, faults)
}

/// Returns the body that is being filled.
fn body<'b>(top: &'b mut Vec<Node>, open: &'b mut [Block]) -> &'b mut Vec<Node> {
    match open.last_mut().and_then(|block| block.branches.last_mut()) {
        Some(branch) => &mut branch.body,
        None => top,
    }
}
