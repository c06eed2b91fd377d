//! What every render of a prompt begins with.

use crate::Digest;
use crate::compiled::Compiled;
use crate::facts::{Facts, Use};
use crate::lex::{Chunk, Tag};
use crate::linked::Linked;
use crate::render::SEPARATOR;
use crate::roles::{HISTORY, Section};
use crate::tidy::trimmed;

/// The text that every render of a prompt begins with, whatever the data: what a provider can cache.
///
/// ```
/// use prompt_templates::Prompts;
///
/// let prompts = Prompts::builder().build()?;
/// let text = "[[system]]\nBe strict.\n\n[[user]]\nReview {{ file }}:\n{{ diff }}";
/// let prefix = prompts.compile("review", text)?.stable_prefix();
/// assert_eq!(prefix.text(), "Be strict.\n\nReview ");
/// assert_eq!((prefix.bytes(), prefix.messages()), (19, 1));
/// assert_eq!(prefix.broken_by(), ["file"]);
/// # Ok::<(), prompt_templates::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StablePrefix {
    text: String,
    messages: usize,
    broken_by: Vec<String>,
}

impl StablePrefix {
    /// Returns the text, as [`Prompt::render`](crate::Prompt::render) gives it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the length of the text in bytes.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Returns how many messages at the head are the same in every render, from their first byte to
    /// their last.
    pub fn messages(&self) -> usize {
        self.messages
    }

    /// Returns the variables of the tag that ends it; none if the whole prompt is the same in every
    /// render, or the tag has none.
    pub fn broken_by(&self) -> &[String] {
        &self.broken_by
    }

    /// Returns the digest of the text: two prompts with the same one share what a provider has cached.
    pub fn digest(&self) -> Digest {
        Digest::of_text(&self.text)
    }
}

pub(crate) fn stable_prefix(linked: &Linked) -> StablePrefix {
    let mut prefix = StablePrefix { text: String::new(), messages: 0, broken_by: Vec::new() };
    let Some(parsed) = linked.root.parsed() else { return prefix };
    for (index, segment) in parsed.segments.iter().enumerate() {
        if segment.section == Some(Section::History) {
            prefix.broken_by.push(HISTORY.to_owned());
            return prefix;
        }
        if index > 0 {
            prefix.text.push_str(SEPARATOR);
        }
        let walk = Walk { linked, compiled: &linked.root, facts: &parsed.facts };
        if let Some(broken_by) = walk.lead(&segment.chunks, &mut prefix.text) {
            prefix.broken_by = broken_by;
            return prefix;
        }
        prefix.messages += 1;
    }
    prefix
}

/// One template, and what it includes.
struct Walk<'w> {
    linked: &'w Linked,
    compiled: &'w Compiled,
    facts: &'w Facts,
}

impl Walk<'_> {
    /// Adds what chunks always begin with; returns the variables of the tag that ends it, if one does.
    fn lead(&self, chunks: &[Chunk], text: &mut String) -> Option<Vec<String>> {
        for (index, chunk) in chunks.iter().enumerate() {
            match chunk {
                Chunk::Text(span) | Chunk::Raw(span) => {
                    let source = &self.compiled.text;
                    text.push_str(&source[trimmed(source, chunks, index, span)]);
                }
                Chunk::Silent { .. } => {}
                Chunk::Expression(tag) => return Some(self.variables(tag)),
                Chunk::Block(tag) => {
                    let Some(partial) = self.included(tag) else {
                        return Some(self.variables(tag));
                    };
                    let parsed = partial.parsed()?;
                    let walk = Walk { compiled: partial, facts: &parsed.facts, ..*self };
                    if let Some(broken_by) = walk.lead(&parsed.segments.first()?.chunks, text) {
                        return Some(broken_by);
                    }
                }
            }
        }
        None
    }

    /// Returns the template that a tag includes with all that this one sees.
    fn included(&self, tag: &Tag) -> Option<&Compiled> {
        let include =
            self.facts.includes.iter().find(|include| tag.span.contains(&include.offset))?;
        self.linked.partial(&include.name).filter(|_| !include.is_isolated)
    }

    fn variables(&self, tag: &Tag) -> Vec<String> {
        let is_here = |used: &&Use| tag.span.contains(&used.span.start);
        let name = |used: &Use| used.root(&self.compiled.text).to_owned();
        let mut names: Vec<_> = self.facts.uses.iter().filter(is_here).map(name).collect();
        names.sort();
        names.dedup();
        names
    }
}
