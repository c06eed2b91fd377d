//! The block between two `---` lines at the head of a template.
//!
//! A strict, flat part of YAML: `key: value`, `key: [a, b]`, or `key:` and lines `- item` below it. Where
//! that is not enough: one JSON object.

use std::collections::BTreeMap;

use crate::delimiters::Delimiters;
use crate::lex::{Fault, Result};
use crate::{Error, ErrorKind};

/// The variables that a template may use.
pub(crate) const VARIABLES: &str = "variables";

/// The variables that are another in each render.
const VOLATILE: &str = "volatile";

/// The variables that can be shortened to save tokens, first the one that goes first.
const DROP_FIRST: &str = "drop_first";

/// What opens and closes the tags of this template.
const DELIMITERS: &str = "delimiters";

/// Whether block tags that are alone on their line take the line away.
const TIDY_BLOCKS: &str = "tidy_blocks";

const LISTS: [&str; 4] = [VARIABLES, VOLATILE, DROP_FIRST, DELIMITERS];

/// A value of a template's front matter.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Meta {
    /// `key: text`
    Text(String),
    /// `key: [a, b]`, or one `- item` line for each.
    List(Vec<String>),
    /// Anything else, of front matter that is JSON.
    Json(serde_json::Value),
}

impl Meta {
    /// Returns the text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::List(_) | Self::Json(_) => None,
        }
    }

    /// Returns the list, if it is one.
    pub fn as_list(&self) -> Option<&[String]> {
        match self {
            Self::List(list) => Some(list),
            Self::Text(_) | Self::Json(_) => None,
        }
    }

    /// Returns the value as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::List(list) => list.as_slice().into(),
            Self::Json(value) => value.clone(),
        }
    }
}

/// Parsed front matter, and where the body begins.
#[derive(Debug, Default)]
pub(crate) struct FrontMatter {
    pub(crate) entries: BTreeMap<String, Meta>,
    pub(crate) body: usize,
    pub(crate) delimiters: Delimiters,
}

impl FrontMatter {
    /// Returns the variables that the template declares, if it declares any.
    pub(crate) fn variables(&self) -> Option<&[String]> {
        self.entries.get(VARIABLES).and_then(Meta::as_list)
    }

    pub(crate) fn volatile(&self) -> &[String] {
        self.list(VOLATILE)
    }

    pub(crate) fn drop_first(&self) -> &[String] {
        self.list(DROP_FIRST)
    }

    /// Returns whether lines with nothing but a block tag go, if the template says so.
    pub(crate) fn is_tidy(&self) -> Option<bool> {
        match self.entries.get(TIDY_BLOCKS)? {
            Meta::Text(text) => Some(text == "true"),
            Meta::Json(value) => value.as_bool(),
            Meta::List(_) => None,
        }
    }

    fn list(&self, key: &str) -> &[String] {
        self.entries.get(key).and_then(Meta::as_list).unwrap_or_default()
    }
}

/// Reads the front matter of a text, if it has one.
pub(crate) fn parse(text: &str) -> Result<FrontMatter> {
    let mut lines = Lines { text, at: 0 };
    if lines.next_line().is_none_or(|(_, line)| line != "---") {
        return Ok(FrontMatter::default());
    }
    let mut front_matter = if text[lines.at..].trim_start().starts_with('{') {
        json(text, lines.at)?
    } else {
        flat(lines)?
    };
    if let Some(list) = front_matter.entries.get(DELIMITERS).and_then(Meta::as_list) {
        let at = text.find(DELIMITERS).unwrap_or_default();
        front_matter.delimiters = Delimiters::new(list).map_err(|message| {
            fault(at, message).help(
                "write 'delimiters: [\"<<\", \">>\", \"<%\", \"%>\", \"<#\", \"#>\"]': of expressions, of \
                 blocks and of comments",
            )
        })?;
    }
    Ok(front_matter)
}

/// Reads one JSON object up to a line `---`.
fn json(text: &str, start: usize) -> Result<FrontMatter> {
    let mut lines = Lines { text, at: start };
    let end = loop {
        match lines.next_line() {
            Some((offset, "---")) => break offset,
            Some(_) => {}
            None => return Err(not_closed()),
        }
    };
    // What is wrong with it, a key that stands twice at any depth included, is said in words here.
    crate::json::read(&text[start..end])
        .map_err(|wrong| fault(start + wrong.offset, wrong.error.message()))?;
    // The parser works in the bytes that it is given.
    let mut bytes = text.as_bytes()[start..end].to_vec();
    let parsed = simd_json::serde::from_slice::<serde_json::Map<_, _>>(&mut bytes);
    let object =
        parsed.map_err(|_| fault(start, "the front matter has an integer of more than 64 bits"))?;
    let mut entries = BTreeMap::new();
    for (key, value) in object {
        let meta = from_json(&key, value);
        check_key(start, &key, &meta)?;
        entries.insert(key, meta);
    }
    Ok(FrontMatter { entries, body: lines.at, ..FrontMatter::default() })
}

fn from_json(key: &str, value: serde_json::Value) -> Meta {
    let texts = |list: &[serde_json::Value]| {
        list.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
    };
    match value {
        serde_json::Value::String(text) => Meta::Text(text),
        serde_json::Value::Array(list) if let Some(texts) = texts(&list) => Meta::List(texts),
        // A schema for each variable declares them too.
        serde_json::Value::Object(map) if key == VARIABLES => {
            Meta::List(map.into_iter().map(|(name, _)| name).collect())
        }
        other => Meta::Json(other),
    }
}

fn flat(mut lines: Lines<'_>) -> Result<FrontMatter> {
    let mut entries = BTreeMap::new();
    // The key whose items are being read.
    let mut open_list: Option<String> = None;
    while let Some((offset, line)) = lines.next_line() {
        if line == "---" {
            if let Some(key) = open_list.filter(|key| entries.get(key) == Some(&Meta::List(vec![])))
            {
                let message = format!("the key '{key}' has no value");
                return Err(fault(offset, message).help("write '[]' for an empty list"));
            }
            return Ok(FrontMatter { entries, body: lines.at, ..FrontMatter::default() });
        }
        let content = line.trim_start();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        if let Some(item) = content.strip_prefix("- ").or_else(|| (content == "-").then_some("")) {
            let list = open_list.as_ref().and_then(|key| entries.get_mut(key));
            let Some(Meta::List(list)) = list else {
                return Err(fault(offset, "a list item without a key above it"));
            };
            list.push(scalar(offset, item.trim())?);
            continue;
        }
        if content.len() < line.len() {
            let help = "front matter is flat: 'key: value', one a line";
            return Err(fault(offset, "an indented line that is no list item").help(help));
        }
        let (key, value) = entry(offset, line)?;
        let value = value.trim();
        open_list = value.is_empty().then(|| key.to_owned());
        let meta = if value.is_empty() { Meta::List(vec![]) } else { meta(offset, value)? };
        check_key(offset, key, &meta)?;
        if entries.insert(key.to_owned(), meta).is_some() {
            return Err(twice(offset, key));
        }
    }
    Err(not_closed())
}

fn twice(offset: usize, key: &str) -> Fault {
    fault(offset, format!("the key '{key}' stands twice"))
}

fn not_closed() -> Fault {
    fault(0, "the front matter is not closed").help(
        "add a line '---' below it; if it is no front matter, begin the text with a blank line",
    )
}

fn fault(offset: usize, message: impl Into<String>) -> Fault {
    Fault::new(offset, Error::new(ErrorKind::FrontMatter, message))
}

struct Lines<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Lines<'t> {
    /// Returns the next line, without white space at its end, and where it starts.
    fn next_line(&mut self) -> Option<(usize, &'t str)> {
        let offset = self.at;
        let line = self.text[offset..].split_inclusive('\n').next()?;
        self.at += line.len();
        Some((offset, line.trim_end()))
    }
}

/// Splits `key: value`.
fn entry(offset: usize, line: &str) -> Result<(&str, &str)> {
    let split = line.split_once(':');
    let (key, value) =
        split.ok_or_else(|| fault(offset, format!("'{line}' is no 'key: value'")))?;
    let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if key.is_empty() || !key.chars().all(is_key) {
        return Err(fault(offset, format!("'{key}' is no key"))
            .help("keys are letters, digits, '_' and '-'"));
    }
    if !value.is_empty() && !value.starts_with(' ') {
        return Err(fault(offset, format!("no space after '{key}:'")));
    }
    Ok((key, value))
}

/// Every key is allowed, but for those that look like one of ours and would not do what it does.
fn check_key(offset: usize, key: &str, meta: &Meta) -> Result<()> {
    let is_right = match key {
        TIDY_BLOCKS => match meta {
            Meta::Text(text) => text == "true" || text == "false",
            Meta::Json(value) => value.is_boolean(),
            Meta::List(_) => false,
        },
        key if LISTS.contains(&key) => matches!(meta, Meta::List(_)),
        key => {
            let known = [VARIABLES, VOLATILE, DROP_FIRST, DELIMITERS, TIDY_BLOCKS];
            if crate::suggest::nearest(key, &known).is_some() {
                let error = Error::unknown(ErrorKind::FrontMatter, "key", key, known);
                return Err(Fault::new(offset, error));
            }
            true
        }
    };
    if is_right {
        Ok(())
    } else if key == TIDY_BLOCKS {
        Err(fault(offset, format!("'{key}' is true or false")))
    } else {
        Err(fault(offset, format!("'{key}' is a list")).help(format!("write '{key}: [a, b]'")))
    }
}

fn meta(offset: usize, value: &str) -> Result<Meta> {
    let Some(inner) = value.strip_prefix('[') else {
        return scalar(offset, value).map(Meta::Text);
    };
    let Some(inner) = inner.strip_suffix(']') else {
        return Err(fault(offset, "a list is not closed on its line by ']'"));
    };
    if inner.trim().is_empty() {
        return Ok(Meta::List(Vec::new()));
    }
    let items = inner.split(',').map(|item| scalar(offset, item.trim()));
    items.collect::<Result<_>>().map(Meta::List)
}

/// A text, in double quotes or without.
fn scalar(offset: usize, value: &str) -> Result<String> {
    if let Some(inner) = value.strip_prefix('"') {
        return match inner.strip_suffix('"') {
            Some(text) if !text.contains(['"', '\\']) => Ok(text.to_owned()),
            _ => Err(fault(offset, format!("{value} is no text in quotes"))
                .help("there is nothing to escape: no quotes and no back-slash inside")),
        };
    }
    let special = ['\'', '|', '>', '&', '*', '!', '%', '@', '`', '{', '}', '[', ']', ','];
    match value.chars().next() {
        None => Err(fault(offset, "an empty item")),
        Some(first) if special.contains(&first) => Err(fault(
            offset,
            format!("'{first}' begins something that front matter does not have"),
        )
        .help("put the text into double quotes")),
        Some(_) if value.contains(" #") => {
            let help = "put the text into double quotes, or the comment on a line of its own";
            Err(fault(offset, "a '#' behind a blank begins a comment, and none can stand here")
                .help(help))
        }
        Some(_) => Ok(value.to_owned()),
    }
}
