//! Who may know whom: a domain crate never depends on another domain crate; only the program
//! composes them.

use super::Finding;
use crate::metadata::Package;

pub(super) fn check(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages.iter().filter(|package| package.source.is_none()) {
        for other in package.local.iter().filter(|other| !may_know(&package.name, other)) {
            let what = format!("`{}` must not depend on `{other}`", package.name);
            findings.push(Finding::new("Cargo.toml", 0, what));
        }
    }
    findings
}

fn may_know(from: &str, to: &str) -> bool {
    let ends = ["batchyard", "benches", "conformance", "xtask"];
    match from {
        // For its tests, with a feature of its own.
        _ if from == to => true,
        "batchyard" | "benches" | "conformance" => !ends.contains(&to),
        "batch-core" | "llm-simulator" | "xtask" => false,
        "action-cache" | "history-prune" => matches!(to, "batch-core" | "content-store"),
        "git-batch" => matches!(to, "batch-core" | "batch-journal"),
        // The simulator is for its tests.
        "llm-batch" => matches!(to, "batch-core" | "batch-journal" | "llm-simulator"),
        _ => to == "batch-core",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(from: &str, to: &str) -> usize {
        check(&[Package {
            name: from.to_owned(),
            local: vec![to.to_owned()],
            ..Package::default()
        }])
        .len()
    }

    #[test]
    fn domain_crates_know_the_engine_only() {
        for (from, to) in [
            ("git-batch", "batch-core"),
            ("git-batch", "batch-journal"),
            ("lessons-index", "batch-core"),
            ("action-cache", "content-store"),
            ("batchyard", "git-batch"),
            ("benches", "llm-batch"),
            ("git-batch", "git-batch"),
        ] {
            assert_eq!(findings(from, to), 0, "{from} -> {to}");
        }
    }

    #[test]
    fn everything_else_is_found() {
        for (from, to) in [
            ("git-batch", "llm-batch"),
            ("lessons-index", "prompt-templates"),
            ("batch-core", "git-batch"),
            ("task-dispatch", "content-store"),
            ("prompt-templates", "batch-journal"),
            ("some-new-crate", "git-batch"),
            ("batchyard", "benches"),
            ("benches", "batchyard"),
            ("xtask", "batch-core"),
            ("llm-simulator", "llm-batch"),
        ] {
            assert_eq!(findings(from, to), 1, "{from} -> {to}");
        }
    }

    #[test]
    fn packages_from_elsewhere_are_their_own_affair() {
        let foreign = Package {
            source: Some("x".to_owned()),
            local: vec!["y".to_owned()],
            ..Package::default()
        };
        assert!(check(&[foreign]).is_empty());
    }
}
