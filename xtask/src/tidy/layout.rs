//! What every crate and the README have.

use super::Finding;
use super::tree::Tree;

/// What a newcomer types, within the first lines of the README.
const COMMANDS: [&str; 2] = ["cargo run --release -- run examples/fleet/fleet.toml", "cargo test"];

/// How far down the README a newcomer looks.
const FIRST_LINES: usize = 40;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending("Cargo.toml").filter(|(path, _)| *path != "Cargo.toml") {
        if !inherits_lints(text) {
            findings.push(Finding::new(path, 0, "does not inherit the lints of the workspace"));
        }
    }
    for folder in tree.crates() {
        for name in ["README.md", "CHANGELOG.md"] {
            let path = format!("{folder}/{name}");
            // A heading alone is no page.
            if tree
                .get(&path)
                .is_none_or(|text| text.lines().filter(|line| !line.is_empty()).count() < 2)
            {
                findings.push(Finding::new(&path, 0, "missing or empty"));
            }
        }
    }
    let readme = tree.get("README.md").unwrap_or_default();
    for command in COMMANDS {
        if !readme.lines().take(FIRST_LINES).any(|line| line.trim() == command) {
            let what = format!("`{command}` is no line of the first {FIRST_LINES}");
            findings.push(Finding::new("README.md", 0, what));
        }
    }
    findings
}

fn inherits_lints(manifest: &str) -> bool {
    let mut lines = manifest.lines().map(str::trim).skip_while(|line| *line != "[lints]").skip(1);
    lines.next() == Some("workspace = true")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n";

    fn whats(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(ToString::to_string).collect()
    }

    fn readme() -> String {
        format!("# x\n\n```\n{}\n{}\n```\n", COMMANDS[0], COMMANDS[1])
    }

    #[test]
    fn a_whole_crate_passes() {
        let page = "# a\n\nText.\n";
        let files = [
            ("README.md", readme()),
            ("crates/a/Cargo.toml", MANIFEST.to_owned()),
            ("crates/a/README.md", page.to_owned()),
            ("crates/a/CHANGELOG.md", page.to_owned()),
        ];
        let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        assert_eq!(whats(&files), Vec::<String>::new());
    }

    #[test]
    fn lints_that_are_not_inherited_are_found() {
        for manifest in
            ["[package]\n", "[lints]\nworkspace = false\n", "[lints.rust]\nworkspace = true\n"]
        {
            assert_eq!(
                whats(&[("README.md", &readme()), ("xtask/Cargo.toml", manifest)]).len(),
                1,
                "{manifest}"
            );
        }
    }

    #[test]
    fn a_missing_page_and_a_mere_heading_are_found() {
        let found = whats(&[
            ("README.md", &readme()),
            ("crates/a/Cargo.toml", MANIFEST),
            ("crates/a/README.md", "# a\n"),
        ]);
        assert_eq!(
            found,
            ["crates/a/README.md: missing or empty", "crates/a/CHANGELOG.md: missing or empty"]
        );
    }

    #[test]
    fn commands_too_far_down_or_changed_are_found() {
        assert_eq!(whats(&[]).len(), 2);
        assert_eq!(whats(&[("README.md", &format!("{}{}", "\n".repeat(40), readme()))]).len(), 2);
        assert_eq!(whats(&[("README.md", "cargo test --all\ncargo run --release\n")]).len(), 2);
    }
}
