//! A strict parser of plain lines in one pass, in front of the general one.
//!
//! It takes objects as programs write them and gives up on all else, and on anything that is
//! wrong. What it takes, the general parser takes with the same result.

use crate::grammar::{Quoted, Scan};
use crate::plain::{EXACT, FAILURE_MSG, ID, Plain, RESOLUTION, SCOPE};
use crate::record::Key;
use crate::stamp;

/// Parses lines, and guesses what stands between two values from what stood there before.
///
/// The lines of a file are most often written by one program, with the same keys in the same order.
/// So behind the value of a key there most often is the same text as in the line before, such as
/// `,"task_type":`: a comparison of a few bytes takes the place of finding and looking up a key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fast {
    /// By what comes before: the start of the line, a key that nobody knows, or one of ours.
    guesses: [Guess; 2 + Key::COUNT],
}

const START: usize = 0;
const UNKNOWN: usize = 1;

/// Is the text up to a value, and the key that it names.
#[derive(Clone, Copy, Debug, Default)]
struct Guess {
    text: [u64; WORDS],
    /// Which bits of that count; none before there was a line.
    mask: [u64; WORDS],
    len: usize,
    key: Option<Key>,
}

/// Longer texts are not guessed.
const WORDS: usize = 3;
const WINDOW: usize = WORDS * 8;

impl Fast {
    /// Parses a trimmed line; `None` leaves it to the general parser.
    pub(crate) fn parse<'a>(&mut self, line: &'a str) -> Option<Plain<'a>> {
        u32::try_from(line.len()).ok()?;
        let mut scan = Scan { text: line, at: 0 };
        let mut plain = Plain::new(line);
        scan.eat(b'{')?;
        let mut before = START;
        loop {
            let guess = &self.guesses[before];
            let key = if guess.is_at(&scan) {
                scan.at += guess.len;
                scan.skip_blanks();
                guess.key
            } else {
                let from = scan.at;
                scan.skip_blanks();
                match scan.peek()? {
                    b'}' if before != START => break,
                    b',' if before != START => {
                        scan.at += 1;
                        scan.skip_blanks();
                    }
                    _ if before == START => {}
                    _ => return None,
                }
                let name = scan.key()?;
                let key = Key::of(&line[name.start..name.end]);
                self.guesses[before] = Guess::of(&line[from..scan.at], key);
                key
            };
            match key {
                Some(key) => value(&mut scan, &mut plain, key)?,
                None => scan.skip_value()?,
            }
            before = key.map_or(UNKNOWN, |key| UNKNOWN + 1 + key.number());
        }
        (scan.at + 1 == line.len() && plain.has_id()).then_some(plain)
    }
}

impl Guess {
    fn of(text: &str, key: Option<Key>) -> Self {
        if text.len() > WINDOW {
            return Self::default();
        }
        let (mut window, mut mask) = ([0; WINDOW], [0; WINDOW]);
        window[..text.len()].copy_from_slice(text.as_bytes());
        mask[..text.len()].fill(u8::MAX);
        Self { text: words(&window), mask: words(&mask), len: text.len(), key }
    }

    fn is_at(&self, scan: &Scan<'_>) -> bool {
        // Near the end of a line there is nothing to gain.
        let Some(window) = scan.text.as_bytes().get(scan.at..scan.at + WINDOW) else {
            return false;
        };
        let window = words(window.try_into().expect("as long as a window"));
        let differs = |at: usize| (window[at] ^ self.text[at]) & self.mask[at];
        self.len > 0 && (0..WORDS).fold(0, |all, at| all | differs(at)) == 0
    }
}

fn words(window: &[u8; WINDOW]) -> [u64; WORDS] {
    let (words, _) = window.as_chunks::<8>();
    std::array::from_fn(|at| u64::from_le_bytes(words[at]))
}

/// Passes the value of a key and takes what it says.
fn value(scan: &mut Scan<'_>, plain: &mut Plain<'_>, key: Key) -> Option<()> {
    match scan.peek()? {
        b'"' => {
            let found = scan.string()?;
            text(scan, plain, key, &found)
        }
        b'0'..=b'9' => {
            let start = scan.at;
            scan.skip_number()?;
            let count = &scan.text[start..scan.at];
            match key {
                Key::TimesSeen => {
                    plain.times_seen = count.parse().ok()?;
                    plain.has_times_seen = true;
                }
                Key::Helpful => plain.helpful = count.parse().ok()?,
                Key::Harmful => plain.harmful = count.parse().ok()?,
                Key::Scope | Key::DeletedAt => {}
                _ => return None,
            }
            Some(())
        }
        // The same as an absent key.
        b'n' => scan.word("null"),
        b'{' => match key {
            Key::Metadata | Key::Scope | Key::Helpful | Key::Harmful | Key::DeletedAt => {
                scan.skip_value()
            }
            _ => None,
        },
        _ => None,
    }
}

fn text(scan: &Scan<'_>, plain: &mut Plain<'_>, key: Key, found: &Quoted) -> Option<()> {
    match key {
        Key::Id => plain.set(ID, found),
        Key::Exact(field) => plain.set(EXACT + field as usize, found),
        Key::FailureMsg => plain.set(FAILURE_MSG, found),
        Key::Resolution => plain.set(RESOLUTION, found),
        Key::Scope => plain.set(SCOPE, found),
        Key::LastSeen | Key::FirstSeen => {
            if found.is_escaped {
                return None;
            }
            let time = stamp::parse_parts(&scan.text[found.start..found.end]).ok()?;
            match key {
                Key::LastSeen => plain.last_seen = time,
                _ => plain.first_seen = time,
            }
        }
        Key::DeletedAt => plain.is_tombstone = found.start < found.end,
        Key::Helpful | Key::Harmful => {}
        Key::TimesSeen | Key::Metadata => return None,
    }
    Some(())
}
