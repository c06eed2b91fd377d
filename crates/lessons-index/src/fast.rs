//! A strict parser of plain lines in one pass, in front of the general one.
//!
//! It takes objects as programs write them and gives up on all else, and on anything that is
//! wrong. What it takes, the general parser takes with the same result.

use crate::grammar::Scan;
use crate::plain::{EXACT, FAILURE_MSG, ID, Plain, RESOLUTION, SCOPE};
use crate::record::Key;
use crate::stamp::{self, Day, Parts};

/// Parses lines, and guesses what stands between two values from what stood there before.
///
/// The lines of a file are most often written by one program, with the same keys in the same order.
/// So behind the value of a key there most often is the same text as in the line before, such as
/// `,"task_type":`: a comparison of a few bytes takes the place of finding and looking up a key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fast {
    /// By what comes before: the start of the line, a key that nobody knows, or one of ours.
    guesses: [Guess; 2 + Key::COUNT],
    days: Days,
}

/// Remembers the days of times: most lines have those of the line before.
#[derive(Clone, Copy, Debug, Default)]
struct Days {
    last_seen: Day,
    first_seen: Day,
}

const START: usize = 0;
const UNKNOWN: usize = 1;

/// Is the text up to a value, and what that is.
#[derive(Clone, Copy, Debug, Default)]
struct Guess {
    text: [u64; WORDS],
    /// Which bits of that count; none before there was a line.
    mask: [u64; WORDS],
    len: usize,
    wanted: Wanted,
    /// The guess for what comes behind the value.
    next: usize,
}

/// Says what is to be done with a value.
#[derive(Clone, Copy, Debug, Default)]
enum Wanted {
    /// Of a key that nobody knows.
    #[default]
    Nothing,
    /// By the number of the text.
    Text(usize),
    LastSeen,
    FirstSeen,
    Other(Key),
}

/// Longer texts are not guessed.
const WORDS: usize = 3;
const WINDOW: usize = WORDS * 8;

impl Fast {
    /// Parses a trimmed line; `None` leaves it to the general parser.
    pub(crate) fn parse<'a>(&mut self, line: &'a str) -> Option<Plain<'a>> {
        let mut plain = Plain::new(line);
        let len = self.parse_first(&mut plain)?;
        (len == line.len()).then_some(plain)
    }

    /// Parses the line that a text begins with and returns how long it is; `None` leaves it to the
    /// general parser. Somebody else has to see that there is nothing behind it.
    #[inline]
    pub(crate) fn parse_first(&mut self, plain: &mut Plain<'_>) -> Option<usize> {
        let Self { guesses, days } = self;
        let mut scan = Scan { text: plain.line, at: 0 };
        scan.eat(b'{')?;
        let mut before = START;
        loop {
            let learned;
            let mut guess = &guesses[before];
            if guess.is_at(scan) {
                scan.at += guess.len;
            } else {
                let from = scan.at;
                scan.skip_blanks();
                if before != START && scan.peek()? == b'}' {
                    break;
                }
                (learned, scan.at) = Guess::read(scan, from, before == START)?;
                if learned.len > 0 {
                    guesses[before] = learned;
                }
                guess = &learned;
            }
            if scan.peek()? <= b' ' {
                scan.skip_blanks();
            }
            match guess.wanted {
                Wanted::Text(text) => match scan.peek()? {
                    b'"' => plain.set(text, scan.string()?),
                    // The same as an absent key.
                    b'n' => scan.word("null")?,
                    _ => return None,
                },
                Wanted::LastSeen => {
                    scan.at = time(scan, &mut days.last_seen, &mut plain.last_seen)?;
                }
                Wanted::FirstSeen => {
                    scan.at = time(scan, &mut days.first_seen, &mut plain.first_seen)?;
                }
                Wanted::Other(key) => scan.at = value(scan, plain, key)?,
                Wanted::Nothing => scan.at = scan.skip_value()?,
            }
            before = guess.next;
        }
        plain.has_id().then_some(scan.at + 1)
    }
}

impl Guess {
    /// Reads up to the next value without any guess, and returns where that is. Before the scan are
    /// blanks from a place on.
    fn read(mut scan: Scan<'_>, from: usize, is_first: bool) -> Option<(Self, usize)> {
        if !is_first {
            scan.eat(b',')?;
            scan.skip_blanks();
        }
        let name = scan.key()?;
        let key = Key::of(&scan.text[name.start..name.end]);
        Some((Self::of(&scan.text[from..scan.at], key), scan.at))
    }

    fn of(text: &str, key: Option<Key>) -> Self {
        let (mut window, mut mask) = ([0; WINDOW], [0; WINDOW]);
        let len = if text.len() > WINDOW { 0 } else { text.len() };
        window[..len].copy_from_slice(&text.as_bytes()[..len]);
        mask[..len].fill(u8::MAX);
        let wanted = match key {
            None => Wanted::Nothing,
            Some(Key::Id) => Wanted::Text(ID),
            Some(Key::Exact(field)) => Wanted::Text(EXACT + field as usize),
            Some(Key::FailureMsg) => Wanted::Text(FAILURE_MSG),
            Some(Key::Resolution) => Wanted::Text(RESOLUTION),
            Some(Key::LastSeen) => Wanted::LastSeen,
            Some(Key::FirstSeen) => Wanted::FirstSeen,
            Some(key) => Wanted::Other(key),
        };
        let next = key.map_or(UNKNOWN, |key| UNKNOWN + 1 + key.number());
        Self { text: words(&window), mask: words(&mask), len, wanted, next }
    }

    #[inline]
    fn is_at(&self, scan: Scan<'_>) -> bool {
        // Near the end of all there is nothing to gain.
        let rest = scan.text.as_bytes().get(scan.at..).unwrap_or_default();
        let Some(window) = rest.first_chunk() else { return false };
        let window = words(window);
        let differs = |at: usize| (window[at] ^ self.text[at]) & self.mask[at];
        self.len > 0 && differs(0) | differs(1) | differs(2) == 0
    }
}

#[inline]
fn words(window: &[u8; WINDOW]) -> [u64; WORDS] {
    let (words, _) = window.as_chunks::<8>();
    [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]), u64::from_le_bytes(words[2])]
}

/// Takes a time, and returns where it ends.
#[expect(clippy::inline_always, reason = "the place stays in a register")]
#[inline(always)]
fn time(scan: Scan<'_>, day: &mut Day, time: &mut Parts) -> Option<usize> {
    let text = scan.text.as_bytes().get(scan.at..)?;
    if let Some((b'"', text)) = text.split_first()
        && let Some((parsed, len)) = day.parse(text)
        && text.get(len) == Some(&b'"')
    {
        *time = parsed;
        return Some(scan.at + len + 2);
    }
    other_time(scan, time)
}

/// Takes a time in another form, and returns where it ends.
fn other_time(mut scan: Scan<'_>, time: &mut Parts) -> Option<usize> {
    if scan.peek()? == b'n' {
        // The same as an absent key.
        scan.word("null")?;
        return Some(scan.at);
    }
    let found = scan.string()?;
    if found.is_escaped {
        return None;
    }
    *time = stamp::parse_parts(&scan.text[found.start..found.end]).ok()?;
    Some(scan.at)
}

/// Takes what the value of a key says, and returns where it ends.
fn value(mut scan: Scan<'_>, plain: &mut Plain<'_>, key: Key) -> Option<usize> {
    match scan.peek()? {
        b'0'..=b'9' => match key {
            Key::TimesSeen => {
                plain.times_seen = scan.count()?;
                plain.has_times_seen = true;
            }
            Key::Helpful => plain.helpful = scan.count()?,
            Key::Harmful => plain.harmful = scan.count()?,
            Key::Scope | Key::DeletedAt => scan.skip_number()?,
            _ => return None,
        },
        b'"' => match key {
            Key::Scope => plain.set(SCOPE, scan.string()?),
            Key::DeletedAt => {
                let found = scan.string()?;
                plain.is_tombstone = found.start < found.end;
            }
            Key::Helpful | Key::Harmful => drop(scan.string()?),
            _ => return None,
        },
        // The same as an absent key.
        b'n' => scan.word("null")?,
        b'{' => match key {
            Key::Metadata | Key::Scope | Key::Helpful | Key::Harmful | Key::DeletedAt => {
                scan.at = scan.skip_flat().or_else(|| scan.skip_value())?;
            }
            _ => return None,
        },
        _ => return None,
    }
    Some(scan.at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_where_its_object_does() {
        let text = "{\"id\":\"a\"}\n{\"id\":\"b\" }\n{\"id\":\n\"c\"}\n";
        let mut fast = Fast::default();
        for (at, len) in [(0, Some(10)), (11, Some(11)), (23, None)] {
            assert_eq!(fast.parse_first(&mut Plain::new(&text[at..])), len, "{at}");
        }
        assert!(fast.parse("{\"id\":\"a\"} ").is_none());
    }

    #[test]
    fn null_leaves_what_a_repeated_key_said() {
        let line = r#"{"id":"a","last_seen":"2026-01-31T09:30:00Z","last_seen":null,"id":null}"#;
        let record = Fast::default().parse(line).unwrap().record();
        assert_eq!(record.id, "a");
        assert_eq!(record.last_seen, "2026-01-31T09:30:00Z".parse().ok());
    }
}
