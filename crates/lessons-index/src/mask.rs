//! What of a message changes from one time that it is seen to the next.

/// Appends a message with its changing parts replaced and blanks made one.
pub(crate) fn mask_into(message: &str, out: &mut String) {
    let mut rest = message;
    let mut is_first = true;
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return;
        }
        if !is_first {
            out.push(' ');
        }
        is_first = false;
        let end = end_of_word(rest);
        word_into(&rest[..end], out);
        rest = &rest[end..];
    }
}

/// Returns where the first word ends; one in quotes may have blanks.
fn end_of_word(text: &str) -> usize {
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        if c.is_whitespace() {
            break;
        }
        at += quoted(text, at).unwrap_or(c.len_utf8());
    }
    at
}

/// Returns how long the quoted text is that begins here, quotes included.
fn quoted(text: &str, at: usize) -> Option<usize> {
    /// A quote that is not closed within so many bytes is none.
    const FAR: usize = 120;
    let close = match text.as_bytes()[at] {
        b'`' => b'`',
        b'"' => b'"',
        // An apostrophe inside a word opens nothing.
        b'\'' if at == 0 || !text.as_bytes()[at - 1].is_ascii_alphanumeric() => b'\'',
        _ => return None,
    };
    let inside = &text.as_bytes()[at + 1..];
    let inside = &inside[..inside.len().min(FAR)];
    let end = memchr::memchr(close, inside)?;
    (!inside[..end].contains(&b'\n')).then_some(end + 2)
}

fn word_into(word: &str, out: &mut String) {
    let mut at = 0;
    while at < word.len() {
        if let Some(len) = quoted(word, at) {
            out.push('\'');
            at += len;
            continue;
        }
        let rest = &word[at..];
        let len = rest.find(|c| !is_inside(c)).unwrap_or(rest.len());
        if len > 0 {
            part_into(&rest[..len], out);
            at += len;
        } else {
            let c = rest.chars().next().expect("it is not empty");
            out.push(c);
            at += c.len_utf8();
        }
    }
}

/// Returns whether a character is of a name, a path or a number.
fn is_inside(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '\\' | ':' | '~' | '@' | '$')
}

fn part_into(part: &str, out: &mut String) {
    let name = part.trim_end_matches([':', '.', '-']);
    let tail = &part[name.len()..];
    let has = |what: &str| name.contains(what);
    if name.len() > 1 && (has("/") || has("\\")) {
        // With the line and column behind it.
        out.push('/');
    } else if has("::") {
        out.push_str("::");
    } else if is_code(name) {
        out.push_str(name);
    } else if is_hex(name) {
        out.push('0');
    } else if is_file(name) {
        out.push('/');
    } else {
        numbers_into(name, out);
    }
    // `file:12:` and `file:` are the same place.
    out.push_str(tail);
}

/// A code of a compiler, such as `E0308` or `TS2345`.
fn is_code(name: &str) -> bool {
    let digits = name.trim_start_matches(|c: char| c.is_ascii_uppercase());
    let letters = name.len() - digits.len();
    (1..=6).contains(&letters)
        && (2..=6).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// A hash, an address or a UUID.
fn is_hex(name: &str) -> bool {
    let digits = name.strip_prefix("0x").unwrap_or(name);
    let is_long = digits.len() >= 7 || digits.len() < name.len();
    is_long
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
        && digits.bytes().any(|byte| byte.is_ascii_digit())
}

/// `main.rs` or `main.rs:12:5`.
fn is_file(name: &str) -> bool {
    let file = name.split(':').next().unwrap_or_default();
    file.rsplit_once('.').is_some_and(|(stem, ending)| {
        !stem.is_empty()
            && (1..=5).contains(&ending.len())
            && ending.starts_with(|c: char| c.is_ascii_alphabetic())
            && ending.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Keeps the letters and makes each number a 0.
fn numbers_into(name: &str, out: &mut String) {
    let mut was_digit = false;
    for c in name.chars() {
        let is_digit = c.is_ascii_digit();
        if !is_digit {
            out.push(c.to_ascii_lowercase());
        } else if !was_digit {
            out.push('0');
        }
        was_digit = is_digit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(message: &str) -> String {
        let mut out = String::new();
        mask_into(message, &mut out);
        out
    }

    #[test]
    fn what_changes_is_masked_and_what_names_the_failure_stays() {
        for (message, masked) in [
            ("error[E0308]: mismatched types", "error[E0308]: mismatched types"),
            ("src/main.rs:10:5: cannot find `x y`", "/: cannot find '"),
            ("main.rs:10 cannot  find \"a\"\n", "/ cannot find '"),
            ("TS2345: Argument of type 'Foo'", "TS2345: argument of type '"),
            ("took 1234ms, 7 of 20", "took 0ms, 0 of 0"),
            ("commit 3f2a9bc1d0 not found", "commit 0 not found"),
            ("at 0x7ffe in std::vec::Vec", "at 0 in ::"),
            ("id 123e4567-e89b-12d3-a456-426614174000", "id 0"),
            ("don't panic, it's fine", "don't panic, it's fine"),
            ("ünï \u{1F600} \u{3000}done.", "ünï \u{1F600} done."),
            ("", ""),
            ("unclosed `quote here", "unclosed `quote here"),
        ] {
            assert_eq!(mask(message), masked, "{message:?}");
        }
    }

    #[test]
    fn masking_takes_any_text() {
        for text in ["'", "`", "\"'`", "/", "::", ".", "a.b", "0x", "é'é'", "'\n'", "~", "-:-."] {
            mask(text);
        }
    }
}
