//! Licences and sources of every dependency: those that `deny.toml` allows, and the registry of
//! cargo itself.

use super::Finding;
use super::tree::Tree;
use crate::flat;
use crate::metadata::Package;

/// How the lock file names the default registry. An identifier that cargo writes, not an address
/// that anything here asks.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

const FILE: &str = "deny.toml";

pub(super) fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let list = tree.get(FILE).and_then(|text| flat::strings(text, "licenses", "allow"));
    let Some(allowed) = list else {
        return vec![Finding::new(FILE, 0, "has no `allow` under `[licenses]`")];
    };
    let mut findings = Vec::new();
    for package in packages {
        let named = format!("{} {}", package.name, package.version);
        if package.source.as_deref().is_some_and(|source| source != REGISTRY) {
            findings.push(Finding::new(
                "Cargo.lock",
                0,
                format!("{named} is not from the registry"),
            ));
        }
        match package.license.as_deref() {
            Some(license) if is_allowed(license, &allowed) => {}
            Some(license) => {
                let what = format!("{named} is licensed `{license}`, which {FILE} does not allow");
                findings.push(Finding::new("Cargo.lock", 0, what));
            }
            None => {
                findings.push(Finding::new("Cargo.lock", 0, format!("{named} names no licence")));
            }
        }
    }
    for license in &allowed {
        let others: Vec<String> =
            allowed.iter().filter(|other| *other != license).cloned().collect();
        let mut licenses = packages.iter().filter_map(|package| package.license.as_deref());
        if licenses.all(|one| is_allowed(one, &others)) {
            findings.push(Finding::new(
                FILE,
                0,
                format!("allows `{license}`, which nothing needs"),
            ));
        }
    }
    findings
}

/// Whether a licence expression can be met by allowed licences. The old `/` means `OR`.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let met = any(&words, &mut at, allowed);
    met && at == words.len()
}

/// `all OR all ...`; `OR` binds least.
fn any(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = all(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all(words, at, allowed);
    }
    met
}

/// `one AND one ...`
fn all(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, allowed);
    }
    met
}

/// A licence, one with an exception, or an expression in brackets.
fn one(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let Some(&word) = words.get(*at) else { return false };
    *at += 1;
    if word == "(" {
        let met = any(words, at, allowed);
        let closed = words.get(*at) == Some(&")");
        *at += 1;
        return met && closed;
    }
    if words.get(*at) == Some(&"WITH") {
        let exception = words.get(*at + 1).copied().unwrap_or_default();
        *at += 2;
        return allowed.contains(&format!("{word} WITH {exception}"));
    }
    allowed.iter().any(|license| license == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(license: Option<&str>, source: Option<&str>) -> Package {
        Package {
            name: "a".to_owned(),
            version: "1.0.0".to_owned(),
            license: license.map(str::to_owned),
            source: source.map(str::to_owned),
            ..Package::default()
        }
    }

    fn whats(allow: &str, packages: &[Package]) -> Vec<String> {
        let tree = Tree::of(&[(FILE, allow)]);
        check(&tree, packages).iter().map(ToString::to_string).collect()
    }

    const MIT: &str = "[licenses]\nallow = [\"MIT\"]\n";

    #[test]
    fn an_expression_is_met_by_what_is_allowed() {
        let allowed = ["MIT".to_owned(), "Unicode-3.0".to_owned()];
        for (expression, met) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("Apache-2.0/MIT", true),
            ("GPL-3.0 AND MIT", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(GPL-3.0 OR Apache-2.0) AND MIT", false),
            ("MIT OR GPL-3.0 AND Apache-2.0", true),
            ("MIT WITH LLVM-exception", false),
            ("Apache-2.0 WITH LLVM-exception OR MIT", true),
            ("(MIT", false),
            ("MIT MIT", false),
            ("", false),
        ] {
            assert_eq!(is_allowed(expression, &allowed), met, "{expression}");
        }
    }

    #[test]
    fn a_licence_that_is_not_allowed_is_found() {
        assert!(whats(MIT, &[package(Some("MIT"), Some(REGISTRY))]).is_empty());
        assert!(whats(MIT, &[package(Some("MIT"), None)]).is_empty());
        let found = whats(
            MIT,
            &[
                package(Some("MIT"), None),
                package(Some("GPL-3.0"), Some(REGISTRY)),
                package(None, None),
            ],
        );
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn another_source_is_found() {
        for source in ["git+https://example.org/a", "registry+https://example.org/index"] {
            assert_eq!(whats(MIT, &[package(Some("MIT"), Some(source))]).len(), 1, "{source}");
        }
    }

    #[test]
    fn a_list_that_is_missing_or_too_wide_is_found() {
        assert_eq!(whats("", &[]).len(), 1);
        let wide = "[licenses]\nallow = [\"MIT\", \"ISC\"]\n";
        let found = whats(wide, &[package(Some("MIT"), None)]);
        assert_eq!(found, ["deny.toml: allows `ISC`, which nothing needs"]);
    }
}
