//! How long a source file may be.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::Tree;

/// Files that are longer, each with its reason: `path: reason`, one a line.
const LIST: &str = "xtask/long-files.txt";

/// Lines above which a file should be looked at again.
const LONG: usize = 400;

/// Lines above which a file needs a reason in [`LIST`].
const TOO_LONG: usize = 600;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut reasons = BTreeMap::new();
    for (index, line) in tree.get(LIST).unwrap_or_default().lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once(": ").filter(|(_, reason)| !reason.trim().is_empty()) {
            Some((path, _)) => drop(reasons.insert(path, index + 1)),
            None => findings.push(Finding::new(LIST, index + 1, "not `path: reason`")),
        }
    }
    for (path, text) in tree.ending(".rs") {
        let lines = text.lines().count();
        if lines > TOO_LONG && reasons.remove(path).is_none() {
            let what = format!("{lines} lines; over {TOO_LONG} needs a reason in {LIST}");
            findings.push(Finding::new(path, 0, what));
        }
    }
    for (path, line) in reasons {
        findings.push(Finding::new(
            LIST,
            line,
            format!("`{path}` is no file over {TOO_LONG} lines"),
        ));
    }
    findings
}

/// Returns the files that are long, but not too long, with their lines.
pub(super) fn long(tree: &Tree) -> impl Iterator<Item = (&str, usize)> {
    let lengths = tree.ending(".rs").map(|(path, text)| (path, text.lines().count()));
    lengths.filter(|(_, lines)| (LONG + 1..=TOO_LONG).contains(lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_over_the_limit_needs_a_reason() {
        let (fits, over) = ("x\n".repeat(600), "x\n".repeat(601));
        assert!(check(&Tree::of(&[("a.rs", &fits)])).is_empty());
        assert_eq!(check(&Tree::of(&[("a.rs", &over)])).len(), 1);
        assert!(
            check(&Tree::of(&[("a.rs", &over), (LIST, "# why\na.rs: one algorithm\n")])).is_empty()
        );
        assert_eq!(check(&Tree::of(&[("a.rs", &over), (LIST, "a.rs: \n")])).len(), 2);
    }

    #[test]
    fn a_reason_for_a_file_that_is_not_long_is_stale() {
        assert_eq!(check(&Tree::of(&[("a.rs", "x\n"), (LIST, "a.rs: was long\n")])).len(), 1);
        assert_eq!(check(&Tree::of(&[(LIST, "gone.rs: was long\n")])).len(), 1);
    }

    #[test]
    fn long_files_are_noted() {
        let long_text = "x\n".repeat(401);
        let tree = Tree::of(&[("a.rs", &long_text), ("b.rs", "x\n")]);
        assert_eq!(long(&tree).collect::<Vec<_>>(), [("a.rs", 401)]);
    }
}
