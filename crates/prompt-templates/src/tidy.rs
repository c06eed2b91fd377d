//! Takes away the lines on which nothing but a block tag or a comment stands.

use crate::lex::{Chunk, Lexed, Span, Token};

/// For each block tag or comment that is alone on its line, takes the rest of the line out of the text
/// around it. Tags that print stay as they are, and so do `raw` and `endraw`.
pub(crate) fn tidy(text: &str, body: usize, lexed: &mut Lexed) {
    let Lexed { chunks, tokens } = lexed;
    for index in 0..chunks.len() {
        let span = match &chunks[index] {
            Chunk::Block(tag) if !prints(text, tag.tokens(tokens)) => tag.span.clone(),
            Chunk::Silent { comment: Some(span), .. } => span.clone(),
            _ => continue,
        };
        let Some(line) = line_of(text, body, &span) else { continue };
        if let Some(Chunk::Text(before)) = index.checked_sub(1).map(|before| &mut chunks[before]) {
            before.end = before.end.min(line.start.max(before.start));
        }
        if let Some(Chunk::Text(after)) = chunks.get_mut(index + 1) {
            after.start = after.start.max(line.end.min(after.end));
        }
    }
}

fn prints(text: &str, tokens: &[Token]) -> bool {
    tokens.first().is_some_and(|first| &text[first.span.clone()] == "include")
}

/// Returns the line of a tag, its line break included, if nothing else is on it.
fn line_of(text: &str, body: usize, tag: &Span) -> Option<Span> {
    let before = &text[body..tag.start];
    let start = before.rfind('\n').map_or(body, |newline| body + newline + 1);
    let after = &text[tag.end..];
    let end = after.find('\n').map_or(text.len(), |newline| tag.end + newline + 1);
    let is_blank = |span: Span| text[span].trim().is_empty();
    (is_blank(start..tag.start) && is_blank(tag.end..end)).then_some(start..end)
}

/// Returns the place of a piece of text without the white space that the tags beside it take away.
pub(crate) fn trimmed(text: &str, chunks: &[Chunk], index: usize, span: &Span) -> Span {
    // What a chunk takes away before and after itself.
    let trims = |chunk: Option<&Chunk>| match chunk {
        Some(Chunk::Silent { trim_before, trim_after, .. }) => (*trim_before, *trim_after),
        Some(Chunk::Expression(tag) | Chunk::Block(tag)) => (tag.trim_before, tag.trim_after),
        _ => (false, false),
    };
    let mut span = span.clone();
    if trims(index.checked_sub(1).and_then(|before| chunks.get(before))).1 {
        span.start = span.end - text[span.clone()].trim_start().len();
    }
    if trims(chunks.get(index + 1)).0 {
        span.end = span.start + text[span.clone()].trim_end().len();
    }
    span
}
