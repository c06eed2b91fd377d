//! House rules that no compiler knows. Each check is a function from the files to its findings, so
//! that its tests can hand it a faulty file.

mod attributes;
mod boundaries;
mod decisions;
mod errors_section;
mod layout;
mod length;
mod licences;
mod links;
mod parity;
mod text;
mod tree;

use std::fmt;
use std::path::Path;

use crate::{Failure, metadata};
use tree::Tree;

/// A rule that a file breaks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    file: String,
    /// Counted from 1; 0 when the file as a whole is meant.
    line: usize,
    what: String,
}

impl Finding {
    fn new(file: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { file: file.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.what),
            line => write!(f, "{}:{line}: {}", self.file, self.what),
        }
    }
}

/// Checks the whole tree and prints what breaks a rule.
pub(crate) fn tidy(root: &Path) -> Result<(), Failure> {
    let tree = Tree::load(root)?;
    let packages = metadata::packages(root)?;
    let mut findings = Vec::new();
    findings.extend(text::check(&tree));
    findings.extend(length::check(&tree));
    findings.extend(attributes::check(&tree));
    findings.extend(errors_section::check(&tree));
    findings.extend(layout::check(&tree));
    findings.extend(links::check(&tree));
    findings.extend(decisions::check(&tree));
    findings.extend(parity::check(&tree));
    findings.extend(boundaries::check(&packages));
    findings.extend(licences::check(&tree, &packages));
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    for (file, lines) in length::long(&tree) {
        println!("note: {file} has {lines} lines; can it be two?");
    }
    match findings.len() {
        0 => {
            println!("tidy: {} files, {} packages", tree.len(), packages.len());
            Ok(())
        }
        count => Err(format!("tidy: {count} findings").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_file_and_line() {
        assert_eq!(Finding::new("a.rs", 3, "no").to_string(), "a.rs:3: no");
        assert_eq!(Finding::new("a.rs", 0, "no").to_string(), "a.rs: no");
    }
}
