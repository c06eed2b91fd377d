//! The little TOML that is read here: numbers under a section, and lists of strings.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Sections of `name = number`.
pub(crate) type Numbers = BTreeMap<String, BTreeMap<String, f64>>;

/// Reads sections of `name = number`; a name with other characters than letters, digits, `_` and
/// `-` is quoted. Anything else, and a name that stands twice, is an error with its line.
pub(crate) fn numbers(text: &str) -> Result<Numbers, String> {
    let mut sections = Numbers::new();
    let mut section = None;
    for (index, line) in text.lines().enumerate() {
        let fault = |what: &str| format!("line {}: {what}: `{line}`", index + 1);
        let line = without_comment(line).trim();
        if line.is_empty() {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name.strip_suffix(']').ok_or_else(|| fault("no closing bracket"))?;
            if sections.contains_key(name) {
                return Err(fault("a section that stands twice"));
            }
            sections.insert(name.to_owned(), BTreeMap::new());
            section = Some(name.to_owned());
            continue;
        }
        let (name, number) =
            line.rsplit_once('=').ok_or_else(|| fault("neither a section nor `name = number`"))?;
        let name = key(name.trim()).ok_or_else(|| fault("not a name"))?;
        let number = number.trim().replace('_', "");
        let number: f64 = number.parse().map_err(|_| fault("not a number"))?;
        if !number.is_finite() {
            return Err(fault("not a finite number"));
        }
        let section = section.as_deref().and_then(|name| sections.get_mut(name));
        let section = section.ok_or_else(|| fault("a name before the first section"))?;
        if section.insert(name.to_owned(), number).is_some() {
            return Err(fault("a name that stands twice"));
        }
    }
    Ok(sections)
}

/// Writes one section in the form that [`numbers`] reads.
pub(crate) fn write_section(out: &mut String, name: &str, numbers: &BTreeMap<String, f64>) {
    let _ = writeln!(out, "[{name}]");
    for (name, number) in numbers {
        let quote = if key(name).is_some() { "" } else { "\"" };
        let _ = writeln!(out, "{quote}{name}{quote} = {number}");
    }
}

/// Returns the strings of the list `key` in `[section]`; `None` if there is no such list.
pub(crate) fn strings(text: &str, section: &str, key: &str) -> Option<Vec<String>> {
    let mut inside = false;
    let mut list = String::new();
    for line in text.lines().map(without_comment) {
        let line = line.trim();
        if list.is_empty() {
            if line.starts_with('[') {
                inside = line == format!("[{section}]");
            }
            let value = line.strip_prefix(key).and_then(|rest| rest.trim_start().strip_prefix('='));
            let Some(value) = value.filter(|_| inside) else { continue };
            list.push_str(value.trim_start());
        } else {
            list.push_str(line);
        }
        if list.ends_with(']') {
            return Some(list.split('"').skip(1).step_by(2).map(str::to_owned).collect());
        }
    }
    None
}

/// A bare name, or the inside of a quoted one.
fn key(name: &str) -> Option<&str> {
    let bare = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
    };
    match name.strip_prefix('"') {
        Some(quoted) => {
            quoted.strip_suffix('"').filter(|name| !name.is_empty() && !name.contains(['"', '\\']))
        }
        None => bare(name).then_some(name),
    }
}

/// Cuts a comment; a `#` between quotes is none.
fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            b'#' if !quoted => return &line[..at],
            _ => {}
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_under_their_section() {
        let text = "# why\n[allocs]\nsubmit_100 = 1_200 # note\n\"git/one push\" = 3.5\n\n[other]\nx-1 = 2\n";
        let sections = numbers(text).unwrap();
        let section = |pairs: &[(&str, f64)]| -> BTreeMap<String, f64> {
            pairs.iter().map(|&(name, number)| (name.to_owned(), number)).collect()
        };
        assert_eq!(sections["allocs"], section(&[("git/one push", 3.5), ("submit_100", 1200.0)]));
        assert_eq!(sections["other"], section(&[("x-1", 2.0)]));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let section = BTreeMap::from([("a_b".to_owned(), 3.0), ("c/d e".to_owned(), 0.25)]);
        let mut text = String::new();
        write_section(&mut text, "minimum", &section);
        assert_eq!(text, "[minimum]\na_b = 3\n\"c/d e\" = 0.25\n");
        assert_eq!(numbers(&text).unwrap()["minimum"], section);
    }

    #[test]
    fn anything_else_is_an_error_with_its_line() {
        for (text, what) in [
            ("a = 1", "line 1: a name before"),
            ("[s]\na = x", "line 2: not a number"),
            ("[s]\na = nan", "line 2: not a finite number"),
            ("[s]\na = 1\na = 2", "line 3: a name that stands twice"),
            ("[s]\n[s]", "line 2: a section that stands twice"),
            ("[s]\na b = 1", "line 2: not a name"),
            ("[s]\na", "line 2: neither"),
            ("[s", "line 1: no closing bracket"),
        ] {
            let fault = numbers(text).unwrap_err();
            assert!(fault.starts_with(what), "{text:?}: {fault}");
        }
    }

    #[test]
    fn a_list_may_span_lines() {
        let text = "[other]\nallow = [\"no\"]\n[licenses]\nallow = [\n  \"MIT\", # most\n  \"ISC\",\n]\nx = 1\n";
        assert_eq!(strings(text, "licenses", "allow").unwrap(), ["MIT", "ISC"]);
        assert_eq!(strings(text, "licenses", "deny"), None);
        assert_eq!(strings(text, "none", "allow"), None);
    }
}
