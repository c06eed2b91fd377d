//! The grammar of JSON as programs write it, passed byte by byte in one go.
//!
//! What is taken here is valid JSON. What is not taken may be valid too: half surrogate pairs,
//! exponents and huge numbers, escaped keys, nesting without end.

use wide::u8x16;

/// Digits of a number that no parser has to round or refuse.
const MAX_DIGITS: usize = 18;

/// Nesting that the bits of one word keep track of.
const MAX_DEPTH: u32 = 60;

/// Is a place in a text of one or more lines.
#[derive(Clone, Copy)]
pub(crate) struct Scan<'a> {
    pub(crate) text: &'a str,
    pub(crate) at: usize,
}

/// Is where a string stands, without its quotes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Quoted {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) is_escaped: bool,
}

impl Scan<'_> {
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub(crate) fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    pub(crate) fn eat(&mut self, wanted: u8) -> Option<()> {
        (self.next()? == wanted).then_some(())
    }

    /// Passes blanks up to the end of the line.
    #[inline]
    pub(crate) fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    /// Passes a key, the colon behind it and blanks.
    #[expect(clippy::inline_always, reason = "a call takes longer than a name")]
    #[inline(always)]
    pub(crate) fn key(&mut self) -> Option<Quoted> {
        let key = self.string()?;
        if key.is_escaped {
            return None;
        }
        self.skip_blanks();
        self.eat(b':')?;
        self.skip_blanks();
        Some(key)
    }

    #[expect(clippy::inline_always, reason = "a call takes longer than a name")]
    #[inline(always)]
    pub(crate) fn string(&mut self) -> Option<Quoted> {
        self.eat(b'"')?;
        let (bytes, start) = (self.text.as_bytes(), self.at);
        let end = special(bytes, start)?;
        if bytes[end] == b'"' {
            self.at = end + 1;
            return Some(Quoted { start, end, is_escaped: false });
        }
        let end = Scan { at: end, ..*self }.escaped()?;
        self.at = end + 1;
        Some(Quoted { start, end, is_escaped: true })
    }

    /// Returns where a string ends, from its first escape on.
    fn escaped(mut self) -> Option<usize> {
        let bytes = self.text.as_bytes();
        loop {
            self.at = special(bytes, self.at)?;
            match bytes[self.at] {
                b'"' => return Some(self.at),
                b'\\' => match bytes.get(self.at + 1)? {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
                    b'u' => {
                        hex(bytes.get(self.at + 2..self.at + 6)?)?;
                        self.at += 6;
                    }
                    _ => return None,
                },
                _ => return None,
            }
        }
    }

    pub(crate) fn word(&mut self, word: &str) -> Option<()> {
        let rest = self.text.as_bytes().get(self.at..)?;
        self.at += word.len();
        rest.starts_with(word.as_bytes()).then_some(())
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    pub(crate) fn skip_number(&mut self) -> Option<()> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let starts_with_zero = self.peek() == Some(b'0');
        let whole = self.digits();
        if whole == 0 || (starts_with_zero && whole > 1) {
            return None;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return None;
            }
        }
        let is_plain = !matches!(self.peek(), Some(b'e' | b'E'));
        (is_plain && self.at - start <= MAX_DIGITS).then_some(())
    }

    /// Passes a whole number that has no sign.
    #[inline]
    pub(crate) fn count(&mut self) -> Option<u64> {
        let start = self.at;
        let mut count = 0;
        while let Some(byte @ b'0'..=b'9') = self.peek() {
            count = count * 10 + u64::from(byte - b'0');
            self.at += 1;
            if self.at - start > MAX_DIGITS {
                return None;
            }
        }
        let starts_with_zero = self.text.as_bytes().get(start) == Some(&b'0');
        let len = self.at - start;
        (len == 1 || (len > 1 && !starts_with_zero)).then_some(count)
    }

    fn skip_scalar(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => drop(self.string()?),
            b'n' => self.word("null")?,
            b't' => self.word("true")?,
            b'f' => self.word("false")?,
            _ => self.skip_number()?,
        }
        Some(())
    }

    /// Returns where an object ends that has only numbers and texts without escapes, as most have;
    /// `None` for every other value.
    #[inline]
    pub(crate) fn skip_flat(mut self) -> Option<usize> {
        self.eat(b'{')?;
        loop {
            self.skip_blanks();
            self.key()?;
            match self.peek()? {
                b'"' => drop(self.string()?),
                _ => self.skip_number()?,
            }
            match self.next()? {
                b',' => {}
                b'}' => return Some(self.at),
                _ => return None,
            }
        }
    }

    /// Returns where a value of any kind ends; of the lists and objects around what is passed, each
    /// is one bit.
    pub(crate) fn skip_value(mut self) -> Option<usize> {
        const OBJECT: u64 = 1;
        let (mut around, mut depth) = (0_u64, 0);
        loop {
            let opening = self.peek()?;
            if matches!(opening, b'{' | b'[') {
                self.at += 1;
                depth += 1;
                around = around << 1 | u64::from(opening == b'{');
                self.skip_blanks();
                // The closing bracket is two behind the opening one in both cases.
                if self.peek()? != opening + 2 {
                    if depth > MAX_DEPTH {
                        return None;
                    }
                    if opening == b'{' {
                        self.key()?;
                    }
                    continue;
                }
                self.at += 1;
                depth -= 1;
                around >>= 1;
            } else {
                self.skip_scalar()?;
            }
            loop {
                if depth == 0 {
                    return Some(self.at);
                }
                self.skip_blanks();
                match (self.next()?, around & OBJECT) {
                    (b',', OBJECT) => {
                        self.skip_blanks();
                        self.key()?;
                        break;
                    }
                    (b',', _) => {
                        self.skip_blanks();
                        break;
                    }
                    (b'}', OBJECT) | (b']', 0) => {
                        depth -= 1;
                        around >>= 1;
                    }
                    _ => return None,
                }
            }
        }
    }
}

/// Finds the next quote, backslash or control character.
#[expect(clippy::inline_always, reason = "a call takes longer than a name")]
#[inline(always)]
fn special(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut rest = bytes.get(at..)?;
    while let Some((window, behind)) = rest.split_first_chunk() {
        let marks = special_of(*window);
        if marks != 0 {
            return Some(at + marks.trailing_zeros() as usize);
        }
        (rest, at) = (behind, at + window.len());
    }
    rest.iter().position(|byte| is_special(*byte)).map(|found| at + found)
}

/// Returns a bit for each byte.
#[inline]
fn special_of(window: [u8; 16]) -> u32 {
    let bytes = u8x16::new(window);
    let is = |byte| bytes.simd_eq(u8x16::splat(byte));
    let is_control = bytes.min(u8x16::splat(0x1F)).simd_eq(bytes);
    (is(b'"') | is(b'\\') | is_control).to_bitmask()
}

#[inline]
fn is_special(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | 0..0x20)
}

/// Reads the four digits of an escape; half a surrogate pair is `None`.
pub(crate) fn hex(digits: &[u8]) -> Option<char> {
    let code = digits
        .iter()
        .try_fold(0, |code, digit| Some(code * 16 + char::from(*digit).to_digit(16)?))?;
    char::from_u32(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_where_they_end_however_long_they_are() {
        for len in 0..=69 {
            let line = format!("\"{}\",\"x\":1,\"{}", "é".repeat(len), "y".repeat(40));
            for behind in [0, 7, 40] {
                let mut scan = Scan { text: &line[..line.len() - 40 + behind], at: 0 };
                let found = scan.string().unwrap();
                assert_eq!((found.start, found.end, scan.at), (1, 1 + 2 * len, 2 + 2 * len));
            }
            for (special, is_good) in
                [("\\n", true), ("\\u00e9", true), ("\n", false), ("\\x", false)]
            {
                let line = format!("\"{}{special}{}\"", "z".repeat(len), "z".repeat(70 - len));
                let found = Scan { text: &line, at: 0 }.string();
                assert_eq!(found.map(|found| found.is_escaped), is_good.then_some(true), "{line}");
            }
            assert!(Scan { text: &line[..=2 * len], at: 0 }.string().is_none());
        }
    }

    #[test]
    fn flat_objects_end_where_all_values_do() {
        for (object, is_flat) in [
            (r#"{"repo":"org/repo-35","agent":8}"#, true),
            (r#"{"a": -1.5, "b": "\u00e9"}"#, true),
            ("{}", false),
            (r#"{"a":{"b":[]}}"#, false),
            (r#"{"a":null}"#, false),
        ] {
            let line = format!("{object},\"behind\":1{}", " ".repeat(30));
            let scan = Scan { text: &line, at: 0 };
            assert_eq!(scan.skip_flat(), is_flat.then_some(object.len()), "{object}");
            assert_eq!(scan.skip_value(), Some(object.len()), "{object}");
        }
        for wrong in
            [r#"{"a":01}"#, r#"{"a":1,}"#, r#"{"a" 1}"#, r#"{"a":1"#, "{\"a\":1,\n\"b\":2}"]
        {
            let scan = Scan { text: wrong, at: 0 };
            assert_eq!((scan.skip_flat(), scan.skip_value()), (None, None), "{wrong}");
        }
    }

    #[test]
    fn counts_are_whole_numbers() {
        for (text, count) in [
            ("0", Some(0)),
            ("7,", Some(7)),
            ("123456789012345678", Some(123_456_789_012_345_678)),
            ("1234567890123456789", None),
            ("01", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(Scan { text, at: 0 }.count(), count, "{text}");
        }
    }
}
