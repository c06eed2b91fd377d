//! Case folding, so that texts which differ in case only are equal.

use focaccia::CaseFold;

/// Folds text by Unicode simple case folding: one character for one character, no locale.
pub(crate) fn fold(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    fold_into(text, &mut out);
    out
}

/// Appends the folded text.
pub(crate) fn fold_into(text: &str, out: &mut Vec<u8>) {
    if fold_ascii_into(text.as_bytes(), out) {
        return;
    }
    let mut utf8 = [0; 4];
    for c in text.chars() {
        out.extend_from_slice(fold_char(c).encode_utf8(&mut utf8).as_bytes());
    }
}

/// Appends the folded text if all of it is ASCII, and returns whether it is.
pub(crate) fn fold_ascii_into(text: &[u8], out: &mut Vec<u8>) -> bool {
    if !text.is_ascii() {
        return false;
    }
    let start = out.len();
    out.extend_from_slice(text);
    out[start..].make_ascii_lowercase();
    true
}

/// The standard library proposes a character, Unicode's folding table decides whether both are
/// the same but for case. The dotless `ı`, for one, is not an `i`.
fn fold_char(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    // The three foldings that no pair of upper and lower case shows.
    let known = match c {
        '\u{FB05}' => Some('\u{FB06}'),
        '\u{1FD3}' => Some('\u{0390}'),
        '\u{1FE3}' => Some('\u{03B0}'),
        _ => None,
    };
    let through_upper = || only(c.to_uppercase()).and_then(|upper| only(upper.to_lowercase()));
    [known, through_upper(), only(c.to_lowercase())]
        .into_iter()
        .flatten()
        .find(|d| *d != c && CaseFold::Full.case_eq_chars([c], [*d]))
        .unwrap_or(c)
}

fn only(mut chars: impl Iterator<Item = char>) -> Option<char> {
    let first = chars.next();
    first.filter(|_| chars.next().is_none())
}

#[cfg(test)]
mod tests {
    use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

    use super::*;

    fn same(a: &str, b: &str) -> bool {
        fold(a) == fold(b)
    }

    /// All that differ in case only, by the table of another crate, and no others.
    #[test]
    fn letters_are_the_same_where_the_unicode_table_of_simple_folding_says_so() {
        // Letters of Unicode 17; that table is of 16.
        let newer = ['\u{A7CE}'..='\u{A7D5}', '\u{16EA0}'..='\u{16ED3}'];
        let is_newer = |c: &char| newer.iter().any(|range| range.contains(c));
        // No letter beyond has a case.
        for c in ('\0'..='\u{1FFFF}').filter(|c| !is_newer(c)) {
            let folded = fold_char(c);
            assert_eq!(fold_char(folded), folded, "{c:?}");
            let mut same = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
            same.case_fold_simple();
            let same = || same.iter().flat_map(|range| range.start()..=range.end());
            assert!(same().any(|d| d == folded), "{c:?} is not {folded:?}");
            for d in same() {
                assert_eq!(fold_char(d), folded, "{c:?} and {d:?} differ in case only");
            }
        }
    }

    #[test]
    fn hard_cases() {
        assert!(same("ΟΔΟΣ", "οδος"), "a final sigma is a sigma");
        assert!(same("\u{212A}elvin", "KELVIN"));
        assert!(same("Ünïcode", "ÜNÏCODE"));
        assert!(!same("ı", "i"), "no Turkish rules");
        assert!(!same("İ", "i"));
        assert!(!same("ß", "ss"), "simple folding never changes the number of characters");
        assert!(same("ẞ", "ß"));
    }
}
