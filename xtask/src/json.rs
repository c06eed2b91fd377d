//! A reader for the JSON that cargo writes: whole documents, in memory, nothing lenient.

use std::fmt;

/// A JSON value. Numbers are kept as written: nothing here calculates with them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(String),
    String(String),
    Array(Vec<Value>),
    Object(Vec<(String, Value)>),
}

impl Value {
    /// Reads a document that is one value and nothing else.
    pub(crate) fn parse(text: &str) -> Result<Value, Fault> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value()?;
        reader.space();
        if reader.at == text.len() { Ok(value) } else { Err(reader.fault("the end")) }
    }

    /// Returns the member `key` of an object; `Null` if there is none.
    pub(crate) fn get(&self, key: &str) -> &Value {
        match self {
            Value::Object(members) => members
                .iter()
                .find(|(name, _)| name == key)
                .map_or(&Value::Null, |(_, value)| value),
            _ => &Value::Null,
        }
    }

    /// Returns the text of a string.
    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the elements of an array; nothing if it is none.
    pub(crate) fn elements(&self) -> &[Value] {
        match self {
            Value::Array(elements) => elements,
            _ => &[],
        }
    }

    /// Returns the members of an object; nothing if it is none.
    pub(crate) fn members(&self) -> &[(String, Value)] {
        match self {
            Value::Object(members) => members,
            _ => &[],
        }
    }
}

/// Where a document is not JSON.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    at: usize,
    expected: &'static str,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not JSON at byte {}: expected {}", self.at, self.expected)
    }
}

impl std::error::Error for Fault {}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn value(&mut self) -> Result<Value, Fault> {
        self.space();
        match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => Ok(self.number()),
            _ => {
                for (word, value) in [
                    ("null", Value::Null),
                    ("true", Value::Bool(true)),
                    ("false", Value::Bool(false)),
                ] {
                    if self.text[self.at..].starts_with(word) {
                        self.at += word.len();
                        return Ok(value);
                    }
                }
                Err(self.fault("a value"))
            }
        }
    }

    fn object(&mut self) -> Result<Value, Fault> {
        let mut members = Vec::new();
        self.expect(b'{', "`{`")?;
        if self.take(b'}') {
            return Ok(Value::Object(members));
        }
        loop {
            self.space();
            let name = self.string()?;
            self.expect(b':', "`:`")?;
            members.push((name, self.value()?));
            if self.take(b'}') {
                return Ok(Value::Object(members));
            }
            self.expect(b',', "`,` or `}`")?;
        }
    }

    fn array(&mut self) -> Result<Value, Fault> {
        let mut elements = Vec::new();
        self.expect(b'[', "`[`")?;
        if self.take(b']') {
            return Ok(Value::Array(elements));
        }
        loop {
            elements.push(self.value()?);
            if self.take(b']') {
                return Ok(Value::Array(elements));
            }
            self.expect(b',', "`,` or `]`")?;
        }
    }

    fn number(&mut self) -> Value {
        let rest = &self.text[self.at..];
        let end = rest
            .find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'))
            .unwrap_or(rest.len());
        self.at += end;
        Value::Number(rest[..end].to_owned())
    }

    fn string(&mut self) -> Result<String, Fault> {
        if self.peek() != Some(b'"') {
            return Err(self.fault("a string"));
        }
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at..];
            let end = rest.find(['"', '\\']).ok_or_else(|| self.fault("the end of a string"))?;
            text.push_str(&rest[..end]);
            self.at += end + 1;
            if rest.as_bytes()[end] == b'"' {
                return Ok(text);
            }
            text.push(self.escaped()?);
        }
    }

    /// The character that stands behind a backslash; a surrogate pair is one character.
    fn escaped(&mut self) -> Result<char, Fault> {
        let letter = self.peek().ok_or_else(|| self.fault("an escape"))?;
        self.at += 1;
        Ok(match letter {
            b'"' | b'\\' | b'/' => char::from(letter),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let mut units = vec![self.unit()?];
                if (0xd800..0xdc00).contains(&units[0]) && self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    units.push(self.unit()?);
                }
                match char::decode_utf16(units).next() {
                    Some(Ok(character)) => character,
                    _ => return Err(self.fault("a surrogate pair")),
                }
            }
            _ => return Err(self.fault("an escape")),
        })
    }

    fn unit(&mut self) -> Result<u16, Fault> {
        let digits = self.text.get(self.at..self.at + 4);
        let unit = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        self.at += 4;
        unit.ok_or_else(|| self.fault("four hex digits"))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        self.space();
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), Fault> {
        if self.take(byte) { Ok(()) } else { Err(self.fault(expected)) }
    }

    fn fault(&self, expected: &'static str) -> Fault {
        Fault { at: self.at, expected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_nested_values() {
        let value =
            Value::parse(r#" {"a": [1, -2.5e3, true, null, "x"], "b": {}, "c": []} "#).unwrap();
        assert_eq!(value.get("a").elements().len(), 5);
        assert_eq!(value.get("a").elements()[1], Value::Number("-2.5e3".to_owned()));
        assert_eq!(value.get("a").elements()[4].as_str(), Some("x"));
        assert_eq!(value.get("b").members(), []);
        assert_eq!(value.get("none"), &Value::Null);
    }

    #[test]
    fn reads_escapes() {
        let value = Value::parse(r#""a\"\\\/\n\u00e9\ud83d\ude00""#).unwrap();
        assert_eq!(value.as_str(), Some("a\"\\/\n\u{e9}\u{1f600}"));
    }

    #[test]
    fn refuses_what_is_not_json() {
        for text in
            ["", "{", "[1,]", "{\"a\"}", "\"a", "nul", "1 2", r#""\x""#, r#""\ud800""#, r#""\u12"#]
        {
            assert!(Value::parse(text).is_err(), "{text}");
        }
    }
}
