//! One line to one record.

use std::borrow::Cow;

use serde_json::value::RawValue;
use simd_json::{Buffers, Node, StaticNode, Tape};

use crate::classify::{classify_bytes, classify_text};
use crate::fast::Fast;
use crate::fault::LineError;
use crate::members::{self, Members};
use crate::record::{Key, Record, Value};

/// Nesting that simd-json is asked to take; deeper values go to `serde_json`, which does not
/// recurse here.
const MAX_DEPTH: usize = 100;

/// Lines over this are parsed with buffers of their own, so that the kept ones stay small.
const KEEP_BUFFERS_BELOW: usize = 1 << 20;

/// Parses lines and keeps its buffers from line to line.
///
/// Plain lines are parsed in one pass where they stand. What that pass gives up on is parsed by
/// simd-json, and what simd-json refuses is tried again with `serde_json`, which takes some lines
/// more (whole numbers over 64 bits, half surrogate pairs under unknown keys) and knows what is
/// wrong with the others. So a line is accepted exactly if `serde_json` accepts it.
#[derive(Default)]
pub(crate) struct Parser {
    pub(crate) fast: Fast,
    /// Is made for the first line that is not plain; most never come to that.
    general: Option<Box<General>>,
}

/// Holds what simd-json works with.
struct General {
    scratch: Vec<u8>,
    buffers: Buffers,
    tape: Tape<'static>,
}

impl Parser {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Parses a trimmed line and returns it as text too. `terminated` tells whether a line end
    /// follows it.
    pub(crate) fn parse<'a>(
        &mut self,
        line: &'a [u8],
        terminated: bool,
    ) -> Result<(Record<'a>, &'a str), LineError> {
        let Ok(raw) = std::str::from_utf8(line) else {
            return Err(classify_bytes(line, terminated));
        };
        if let Some(plain) = self.fast.parse(raw) {
            return Ok((plain.record(), raw));
        }
        let general = if line.len() >= KEEP_BUFFERS_BELOW {
            Self::new().general(raw)
        } else {
            self.general(raw)
        };
        Ok((general.unwrap_or_else(|| slow(raw, terminated))?, raw))
    }

    /// Returns `None` if simd-json finds no JSON object here.
    fn general(&mut self, raw: &str) -> Option<Result<Record<'static>, LineError>> {
        let General { scratch, buffers, tape: kept } = &mut **self.general.get_or_insert_default();
        scratch.clear();
        scratch.extend_from_slice(raw.as_bytes());
        let mut tape = std::mem::replace(kept, Tape(Vec::new())).reset();
        let parsed = simd_json::fill_tape(scratch, buffers, &mut tape);
        let record = match (parsed, tape.0.first()) {
            (Ok(()), Some(Node::Object { len, .. })) => Some(from_tape(*len, &tape.0)),
            _ => None,
        };
        *kept = tape.reset();
        record
    }
}

impl Default for General {
    fn default() -> Self {
        let (scratch, tape) = (Vec::new(), Tape::null());
        Self { scratch, buffers: Buffers::with_max_depth(1024, MAX_DEPTH), tape }
    }
}

fn from_tape(members: usize, tape: &[Node<'_>]) -> Result<Record<'static>, LineError> {
    let mut record = Record::default();
    let mut at = 1;
    for _ in 0..members {
        let Some([Node::String(name), value]) = tape.get(at..at + 2) else { break };
        at += 2;
        if let Node::Object { count, .. } | Node::Array { count, .. } = value {
            at += count;
        }
        let Some(key) = Key::of(name) else { continue };
        let value = match *value {
            Node::String(text) => Value::Text(Cow::Owned(text.to_owned())),
            Node::Static(StaticNode::U64(n)) => Value::Count(n),
            Node::Static(StaticNode::I64(n)) => u64::try_from(n).map_or(Value::Other, Value::Count),
            Node::Static(StaticNode::Null) => Value::Null,
            Node::Object { .. } => Value::Object,
            Node::Static(_) | Node::Array { .. } => Value::Other,
        };
        record.set(name, key, value)?;
    }
    record.finish()
}

fn slow(raw: &str, terminated: bool) -> Result<Record<'static>, LineError> {
    let members = match Members::of(raw) {
        Ok(members) => members,
        Err(error) => return Err(classify_text(raw, &error, terminated)),
    };
    let mut record = Record::default();
    for (name, value) in members.0 {
        // A key with half a surrogate pair is none of ours.
        let Some(name) = members::decode(name) else { continue };
        let Some(key) = Key::of(&name) else { continue };
        let value = match value.get().as_bytes()[0] {
            b'"' => members::decode(value).map_or(Value::Broken, |t| Value::Text(Cow::Owned(t))),
            b'{' => object(value),
            b'n' => Value::Null,
            _ => value.get().parse().map_or(Value::Other, Value::Count),
        };
        record.set(&name, key, value)?;
    }
    record.finish()
}

/// An object that cannot be decoded later (nested too deep, a number out of range) is refused now.
fn object(value: &RawValue) -> Value<'static> {
    match serde_json::from_str::<serde_json::Value>(value.get()) {
        Ok(_) => Value::Object,
        Err(_) => Value::Other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fast(line: &str) -> Option<Record<'_>> {
        Fast::default().parse(line).map(|plain| plain.record())
    }

    #[test]
    fn plain_lines_take_the_fast_way_and_all_ways_agree() {
        let mut parser = Parser::new();
        for line in [
            r#"{"id":"a","failure_msg":"caf\u00e9\n","times_seen":3,"metadata":{"k":[1,{}]},"x":[[]]}"#,
            r#"{"metadata":{},"last_seen":"2026-01-31T09:30:00+01:00","y":{"id":"no"},"id":"b"}"#,
            r#"{"id":"c","times_seen":123456789012345678,"pattern":null,"z":-1.5}"#,
            r#"{"id":"d","times_seen":-1}"#,
            r#"{"task_type":"no id"}"#,
        ] {
            let general = parser.general(line).expect("simd-json takes it");
            assert_eq!(general, slow(line, true), "{line}");
            assert_eq!(fast(line), general.ok(), "{line}");
        }
    }

    const GOOD: &str = r#"{"id":"a\u00e9","x":[1,-2.5,"s\u00e9\n",{"k":null}],"pattern":"\"\\\/","y":{"z":[true,false,{}]},"times_seen":12,"last_seen":"2026-01-31T09:30:00.25Z","metadata":{"k":[]},"helpful": 3, "deleted_at": "", "scope" :"s","failure_msg":""}"#;

    proptest! {
        /// A good line with a few bytes changed, cut out or put in: what the fast way takes, the
        /// general one takes with the same result.
        #[test]
        fn the_fast_way_takes_nothing_that_is_wrong(
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8, prop::sample::select(
                b"{}[]\",:\\ue0123456789.+-eE truefalsn/\t\r\x00\x7fi".to_vec()
            )), 0..4),
        ) {
            let mut line = GOOD.as_bytes().to_vec();
            for (at, how, byte) in changes {
                let at = at.index(line.len());
                match how {
                    0 => line[at] = byte,
                    1 => line.insert(at, byte),
                    _ => drop(line.remove(at)),
                }
            }
            let line = String::from_utf8(line).unwrap();
            // With guesses from the good line, and without.
            let mut learned = Fast::default();
            prop_assert!(learned.parse(GOOD).is_some());
            let guessed = learned.parse(&line).map(|plain| plain.record());
            prop_assert!(learned.parse(GOOD).is_some());
            for fast in [guessed, fast(&line)].into_iter().flatten() {
                let slow = slow(&line, true);
                prop_assert_eq!(Ok(&fast), slow.as_ref());
                if let Some(general) = Parser::new().general(&line) {
                    prop_assert_eq!(Ok(fast), general);
                }
            }
        }
    }

    #[test]
    fn a_huge_line_does_not_stay_in_the_buffers() {
        let mut parser = Parser::new();
        let line = format!(r#"{{"id":"a","failure_msg":"{}"}}"#, "x".repeat(KEEP_BUFFERS_BELOW));
        // Both go the general way.
        let line = line.replace("failure_msg", "failure_ms\\u0067");
        for line in [line.replace('x', ""), line] {
            assert!(parser.parse(line.as_bytes(), true).is_ok());
            let general = parser.general.as_ref().expect("it was needed");
            assert!(general.scratch.capacity() < KEEP_BUFFERS_BELOW);
        }
    }
}
