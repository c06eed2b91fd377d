//! A file of lessons that is the same on every machine.

use std::fmt::Write as _;

/// What compilers and tools say; `@` is an identifier, `/` a path, `#` a number, `$` a file name.
const TEMPLATES: [&str; 24] = [
    "error[E0425]: cannot find value `@` in this scope in /:#:#",
    "error[E0308]: mismatched types: expected `@`, found `@` at /:#",
    "error[E0502]: cannot borrow `@` as mutable because it is also borrowed as immutable /:#:#",
    "error[E0433]: failed to resolve: use of undeclared crate or module `@` --> /:#",
    "error[E0599]: no method named `@` found for struct `@` in the current scope /:#:#",
    "TS2345: Argument of type '@' is not assignable to parameter of type '@' in /(#,#)",
    "TS2304: Cannot find name '@'. /(#,#)",
    "linking with `cc` failed: exit status: #; ld: cannot find -l@",
    "linker: out of memory while linking @, # MB of # MB used",
    "thread 'main' panicked at /:#:#: called `Option::unwrap()` on a `None` value in @",
    "thread '@' panicked at /:#: index out of bounds: the len is # but the index is #",
    "AssertionError: expected # to equal # in test @ (/:#)",
    "ImportError: cannot import name '@' from '@' (/)",
    "ModuleNotFoundError: No module named '@'",
    "KeyError: '@' while reading / line #",
    "request to / timed out after #ms (attempt # of #) for @",
    "connection refused (os error 111): 127.0.0.1:# while calling @",
    "fatal: could not read from remote repository; / does not exist, retry # of #",
    "CONFLICT (content): merge conflict in /; both sides changed @",
    "permission denied (os error 13): / is owned by user #",
    "undefined reference to `@' in function `@': /:#: collect2: ld returned # exit status",
    "panic: runtime error: invalid memory address or nil pointer dereference in @ at /:#",
    "Überlauf in @: Wert # ist größer als # (/:#)",
    "test @ did not finish within # seconds; last output: \"waiting for @\"",
];

/// Syllables of names; three of them make a word, and the first few are in many.
const SYLLABLES: [&str; 32] = [
    "re", "con", "in", "par", "se", "tok", "en", "buf", "fer", "stre", "am", "que", "ry", "ses",
    "sion", "ca", "che", "in", "dex", "wri", "ter", "ser", "ver", "mo", "dul", "gra", "ph", "sche",
    "ma", "co", "lumn", "lock",
];

/// As many as were counted in the sources of some hundred published crates.
const IDENTIFIERS: usize = 71_637;
const PATHS: usize = 4_001;

/// Writes lessons one after the other.
///
/// Values repeat as they do in life: a few are in most lessons, most are in a few.
#[derive(Debug)]
pub struct Corpus {
    state: u64,
}

impl Corpus {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed | 1 }
    }

    /// Returns a file of lessons with the ids `lesson-0000000` and on, oldest first.
    pub fn file(&mut self, lessons: usize) -> String {
        let mut text = String::with_capacity(lessons * 540);
        for number in 0..lessons {
            self.line(number, &mut text);
        }
        text
    }

    /// Appends one line.
    pub fn line(&mut self, number: usize, out: &mut String) {
        let (message, pattern) = self.message();
        let task = self.skewed(24);
        let activity = self.skewed(12);
        let failure = self.skewed(40);
        let times = 1 + self.skewed(500);
        let (day, hour) = (number / 86_400, number / 3600 % 24);
        let (minute, second) = (number / 60 % 60, number % 60);
        let clock = format!("{hour:02}:{minute:02}:{second:02}");
        let resolution = self.resolution();
        let line = serde_json::json!({
            "id": format!("lesson-{number:07}"),
            "task_type": format!("task-{task}"),
            "activity_type": format!("activity-{activity}"),
            "failure_type": format!("failure-{failure}"),
            "failure_msg": message,
            "resolution": resolution,
            "pattern": format!("pattern-{pattern}-{failure}"),
            "times_seen": times,
            "last_seen": format!("2026-02-{:02}T{clock}Z", 1 + day % 28),
            "first_seen": format!("2026-01-{:02}T{clock}Z", 1 + day % 28),
            "metadata": {"repo": format!("org/repo-{}", self.skewed(300)), "agent": self.skewed(50)},
        });
        // Writing to a string does not fail.
        let _ = writeln!(out, "{line}");
    }

    /// Returns a message, and the number of its template.
    pub fn message(&mut self) -> (String, usize) {
        let template = self.skewed(TEMPLATES.len());
        let mut text = String::with_capacity(120);
        for c in TEMPLATES[template].chars() {
            match c {
                '@' => self.identifier(&mut text),
                '/' => self.path(&mut text),
                '#' => {
                    let number = self.below(900);
                    let _ = write!(text, "{number}");
                }
                other => text.push(other),
            }
        }
        (text, template)
    }

    fn resolution(&mut self) -> String {
        let mut text = String::from("check ");
        self.identifier(&mut text);
        text.push_str(" first, then change ");
        self.path(&mut text);
        text.push_str(" and run the tests of ");
        self.identifier(&mut text);
        text
    }

    fn identifier(&mut self, out: &mut String) {
        let number = self.skewed(IDENTIFIERS);
        word(number * 7 % 1009, out);
        out.push('_');
        word(number, out);
    }

    fn path(&mut self, out: &mut String) {
        let number = self.skewed(PATHS);
        out.push_str("crates/");
        word(number * 5 % 307, out);
        out.push_str("/src/");
        word(number, out);
        out.push_str(".rs");
    }

    /// Returns a number below `end`; the product of two draws makes small ones likely.
    fn skewed(&mut self, end: usize) -> usize {
        let (a, b) = (self.below(end), self.below(end));
        a * b / end
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        usize::try_from(self.state >> 33).unwrap_or(0) % end.max(1)
    }
}

/// Returns the word of a number; 32,768 are different.
fn word(number: usize, out: &mut String) {
    let mut rest = number;
    for _ in 0..3 {
        out.push_str(SYLLABLES[rest % SYLLABLES.len()]);
        rest /= SYLLABLES.len();
    }
}
