//! Functions that set a text apart from what stands around it: nothing in the text gets out.

use upon::Value;

use super::{check_length, lines, whole};

/// Puts spaces before every line but the first, which stands where the tag stands. Ends of lines stay.
pub(super) fn indent(value: &Value, count: &Value) -> Result<Value, String> {
    const MAX: usize = 1_000;
    let text = text("indent", value)?;
    let (count, digits) = whole("indent", count)?;
    let count = usize::try_from(count).ok().filter(|count| *count <= MAX);
    let count = count.ok_or_else(|| format!("an indent of {digits} is not one of 0 to {MAX}"))?;
    let is_indented = |(index, line): (usize, &str)| index > 0 && !line.trim().is_empty();
    let indented =
        lines(text).enumerate().filter(|(index, (line, _))| is_indented((*index, *line)));
    let length = text.len() + count * indented.count();
    check_length(length)?;
    let space = " ".repeat(count);
    let mut indented = String::with_capacity(length);
    for (index, (line, end)) in lines(text).enumerate() {
        if is_indented((index, line)) {
            indented.push_str(&space);
        }
        indented.push_str(line);
        indented.push_str(end);
    }
    Ok(indented.into())
}

/// Sets text off as a Markdown quotation. Each line ends in a line feed, the last in none.
pub(super) fn quote(value: &Value) -> Result<Value, String> {
    let text = text("quote", value)?;
    let mark = |line: &str| if line.is_empty() { ">" } else { "> " };
    let length = lines(text).map(|(line, _)| mark(line).len() + line.len() + 1).sum();
    check_length(length)?;
    let mut quoted = String::with_capacity(length);
    for (line, _) in lines(text) {
        quoted.push_str(mark(line));
        quoted.push_str(line);
        quoted.push('\n');
    }
    quoted.pop();
    Ok(quoted.into())
}

/// Puts text into a code fence that nothing in the text can close.
pub(super) fn fence(value: &Value, info: &Value) -> Result<Value, String> {
    let (text, info) = (text("fence", value)?, text("fence", info)?);
    if info.contains('`') || lines(info).any(|(_, end)| !end.is_empty()) {
        return Err("the word after an opening fence holds no back-tick and no newline".to_owned());
    }
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(3.max(longest + 1));
    let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    check_length(2 * fence.len() + info.len() + 1 + text.len() + newline.len())?;
    Ok(format!("{fence}{info}\n{text}{newline}{fence}").into())
}

/// Puts text between tags that nothing in the text can close.
pub(super) fn xml(value: &Value, tag: &Value) -> Result<Value, String> {
    let (text, tag) = (text("xml", value)?, text("xml", tag)?);
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
    if !tag.starts_with(is_start) || !tag.bytes().all(is_in_name) {
        return Err(format!("'{tag}' is no name of a tag"));
    }
    let mut safe = String::with_capacity(text.len());
    for (index, c) in text.char_indices() {
        match c {
            '<' if closes(&text[index + 1..], tag) => safe.push_str("&lt;"),
            c => safe.push(c),
        }
    }
    let newline = if safe.is_empty() || safe.ends_with('\n') { "" } else { "\n" };
    check_length(2 * tag.len() + 6 + safe.len() + newline.len())?;
    Ok(format!("<{tag}>\n{safe}{newline}</{tag}>").into())
}

/// Returns whether what follows a `<` closes a tag, however it is spaced or cased.
fn closes(rest: &str, tag: &str) -> bool {
    let Some(name) = rest.trim_start().strip_prefix('/') else { return false };
    let name = name.trim_start().as_bytes();
    let (name, after) = name.split_at(tag.len().min(name.len()));
    name.eq_ignore_ascii_case(tag.as_bytes()) && !after.first().copied().is_some_and(is_in_name)
}

/// Returns a text to set apart, which only grows by it.
fn text<'v>(function: &str, value: &'v Value) -> Result<&'v str, String> {
    let text = super::text(function, value)?;
    check_length(text.len()).map(|()| text)
}

fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}
