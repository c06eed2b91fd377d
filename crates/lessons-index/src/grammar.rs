//! The grammar of JSON as programs write it, passed byte by byte in one go.
//!
//! What is taken here is valid JSON. What is not taken may be valid too: half surrogate pairs,
//! exponents and huge numbers, escaped keys, nesting without end.

/// Digits of a number that no parser has to round or refuse.
const MAX_DIGITS: usize = 18;

/// Nesting that the bits of one word keep track of.
const MAX_DEPTH: u32 = 60;

/// Is a place in a line.
pub(crate) struct Scan<'a> {
    pub(crate) text: &'a str,
    pub(crate) at: usize,
}

/// Is where a string stands, without its quotes.
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

    pub(crate) fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Passes a key, the colon behind it and blanks.
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

    pub(crate) fn string(&mut self) -> Option<Quoted> {
        self.eat(b'"')?;
        let bytes = self.text.as_bytes();
        let (start, mut is_escaped) = (self.at, false);
        loop {
            self.at = special(bytes, self.at)?;
            match bytes[self.at] {
                b'"' => {
                    let end = self.at;
                    self.at += 1;
                    return Some(Quoted { start, end, is_escaped });
                }
                b'\\' => {
                    is_escaped = true;
                    match bytes.get(self.at + 1)? {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
                        b'u' => {
                            hex(bytes.get(self.at + 2..self.at + 6)?)?;
                            self.at += 6;
                        }
                        _ => return None,
                    }
                }
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

    fn skip_scalar(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string().map(drop),
            b'n' => self.word("null"),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            _ => self.skip_number(),
        }
    }

    /// Passes a value of any kind; of the lists and objects around it, each is one bit.
    pub(crate) fn skip_value(&mut self) -> Option<()> {
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
                    return Some(());
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

/// Finds the next quote, backslash or control character: in the next few bytes, as in names, or
/// behind many others, as in messages.
#[inline]
fn special(bytes: &[u8], mut at: usize) -> Option<usize> {
    let near = (at + 16).min(bytes.len());
    while at + 8 <= near {
        match special_of(bytes[at..at + 8].try_into().expect("eight bytes")) {
            Some(found) => return Some(at + found),
            None => at += 8,
        }
    }
    while let Some(many) = bytes.get(at..at + 32) {
        let is = |byte: u8| [byte == b'"', byte == b'\\', byte < 0x20].map(u8::from);
        // Without an end before the last, so that many are compared at once.
        let any = many.iter().fold(0, |any, byte| is(*byte).into_iter().fold(any, |a, b| a | b));
        if any != 0 {
            break;
        }
        at += 32;
    }
    while let Some(few) = bytes.get(at..at + 8) {
        match special_of(few.try_into().expect("eight bytes")) {
            Some(found) => return Some(at + found),
            None => at += 8,
        }
    }
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    bytes.get(at..)?.iter().position(is_special).map(|found| at + found)
}

#[inline]
fn special_of(bytes: [u8; 8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES * 0x80;
    // The lowest marked byte is right; a borrow can only mark bytes above one that is.
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let word = u64::from_le_bytes(bytes);
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let found = zero(word ^ (ONES * u64::from(b'"'))) | zero(word ^ (ONES * u64::from(b'\\')));
    let found = (found | control) & HIGHS;
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

/// Reads the four digits of an escape; half a surrogate pair is `None`.
pub(crate) fn hex(digits: &[u8]) -> Option<char> {
    let code = digits
        .iter()
        .try_fold(0, |code, digit| Some(code * 16 + char::from(*digit).to_digit(16)?))?;
    char::from_u32(code)
}
