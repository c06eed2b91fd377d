//! Decisions are numbered without a gap and say what was decided between what.

use super::Finding;
use super::tree::Tree;

const FOLDER: &str = "docs/decisions/";
const SECTIONS: [&str; 3] = ["## Context", "## Options", "## Decision"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let pages = tree
        .ending(".md")
        .filter_map(|(path, text)| Some((path, path.strip_prefix(FOLDER)?, text)));
    for (index, (path, name, text)) in pages.enumerate() {
        let number = format!("{:04}-", index + 1);
        if name.strip_prefix(&number).is_none_or(|title| title == ".md") {
            findings.push(Finding::new(
                path,
                0,
                format!("is named `{number}title.md` by its place"),
            ));
        }
        for section in SECTIONS {
            let mut lines = text.lines().skip_while(|line| *line != section).skip(1);
            let says =
                lines.find(|line| !line.is_empty()).is_some_and(|line| !line.starts_with("## "));
            if !says {
                findings.push(Finding::new(path, 0, format!("`{section}` is missing or empty")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# T\n\n## Context\n\nA.\n\n## Options\n\nB.\n\n## Decision\n\nC.\n";

    #[test]
    fn numbered_pages_with_all_sections_pass() {
        let files = [("docs/decisions/0001-a.md", PAGE), ("docs/decisions/0002-b.md", PAGE)];
        assert!(check(&Tree::of(&files)).is_empty());
    }

    #[test]
    fn a_gap_a_double_and_a_missing_title_are_found() {
        let two = |a, b| check(&Tree::of(&[(a, PAGE), (b, PAGE)])).len();
        assert_eq!(two("docs/decisions/0001-a.md", "docs/decisions/0003-b.md"), 1);
        assert_eq!(two("docs/decisions/0001-a.md", "docs/decisions/0001-b.md"), 1);
        assert_eq!(two("docs/decisions/0001-a.md", "docs/decisions/0002-.md"), 1);
    }

    #[test]
    fn a_missing_or_empty_section_is_found() {
        let without = PAGE.replace("## Options", "## Ideas");
        assert_eq!(check(&Tree::of(&[("docs/decisions/0001-a.md", &without)])).len(), 1);
        let empty = PAGE.replace("A.\n\n", "");
        assert_eq!(check(&Tree::of(&[("docs/decisions/0001-a.md", &empty)])).len(), 1);
    }
}
