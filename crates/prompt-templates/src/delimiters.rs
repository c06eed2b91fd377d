//! What opens and closes a tag.

use std::borrow::Cow;

/// The delimiters of one template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delimiters {
    pairs: [Pair; 3],
    /// The bytes of ASCII that a delimiter, of this template or of `upon`, begins with: a bit each.
    firsts: u128,
}

/// What opens and what closes a tag.
type Pair = (Cow<'static, str>, Cow<'static, str>);

/// What kind of tag a delimiter belongs to, in the order of the pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delimiter {
    Expression,
    Block,
    Comment,
}

const KINDS: [Delimiter; 3] = [Delimiter::Expression, Delimiter::Block, Delimiter::Comment];

/// The delimiters of `upon`; what is written for it has no others.
pub(crate) const STANDARD: [(&str, &str); 3] = [("{{", "}}"), ("{%", "%}"), ("{#", "#}")];

impl Default for Delimiters {
    fn default() -> Self {
        Self::of(STANDARD.map(|(open, close)| (open.into(), close.into())))
    }
}

impl Delimiters {
    fn of(pairs: [Pair; 3]) -> Self {
        let own = pairs.iter().map(|(open, close)| (&**open, &**close));
        let firsts = own.chain(STANDARD).flat_map(|(open, close)| [open, close]);
        let firsts = firsts.fold(0, |bits, text| bits | bit(text.as_bytes()[0]));
        Self { pairs, firsts }
    }

    /// Reads `[open, close, open, close, open, close]`: of expressions, blocks and comments.
    pub(crate) fn new(list: &[String]) -> Result<Self, String> {
        let [e1, e2, b1, b2, c1, c2] = list else {
            return Err(format!("{} delimiters where 6 are needed", list.len()));
        };
        for (index, text) in list.iter().enumerate() {
            let is_sign = |c: char| c.is_ascii_punctuation() && !matches!(c, '"' | '\\' | '_');
            if text.len() < 2 || text.len() > 8 || !text.chars().all(is_sign) {
                return Err(format!("the delimiter '{text}' is not 2 to 8 signs of ASCII"));
            }
            let is_open = index % 2 == 0;
            if if is_open { text.ends_with('-') } else { text.starts_with('-') } {
                return Err(format!("the '-' inside of the delimiter '{text}' would trim"));
            }
            if is_open && text.starts_with("[[") {
                return Err(format!("the delimiter '{text}' is how a role line begins"));
            }
            if list[..index].contains(text) {
                return Err(format!("the delimiter '{text}' stands twice"));
            }
        }
        let pair = |open: &String, close: &String| (open.clone().into(), close.clone().into());
        Ok(Self::of([pair(e1, e2), pair(b1, b2), pair(c1, c2)]))
    }

    pub(crate) fn open(&self, kind: Delimiter) -> &str {
        &self.pairs[kind as usize].0
    }

    pub(crate) fn close(&self, kind: Delimiter) -> &str {
        &self.pairs[kind as usize].1
    }

    /// Returns what keeps text as it is.
    pub(crate) fn raw(&self) -> String {
        let (open, close) = (self.open(Delimiter::Block), self.close(Delimiter::Block));
        format!("{open} raw {close}..{open} endraw {close}")
    }

    /// Returns the first place from `from` on where a tag opens.
    pub(crate) fn opener(&self, text: &str, from: usize) -> Option<(usize, Delimiter)> {
        let first = KINDS.map(|kind| self.open(kind).as_bytes()[0]);
        let bytes = text.as_bytes();
        let mut at = from;
        loop {
            at += if first[0] == first[1] && first[1] == first[2] {
                memchr::memchr(first[0], &bytes[at..])?
            } else {
                memchr::memchr3(first[0], first[1], first[2], &bytes[at..])?
            };
            // Where one opener begins with another, the longer one is meant.
            let opens = |kind: &Delimiter| bytes[at..].starts_with(self.open(*kind).as_bytes());
            let found = KINDS.into_iter().filter(opens).max_by_key(|kind| self.open(*kind).len());
            if let Some(kind) = found {
                return Some((at, kind));
            }
            at += 1;
        }
    }

    /// Returns whether a delimiter, of this template or of `upon`, stands at the start of `rest`.
    pub(crate) fn begins(&self, rest: &str) -> bool {
        if rest.as_bytes().first().is_none_or(|&first| self.firsts & bit(first) == 0) {
            return false;
        }
        let own = self.pairs.iter().map(|(open, close)| (&**open, &**close));
        own.chain(STANDARD).any(|(open, close)| rest.starts_with(open) || rest.starts_with(close))
    }
}

/// Returns the bit of a byte of ASCII, and none for another.
fn bit(byte: u8) -> u128 {
    1_u128.checked_shl(byte.into()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delimiters(list: &[&str]) -> Result<Delimiters, String> {
        Delimiters::new(&list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn openers_are_found_the_longest_first() {
        let own = delimiters(&["<<", ">>", "<<%", "%>>", "##<", ">##"]).unwrap();
        let found = |text| own.opener(text, 0);
        assert_eq!(found("a < b # {{ <<x"), Some((11, Delimiter::Expression)));
        assert_eq!(found("<<% if"), Some((0, Delimiter::Block)));
        assert_eq!(found("# ##< c"), Some((2, Delimiter::Comment)));
        assert_eq!(found("{{ x }}"), None);
    }

    #[test]
    fn delimiters_that_could_not_work_are_refused() {
        for (list, why) in [
            (&["<<", ">>"][..], "6"),
            (&["<", ">>", "<%", "%>", "<#", "#>"], "2 to 8"),
            (&["<<", ">>", "<<", "%>", "<#", "#>"], "twice"),
            (&["<-", ">>", "<%", "%>", "<#", "#>"], "trim"),
            (&["<<", "->", "<%", "%>", "<#", "#>"], "trim"),
            (&["[[", "]]", "[%", "%]", "[#", "#]"], "role"),
            (&["aa", ">>", "<%", "%>", "<#", "#>"], "signs"),
        ] {
            let error = delimiters(list).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
