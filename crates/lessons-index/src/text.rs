//! Small helpers over bytes of text.

/// Removes a byte order mark and the blanks around a line.
pub(crate) fn trim(line: &[u8]) -> &[u8] {
    const BLANKS: [u8; 4] = [b' ', b'\t', b'\r', b'\n'];
    let mut line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    while let [first, rest @ ..] = line
        && BLANKS.contains(first)
    {
        line = rest;
    }
    while let [rest @ .., last] = line
        && BLANKS.contains(last)
    {
        line = rest;
    }
    line
}

/// Returns the start of `bytes` as text, cut at a character, of at most `max` bytes.
pub(crate) fn excerpt(bytes: &[u8], max: usize) -> String {
    let mut out = String::new();
    let start = if bytes.len() > max { without_cut_end(&bytes[..max]) } else { bytes };
    for chunk in start.utf8_chunks() {
        let invalid = if chunk.invalid().is_empty() { "" } else { "\u{FFFD}" };
        for c in chunk.valid().chars().chain(invalid.chars()) {
            if out.len() + c.len_utf8() > max {
                return out;
            }
            out.push(c);
        }
    }
    out
}

/// Takes away the start of a character at the end of bytes that were cut: it is no fault of theirs.
pub(crate) fn without_cut_end(bytes: &[u8]) -> &[u8] {
    let cut = bytes.utf8_chunks().last().map_or(0, |chunk| chunk.invalid().len());
    &bytes[..bytes.len() - cut]
}

/// Returns whether a line looks like UTF-16: a byte order mark, or NUL in every other byte only.
pub(crate) fn looks_utf16(line: &[u8]) -> bool {
    if line.starts_with(b"\xFF\xFE") || line.starts_with(b"\xFE\xFF") {
        return true;
    }
    let mut nul_at = [0_usize; 2];
    for at in memchr::memchr_iter(0, line) {
        nul_at[at % 2] += 1;
    }
    // A run of NUL bytes, which a crash can leave, has as many on either side.
    matches!(nul_at, [0, n] | [n, 0] if n >= 2)
}

/// Returns whether a line is one that a merge left.
pub(crate) fn is_conflict_marker(line: &[u8]) -> bool {
    const MARKERS: [&[u8]; 4] = [b"<<<<<<<", b"|||||||", b"=======", b">>>>>>>"];
    MARKERS.iter().any(|marker| {
        line.strip_prefix(*marker).is_some_and(|rest| matches!(rest.first(), None | Some(b' ')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_cut_at_a_character_and_never_longer_than_asked() {
        assert_eq!(excerpt("aé".as_bytes(), 2), "a");
        assert_eq!(excerpt(b"a\xFFb", 80), "a\u{FFFD}b");
        assert!(excerpt(&[0xFF; 200], 80).len() <= 80);
    }

    #[test]
    fn a_run_of_nul_bytes_is_no_utf16() {
        assert!(looks_utf16(b"{\0\"\0i\0d\0"));
        assert!(looks_utf16(b"\0{\0\"\0i\0d"));
        assert!(!looks_utf16(b"{\"id\":\"a\0\0\0\0\0\0"));
        assert!(!looks_utf16(b"{\"id\":\"a\"}"));
    }
}
