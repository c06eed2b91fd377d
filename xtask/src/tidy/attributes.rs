//! Attributes that switch a check off say why, and every library forbids unsafe code.

use super::Finding;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        for (line, attribute) in attributes(text) {
            if let Some(what) = fault(&attribute) {
                findings.push(Finding::new(path, line, what));
            }
        }
    }
    for folder in tree.crates() {
        for file in ["src/lib.rs", "src/main.rs"] {
            let path = format!("{folder}/{file}");
            if tree.get(&path).is_some_and(|text| !text.contains("#![forbid(unsafe_code)]")) {
                findings.push(Finding::new(&path, 0, "does not forbid unsafe code"));
            }
        }
    }
    findings
}

/// Returns each attribute as one string without white space, with the line it begins on.
fn attributes(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut open = 0_usize;
    for (index, line) in text.lines().map(str::trim).enumerate() {
        if open == 0 {
            if !line.starts_with("#[") && !line.starts_with("#![") {
                continue;
            }
            found.push((index + 1, String::new()));
        }
        let Some((_, attribute)) = found.last_mut() else { continue };
        for character in line.chars() {
            match character {
                '[' | '(' => open += 1,
                ']' | ')' => open = open.saturating_sub(1),
                _ => {}
            }
            if !character.is_whitespace() {
                attribute.push(character);
            }
            if open == 0 && character == ']' {
                break;
            }
        }
    }
    found
}

fn fault(attribute: &str) -> Option<&'static str> {
    let body = attribute.trim_start_matches(['#', '!', '[']);
    if body.starts_with("ignore") && !body.starts_with("ignore=\"") {
        return Some("`#[ignore]` without a reason");
    }
    let switches_off = ["allow(", "expect("]
        .iter()
        .any(|word| body.match_indices(word).any(|(at, _)| at == 0 || body[..at].ends_with(',')));
    // `reason=""` says nothing.
    let reason = body.split_once("reason=\"").is_some_and(|(_, reason)| !reason.starts_with('"'));
    (switches_off && !reason).then_some("`allow` or `expect` without a reason")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check(&Tree::of(&[("a.rs", text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_reason_is_asked_for() {
        assert_eq!(lines("#[ignore]\nfn a() {}\n"), [1]);
        assert_eq!(lines("\n#![allow(dead_code)]\n"), [2]);
        assert_eq!(lines("#[expect(dead_code, reason = \"\")]\n"), [1]);
        assert_eq!(lines("#[cfg_attr(test, allow(dead_code))]\n"), [1]);
        assert_eq!(lines("    #[allow(\n        dead_code,\n    )]\n    fn a() {}\n"), [1]);
    }

    #[test]
    fn with_a_reason_it_passes() {
        assert!(lines("#[ignore = \"needs a server\"]\n").is_empty());
        assert!(lines("#[allow(\n    dead_code,\n    reason = \"a table\"\n)]\n").is_empty());
        assert!(lines("#[derive(Debug)]\n#[doc = \"allow(x)\"]\nlet a = [1];\n").is_empty());
    }

    #[test]
    fn a_crate_that_allows_unsafe_code_is_found() {
        let manifest = ("crates/a/Cargo.toml", "");
        let ok = "//! A.\n#![forbid(unsafe_code)]\n";
        assert!(check(&Tree::of(&[manifest, ("crates/a/src/lib.rs", ok)])).is_empty());
        assert_eq!(check(&Tree::of(&[manifest, ("crates/a/src/lib.rs", "//! A.\n")])).len(), 1);
        assert_eq!(check(&Tree::of(&[manifest, ("crates/a/src/main.rs", "//! A.\n")])).len(), 1);
    }
}
