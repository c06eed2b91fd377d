//! Lines of values, which may come from anywhere.

/// Returns the lines of a text, and what each ends with.
///
/// A line ends where anybody could take it to end: at a line feed, a carriage return, both, and at what
/// else Unicode has for it (vertical tab, form feed, U+0085, U+2028, U+2029). A value could otherwise get
/// out of its place for those who know more ends than this crate.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (start, length) = end(rest.as_bytes()).unwrap_or((rest.len(), 0));
        let (line, behind) = rest.split_at(start);
        let (end, behind) = behind.split_at(length);
        rest = behind;
        Some((line, end))
    })
}

/// Returns where the first line ends, and the length of what ends it.
fn end(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut from = 0;
    loop {
        let may_end = |byte: &u8| matches!(byte, b'\n'..=b'\r' | 0xc2 | 0xe2);
        let at = from + bytes[from..].iter().position(may_end)?;
        let length = match &bytes[at..] {
            [b'\r', b'\n', ..] | [0xc2, 0x85, ..] => 2,
            [b'\n'..=b'\r', ..] => 1,
            [0xe2, 0x80, 0xa8 | 0xa9, ..] => 3,
            _ => {
                from = at + 1;
                continue;
            }
        };
        return Some((at, length));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_comes_with_its_end() {
        let ends = ["\n", "\r", "\r\n", "\u{b}", "\u{c}", "\u{85}", "\u{2028}", "\u{2029}"];
        for end in ends {
            let text = format!("a\u{e2}\u{2030}{end}{end}\u{a0}{end}b");
            let expected = [("a\u{e2}\u{2030}", end), ("", end), ("\u{a0}", end), ("b", "")];
            assert_eq!(lines(&text).collect::<Vec<_>>(), expected);
            assert_eq!(lines(end).collect::<Vec<_>>(), [("", end)]);
        }
        assert_eq!(lines("").count(), 0);
        assert_eq!(lines("\n\r").count(), 2);
    }
}
