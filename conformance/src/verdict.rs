//! What a test says of an engine.

use std::fmt;

/// The verdict on one engine in one test, with what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It does what a caller may expect.
    Pass(String),
    /// It does not.
    Fail(String),
    /// It has nothing that the test could try.
    Absent(String),
}

impl Verdict {
    pub(crate) fn of(holds: bool, seen: impl Into<String>) -> Verdict {
        if holds { Verdict::Pass(seen.into()) } else { Verdict::Fail(seen.into()) }
    }

    pub(crate) fn absent(why: &str) -> Verdict {
        Verdict::Absent(why.to_owned())
    }

    /// Reads the line that [`Display`](fmt::Display) writes.
    pub(crate) fn parse(line: &str) -> Option<Verdict> {
        let (word, seen) = line.trim_end_matches('\n').split_once('\t')?;
        let seen = seen.to_owned();
        match word {
            "pass" => Some(Verdict::Pass(seen)),
            "fail" => Some(Verdict::Fail(seen)),
            "absent" => Some(Verdict::Absent(seen)),
            _ => None,
        }
    }

    /// Returns the cell of the table.
    pub(crate) fn cell(&self) -> String {
        match self {
            Verdict::Pass(seen) if seen.is_empty() => "ok".to_owned(),
            Verdict::Pass(seen) => format!("ok: {seen}"),
            Verdict::Fail(seen) => format!("**{seen}**"),
            Verdict::Absent(why) => format!("- ({why})"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Pass(seen) => write!(f, "pass\t{seen}"),
            Verdict::Fail(seen) => write!(f, "fail\t{seen}"),
            Verdict::Absent(why) => write!(f, "absent\t{why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_verdict_is_read_back() {
        for verdict in
            [Verdict::of(true, ""), Verdict::of(false, "lost"), Verdict::absent("no keys")]
        {
            assert_eq!(Verdict::parse(&format!("{verdict}\n")), Some(verdict));
        }
        assert_eq!(Verdict::parse("thread panicked"), None);
    }
}
