//! Attributes that switch a check off say why, and every library forbids unsafe code but in the one
//! file that needs it.

use super::Finding;
use super::tree::Tree;

/// The files that may use unsafe code. A library that has one denies it everywhere else.
const UNSAFE: [&str; 3] = [
    // Values are handed over between threads without a lock for each; loom tries every order.
    "crates/batch-core/src/slot.rs",
    // An allocator can be counted only by being one; they are in no program that is shipped.
    "benches/src/alloc.rs",
    "crates/batch-core/tests/soak.rs",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        for (line, attribute) in attributes(text) {
            if let Some(what) = fault(&attribute) {
                findings.push(Finding::new(path, line, what));
            }
            if permits_unsafe(&attribute) && !UNSAFE.contains(&path) {
                findings.push(Finding::new(path, line, "permits unsafe code"));
            }
        }
    }
    for folder in tree.crates() {
        let word = if has_unsafe(folder) { "deny" } else { "forbid" };
        let switch = format!("#![{word}(unsafe_code)]");
        for file in ["src/lib.rs", "src/main.rs"] {
            let path = format!("{folder}/{file}");
            if tree.get(&path).is_some_and(|text| !text.lines().any(|line| line == switch)) {
                findings.push(Finding::new(&path, 0, format!("does not say `{switch}`")));
            }
        }
    }
    findings
}

/// Whether a library has a file that may use unsafe code.
fn has_unsafe(folder: &str) -> bool {
    let source = format!("{folder}/src/");
    UNSAFE.iter().any(|path| path.starts_with(&source))
}

/// Whether an attribute names the lint in order to weaken it.
fn permits_unsafe(attribute: &str) -> bool {
    ["allow(", "expect(", "warn("].iter().any(|word| {
        attribute.match_indices(word).any(|(at, _)| {
            let list = attribute[at + word.len()..].split_once(')').map_or("", |(list, _)| list);
            list.split(',').any(|lint| lint == "unsafe_code")
        })
    })
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
        let weak = "//! A.\n#![deny(unsafe_code)]\n";
        assert_eq!(check(&Tree::of(&[manifest, ("crates/a/src/lib.rs", weak)])).len(), 1);
    }

    #[test]
    fn only_the_listed_files_may_permit_unsafe_code() {
        let reason = "reason = \"it is quick\"";
        let allow = format!("#![allow(dead_code, unsafe_code, {reason})]\n");
        let found = |path| check(&Tree::of(&[(path, &allow)])).len();
        assert_eq!(found("crates/batch-core/src/slot.rs"), 0);
        assert_eq!(found("benches/src/alloc.rs"), 0);
        assert_eq!(found("crates/batch-core/src/slot/waiters.rs"), 1);
        assert_eq!(found("crates/batch-journal/src/slot.rs"), 1);
        assert_eq!(found("xtask/src/slot.rs"), 1);
        for other in [
            format!("#[expect(unsafe_code, {reason})]\nfn a() {{}}\n"),
            "    #[cfg_attr(test, warn(unsafe_code))]\n    fn a() {}\n".to_owned(),
        ] {
            assert_eq!(check(&Tree::of(&[("crates/a/src/b.rs", &other)])).len(), 1, "{other}");
        }
        assert_eq!(lines("#![deny(unsafe_code)]\n#[doc = \"no unsafe_code\"]\n"), [0; 0]);
    }

    #[test]
    fn a_crate_with_a_file_of_unsafe_code_denies_it_elsewhere() {
        let manifest = ("crates/batch-core/Cargo.toml", "");
        let root =
            |text| check(&Tree::of(&[manifest, ("crates/batch-core/src/lib.rs", text)])).len();
        assert_eq!(root("//! A.\n#![deny(unsafe_code)]\n"), 0);
        assert_eq!(root("//! A.\n"), 1);
        // So the file could not permit it.
        assert_eq!(root("//! A.\n#![forbid(unsafe_code)]\n"), 1);
    }
}
