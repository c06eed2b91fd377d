//! How many tests passed and failed, read from what the test runners print.

use std::fmt;
use std::ops::AddAssign;

/// Tests that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Counts {
    /// Returns the counts in one line of output: a closing line of `cargo test` (one for each test
    /// binary and each crate's doc tests) or the summary of nextest.
    pub(crate) fn of_line(line: &str) -> Option<Counts> {
        let line = without_colours(line);
        let line = line.trim_start();
        let nextest = line.starts_with("Summary [") && line.contains(" run: ");
        if !nextest && !line.starts_with("test result: ") {
            return None;
        }
        let mut counts = Counts::default();
        let mut before = "";
        for word in line.split_whitespace() {
            let number = before.trim_start_matches('(').parse().unwrap_or(0);
            match word.trim_end_matches([',', ';', ')']) {
                "passed" => counts.passed += number,
                "failed" | "timed" => counts.failed += number,
                _ => {}
            }
            before = word;
        }
        Some(counts)
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// Removes the colour codes that a runner writes when it is told to.
fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find("\u{1b}[") {
        plain.push_str(&rest[..start]);
        rest = rest[start..].split_once('m').map_or("", |(_, after)| after);
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_test_closes_each_binary_with_a_line() {
        let line = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.02s\n";
        assert_eq!(Counts::of_line(line), Some(Counts { passed: 12, failed: 0 }));
        let line = "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured";
        assert_eq!(Counts::of_line(line), Some(Counts { passed: 3, failed: 2 }));
    }

    #[test]
    fn nextest_closes_with_one_summary() {
        let line = "     Summary [   1.234s] 45 tests run: 42 passed (2 slow), 1 failed, 2 timed out, 5 skipped";
        assert_eq!(Counts::of_line(line), Some(Counts { passed: 42, failed: 3 }));
        let line = "\u{1b}[32m\u{1b}[1m     Summary\u{1b}[0m [   0.5s] \u{1b}[1m3\u{1b}[0m tests run: \u{1b}[1m3\u{1b}[0m \u{1b}[32mpassed\u{1b}[0m, 0 skipped";
        assert_eq!(Counts::of_line(line), Some(Counts { passed: 3, failed: 0 }));
    }

    #[test]
    fn other_lines_count_nothing() {
        for line in
            ["", "running 3 tests", "test a ... ok", "3 passed, 1 failed", "Summary: 3 passed"]
        {
            assert_eq!(Counts::of_line(line), None, "{line}");
        }
    }
}
