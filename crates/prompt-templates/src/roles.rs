//! Role lines: `[[system]]` and its like, alone on a line of the source, begin a message.
//!
//! They are found in the text of the template alone, before anything is rendered. No value is ever
//! looked at, so no value can begin a message.

use std::fmt;

use crate::facts::Use;
use crate::lex::{Chunk, Fault, Result, Span};
use crate::parse::Segment;
use crate::{Content, Error, ErrorKind};

/// Who says a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// Instructions that stand above the conversation.
    System,
    /// The one who asks.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// Returns the name that role lines and providers use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A message: who says it, and what.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub content: Content,
}

impl Message {
    /// Returns a message.
    pub fn new(role: Role, content: impl Into<Content>) -> Self {
        Self { role, content: content.into() }
    }
}

/// What a role line begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Message(Role),
    /// The place where the messages of the variable `history` go.
    History,
}

/// The variable that `[[history]]` reads.
pub(crate) const HISTORY: &str = "history";

const SECTIONS: [Section; 4] = [
    Section::Message(Role::System),
    Section::Message(Role::User),
    Section::Message(Role::Assistant),
    Section::History,
];

impl Section {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Message(role) => role.as_str(),
            Self::History => HISTORY,
        }
    }
}

/// A role line, its line break included.
pub(crate) struct Mark {
    pub(crate) section: Section,
    pub(crate) span: Span,
}

/// Finds the role lines in a piece of text.
pub(crate) fn marks(text: &str, span: &Span) -> Result<Vec<Mark>> {
    let mut marks = Vec::new();
    let mut start = span.start;
    for line in text[span.clone()].split_inclusive('\n') {
        let at = start;
        start += line.len();
        let begins = at == 0 || text.as_bytes()[at - 1] == b'\n';
        let ends = line.ends_with('\n') || start == text.len();
        if begins
            && ends
            && let Some(section) = section(line.trim_end(), at)?
        {
            marks.push(Mark { section, span: at..start });
        }
    }
    Ok(marks)
}

/// Reads a line: a role line, none, or one that is nearly one.
fn section(line: &str, offset: usize) -> Result<Option<Section>> {
    let Some(name) = line.strip_prefix("[[").and_then(|rest| rest.strip_suffix("]]")) else {
        return Ok(None);
    };
    if let Some(section) = SECTIONS.iter().find(|section| section.name() == name) {
        return Ok(Some(*section));
    }
    let names = SECTIONS.map(Section::name);
    if crate::suggest::nearest(name.trim(), &names).is_none() {
        return Ok(None);
    }
    let error = Error::unknown(ErrorKind::Role, "role line", name, names);
    Err(Fault::new(offset, error.help("to keep the line as text, indent it")))
}

/// Returns the segment that is being filled.
pub(crate) fn last(segments: &mut [Segment]) -> &mut Segment {
    segments.last_mut().expect("there is a segment from the start")
}

/// Checks what stands before the first role line and after `[[history]]`, and takes the blank lines
/// off that set role lines apart. A template without role lines stays as it is, byte for byte.
pub(crate) fn tidy(text: &str, mut segments: Vec<Segment>) -> Result<Vec<Segment>> {
    if segments.len() == 1 {
        return Ok(segments);
    }
    let head = segments.remove(0);
    if let Some(offset) = first_content(text, &head) {
        let error = Error::new(ErrorKind::Role, "text before the first role line");
        let help = "put '[[system]]' or '[[user]]' on a line of its own above it";
        return Err(Fault::new(offset, error.help(help)));
    }
    let is_history = |segment: &&Segment| segment.section == Some(Section::History);
    if let Some(second) = segments.iter().filter(is_history).nth(1) {
        let error = Error::new(ErrorKind::Role, "a second '[[history]]'");
        let help = "leave it out: the conversation would stand twice in the prompt";
        return Err(Fault::new(second.offset, error.help(help)));
    }
    for segment in &mut segments {
        if segment.section == Some(Section::History)
            && let Some(offset) = first_content(text, segment)
        {
            let error = Error::new(ErrorKind::Role, "text after '[[history]]'");
            let help = "the messages come from the variable 'history'; begin the next message with a \
                        role line";
            return Err(Fault::new(offset, error.help(help)));
        }
        trim(text, segment);
    }
    Ok(segments)
}

/// Returns where a segment says something.
fn first_content(text: &str, segment: &Segment) -> Option<usize> {
    segment.chunks.iter().find_map(|chunk| match chunk {
        Chunk::Text(span) | Chunk::Raw(span) => {
            let said = text[span.clone()].trim_start();
            (!said.is_empty()).then(|| span.end - said.len())
        }
        Chunk::Expression(tag) | Chunk::Block(tag) => Some(tag.span.start),
        Chunk::Silent { .. } => None,
    })
}

/// Takes blank lines off the start, and white space off the end, of a segment's own text.
fn trim(text: &str, segment: &mut Segment) {
    if let Some(Chunk::Text(span)) = segment.chunks.first_mut() {
        let source = &text[span.clone()];
        let blank = source.len() - source.trim_start().len();
        // The indent of the first line that says something stays.
        span.start += source[..blank].rfind('\n').map_or(0, |newline| newline + 1);
    }
    if let Some(Chunk::Text(span)) = segment.chunks.last_mut() {
        span.end = span.start + text[span.clone()].trim_end().len();
    }
}

/// Returns the use of a variable that the `[[history]]` at an offset is.
pub(crate) fn history_use(offset: usize) -> Use {
    let name = offset + "[[".len();
    Use { span: offset..offset, root: name..name + HISTORY.len(), is_local: false }
}
